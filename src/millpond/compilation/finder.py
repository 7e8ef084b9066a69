"""Has the compiled modules of the scheduler imported in place of their sources."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

from millpond.compilation.sources import NAME, PACKAGE, SUFFIX, folder

CHOICE: Final = "MILLPOND_CORE"
"""Variable of the environment: ``interpreted`` leaves what was compiled aside, ``compiled`` insists on it."""


class CompiledModules(MetaPathFinder):
    """Finds compiled modules in a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module of the scheduler is; None for all others, and for those that are not compiled."""
        if not fullname.startswith(f"{PACKAGE}.") and fullname != f"{NAME}__mypyc":
            return None
        file = self.path / (fullname.replace(".", "/") + SUFFIX)
        return spec_from_file_location(fullname, file) if file.exists() else None


def use_compiled() -> None:
    """From now on modules of the scheduler are imported as compiled, where they are.

    Raises:
        ImportError: the environment insists on it, and they are not.
    """
    choice = os.environ.get(CHOICE, "")
    if choice == "interpreted" or is_used():
        return
    path = find_compiled()
    if path is not None:
        sys.meta_path.insert(0, CompiledModules(path))
    elif choice == "compiled":
        raise ImportError(f"{CHOICE} is {choice}, and nothing is compiled for these sources; `pond compile` does that")


def find_compiled() -> Path | None:
    """Where the scheduler is as compiled from the sources of now; None where it is not.

    Nor is it where others than this user and root could have put code.
    """
    path = folder()
    try:
        status = path.stat()
    except OSError:
        return None
    return path if status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022 else None


def is_used() -> bool:
    """Whether this process imports modules of the scheduler as compiled."""
    return any(isinstance(finder, CompiledModules) for finder in sys.meta_path)
