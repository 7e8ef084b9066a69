"""Instants as people write and read them, on this machine's clock."""

from __future__ import annotations

import datetime
from typing import Final

from millpond.model.errors import InvalidInputError

PRECISE_WIDTH: Final = 22
"""Characters of ``precise``."""


def of_date(text: str, option: str) -> float:
    """``2026-11-01`` or ``2026-11-01T08:00`` in seconds since 1970.

    Raises:
        InvalidInputError: it is neither.
    """
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInputError(f"{option} {text!r} is not a date", "write it as 2026-11-01") from error
    return found.astimezone().timestamp() if found.tzinfo is None else found.timestamp()


def of_past(text: str, option: str, now: float) -> float:
    """The same, or a length of time up to now, such as ``2h``.

    Raises:
        InvalidInputError: it is neither.
    """
    return max(_of_date_or_span(text, option, now, -1), 0.0)


def of_date_or_span(text: str, option: str, now: float) -> float:
    """The same, or a length of time from now, such as ``2h``.

    Raises:
        InvalidInputError: it is neither.
    """
    return _of_date_or_span(text, option, now, 1)


def _of_date_or_span(text: str, option: str, now: float, direction: int) -> float:
    from millpond.specs.errors import BadValueError
    from millpond.specs.quantities import seconds

    try:
        return now + direction * seconds(text)
    except BadValueError:
        pass
    try:
        return of_date(text, option)
    except InvalidInputError as error:
        remedy = "write 90m, 2h, 3d, or 2026-11-22T08:00"
        raise InvalidInputError(f"{option} {text!r} is neither a length of time nor a date", remedy) from error


def told(instant: float, *, seconds: bool = False) -> str:
    """``2026-11-22 08:00``, or with seconds."""
    local = datetime.datetime.fromtimestamp(instant, datetime.UTC).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}" if seconds else f"{local:%Y-%m-%d %H:%M}"


def precise(instant: float) -> str:
    """``2026-11-22 08:00:07.25``."""
    local = datetime.datetime.fromtimestamp(instant, datetime.UTC).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 10_000:02d}"
