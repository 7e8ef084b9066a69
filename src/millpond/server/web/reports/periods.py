"""The span of time that a page of reports is about, as its address has it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Query

from millpond.model.errors import InvalidInputError
from millpond.specs.calendar_spans import day_begin, day_of, month_of, month_span

DEFAULT_DAYS: Final = 30


@dataclass(frozen=True, slots=True)
class ReportPeriod:
    """A span of whole days.

    Attributes:
        since, until: its first and last instant, in seconds since 1970.
        query: what the address says of it.
    """

    since: float
    until: float
    query: dict[str, str]

    @property
    def first_day(self) -> str:
        """Its first day: ``2026-11-01``."""
        return day_of(self.since)

    @property
    def last_day(self) -> str:
        """Its last day."""
        return day_of(self.until - 1)


Day = Annotated[str, Query(max_length=20)]


async def _period(
    since: Day = "",
    until: Day = "",
    month: Day = "",
    days: Annotated[int | None, Query(ge=1, le=3_660)] = None,
) -> ReportPeriod:
    now = time.time()
    if month:
        return ReportPeriod(*month_span(month), {"month": month})
    if since or until:
        end = day_begin(until or day_of(now), 1)
        begin = day_begin(since) if since else day_begin(day_of(end - 1), 1 - DEFAULT_DAYS)
        if end <= begin:
            raise InvalidInputError("the last day lies before the first", "exchange them")
        return ReportPeriod(begin, end, {"since": day_of(begin), "until": day_of(end - 1)})
    span = days or DEFAULT_DAYS
    return ReportPeriod(day_begin(day_of(now), 1 - span), day_begin(day_of(now), 1), {"days": str(span)})


PeriodOf = Annotated[ReportPeriod, Depends(_period)]


def latest_months() -> tuple[str, str]:
    """The present month and the one before: ``2026-11``, ``2026-10``."""
    present = month_of(time.time())
    return present, month_of(month_span(present)[0] - 1)
