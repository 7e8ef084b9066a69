"""Files that tasks write to while we read them: each byte once, and anew when a file was replaced or cut; and the
reports in them (``millpond.job.report``)."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from millpond.server.storage.files.outputs import OpenedFile, Reported, open_below, reported_values

PIECE: Final = 2**20


def fresh_reports(file: GrowingFile, until: float = math.inf, *, last_bytes: int | None = None) -> Iterator[Reported]:
    """The reports in lines that came since the last time; a last line that is not whole is left for later.

    Args:
        until: an instant of ``time.monotonic`` at which to stop.
        last_bytes: of what is more than that, the end.
    """
    opened = file.opened()
    if opened is None:
        return
    with opened.file:  # up to what was there: a task may write faster than we read
        if last_bytes is not None and opened.size - file.offset > last_bytes:
            file.offset = opened.size - last_bytes
            opened.file.seek(file.offset)
        while file.offset < opened.size and time.monotonic() <= until:
            data = opened.file.read(min(PIECE, opened.size - file.offset))
            end = data.rfind(b"\n") + 1
            if not end:
                if len(data) == PIECE:  # a line without end is no report
                    file.offset += PIECE
                    continue
                return
            file.offset += end
            opened.file.seek(file.offset)
            for plain in _parsed(data[: end - 1].split(b"\n")):
                report = reported_values(plain)
                if report is not None:
                    yield report


def _parsed(lines: list[bytes]) -> Iterator[Any]:
    """Lines as JSON: all together, which is several times faster, or one by one where any is none."""
    try:
        found = json.loads(b"[" + b",".join(lines) + b"]")
        if len(found) == len(lines):
            yield from found
            return
    except (ValueError, RecursionError):
        pass
    for line in lines:
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            continue


class GrowingFile:
    """One file below a folder that a task can write to; links are never followed.

    Attributes:
        offset: of the first byte that was not consumed.
        restarts: how often it began anew.
    """

    def __init__(self, folder: Path, path: str) -> None:
        self._folder = folder
        self._path = path
        self._identity = ""
        self.offset = 0
        self.restarts = 0

    def opened(self) -> OpenedFile | None:
        """The file as it is now; None where there is none, or nothing behind the offset. To be closed by the caller."""
        found = open_below(self._folder, self._path)
        if found is None:
            return None
        identity = found.version.partition("-")[0]
        if identity != self._identity or found.size < self.offset:
            self.restarts += bool(self._identity)
            self._identity, self.offset = identity, 0
        if found.size == self.offset:
            found.file.close()
            return None
        found.file.seek(self.offset)
        return found
