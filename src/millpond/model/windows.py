"""Recurring hours: pure functions of the instant, whatever the clocks of the place do.

A window opens on its days when the clock of its time zone shows the hour of its begin, and closes when that clock shows
the hour of its end, on the next day where the end is not later than the begin. An hour that the clock skips in spring
comes as if the clock had not been put forward yet; of one that it shows twice in autumn the first counts. Of a window
that begins in skipped hours and has its end behind them nothing may be left by that: it then lasts as long as on other
days, so that every window opens on each of its days. Several windows together are open whenever one of them is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from millpond.model.errors import InvalidInputError

MINUTES_A_DAY = 1_440
DAY_NAMES = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

_LOOKED_AHEAD = 9
"""Days within which every window opens and closes: a week, and one more on either side for what lasts beyond a day."""
_KNOWN_S = (_LOOKED_AHEAD - 1) * 86_400.0 - 7_200.0
"""For so long every opening of every window is among those looked at, wherever its midnight is and its clock is put."""


@dataclass(frozen=True, slots=True)
class Window:
    """A span of hours that comes again every day, or on some days of the week.

    Attributes:
        begin_minute, end_minute: of the day, on the clock of the time zone; an end that is not later than the begin is
            one of the next day.
        days: on which it opens, 0 is Monday; empty means every day.
        time_zone: by its name in the database of time zones.
    """

    begin_minute: int
    end_minute: int
    days: tuple[int, ...] = ()
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        if not 0 <= self.begin_minute < MINUTES_A_DAY or not 0 <= self.end_minute <= MINUTES_A_DAY:
            raise InvalidInputError(
                f"a window from minute {self.begin_minute} to {self.end_minute} of a day", "write 20:00-08:00"
            )
        if any(day not in range(7) for day in self.days):
            raise InvalidInputError(f"days {self.days} of a week", "number them from 0 (Monday) to 6")
        zone(self.time_zone)

    def __str__(self) -> str:
        days = f"{','.join(DAY_NAMES[day] for day in self.days)} " if self.days else ""
        return f"{days}{_clock(self.begin_minute)}-{_clock(self.end_minute)} {self.time_zone}"


@lru_cache
def zone(name: str) -> ZoneInfo:
    """A time zone by name.

    Raises:
        InvalidInputError: there is none of this name.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInputError(f"unknown time zone {name!r}", "use a name such as UTC or Europe/Berlin") from error


def is_open(windows: Sequence[Window], instant: float) -> bool:
    """Whether one of the windows is open at an instant (seconds since 1970)."""
    return any(begin <= instant < end for begin, end in _openings(windows, instant))


def opens_at(windows: Sequence[Window], instant: float) -> float:
    """The first instant from the given one on at which one of the windows, of which there is one at least, is open."""
    return min(max(begin, instant) for begin, end in _openings(windows, instant) if end > instant)


def closes_at(windows: Sequence[Window], instant: float) -> float | None:
    """When all windows are closed next, given that one is open; None when they leave no gap."""
    end, surely_known = instant, instant + _KNOWN_S
    for begin, until in sorted(_openings(windows, instant)):
        if begin > end:
            return end if end < surely_known else None
        end = max(end, until)
    return None


def next_change(windows: Sequence[Window], instant: float) -> float | None:
    """The next instant at which the windows, taken together, open or close; None when they never do."""
    return closes_at(windows, instant) if is_open(windows, instant) else opens_at(windows, instant)


def spans(window: Window, begin: float, end: float) -> list[tuple[float, float]]:
    """Every span (begin, end) of a window that begins within ``begin <= instant < end``, in order of time."""
    found: set[tuple[float, float]] = set()
    instant = begin
    while instant < end:
        found.update(span for span in _openings((window,), instant) if begin <= span[0] < end)
        instant += _KNOWN_S
    return sorted(found)


def shown_spans(window: Window, instant: float) -> list[tuple[float, float]]:
    """The spans (begin, end) of a window in the days around an instant, without those in hours that the clock skips.

    So hours that follow one another, as those of a tariff, never overlap.
    """
    return list(_openings((window,), instant, is_kept=False))


def _openings(windows: Iterable[Window], instant: float, *, is_kept: bool = True) -> Iterator[tuple[float, float]]:
    """All spans (begin, end) of the windows in the days around an instant.

    Args:
        is_kept: a span of which skipped hours leave nothing lasts as long as on other days; else there is none.
    """
    for window in windows:
        place = zone(window.time_zone)
        today = datetime.fromtimestamp(instant, UTC).astimezone(place).date()
        length_days = 1 if window.end_minute <= window.begin_minute else 0
        length_s = 60.0 * (length_days * MINUTES_A_DAY + window.end_minute - window.begin_minute)
        for offset in range(-2, _LOOKED_AHEAD):
            day = today + timedelta(days=offset)
            if not window.days or day.weekday() in window.days:
                begin = _instant(day, window.begin_minute, place)
                end = _instant(day + timedelta(days=length_days), window.end_minute, place)
                if begin < end or is_kept:
                    yield begin, end if begin < end else begin + length_s


def _instant(day: date, minute: int, place: ZoneInfo) -> float:
    """When the clock of a place first shows this minute of a day."""
    whole_days, minute = divmod(minute, MINUTES_A_DAY)
    shown = datetime.combine(day + timedelta(days=whole_days), time(minute // 60, minute % 60), place)
    return shown.timestamp()


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
