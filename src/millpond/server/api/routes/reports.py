"""Routes about what was used, what it cost, and how long jobs waited."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Annotated, Final

from fastapi import Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from millpond.server.api.description import api_router
from millpond.server.api.permits import NO_ZERO, Access, ServiceOf, may
from millpond.server.auth.roles import Verb
from millpond.server.views.reports.row_order import NAME, USAGE_FIGURES, WAIT_FIGURES, in_order
from millpond.server.views.reports.usage import UsageRequest
from millpond.server.views.reports.wait_report import WaitRequest
from millpond.specs.api.base import LATEST
from millpond.specs.api.models import adapter_of
from millpond.specs.api.reports.usage import Grouping, UsageList, UsageRow, WaitGrouping, WaitingJobList, WaitReport

MOST_ROWS: Final = 100_000
_TOGETHER: Final = 1_000

router = api_router(tags=["reports"])

UsageReader = Annotated[Access, may(Verb.READ_USAGE)]
Instant = Annotated[float, Query(ge=0, le=LATEST, description="Seconds since 1970.")]
Until = Annotated[float | None, Query(ge=0, le=LATEST, description="Seconds since 1970; default: now.")]
Only = Annotated[
    str | None,
    Query(max_length=200, pattern=NO_ZERO, description="Only this one; empty: only where there is none."),
]


def _only(
    user: Only = None, group: Only = None, queue: Only = None, model: Only = None, kind: Only = None
) -> dict[str, str]:
    wanted = {"user": user, "group": group, "queue": queue, "model": model, "kind": kind}
    return {name: value for name, value in wanted.items() if value is not None}


def _only_of_jobs(user: Only = None, group: Only = None, queue: Only = None) -> dict[str, str]:
    return _only(user, group, queue)


UsageOnly = Annotated[dict[str, str], Depends(_only)]
WaitOnly = Annotated[dict[str, str], Depends(_only_of_jobs)]


_ORDER: Final = "By which figure rows stand, the largest first, or by name; with a minus the other way round."
UsageOrder = Annotated[str, Query(pattern=f"^(-?({'|'.join((NAME, *USAGE_FIGURES))}))?$", description=_ORDER)]
WaitOrder = Annotated[str, Query(pattern=f"^(-?({'|'.join((NAME, *WAIT_FIGURES))}))?$", description=_ORDER)]


def usage_json(found: UsageList) -> bytes:
    """A report as JSON, some rows at a time: all other requests wait while a part is made."""
    around = adapter_of(UsageList).dump_json(replace(found, rows=[]))
    parts = [found.rows[begin : begin + _TOGETHER] for begin in range(0, len(found.rows), _TOGETHER)]
    rows = b",".join(adapter_of(list[UsageRow]).dump_json(part)[1:-1] for part in parts)
    return around.replace(b'"rows":[]', b'"rows":[%b]' % rows, 1)  # in a text, the quotes would be escaped


@router.get("/usage", response_model=UsageList)
async def usage(
    request: Request,
    service: ServiceOf,
    access: UsageReader,
    only: UsageOnly,
    by: Annotated[Grouping, Query(description="What to add up by.")] = "user",
    since: Instant = 0.0,
    until: Until = None,
    limit: Annotated[int | None, Query(ge=1, le=MOST_ROWS, description="How many rows; others are added up.")] = None,
    order: UsageOrder = "",
) -> Response:
    """Who held how much between two instants, up to now at the most: all users whose usage the caller may see."""
    now = time.time()  # what is held now has not been held any longer
    end = now if until is None else min(until, now)

    asked = UsageRequest(by, since, end, only, limit, order)

    async def make() -> Response:
        found = await service.books.usage(asked, access.caller)
        content = await asyncio.to_thread(usage_json, found)
        return Response(content, media_type="application/json")

    if asked.is_long:
        return await service.long_answers.answer(request, access.caller.user, make)
    return await make()


@router.get("/usage/waits")
async def waits(
    service: ServiceOf,
    access: UsageReader,
    only: WaitOnly,
    by: Annotated[WaitGrouping, Query(description="What to tell apart, besides the number of cards.")] = "group",
    since: Instant = 0.0,
    until: Until = None,
    order: WaitOrder = "",
) -> WaitReport:
    """How long jobs that were submitted between two instants waited for their first start."""
    asked = WaitRequest(since, LATEST if until is None else until, only)
    found = await service.wait_reports.report(by, asked, access.caller)
    return replace(found, rows=in_order(found.rows, order))


@router.get("/usage/waits/jobs")
async def waiting_jobs(
    service: ServiceOf,
    access: UsageReader,
    only: WaitOnly,
    since: Instant = 0.0,
    until: Until = None,
    cards: Annotated[str, Query(max_length=20, description="Only jobs of this size, as a row has it.")] = "",
    limit: Annotated[int, Query(ge=1, le=10_000, description="How many.")] = 200,
) -> WaitingJobList:
    """The jobs behind a row of that report, those that waited longest first."""
    asked = WaitRequest(since, LATEST if until is None else until, only, cards)
    return await service.wait_reports.jobs(asked, access.caller, limit)
