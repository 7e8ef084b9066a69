"""Where this Millpond and its Python are installed: tasks that call ``millpond.job`` need them wherever they lie."""

from __future__ import annotations

import functools
import sys
from pathlib import Path


@functools.cache
def own_installation() -> tuple[Path, ...]:
    """Absolute paths, free of links, in their order: the package, its environment and the Python below that."""
    package = Path(__file__).resolve().parents[2]
    return tuple(sorted({Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), package}))
