"""The pages of machines: all of them, and each with its cards, how they are joined and were used, and its events."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Response

from millpond.model.hardware.devices import DeviceHealth
from millpond.server.api.permits import ClusterReader, ServiceOf, Word
from millpond.server.api.routes.time_series import Begin, End
from millpond.server.auth.roles import Verb
from millpond.server.monitoring.time_series.figures import Subject
from millpond.server.views.visibility import VEIL, reader_of
from millpond.server.web.charts.history_pages import Back, charts_of, series_of, span_of
from millpond.server.web.pages import PageRoute, VisitOf, may_do
from millpond.server.web.pool.pool_map import NODES_IN_A_BLOCK, kind_of
from millpond.server.web.rendering import show
from millpond.specs.api.pool.nodes import DeviceInfo, NodeInfo

EVENTS_SHOWN: Final = 100

router = APIRouter(prefix="/portal/nodes", include_in_schema=False, route_class=PageRoute)


LongWord = Annotated[str | None, Query(max_length=1000)]


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """Which machines a list has.

    Attributes:
        name: a part of their names.
        closed: those alone that are closed, or have cards that are closed or not well.
        pool, kind, rack: None: of any; a kind is the cards of a machine, as the map names them, empty: none.
    """

    name: Word = ""
    closed: bool = False
    pool: LongWord = None
    kind: LongWord = None
    rack: LongWord = None

    def matches(self, node: NodeInfo) -> bool:
        """Whether a machine is listed."""
        return (
            self.name in node.name
            and not (self.closed and node.schedulable and all(map(_takes_work, node.devices)))
            and self.pool in (None, node.pool)
            and self.rack in (None, node.rack)
            and (self.kind is None or self.kind == kind_of(node))
        )

    @property
    def place(self) -> dict[str, str]:
        """Those of a place in the pool that are chosen, by their names in the address."""
        chosen = {"pool": self.pool, "kind": self.kind, "rack": self.rack}
        return {name: value for name, value in chosen.items() if value is not None}

    @property
    def query(self) -> str:
        """All of it as a part of an address."""
        chosen = {"name": self.name} if self.name else {}
        return urlencode(chosen | ({"closed": "true"} if self.closed else {}) | self.place)


def _takes_work(device: DeviceInfo) -> bool:
    return device.health == DeviceHealth.OK and device.closure is None


@router.get("")
async def all_nodes(
    service: ServiceOf,
    access: ClusterReader,
    visit: VisitOf,
    chosen: Annotated[NodeFilter, Depends()],
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
) -> Response:
    """Machines, their cards, and who holds them."""
    found = await service.machines.all(reader_of(access.caller))
    matching = [node for node in found if chosen.matches(node)]
    begin = (page - 1) * NODES_IN_A_BLOCK
    nodes = matching[begin : begin + NODES_IN_A_BLOCK]
    return show(
        "pool/nodes.html",
        visit,
        nodes=nodes,
        matching=len(matching),
        begin=begin,
        page=page,
        chosen=chosen,
        spares=service.machines.spares(),
        can_change=may_do(access.caller, Verb.CHANGE_CLUSTER),
        known_jobs={job for node in nodes for job in node.jobs if service.lookup.live(job) is not None},
        veil=VEIL,
    )


@router.get("/{name}")
async def one_node(
    name: str,
    service: ServiceOf,
    access: ClusterReader,
    visit: VisitOf,
    begin: Begin = None,
    end: End = None,
    back: Back = "",
) -> Response:
    """One machine with all that is known of it, and charts of a span."""
    reader = reader_of(access.caller)
    detail = await service.machines.detail(name, reader)
    since, until = span_of(back, begin, end)
    history = await asyncio.to_thread(series_of, service, Subject.NODES, since, until, [name])
    events = await service.events.of_node(name, EVENTS_SHOWN, reader)
    numbers = {device.uuid: str(device.index) for device in detail.node.devices}
    return show(
        "pool/node.html",
        visit,
        node=detail.node,
        cards=list(zip(detail.node.devices, detail.devices, strict=True)),
        links=detail.links,
        contents=detail.contents,
        fetch_rate=detail.fetch_rate,
        history=history,
        charts_of=charts_of,
        back=back or ("day" if begin is None else ""),
        events=[(event, _with_numbers(event.text, numbers)) for event in reversed(events)],
        can_change=may_do(access.caller, Verb.CHANGE_CLUSTER),
        known_jobs={job for job in detail.node.jobs if service.lookup.live(job) is not None},
        veil=VEIL,
    )


def _with_numbers(text: str, numbers: dict[str, str]) -> str:
    """The text of an event with the numbers of cards where the log has their UUIDs."""
    for uuid, number in numbers.items():
        text = text.replace(f"card {uuid} ", f"card {number} ")
    return text
