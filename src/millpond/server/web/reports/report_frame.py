"""What all pages of reports show beside their subject: the period, and the addresses of the same page and of others."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import urlencode

from millpond.server.auth.roles import Caller, Verb
from millpond.server.web.pages import may_do
from millpond.server.web.reports.periods import ReportPeriod, latest_months


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
