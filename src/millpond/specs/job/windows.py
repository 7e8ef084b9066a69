"""Recurring hours as people write them: ``20:00-08:00``, ``Mon-Fri 20:00-08:00 Europe/Berlin``, or the long form."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler, WithJsonSchema
from pydantic_core import CoreSchema

from millpond.model.errors import InvalidInputError
from millpond.model.windows import DAY_NAMES, Window, zone
from millpond.specs.errors import BadValueError, as_written, suggest
from millpond.specs.validation import Shortened, or_short

MOST_WINDOWS: Final = 20
_HINT: Final = "write 20:00-08:00, or with days and a time zone: Mon-Fri 20:00-08:00 Europe/Berlin"
_SHORT: Final = re.compile(
    r"(?:(?P<days>[A-Za-z,\s-]+?)\s+)?(?P<hours>\d{1,2}:\d\d\s*-\s*\d{1,2}:\d\d)(?:\s+(?P<zone>\S+))?", re.ASCII
)
_HOURS: Final = re.compile(r"(\d{1,2}):([0-5]\d)\s*-\s*(\d{1,2}):([0-5]\d)", re.ASCII)
_WHOLE_NAMES: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _hours(value: Any) -> Any:
    """Minutes of the day of begin and end."""
    match = _HOURS.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise BadValueError(f"{as_written(value)} are no hours", _HINT)
    from_hour, from_minute, to_hour, to_minute = map(int, match.groups())
    begin, end = from_hour * 60 + from_minute, to_hour * 60 + to_minute
    if begin >= 24 * 60 or end > 24 * 60:
        raise BadValueError(f"{as_written(value)} are no hours of a day", "hours go from 00:00 to 24:00")
    return begin, end


def _days(value: Any) -> Any:
    """Numbers of days of the week, 0 is Monday; text such as ``Mon-Fri`` or ``Sat,Sun``."""
    parts = [part for part in re.split(r"[,\s]+", value) if part] if isinstance(value, str) else value
    if not isinstance(parts, list) or not parts or not all(isinstance(part, str) for part in parts):
        raise BadValueError(f"{as_written(value)} are no days of a week", f"use {', '.join(DAY_NAMES)}, or Mon-Fri")
    days: set[int] = set()
    for part in parts:
        first, _, last = part.partition("-")
        begin, end = _day(first), _day(last or first)
        days.update((begin + step) % 7 for step in range((end - begin) % 7 + 1))
    return tuple(sorted(days))


def _day(name: str) -> int:
    """The number of a day, by its whole name or the beginning of it, of at least three letters."""
    begins = name.strip().lower()
    for number, whole in enumerate(_WHOLE_NAMES):
        if len(begins) >= 3 and whole.startswith(begins):
            return number
    raise BadValueError(f"{name!r} is no day of the week", suggest(name, DAY_NAMES))


def _time_zone(value: Any) -> Any:
    if isinstance(value, str):
        try:
            zone(value)
        except InvalidInputError as error:
            raise BadValueError(error.cause, error.remedy) from error
    return value


class WindowFile(Shortened):
    """One recurring span of hours.

    Attributes:
        hours: ``20:00-08:00``; an end that is not later than the begin is one of the next day, so that
            ``Sat 09:00-09:00`` is a whole day.
        days: on which it opens; left out: every day.
        time_zone: whose clock is meant.
    """

    model_config = or_short({"type": "string", "minLength": 1})

    hours: Annotated[tuple[int, int], BeforeValidator(_hours), WithJsonSchema({"type": "string"})]
    days: Annotated[tuple[int, ...], BeforeValidator(_days), WithJsonSchema({"type": "string"})] = ()
    time_zone: Annotated[str, BeforeValidator(_time_zone), WithJsonSchema({"type": "string"})] = "UTC"

    @classmethod
    def from_short(cls, value: Any) -> Any:
        """``Mon-Fri 20:00-08:00 Europe/Berlin`` as the long form."""
        match = _SHORT.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise BadValueError(f"{as_written(value)} is no window", _HINT)
        parts = {"hours": match["hours"], "days": match["days"], "time_zone": match["zone"]}
        return {name: part for name, part in parts.items() if part}

    def window(self) -> Window:
        """The model's form."""
        return Window(*self.hours, self.days, self.time_zone)


def _has_an_end(window: WindowFile) -> WindowFile:
    """Refuse what looks like no time at all and would never close."""
    begin, end = window.hours
    if begin == end and not window.days:
        raise BadValueError(
            f"from {begin // 60:02}:{begin % 60:02} to the same hour of the next day, every day, it never closes",
            "write 00:00-24:00 if it is to be open always, else another end, or the days",
        )
    return window


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


class _OneOrSeveral:
    """One is as good as a list; says so in the JSON schema."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        several = handler(schema)
        return {"anyOf": [several["items"], several]}


Windows = Annotated[
    list[Annotated[WindowFile, AfterValidator(_has_an_end)]],
    Field(min_length=1, max_length=MOST_WINDOWS),
    BeforeValidator(_listed),
    _OneOrSeveral,
]
"""One window or a list of several, of which one has to be open."""


def model_of(windows: Windows | None) -> tuple[Window, ...]:
    """The model's form of what was written; empty where nothing was."""
    return tuple(each.window() for each in windows or ())
