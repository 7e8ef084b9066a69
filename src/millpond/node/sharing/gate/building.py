"""Builds the gate's library on the node that uses it, once for each version of its sources."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

from millpond.model.errors import UnavailableError

LIBRARY = "libmillpond-gate.so"
FLAGS = (
    "-shared",
    "-fPIC",
    "-O2",
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-Wall",
    "-Wextra",
    "-fvisibility=hidden",
    "-pthread",
    "-Wl,-z,defs",
)

_COMPILERS = ("gcc", "cc", "clang")
_BUILD_TIMEOUT_S = 120


def library(cache: Path) -> Path:
    """The library, built if it is not in the cache yet. Several processes may ask at once.

    Raises:
        UnavailableError: there is no compiler, or it fails.
    """
    source = Path(str(resources.files("millpond"))) / "native" / "gate"
    files = sorted(source.rglob("*.[ch]"))
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for file in files:
        digest.update(file.read_bytes())
    built = cache / f"gate-{digest.hexdigest()[:16]}" / LIBRARY
    if not built.exists():
        _build(source, [file for file in files if file.suffix == ".c"], built)
    return built


def _build(folder: Path, sources: list[Path], target: Path) -> None:
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise UnavailableError(
            "the library that keeps tasks to their part of a device cannot be built: no C compiler",
            "install gcc on this machine",
        )
    target.parent.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent.parent, prefix="gate-build-") as place:
        fresh = Path(place) / LIBRARY
        try:
            subprocess.run(
                [compiler, *FLAGS, f"-I{folder}", "-o", str(fresh), *map(str, sources), "-ldl"],
                check=True,
                capture_output=True,
                text=True,
                timeout=_BUILD_TIMEOUT_S,
            )
        except subprocess.SubprocessError as error:
            said = (getattr(error, "stderr", "") or str(error)).strip().splitlines() or ["nothing"]
            error_line = next((line for line in said if "error" in line), said[0])
            raise UnavailableError(
                f"the library that keeps tasks to their part of a device cannot be built: {compiler} says {error_line}",
                "see that the compiler and the C library's headers (libc6-dev) are installed",
            ) from error
        target.parent.mkdir(exist_ok=True)
        fresh.replace(target)
