"""The reports of a task (``millpond.job.report``), each read once as its file grows."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from typing import Any

from millpond.server.jobs.curves.growing_files import PIECE, GrowingFile
from millpond.server.storage.files.outputs import Reported, reported_values


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
