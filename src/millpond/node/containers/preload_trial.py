"""Try whether a library of the machine can be loaded into the programs of an image, by the image's own loader.

Where it cannot, a task in the image would run without what the library does, or not at all: an image may be older than
the C library that the other wants, or have another one altogether (musl).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from millpond.model.errors import UnavailableError
from millpond.node.containers.container import ask
from millpond.node.containers.detection import Containers
from millpond.node.containers.images import LocalImage
from millpond.node.sandbox.sandbox import Mount

_LOADERS: Final = ("lib64/ld-linux-*.so.*", "lib/ld-linux-*.so.*")
"""Of the GNU C library; the interface of each processor fixes the path, so it is that of the machine."""
_WITHIN_S: Final = 60.0
_REMEDY: Final = "pond doctor says whether containers start"
_NO_VERSION: Final = "not found (required by"
_NO_LIBRARY: Final = "error while loading shared libraries"


def trouble_with_preload(containers: Containers, image: LocalImage, library: Path) -> str:
    """Why the programs of an image cannot load a library; empty when they can. Runs a container: takes a second.

    Raises:
        UnavailableError: the image could not be asked.
    """
    loader = next((path for pattern in _LOADERS for path in sorted(Path("/").glob(pattern))), None)
    if loader is None:
        raise UnavailableError("this machine has no loader of the GNU C library", "use one that has")
    argv = [str(loader), "--list", str(library)]
    command = containers.runtime.try_out(image.place, Mount(library, writable=False), argv)
    env = {**containers.env, "PATH": containers.env.get("PATH", os.defpath)}
    try:
        done = ask(command, env, _WITHIN_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"its image could not be looked at: {error}", _REMEDY) from error
    said = [line.strip() for line in (*done.stdout.splitlines(), *done.stderr.splitlines())]
    wrong = next((line for line in said if _NO_VERSION in line), "")
    if done.returncode == 0:
        return f"the C library of its image is too old: {wrong}" if wrong else ""
    if wrong := next((line for line in said if _NO_LIBRARY in line), ""):
        return f"its image lacks what the library needs: {wrong}"
    if any(str(loader) in line for line in said):
        return f"its image has no GNU C library: there is no {loader} in it"
    why = said[-1] if said else f"exit code {done.returncode}"
    raise UnavailableError(f"its image could not be looked at: {why}", _REMEDY)
