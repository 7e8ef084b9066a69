"""Hours, days and months by the clock of this machine, in seconds since 1970."""

from __future__ import annotations

import datetime

from millpond.model.errors import InvalidInputError


def month_span(text: str) -> tuple[float, float]:
    """First and last instant of a calendar month, ``2026-11``.

    Raises:
        InvalidInputError: it is none.
    """
    try:
        first = datetime.date.fromisoformat(f"{text}-01")
        following = (first + datetime.timedelta(days=32)).replace(day=1)
        return _midnight(first), _midnight(following)
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(f"{text[:40]!r} is not a month", "write it as 2026-11") from error


def months_within(since: float, until: float) -> list[tuple[str, float, float]]:
    """The calendar months between two instants, the first and the last cut at these: name, begin and end of each."""
    found: list[tuple[str, float, float]] = []
    at = since
    while at < until:
        name = month_of(at)
        end = min(month_span(name)[1], until)
        found.append((name, at, end))
        at = end
    return found


def month_of(instant: float) -> str:
    """The month of an instant: ``2026-11``."""
    return f"{_local(instant):%Y-%m}"


def day_of(instant: float) -> str:
    """The day of an instant: ``2026-11-25``."""
    return f"{_local(instant):%Y-%m-%d}"


def day_begin(text: str, after_days: int = 0) -> float:
    """When a day begins, ``2026-11-25``, or one some days later.

    Raises:
        InvalidInputError: it is none.
    """
    try:
        return _midnight(datetime.date.fromisoformat(text) + datetime.timedelta(days=after_days))
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(f"{text[:40]!r} is not a day", "write it as 2026-11-25") from error


def nearest_hour(hour: datetime.time, now: float, direction: int) -> float:
    """When the clock shows an hour next (1), or showed it last (-1).

    Of an hour that it shows twice in autumn the first counts, and one that it skips in spring comes all the same.
    """
    days = (_local(now).date() + direction * datetime.timedelta(days=count) for count in (0, 1, 2))
    instants = (datetime.datetime.combine(day, hour).astimezone().timestamp() for day in days)
    return next(at for at in instants if (at - now) * direction > 0)


def _midnight(day: datetime.date) -> float:
    return datetime.datetime.combine(day, datetime.time()).astimezone().timestamp()


def _local(instant: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(instant, datetime.UTC).astimezone()
