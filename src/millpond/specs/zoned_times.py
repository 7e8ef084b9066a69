"""Instants as people write them: ``2026-12-01 18:00 Europe/Berlin``, ``2026-12-01T18:00+01:00``, or a span: ``6h``.

A zone is asked for: a file is read on the machine of its author and on the server, whose clocks may show other hours.
An hour that the clock of a place skips in spring comes as if the clock had not been put forward yet; of one that it
shows twice in autumn the first counts, as in ``model.windows``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Final

from millpond.model.errors import InvalidInputError
from millpond.model.windows import zone
from millpond.specs.errors import BadValueError, as_written
from millpond.specs.quantities import seconds

_HINT: Final = "write 2026-12-01 18:00 Europe/Berlin, 2026-12-01T18:00Z, or a length of time from now: 6h"
_DATE: Final = re.compile(r"(\d{4}-\d\d-\d\d)[T ]+(\d\d:\d\d(?::\d\d)?)\s*(\S.*)?", re.ASCII)
_DIFFERENCE: Final = re.compile(r"([+-])(\d\d):?(\d\d)", re.ASCII)


def instant(value: Any, now: float) -> float:
    """An instant in seconds since 1970, from text with a date, an hour and a zone, or a span from ``now`` on.

    Raises:
        BadValueError: it is neither, or the zone is missing or unknown.
    """
    match = _DATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        try:
            return now + seconds(value)
        except BadValueError as error:
            if error.cause.endswith("has no unit"):
                raise
            raise BadValueError(f"{as_written(value)} is neither an instant nor a length of time", _HINT) from error
    day, hour, place = match.groups()
    if place is None:
        raise BadValueError(
            f"{as_written(value)} has no time zone", f"did you mean {value.strip()} UTC? Or Europe/Berlin, +01:00?"
        )
    try:
        shown = datetime.fromisoformat(f"{day}T{hour}")
    except ValueError as error:
        raise BadValueError(f"{as_written(value)} is no day and hour", _HINT) from error
    return shown.replace(tzinfo=_zone(place)).timestamp()


def is_span(value: str) -> bool:
    """Whether an instant was written as a length of time."""
    return _DATE.fullmatch(value.strip()) is None


def instant_text(at: float) -> str:
    """An instant as it can be read again, in UTC: ``2026-12-01 17:00:00 UTC``."""
    return f"{datetime.fromtimestamp(round(at), UTC):%Y-%m-%d %H:%M:%S} UTC"


def _zone(place: str) -> tzinfo:
    if place in ("Z", "UTC"):
        return UTC
    if (match := _DIFFERENCE.fullmatch(place)) is not None:
        sign, hours, minutes = match.groups()
        ahead = timedelta(hours=int(hours), minutes=int(minutes))
        if ahead >= timedelta(days=1):
            raise BadValueError(f"{place!r} is no time zone", _HINT)
        return timezone(ahead if sign == "+" else -ahead)
    try:
        return zone(place)
    except InvalidInputError as error:
        raise BadValueError(error.cause, error.remedy) from error
