"""The page of advance reservations: a calendar, a list, and a form that makes or changes one."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from enum import IntEnum
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from millpond.server.api.permits import ClusterReader, ServiceOf
from millpond.server.auth.roles import Verb
from millpond.server.web.pages import PageRoute, VisitOf, may_do
from millpond.server.web.rendering import show
from millpond.specs.api.pool.reservations import ReservationInfo

router = APIRouter(prefix="/portal", include_in_schema=False, route_class=PageRoute)

_FORM_FIELDS: Final = ("name", "queue", "cards", "begin", "until", "pool", "models", "whole_nodes", "beyond_guarantee")


class CalendarSpan(IntEnum):
    """How many days a calendar shows."""

    DAY = 1
    WEEK = 7
    FOUR_WEEKS = 28


@router.get("/reservations")
async def reservations(
    service: ServiceOf,
    access: ClusterReader,
    visit: VisitOf,
    begin: Annotated[date | None, Query(alias="from")] = None,
    days: CalendarSpan = CalendarSpan.WEEK,
) -> Response:
    """Reservations as a calendar of some days, in the time zone of the reader, and as a list."""
    found = await service.reservations.seen_by(access.caller)
    queues = await service.queues.seen_by(access.caller)
    own = [each.name for each in queues if each.takes_jobs and service.reservations.may_make(access.caller, each.name)]
    start = begin or datetime.now(UTC).date()
    return show(
        "pool/reservations.html",
        visit,
        reservations=[
            (each, may_do(access.caller, Verb.CHANGE_JOBS, service.reservations.target(each))) for each in found
        ],
        edits={each.name: _as_form(each) for each in found},
        queues=own,
        may_make=bool(own) and may_do(access.caller, Verb.SUBMIT_JOBS),
        is_admin=access.caller.admin,
        begin=begin.isoformat() if begin else "",
        days=days.value,
        before=_moved(start, -days),
        behind=_moved(start, days),
    )


def _moved(start: date, days: int) -> str:
    """Another day as an address has it; the same one at the end of all calendars."""
    try:
        return (start + timedelta(days=days)).isoformat()
    except OverflowError:
        return start.isoformat()


def _as_form(info: ReservationInfo) -> str:
    """What the form is filled with to change a reservation."""
    return json.dumps({name: value for name, value in asdict(info).items() if name in _FORM_FIELDS})
