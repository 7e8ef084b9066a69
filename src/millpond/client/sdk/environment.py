"""What of the caller's surroundings a command needs to find the programs and modules that it would find here."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterator
from pathlib import Path

CARRIED_VARIABLES = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG")
"""Variables of this shell or program that a command gets."""


def carried_environment() -> dict[str, str]:
    """Those of them that are set."""
    return {name: os.environ[name] for name in CARRIED_VARIABLES if name in os.environ}


def environment_for(engine: str) -> dict[str, str]:
    """Those of them that mean something where the jobs of a server run: in pods none does, as each has an image."""
    return {} if engine == "kubernetes" else carried_environment()


def module_path(sent_from: Path | None = None) -> str:
    """``PYTHONPATH`` by which another interpreter of the same environment finds what this one can import.

    Args:
        sent_from: a folder that is sent with the job; paths in it are meant there, relative to where the job runs.
    """
    return os.pathsep.join(_own_entries(sent_from))


def _own_entries(sent_from: Path | None) -> Iterator[str]:
    """Entries of ``sys.path`` that are not part of the interpreter or its installed packages."""
    installed = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    if site.ENABLE_USER_SITE:
        installed.add(Path(site.getusersitepackages()).resolve())
    for entry in dict.fromkeys(sys.path):
        path = Path(os.path.realpath(entry or "."))
        if not path.exists() or any(path.is_relative_to(prefix) for prefix in installed):
            continue
        if sent_from is not None and path.is_relative_to(sent_from.resolve()):
            yield str(path.relative_to(sent_from.resolve()))
        else:
            yield str(path)
