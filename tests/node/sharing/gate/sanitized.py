"""The gate as the compiler's sanitizers build it: what it does with memory that is not its own, or that the language
does not define, ends its program with a reason."""

from __future__ import annotations

import os
import subprocess
from importlib import resources
from pathlib import Path

from gated import GatedCard, Task

from fake_driver.driver import FakeDriver
from millpond.node.sharing.gate import building

BEFORE_THE_RUNTIME = ("c_library.c", "resolve.c")
"""Answer the sanitizers' own library while it makes itself ready, when memory cannot be looked after yet."""
RUNTIMES = {"address": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}
"""Of memory and what the language defines; of threads that touch the same without a lock."""
UNDER = {"address": (), "thread": ("setarch", "--addr-no-randomize")}
"""What programs run under: where threads are watched, there is a place in memory for whatever they map."""
OF_ALL = {"address": ("-fsanitize=undefined", "-fno-sanitize-recover=all"), "thread": ()}


class SanitizedCard(GatedCard):
    """Its programs have the sanitizers' libraries before the gate."""

    def __init__(self, driver: FakeDriver, folder: Path, kind: str) -> None:
        super().__init__(driver, _library(folder, kind), folder)
        self._runtimes = [str(_runtime(name)) for name in RUNTIMES[kind]]

    def slice(self, cap_mib: int = 1024, **settings: object) -> Task:
        """See ``GatedCard``."""
        task = super().slice(cap_mib, **settings)
        task.env["LD_PRELOAD"] = os.pathsep.join([*self._runtimes, task.env["LD_PRELOAD"]])
        task.env["ASAN_OPTIONS"] = "detect_leaks=0"  # programs may end with whatever they have
        return task


def what_is_missing(kind: str) -> str:
    """Why nothing can be built with these sanitizers here, or run; empty when it can."""
    missing = ", ".join(name for name in RUNTIMES[kind] if not _runtime(name).is_absolute())
    if missing:
        return f"gcc has no sanitizers: {missing} are not installed"
    env = {**os.environ, "LD_PRELOAD": os.pathsep.join(str(_runtime(name)) for name in RUNTIMES[kind])}
    runs = subprocess.run([*UNDER[kind], "true"], env=env, stderr=subprocess.DEVNULL, check=False).returncode == 0
    return "" if runs else "no program runs here with the sanitizers' libraries"


def _library(folder: Path, kind: str) -> Path:
    source = Path(str(resources.files("millpond"))) / "native" / "gate"
    flags = ("gcc", *building.FLAGS, "-g", f"-I{source}", *OF_ALL[kind])
    early, others = [], []
    for file in sorted(source.rglob("*.c")):
        (early if file.name in BEFORE_THE_RUNTIME else others).append(str(file))
    objects = folder / "objects"
    objects.mkdir()
    subprocess.run([*flags, "-c", *early], cwd=objects, check=True)
    subprocess.run([*flags, f"-fsanitize={kind}", "-c", *others], cwd=objects, check=True)
    target = folder / building.LIBRARY
    compiled = sorted(map(str, objects.iterdir()))
    subprocess.run([*flags, f"-fsanitize={kind}", "-o", str(target), *compiled, "-ldl"], check=True)
    return target


def _runtime(name: str) -> Path:
    """The library's file; the name itself where the compiler has none."""
    asked = ["gcc", f"-print-file-name={name}"]
    found = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    return found.resolve() if found.is_absolute() else found
