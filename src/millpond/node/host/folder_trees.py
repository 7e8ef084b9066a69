"""Walk and remove folders that tasks can write to, whatever tasks have made of them.

A task can nest folders deeper than Python recurses and than a path may be long, take rights away, and put a link where
a folder was while we look. So this goes one step at a time: down by a name in the open folder, never through a link, up
by ``..``, which has to be where it came from.

Standard library alone, as this is also part of the program that carries files into pods (``node.carrier``), which old
releases of Python 3 have to understand.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

LONGEST_PATH = 4_000
"""Characters; the kernel takes 4,095 bytes with the folder above."""
_TOO_LONG = "a path of more characters"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_ALL_RIGHTS = 0o700


class Entry(NamedTuple):
    """Something in a tree: a file, a folder, a link.

    Attributes:
        path: from the top, the parts divided by ``/``; None: longer than ``LONGEST_PATH``, no program can open it so.
        status: its own, never that of what a link leads to.
        name: in the folder that it lies in.
        above: a descriptor of that folder, open until the next entry.
    """

    path: str | None
    status: os.stat_result
    name: str
    above: int


def _let_be(path: str, error: OSError) -> None:
    """What cannot be looked into is left out."""


def entries_below(top: Path, unreadable: Callable[[str, OSError], None] = _let_be) -> Iterator[Entry]:
    """All that lies below a folder, in no order; nothing where there is no folder.

    What vanishes or may not be looked at is left out, and the rest of a tree that is moved meanwhile.

    Args:
        unreadable: called with the path of each folder that cannot be looked into, and why.
    """
    try:
        place = _Place(top, opens_up=False)
    except OSError as error:
        unreadable("", error)
        return
    with closing(place):
        paths: list[str | None] = [""]
        waiting: list[list[str]] = []
        while True:
            folders = []
            for name, status in _listed(place.handle):
                if stat.S_ISDIR(status.st_mode):
                    folders.append(name)
                yield Entry(_joined(paths[-1], name), status, name, place.handle)
            waiting.append(folders)
            try:
                if not _go_on(place, paths, waiting, unreadable):
                    return
            except OSError as error:
                unreadable(paths[-1] or _TOO_LONG, error)
                return


def remove_tree(top: Path) -> None:
    """Remove a folder and all below it, also where rights were taken away; links go, and what they lead to stays.

    Raises:
        OSError: it is no folder, or something in it cannot be removed.
    """
    place = _Place(top, opens_up=True)
    with closing(place):
        names: list[str] = []
        waiting = [_without_files(place.handle)]
        while waiting:
            if waiting[-1]:
                names.append(waiting[-1].pop())
                place.down(names[-1])
                waiting.append(_without_files(place.handle))
                continue
            waiting.pop()
            if names:
                place.up()
                os.rmdir(names.pop(), dir_fd=place.handle)
    top.rmdir()


class _Place:
    """Where one is in a tree: a folder that is open, and the way back.

    Args:
        opens_up: gives its owner all rights to each folder.

    Attributes:
        handle: of the folder.
    """

    def __init__(self, top: Path, opens_up: bool) -> None:
        self._opens_up = opens_up
        self._above: list[tuple[int, int]] = []
        self.handle = _opened(str(top), None, opens_up)

    def down(self, name: str) -> None:
        """Into a folder in it.

        Raises:
            OSError: it is none, may not be read, or has no way back.
        """
        inner = _opened(name, self.handle, self._opens_up)
        here = _identity(os.fstat(self.handle))
        try:
            if _identity(os.stat("..", dir_fd=inner)) != here:
                raise _moved()
        except OSError:
            os.close(inner)
            raise
        self._above.append(here)
        os.close(self.handle)
        self.handle = inner

    def up(self) -> None:
        """Back.

        Raises:
            OSError: it lies elsewhere now.
        """
        outer = os.open("..", _FOLDER, dir_fd=self.handle)
        os.close(self.handle)
        self.handle = outer
        if _identity(os.fstat(outer)) != self._above.pop():
            raise _moved()

    def close(self) -> None:
        os.close(self.handle)


def _go_on(
    place: _Place,
    paths: list[str | None],
    waiting: list[list[str]],
    unreadable: Callable[[str, OSError], None],
) -> bool:
    """Go to the next folder that is waiting; false when none is.

    Raises:
        OSError: there is no way back up.
    """
    while True:
        if not waiting[-1]:
            waiting.pop()
            if not waiting:
                return False
            paths.pop()
            place.up()
            continue
        name = waiting[-1].pop()
        path = _joined(paths[-1], name)
        try:
            place.down(name)
        except OSError as error:
            unreadable(path or _TOO_LONG, error)
            continue
        paths.append(path)
        return True


def _listed(handle: int) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(handle) as found:
        for each in found:
            try:
                yield each.name, each.stat(follow_symlinks=False)
            except OSError:
                continue


def _without_files(handle: int) -> list[str]:
    """Remove what is no folder from a folder; the names of the others."""
    folders = []
    with os.scandir(handle) as found:
        for each in list(found):
            if each.is_dir(follow_symlinks=False):
                folders.append(each.name)
            else:
                os.unlink(each.name, dir_fd=handle)
    return folders


def _opened(name: str, above: int | None, opens_up: bool) -> int:
    if opens_up:
        found = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        try:
            if os.fstat(found).st_mode & _ALL_RIGHTS != _ALL_RIGHTS:
                Path(f"/proc/self/fd/{found}").chmod(_ALL_RIGHTS)
        finally:
            os.close(found)
    return os.open(name, _FOLDER, dir_fd=above)


def _joined(above: str | None, name: str) -> str | None:
    if above is None or len(above) + len(name) >= LONGEST_PATH:
        return None
    return f"{above}/{name}" if above else name


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _moved() -> OSError:
    return OSError(errno.ESTALE, "a folder was moved while it was looked through")
