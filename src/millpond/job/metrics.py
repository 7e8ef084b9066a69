"""Metrics: numbers that a task reports as it goes, one line of JSON for each report, appended to the task's file."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from typing import SupportsFloat

from millpond.model.errors import InvalidInputError

_VARIABLE = "MILLPOND_METRICS"
_warned = False


def report(*, step: SupportsFloat | None = None, **values: SupportsFloat) -> None:
    """Report metrics: ``report(loss=0.31, accuracy=0.9, step=100)``. Outside a job they are printed.

    ``pond metrics JOB`` shows them. Numbers and whatever converts to one (a tensor with one element) are taken; one
    that is not finite is kept as missing. A full disk loses reports, with one warning, and never ends the program.

    Args:
        step: the program's own count, for the horizontal axis.

    Raises:
        InvalidInputError: a value is no number.
    """
    numbers = {name: _number(name, value) for name, value in values.items()}
    count = None if step is None else _number("step", step)
    place = os.environ.get(_VARIABLE)
    if place is None:
        shown = [*(() if count is None else (f"step={count:g}",)), *(f"{name}={numbers[name]}" for name in numbers)]
        print(" ".join(shown), flush=True)
        return
    line = json.dumps({"at": time.time(), "step": count, "values": numbers}, separators=(",", ":"))
    try:
        # One write to a file that is only appended to: several processes of a task may report.
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, line.encode() + b"\n")
        finally:
            os.close(handle)
    except OSError as error:
        _warn(error)


def _number(name: str, value: SupportsFloat) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"the metric {name} is no number: {value!r}", "report numbers") from error
    return number if math.isfinite(number) else None


def _warn(error: OSError) -> None:
    global _warned
    if not _warned:
        _warned = True
        print(f"millpond: metrics are lost ({error.strerror})", file=sys.stderr, flush=True)
