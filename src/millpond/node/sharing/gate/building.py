"""Builds the gate's library on the node that uses it, once for each version of its sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
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
    "-fstack-protector-strong",
    "-U_FORTIFY_SOURCE",
    "-D_FORTIFY_SOURCE=2",
    "-Wl,-z,relro,-z,now,-z,noexecstack,-z,defs",
    "-Wl,-Bsymbolic",  # the gate's own functions, whatever else is preloaded and has the same names
)

# Libraries of their own in C libraries before 2.34, and empty in later ones.
_LIBRARIES = ("-Wl,--no-as-needed", "-l:libdl.so.2", "-l:libpthread.so.0")
_COMPILERS = ("gcc", "cc", "clang")
_BUILD_TIMEOUT_S = 120
_building = threading.Lock()


def library(cache: Path) -> Path:
    """The library, built if it is not in the cache yet. Several processes may ask at once; threads wait for the first.

    Raises:
        UnavailableError: there is no compiler, or it fails.
    """
    source = Path(str(resources.files("millpond"))) / "native" / "gate"
    files = sorted(source.rglob("*.[ch]"))
    digest = hashlib.sha256(" ".join((*FLAGS, *_LIBRARIES)).encode())
    for file in files:
        digest.update(file.read_bytes())
    built = cache / f"gate-{digest.hexdigest()[:16]}" / LIBRARY
    with _building:
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
                [
                    *(compiler, *FLAGS, f"-I{folder}", "-include", str(folder / "glibc_versions.h")),
                    *("-o", str(fresh), *map(str, sources), *_LIBRARIES),
                ],
                check=True,
                capture_output=True,
                text=True,
                timeout=_BUILD_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(
                f"the library that keeps tasks to their part of a device cannot be built: {compiler} takes longer than "
                f"{_BUILD_TIMEOUT_S} s",
                "try again when this machine has less to do",
            ) from error
        except subprocess.CalledProcessError as error:
            said = error.stderr.strip().splitlines() or ["nothing"]
            error_line = next((line for line in said if "error" in line), said[0])
            raise UnavailableError(
                f"the library that keeps tasks to their part of a device cannot be built: {compiler} says {error_line}",
                "see that the compiler and the C library's headers (libc6-dev) are installed",
            ) from error
        target.parent.mkdir(exist_ok=True)
        with fresh.open("rb") as file:
            os.fsync(file.fileno())  # what has its name is used unchecked, after a power cut too
        fresh.replace(target)
