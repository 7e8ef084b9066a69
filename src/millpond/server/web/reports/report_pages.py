"""The pages of reports: who used what and at which cost, how long jobs waited, and what one used oneself."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from millpond.server.api.permits import ServiceOf
from millpond.server.api.routes.reports import UsageOnly, UsageOrder, UsageReader, WaitOnly, WaitOrder
from millpond.server.views.reports.row_order import in_order
from millpond.server.views.reports.usage import UsageRequest
from millpond.server.views.reports.wait_report import WaitRequest
from millpond.server.web.pages import PageRoute, VisitOf
from millpond.server.web.rendering import show
from millpond.server.web.reports.periods import PeriodOf, ReportPeriod
from millpond.server.web.reports.report_frame import address_in, frame
from millpond.specs.api.reports.report_csv import usage_csv, waits_csv
from millpond.specs.api.reports.usage import Grouping, UsageList, WaitGrouping

ROWS_ON_A_PAGE: Final = 200
OWN_JOBS: Final = 50

router = APIRouter(prefix="/portal", include_in_schema=False, route_class=PageRoute)

By = Annotated[Grouping, Query()]
WaitsBy = Annotated[WaitGrouping, Query()]
Cards = Annotated[str, Query(max_length=20)]


@router.get("/reports")
async def use(
    request: Request,
    service: ServiceOf,
    access: UsageReader,
    visit: VisitOf,
    period: PeriodOf,
    only: UsageOnly,
    by: By = "user",
    order: UsageOrder = "",
) -> Response:
    """Who used what, and what it cost."""
    asked = UsageRequest(by, period.since, min(period.until, time.time()), only, ROWS_ON_A_PAGE, order)
    around = frame(access.caller, period, {"by": by, **only}, order)

    async def make() -> Response:
        found = await service.books.usage(asked, access.caller)
        return show("reports/use.html", visit, found=found, only=only, **around)

    return await service.long_answers.answer(request, access.caller.user, make) if asked.is_long else await make()


@router.get("/reports.csv")
async def use_as_csv(
    request: Request, service: ServiceOf, access: UsageReader, period: PeriodOf, only: UsageOnly, by: By = "user"
) -> Response:
    """The same for a spreadsheet, with all rows."""
    asked = UsageRequest(by, period.since, min(period.until, time.time()), only)

    async def make() -> Response:
        found = await service.books.usage(asked, access.caller)
        return _file(await asyncio.to_thread(usage_csv, found), f"usage-by-{by}", period)

    return await service.long_answers.answer(request, access.caller.user, make)


@router.get("/reports/waits")
async def waits(
    service: ServiceOf,
    access: UsageReader,
    visit: VisitOf,
    period: PeriodOf,
    only: WaitOnly,
    by: WaitsBy = "group",
    order: WaitOrder = "",
) -> Response:
    """How long jobs waited."""
    found = await service.wait_reports.report(by, WaitRequest(period.since, period.until, only), access.caller)
    found = replace(found, rows=in_order(found.rows, order))
    around = frame(access.caller, period, {"by": by, **only}, order)
    jobs_address = partial(address_in, period, only)
    return show("reports/waits.html", visit, found=found, only=only, jobs_address=jobs_address, **around)


@router.get("/reports/waits.csv")
async def waits_as_csv(
    service: ServiceOf, access: UsageReader, period: PeriodOf, only: WaitOnly, by: WaitsBy = "group"
) -> Response:
    """The same for a spreadsheet."""
    found = await service.wait_reports.report(by, WaitRequest(period.since, period.until, only), access.caller)
    return _file(waits_csv(found), f"waits-by-{by}", period)


@router.get("/reports/waits/jobs")
async def waiting_jobs(
    service: ServiceOf, access: UsageReader, visit: VisitOf, period: PeriodOf, only: WaitOnly, cards: Cards = ""
) -> Response:
    """The jobs behind a row of that report."""
    asked = WaitRequest(period.since, period.until, only, cards)
    found = await service.wait_reports.jobs(asked, access.caller, ROWS_ON_A_PAGE)
    query = {"cards": cards, **only} if cards else only
    twin = urlencode({"since": int(period.since), "until": int(period.until), **query})
    around = frame(access.caller, period, query)
    return show("reports/waiting_jobs.html", visit, found=found, cards=cards, only=only, twin=twin, **around)


@router.get("/reports/mine")
async def mine(service: ServiceOf, access: UsageReader, visit: VisitOf, period: PeriodOf) -> Response:
    """What one used oneself, and what one made of it."""
    only = {"user": access.caller.user}
    until = min(period.until, time.time())

    async def usage(by: str) -> UsageList:
        return await service.books.usage(UsageRequest(by, period.since, until, only, OWN_JOBS), access.caller)

    waits = await service.wait_reports.report("user", WaitRequest(period.since, period.until, only), access.caller)
    of_jobs, of_models = await usage("job"), await usage("model")
    around = frame(access.caller, period, {})
    return show("reports/mine.html", visit, of_jobs=of_jobs, of_models=of_models, waits=waits.total, only={}, **around)


def _file(text: str, name: str, period: ReportPeriod) -> Response:
    disposition = f'attachment; filename="{name}-{period.first_day}-{period.last_day}.csv"'
    headers = {"Content-Disposition": disposition, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    # By the mark at its beginning spreadsheets know that it is UTF-8.
    return Response("\ufeff" + text, media_type="text/csv; charset=utf-8", headers=headers)
