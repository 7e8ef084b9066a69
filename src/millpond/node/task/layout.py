"""Lay out snapshots of folders as files: protected, and opened without ever following a link.

Standard library alone, as this is also part of the program that carries files into pods (``node.carrier``), which old
releases of Python 3 have to understand.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

READABLE = 0o555
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def laid_out(listed: Mapping[str, Any], folder: Path) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """Every file of a snapshot with its place, whose folder is there; behind the last, the links are made.

    Links come last, so that no file is ever written through one.

    Raises:
        OSError: the disk is full, or a path leads out of the folder.
    """
    for entry in listed["files"]:
        place = below(folder, entry["path"])
        place.parent.mkdir(parents=True, exist_ok=True)
        yield entry, place
    for entry in listed["links"]:
        place = below(folder, entry["path"])
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(entry["target"])


def mode_of(entry: Mapping[str, Any]) -> int:
    """The rights of a file of a snapshot."""
    return 0o755 if entry["executable"] else 0o644


def below(folder: Path, path: str) -> Path:
    """A place in a folder. The server has checked the path; a damaged list must not lead out all the same."""
    if path.startswith("/") or ".." in path.split("/"):
        raise OSError(errno.EINVAL, f"the snapshot has the path {path!r}", str(folder))
    return folder / path


def open_new(place: Path, mode: int) -> BinaryIO:
    """A file to be written from its beginning, never through a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    return os.fdopen(os.open(place, flags, mode), "wb")


def open_regular(folder: Path, path: str) -> BinaryIO | None:
    """A regular file below a folder that others can write to, reached without a link; None when there is none, or it
    may not be read.
    """
    try:
        return reach_regular(folder, path)
    except (OSError, ValueError):
        return None


def reach_regular(folder: Path, path: str) -> BinaryIO | None:
    """A regular file as by ``open_regular``; None when something else is there.

    From folder to folder, as a task may put a link to something else where a file was, while we look.

    Raises:
        OSError, ValueError: there is none, or it may not be read.
    """
    *above, name = path.split("/")
    handle = os.open(folder, _FOLDER)
    try:
        for part in above:
            # One open at a time: a task can nest folders deeper than the server may open files.
            inner = os.open(part, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
        # Not blocking: opening a pipe would wait for its other end.
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=handle)
    finally:
        os.close(handle)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        return None
    return os.fdopen(opened, "rb")


def protect(folder: Path) -> None:
    """Take the right to write away, so that no job changes by mistake what others read."""
    for above, _, files in os.walk(folder):
        for name in files:
            path = Path(above, name)
            if not path.is_symlink():
                path.chmod(READABLE if path.stat().st_mode & 0o100 else 0o444)
    for above, _, _ in os.walk(folder, topdown=False):
        if Path(above) != folder:  # which has yet to be renamed
            Path(above).chmod(READABLE)
