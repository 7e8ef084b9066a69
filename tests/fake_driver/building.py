"""Builds the pretended libraries, once for each state of their sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "source"
FLAGS = (
    *("-shared", "-fPIC", "-O2", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"),
    "-fvisibility=hidden",
    "-pthread",
    "-Wl,-Bsymbolic",  # as in the real one, no call within the library can be caught from outside
)
SHARED = ("state.c", "execution.c", "clock.c")
LIBRARIES = {
    "libcuda.so.1": (
        "process.c",
        "memory.c",
        "pools.c",
        "streams.c",
        "kernels.c",
        "graphs.c",
        "checkpoint.c",
        "entries.c",
        "proc_address.c",
    ),
    "libnvidia-ml.so.1": ("nvml.c", "nvml_processes.c", "nvml_power.c", "nvml_links.c", "nvml_events.c", "nvml_mig.c"),
    "libfakecontrol.so": ("control.c",),
    "libfakeclock.so": ("preloaded.c",),
}


def what_is_missing() -> str:
    """Why the libraries cannot be built here; empty when they can."""
    return "" if shutil.which("gcc") else "the pretended driver needs gcc, which is not installed"


def build(cache: Path | None = None) -> Path:
    """The folder with the libraries; several processes may ask at once."""
    digest = hashlib.sha256()
    for path in (Path(__file__), *sorted(SOURCE.iterdir())):
        digest.update(path.read_bytes())
    root = cache or Path(tempfile.gettempdir()) / f"millpond-fake-driver-{os.getuid()}"
    folder = root / digest.hexdigest()[:16]
    if folder.exists():
        return folder
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=root))
    for library, sources in LIBRARIES.items():
        files = [str(SOURCE / name) for name in (*SHARED, *sources)]
        # The name inside the library is what makes it stand in for the real one in a program linked against that.
        command = ["gcc", *FLAGS, f"-Wl,-soname,{library}", "-o", str(fresh / library), *files]
        subprocess.run(command, check=True)
    (fresh / "libcuda.so").symlink_to("libcuda.so.1")
    try:
        fresh.rename(folder)
    except OSError:
        shutil.rmtree(fresh)  # somebody else was first
    return folder


def compile_program(source: str, libraries: Path, target: Path) -> Path:
    """A C program linked against the pretended driver."""
    linked = (f"-L{libraries}", "-lcuda", "-Wl,--allow-shlib-undefined", "-pthread")
    command = ["gcc", "-O2", "-D_GNU_SOURCE", "-x", "c", "-", "-o", str(target), *linked]
    subprocess.run(command, input=source, text=True, check=True)
    return target
