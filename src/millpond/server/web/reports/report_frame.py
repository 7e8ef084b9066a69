"""What all pages of reports show beside their subject: the period, and the addresses of the same page and of others."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Depends, Query

from millpond.model.errors import InvalidInputError
from millpond.server.auth.roles import Caller, Verb
from millpond.server.web.pages import may_do
from millpond.specs.calendar_spans import day_begin, day_of, month_of, month_span

DEFAULT_DAYS: Final = 30


def address_in(period: ReportPeriod, query: dict[str, str], **changes: str) -> str:
    """The query of a page about a period, with some parts of it changed."""
    return f"?{urlencode({**query, **period.query, **changes})}"


def frame(caller: Caller, period: ReportPeriod, query: dict[str, str], order: str = "") -> dict[str, Any]:
    """What all these pages show besides: the period, and addresses of the same page and of others.

    Args:
        query: what the address says besides the period and the order of rows.
        order: of the rows, where they can be ordered.
    """
    ordered = {"order": order} if order else {}

    def in_period(**chosen: str) -> str:
        return f"?{urlencode({**query, **ordered, **chosen})}"

    return {
        "period": period,
        "query": query,
        "order": order,
        "address": partial(address_in, period, query),
        "in_period": in_period,
        "months": latest_months(),
        "day_query": urlencode(period.query),
        "asks_what_if": may_do(caller, Verb.ASK_WHAT_IF),
    }


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
