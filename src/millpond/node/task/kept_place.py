"""Keep the place of a task whose program has failed, so that its user can look inside: the supervisor's side. Standard
library only.

A sandbox and a container end with their first program. So that of a task whose place may be kept is a shell
(``held``), which runs the program and stays when that has failed by itself: it reports the exit code through a named
pipe in the attempt's own folder and waits there until all is killed. Notices go to the whole process group: the program
hears them as ever, and the shell learns that an end was asked for, after which nothing is kept. The pipe is the job's
own; a task that tampers with it ends, or keeps, itself alone. Where the shell is killed with its program (want of
memory, a sandbox that fails), there is nothing left to keep.

That a place is kept stands in the task's record. The living engine is notified by a datagram (``announce``).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from millpond.node.host.files import announce_by_signal, short_name
from millpond.node.task.identity import Identity

ANNOUNCEMENTS: Final = "kept.sock"
"""Where in the state directory an engine hears that places are kept."""
MOST_ANNOUNCED: Final = 1_000
"""Bytes."""

_CODE = re.compile(rb"([0-9]{1,3})\n")
_MOST_READ = 64
_NO_CODE = 1
_TAKEN_WITHIN_S = 1.0
_HOLDER = """\
told=
trap told=1 TERM INT HUP QUIT USR1 USR2 {notice}
report=$1
shift
"$@"
code=$?
if [ "$code" -ne 0 ] && [ -z "$told" ] && [ -p "$report" ]; then
    echo "$code" >"$report"
    while [ -z "$told" ] && [ -p "$report" ]; do
        read -r _ <"$report"
    done
fi
exit "$code"
"""
"""Opening the pipe again waits for a writer, and there is none."""


def held(argv: Sequence[str], report: Path, notice_signal: str) -> list[str]:
    """The command that runs ``argv`` and stays when that has failed by itself; its exit code is that of ``argv``.

    Args:
        report: the pipe of its ``FailureReport``.
        notice_signal: name of the signal that asks ``argv`` to end.
    """
    script = _HOLDER.format(notice=int(signal.Signals[notice_signal]))
    return ["/bin/sh", "-c", script, "sh", str(report), *argv]


class FailureReport:
    """Where the shell above a program says that it has failed; announced with SIGIO.

    Args:
        path: of the pipe, which is made.
        identity: whom the shell runs as; None: as we do.

    Raises:
        OSError: there is no room for it, or another user's file in its place.
    """

    def __init__(self, path: Path, identity: Identity | None) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        # In a folder that may be the job's: what is opened need not be what was made.
        self._pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        if not stat.S_ISFIFO(os.fstat(self._pipe).st_mode):
            os.close(self._pipe)
            raise FileExistsError(f"{path} is no pipe")
        if identity is not None:
            os.fchown(self._pipe, identity.uid, -1)
        announce_by_signal(self._pipe)

    def take(self) -> int | None:
        """The exit code that was reported, 1 to 255; None while none was."""
        try:
            code_text = os.read(self._pipe, _MOST_READ)
        except BlockingIOError:
            return None
        if not code_text:
            return None
        found = _CODE.fullmatch(code_text)
        code = _NO_CODE if found is None else int(found[1])
        return code if 1 <= code <= 255 else _NO_CODE

    def close(self) -> None:
        """Nothing more is read, and the pipe is gone."""
        os.close(self._pipe)
        with contextlib.suppress(OSError):
            self._path.unlink()


def announce(record: Path, task: Mapping[str, Any]) -> None:
    """Notify the engine, if one lives, that a place is kept; one that comes later finds it in the record.

    Args:
        record: path of the task's record.
        task: what identifies it.
    """
    message = json.dumps({name: task[name] for name in ("job", "attempt", "task")}).encode()
    engine = record.parents[3] / ANNOUNCEMENTS
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_TAKEN_WITHIN_S)
        with short_name(engine) as name:
            sender.sendto(message, name)
