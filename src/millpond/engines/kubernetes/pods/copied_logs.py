"""A task's log as it is copied from its pod: what of the cluster's answers is not here yet, and how far it has come.

Lines come with the time at which they were written. After a cut, or a restart of the server, the cluster is asked for
those since the second of the last one, and what was copied already is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from millpond.node.host.files import write_all, write_json
from millpond.node.task.output import MARK_EVERY_US, Mark, Stream
from millpond.node.task.records import TaskFiles

LONGEST_HELD: Final = 16_384
"""Bytes of a line that are held until its end comes: the longest that a container runtime writes in one piece."""


class LogFile:
    """A task's log on the server, with its index, and how far it has come.

    Attributes:
        last: the time of the last line that was copied, in nanoseconds since 1970; 0: none was.
        count: lines with that time.
    """

    def __init__(self, files: TaskFiles) -> None:
        files.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._log = os.open(files.log, flags, 0o600)
        self._index = os.open(files.log_index, flags, 0o600)
        self._place = files.log.with_suffix(".copied")
        self.last, self.count, size = _place_in(self._place)
        self._ahead = memoryview(_behind(files.log, size))
        """What was copied behind that place, as a server was killed before it had noted it."""
        self._marked_us = 0

    def take(self, lines: list[bytes]) -> None:
        """Append lines as the cluster sends them, each behind its time."""
        for line in lines:
            self.begin(line)
        self.note()

    def begin(self, line: bytes) -> None:
        """Append a line, or as much of it as has come; it is noted when all of it is here."""
        stamp, _, text = line.partition(b" ")
        at = _instant(stamp)
        if not at:
            return  # the kubelet's own words, on a container that is gone
        self.count = self.count + 1 if at == self.last else 1
        self.last = at
        with contextlib.suppress(OSError):  # what a full disk has no room for is lost, as of local tasks
            missing = self._missing_of(text)
            if missing == text:
                self._mark(at // 1000)
            write_all(self._log, missing)

    def go_on(self, text: bytes) -> None:
        """Append more of the line that was begun last."""
        with contextlib.suppress(OSError):
            write_all(self._log, self._missing_of(text))

    def note(self) -> None:
        """All lines that were begun are here: they are not asked for again."""
        with contextlib.suppress(OSError):
            write_json(self._place, [self.last, self.count, os.fstat(self._log).st_size - len(self._ahead)])

    def _missing_of(self, text: bytes) -> bytes:
        """What of a line is not in the log."""
        ahead, self._ahead = self._ahead, self._ahead[len(text) :]
        if text.startswith(bytes(ahead[: len(text)])):
            return text[len(ahead) :]
        self._ahead = memoryview(b"")
        return text

    def close(self) -> None:
        """Nothing more comes."""
        os.close(self._log)
        os.close(self._index)

    def _mark(self, time_us: int) -> None:
        if self._marked_us and time_us - self._marked_us < MARK_EVERY_US:
            return
        self._marked_us = time_us
        write_all(self._index, Mark(os.fstat(self._log).st_size, time_us, Stream.STDOUT).packed())


class NewLines:
    """Cuts an answer into lines, and has those copied that are not here yet.

    A line without an end, as of a program that draws a progress bar, is copied as it comes.
    """

    def __init__(self, target: LogFile) -> None:
        self._target = target
        self._last, self._copied = target.last, target.count
        self._rest = b""
        self._within, self._is_new, self._is_past = False, False, False

    def take(self, piece: bytes) -> None:
        """More of the answer."""
        if self._within:
            more, newline, piece = piece.partition(b"\n")
            if self._is_new:
                self._target.go_on(more + newline)
            if not newline:
                return
            self._close()
        whole, newline, self._rest = (self._rest + piece).rpartition(b"\n")
        if newline:
            self._target.take([line for text in whole.split(b"\n") if self._wanted(line := text + b"\n")])
        if len(self._rest) > LONGEST_HELD:
            self._within, self._is_new = True, self._wanted(self._rest)
            if self._is_new:
                self._target.begin(self._rest)
            self._rest = b""

    def end(self) -> None:
        """That was all."""
        if self._within:
            self._close()
        if self._rest and self._wanted(self._rest):
            self._target.begin(self._rest)  # not noted: it is asked for again, and what is missing of it then comes

    def _close(self) -> None:
        self._within = False
        if self._is_new:
            self._target.note()

    def _wanted(self, line: bytes) -> bool:
        if self._is_past:
            return True  # lines come in order, also where the clock of their node is set back
        at = _instant(line.partition(b" ")[0])
        self._is_past = at > self._last
        if at == self._last and self._copied:
            self._copied -= 1
            return False
        return at >= self._last


def _behind(path: Path, place: int) -> bytes:
    with path.open("rb") as file:
        file.seek(place)
        return file.read()


def _place_in(path: Path) -> tuple[int, int, int]:
    """``last`` and ``count`` of a log, and its size then."""
    try:
        last, count, size = json.loads(path.read_text())
        return int(last), int(count), int(size)
    except (OSError, ValueError, TypeError):
        return 0, 0, 0


def _instant(stamp: bytes) -> int:
    """Nanoseconds since 1970 of a time as Kubernetes writes it, with up to nine digits of a second."""
    try:
        text = stamp.decode("ascii")
        seconds, _, rest = text.partition(".")
        digits = rest.rstrip("Z").split("+")[0].split("-")[0]
        zone = text[len(seconds) + 1 + len(digits) :] if rest else ""
        whole = datetime.fromisoformat(seconds + (zone if rest else ""))
    except ValueError:
        return 0
    return int(whole.timestamp()) * 1_000_000_000 + int(digits.ljust(9, "0") if digits else 0)


def second_of(instant: int) -> str:
    return datetime.fromtimestamp(instant // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
