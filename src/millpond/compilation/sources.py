"""What is compiled, and where the result is kept: in a folder that is named after a digest of the sources, so that what
was compiled from others is never used."""

from __future__ import annotations

import hashlib
import os
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
"""The package ``millpond``."""

PACKAGE: Final = "millpond.scheduling"

READ: Final = ("model", "scheduling", "compilation")
"""Folders on whose sources the result depends."""

NAME: Final = "millpond_core"
"""Of the library that holds all compiled modules."""

SUFFIX: Final = str(sysconfig.get_config_var("EXT_SUFFIX"))

_KERNEL: Final = re.compile(r"^@(lean_)?kernel$", re.MULTILINE)
_INTERPRETED: Final = {
    "explaining/": "answers questions, and no decision waits for it",
    "tenancy/cells/": "its copies are made without __init__, and compiled ones cannot be",
    "settings.py": "its records are passed to other processes, and compiled ones cannot be pickled",
    "placement/shapes.py": "its records are found again by weak references, and compiled ones have none",
    "feasibility/request_classes.py": "as those of shapes",
}
"""What is left as it is, and why. So are kernels, which numba compiles, and packages themselves."""


def cache_root() -> Path:
    """Where compiled code is kept: of the scheduler, and of its kernels."""
    root = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "millpond"


def modules() -> list[Path]:
    """The files that are compiled, relative to the folder of ``millpond``."""
    folder = ROOT / "scheduling"
    return [
        path.relative_to(ROOT.parent)
        for path in sorted(folder.rglob("*.py"))
        if path.name != "__init__.py" and not _stays_interpreted(path.relative_to(folder).as_posix(), path.read_text())
    ]


def _stays_interpreted(name: str, text: str) -> bool:
    return name.startswith(tuple(_INTERPRETED)) or _KERNEL.search(text) is not None


def sources() -> Iterator[Path]:
    """All files that are read to compile them."""
    yield ROOT / "__init__.py"
    for name in READ:
        yield from sorted((ROOT / name).rglob("*.py"))


def folder() -> Path:
    """Where what was compiled from the sources of now is, or would be."""
    digest = hashlib.sha256(SUFFIX.encode())
    for path in sources():
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
        digest.update(path.read_bytes())
    return cache_root() / f"core-{digest.hexdigest()[:16]}"
