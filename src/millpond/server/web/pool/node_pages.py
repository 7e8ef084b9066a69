"""The pages of machines: all of them, and each with its cards, how they are joined, and what happened to it."""

from __future__ import annotations

import time
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from millpond.server.api.permits import ClusterReader, ServiceOf, Word
from millpond.server.auth.roles import Verb
from millpond.server.views.visibility import reader_of
from millpond.server.web.pages import PageRoute, VisitOf, may_do
from millpond.server.web.rendering import show

NODES_ON_A_PAGE: Final = 100
EVENTS_SHOWN: Final = 100

router = APIRouter(prefix="/portal/nodes", include_in_schema=False, route_class=PageRoute)


@router.get("")
async def all_nodes(
    service: ServiceOf,
    access: ClusterReader,
    visit: VisitOf,
    name: Word = "",
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
    closed: bool = False,
) -> Response:
    """Machines, their cards, and who holds them."""
    found = await service.machines.all(reader_of(access.caller))
    matching = [node for node in found if name in node.name and not (closed and node.schedulable)]
    begin = (page - 1) * NODES_ON_A_PAGE
    return show(
        "pool/nodes.html",
        visit,
        nodes=matching[begin : begin + NODES_ON_A_PAGE],
        matching=len(matching),
        begin=begin,
        page=page,
        more=len(matching) > begin + NODES_ON_A_PAGE,
        name=name,
        closed=closed,
        spares=service.machines.spares(),
        can_change=may_do(access.caller, Verb.CHANGE_CLUSTER),
        known_jobs={job for node in matching for job in node.jobs if service.lookup.live(job) is not None},
    )


@router.get("/{name}")
async def one_node(name: str, service: ServiceOf, access: ClusterReader, visit: VisitOf) -> Response:
    """One machine with all that is known of it."""
    reader = reader_of(access.caller)
    detail = await service.machines.detail(name, reader)
    events = await service.events.of_node(name, EVENTS_SHOWN, reader)
    numbers = {device.uuid: str(device.index) for device in detail.node.devices}
    return show(
        "pool/node.html",
        visit,
        node=detail.node,
        cards=list(zip(detail.node.devices, detail.devices, strict=True)),
        links=detail.links,
        events=[(event, _with_numbers(event.text, numbers)) for event in reversed(events)],
        can_change=may_do(access.caller, Verb.CHANGE_CLUSTER),
        known_jobs={job for job in detail.node.jobs if service.lookup.live(job) is not None},
        now=time.time(),
    )


def _with_numbers(text: str, numbers: dict[str, str]) -> str:
    """The text of an event with the numbers of cards where the log has their UUIDs."""
    for uuid, number in numbers.items():
        text = text.replace(f"card {uuid} ", f"card {number} ")
    return text
