"""The gate as the compiler's sanitizers build it: what it does with memory that is not its own, or that the language
does not define, ends its program with a reason."""

from __future__ import annotations

import os
import subprocess
from importlib import resources
from pathlib import Path

from gated import GatedCard, Task

from millpond.node.sharing.gate import building

BEFORE_THE_RUNTIME = ("c_library.c", "resolve.c")
"""Answer the sanitizers' own library while it makes itself ready, when memory cannot be looked after yet."""
RUNTIMES = ("libasan.so", "libubsan.so")


class SanitizedCard(GatedCard):
    """Its programs have the sanitizers' libraries before the gate."""

    def slice(self, cap_mib: int = 1024, **settings: object) -> Task:
        """See ``GatedCard``."""
        task = super().slice(cap_mib, **settings)
        task.env["LD_PRELOAD"] = os.pathsep.join([*map(str, map(_runtime, RUNTIMES)), task.env["LD_PRELOAD"]])
        task.env["ASAN_OPTIONS"] = "detect_leaks=0"  # programs may end with whatever they have
        return task


def what_is_missing() -> str:
    """Why nothing can be built with sanitizers here; empty when it can."""
    missing = ", ".join(name for name in RUNTIMES if not _runtime(name).is_absolute())
    return missing and f"gcc has no sanitizers: {missing} are not installed"


def sanitized_library(folder: Path) -> Path:
    """Built there from the gate's sources."""
    source = Path(str(resources.files("millpond"))) / "native" / "gate"
    flags = ("gcc", *building.FLAGS, "-g", f"-I{source}", "-fsanitize=undefined", "-fno-sanitize-recover=all")
    early, others = [], []
    for file in sorted(source.rglob("*.c")):
        (early if file.name in BEFORE_THE_RUNTIME else others).append(str(file))
    objects = folder / "objects"
    objects.mkdir()
    subprocess.run([*flags, "-c", *early], cwd=objects, check=True)
    subprocess.run([*flags, "-fsanitize=address", "-c", *others], cwd=objects, check=True)
    target = folder / building.LIBRARY
    compiled = sorted(map(str, objects.iterdir()))
    subprocess.run([*flags, "-fsanitize=address", "-o", str(target), *compiled, "-ldl"], check=True)
    return target


def _runtime(name: str) -> Path:
    """The library's file; the name itself where the compiler has none."""
    asked = ["gcc", f"-print-file-name={name}"]
    found = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    return found.resolve() if found.is_absolute() else found
