"""What a task's user named for its sandbox, opened with their rights. Standard library only.

The server's account makes the sandbox, and would find the way to each mount with its own rights. So the supervisor
opens what the user named as the task's account, at the last moment, and the sandbox mounts what was opened. Where a
link was put on the way since the path was checked, the task does not start.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import Final

from millpond.node.task.identity import Identity, acting_as

_BY_PATH: Final = {"--bind": "--bind-fd", "--ro-bind": "--ro-bind-fd"}
_IF_THERE: Final = "--ro-bind-try"


class NamedMounts:
    """The mounts of one sandbox, open as long as the ``with`` block lasts.

    Args:
        wrapped: the command that makes the sandbox.
        named: sources of mounts that the user named; what is mounted if it is there is among them anyway.
        identity: whom the task runs as; None: as we do.
        takes_open: what makes the sandbox mounts what is open; else the paths are only checked here.

    Attributes:
        command: the command that mounts what was opened.
        handles: the descriptors that it is to inherit.
    """

    def __init__(
        self, wrapped: Sequence[str], named: Collection[str], identity: Identity | None, takes_open: bool
    ) -> None:
        self.command = list(wrapped)
        self.handles: tuple[int, ...] = ()
        self._paths: tuple[str, ...] = ()
        self._named = frozenset(named)
        self._identity = identity
        self._takes_open = takes_open
        self._open = ExitStack()

    def __enter__(self) -> NamedMounts:
        """Open them.

        Raises:
            OSError: the task's account cannot get to one of them, or a link leads elsewhere now.
        """
        with self._open:
            with acting_as(self._identity):
                self._open_each()
            for path, handle in zip(self._paths, self.handles, strict=True):
                if os.readlink(f"/proc/self/fd/{handle}") != path:  # noqa: PTH115 - no path like others
                    raise OSError(errno.ELOOP, "a link was put there since it was checked", path)
            self._open = self._open.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _open_each(self) -> None:
        words, end = self.command, self.command.index("--")
        made: list[str] = []
        at = 0
        while at < end:
            option, source = words[at], words[at + 1]
            if option == _IF_THERE:
                handle = self._opened(source, required=False)
                made += [] if handle is None else self._mount("--ro-bind", source, handle, words[at + 2])
                at += 3
            elif option in _BY_PATH and source in self._named:
                made += self._mount(option, source, self._opened(source), words[at + 2])
                at += 3
            else:
                made.append(option)
                at += 1
        self.command = [*made, *words[end:]]

    def _mount(self, option: str, source: str, handle: int | None, place: str) -> list[str]:
        return [_BY_PATH[option], str(handle), place] if self._takes_open else [option, source, place]

    def _opened(self, path: str, *, required: bool = True) -> int | None:
        try:
            handle = os.open(path, os.O_PATH)
        except OSError:
            if required:
                raise
            return None
        self._open.callback(os.close, handle)
        self.handles += (handle,)
        self._paths += (path,)
        return handle
