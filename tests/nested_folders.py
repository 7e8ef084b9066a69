"""Folders nested further than any path leads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millpond.node.host.folder_trees import remove_tree


@contextmanager
def nested(top: Path, depth: int) -> Iterator[Path]:
    """A folder with so many in each other below it, and a file in the last; removed at the end, which pytest cannot."""
    top.mkdir(exist_ok=True)
    try:
        handle = os.open(top, os.O_RDONLY)
        for _ in range(depth):
            os.mkdir("d", dir_fd=handle)
            inner = os.open("d", os.O_RDONLY, dir_fd=handle)
            os.close(handle)
            handle = inner
        file = os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=handle)
        os.write(file, b"x" * 5_000)
        os.close(file)
        os.close(handle)
        yield top
    finally:
        if top.exists():
            remove_tree(top)
