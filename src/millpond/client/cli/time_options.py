"""Instants as people type them: a date, a time of day, a length of time from now or up to now, a date of another zone.

What names no zone is by the clock of this machine.
"""

from __future__ import annotations

import datetime
import re
import time
from typing import Final

import click

from millpond.model.errors import InvalidInputError

WRITTEN: Final = "2h, 14:30, 2026-11-22T08:00 or '2026-11-22 08:00 Europe/Berlin'"
"""How an instant to come may be written."""

_TIME_OF_DAY: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)


def parse_date(text: str, option: str) -> float:
    """``2026-11-01`` or ``2026-11-01T08:00`` in seconds since 1970.

    Raises:
        InvalidInputError: it is neither.
    """
    try:
        found = datetime.datetime.fromisoformat(text)
        return found.astimezone().timestamp() if found.tzinfo is None else found.timestamp()
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(f"{option} {text!r} is not a date", "write it as 2026-11-01") from error


def parse_past(text: str, option: str, now: float) -> float:
    """The same, or a length of time up to now, ``2h``, or a time of day, ``14:30``: the last one.

    Raises:
        InvalidInputError: it is none of these.
    """
    return max(_parse(text, option, now, -1), 0.0)


def parse_future(text: str, option: str, now: float) -> float:
    """The same, or a length of time from now, ``2h``, or a time of day, ``14:30``: the next one.

    Raises:
        InvalidInputError: it is none of these.
    """
    return _parse(text, option, now, 1)


def future(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Read an option with an instant to come, also with the name of a zone.

    A time of day is the next one after the begin, where the option ``begin`` is read before.
    """
    if text is None:
        return None
    from millpond.specs.errors import BadValueError
    from millpond.specs.zoned_times import instant

    now, name = time.time(), option.opts[0]
    if _TIME_OF_DAY.fullmatch(text.strip()) is not None:
        return parse_future(text, name, context.params.get("begin") or now)
    try:
        return instant(text, now)
    except BadValueError as error:
        if "no time zone" not in error.cause and text.strip().count(" ") > 1:
            raise InvalidInputError(f"{name} {error.cause}", error.hint) from error
    return parse_future(text, name, now)


def _parse(text: str, option: str, now: float, direction: int) -> float:
    from millpond.specs.calendar_spans import nearest_hour
    from millpond.specs.errors import BadValueError
    from millpond.specs.quantities import seconds

    if text.strip() == "now":
        return now
    if (hour := _TIME_OF_DAY.fullmatch(text.strip())) is not None:
        return nearest_hour(datetime.time(int(hour[1]), int(hour[2])), now, direction)
    try:
        return now + direction * seconds(text)
    except BadValueError:
        pass
    try:
        return parse_date(text, option)
    except InvalidInputError as error:
        remedy = "write 90m, 2h, 3d, 14:30, or 2026-11-22T08:00"
        raise InvalidInputError(f"{option} {text!r} is neither a length of time nor a date", remedy) from error
