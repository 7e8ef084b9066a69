"""Queries of the API about machines and their devices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from millpond.model.errors import NotFoundError, UnavailableError
from millpond.model.events import CardClosed, CardOpened, Event, NodeClosed, NodeLost, NodeOpened
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Cordon, Node
from millpond.model.hardware.topology import LINK_MAPS, Link
from millpond.node.host.machine import Machine
from millpond.scheduling.ledger.content_index import HeldContents
from millpond.scheduling.nodes.views import DeviceUse, NodeView
from millpond.scheduling.placement.links import id_cost
from millpond.server.auth.isolation import Isolation
from millpond.server.auth.roles import Caller
from millpond.server.monitoring.idle_cards import IdleCards
from millpond.server.monitoring.telemetry.sampling import Telemetry
from millpond.server.monitoring.telemetry.slices import SliceMeter, Sources
from millpond.server.monitoring.telemetry.views import (
    Holdings,
    device_facts,
    device_statuses,
    holdings_of,
    power_state_of,
    slices_by_device,
)
from millpond.server.runtime.core import Core
from millpond.server.runtime.loop import Loop
from millpond.server.views.visibility import Reader, reader_of
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.requests import CloseRequest, OpenRequest
from millpond.specs.api.pool.nodes import (
    ContentInfo,
    CordonInfo,
    DeviceInfo,
    DeviceStatus,
    NodeDetail,
    NodeInfo,
    SliceInfo,
    SpareInfo,
)

_NOTHING: Final[list[SliceInfo]] = []

_Slices = list[list[SliceInfo]]
"""What tasks hold of each device of a node."""


class _Known(NamedTuple):
    view: NodeView
    slices: _Slices
    info: NodeInfo


class NodeInfos:
    """Descriptions of machines, made anew only where something has changed since the last look. One thread at a time.

    To describe 40,000 cards takes a third of a second of CPU time, and little changes from one request to the next.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _Known] = {}
        self._holdings: dict[str, tuple[JobInfo, Holdings]] = {}
        self._marks = ("", "")

    def of(self, views: Sequence[NodeView], jobs: Iterable[JobInfo], marks: tuple[str, str]) -> list[NodeInfo]:
        """Machines with what is free of them and what tasks hold; a machine that is as before is the object of before.

        Args:
            jobs: those that have not ended.
            marks: ``NodeInfo.unsandboxed`` and ``NodeInfo.unlimited``.
        """
        held = self._held(jobs)
        before = self._nodes if marks == self._marks else {}
        self._marks = marks
        self._nodes = {view.node.name: _looked_at(view, held, marks, before.get(view.node.name)) for view in views}
        return [known.info for known in self._nodes.values()]

    def _held(self, jobs: Iterable[JobInfo]) -> dict[str, list[SliceInfo]]:
        """What all tasks hold, by UUID of the device."""
        before, self._holdings = self._holdings, {}
        found: dict[str, list[SliceInfo]] = {}
        for job in jobs:
            known = before.get(job.id)
            if known is None or known[0] is not job:
                known = job, holdings_of(job)
            self._holdings[job.id] = known
            for device, part in known[1]:
                found.setdefault(device, []).append(part)
        return found


def _looked_at(
    view: NodeView, held: Mapping[str, list[SliceInfo]], marks: tuple[str, str], before: _Known | None
) -> _Known:
    slices = [held.get(use.device.uuid, _NOTHING) for use in view.devices]
    if before is not None and before.view == view and before.slices == slices:
        return before
    return _Known(view, slices, node_info(view, slices, marks))


class Machines:
    """Shows machines, closes and opens them and their cards.

    Args:
        isolation: whether tasks are kept apart.
        unlimited: why they are not kept to their amounts; empty where they are.
        cards_not_closed: why single cards cannot be closed here; empty where they can.

    Attributes:
        telemetry, slices: samples of the devices; of none, until it is known which exist.
        idle_cards: since when held cards have not computed.
        spares: gives how many empty nodes stay on, by pool; none, until nodes are switched.
    """

    def __init__(self, loop: Loop, isolation: Isolation, unlimited: str, cards_not_closed: str) -> None:
        self._loop = loop
        self._isolation = isolation
        self._unlimited = unlimited
        self._cards_not_closed = cards_not_closed
        self._known: tuple[tuple[int, int], int, list[NodeInfo]] | None = None
        self._begun = 0
        self._infos = NodeInfos()
        self._one_at_a_time = asyncio.Lock()
        self.idle_cards = IdleCards()
        self.spares: Callable[[], list[SpareInfo]] = list
        self.telemetry = Telemetry(Machine((), {}), time.time)
        self.slices = SliceMeter(self.telemetry, Sources(tuple, tuple), time.time)

    async def all(self, reader: Reader) -> list[NodeInfo]:
        """All machines with who holds what."""
        find, nodes = self._loop.job_cache.get, await self._latest()
        return nodes if reader.owners is None else [reader.node(node, find) for node in nodes]

    async def _latest(self) -> list[NodeInfo]:
        """All machines as they are now: made once while nothing happens, and for all that ask at a time together."""
        asked = self._begun
        async with self._one_at_a_time:
            version = self._loop.seq, self._loop.job_cache.version
            known = self._known
            if known is not None and (known[0] == version or known[1] > asked):
                return known[2]
            self._begun += 1
            views = await self._loop.ask(lambda core: core.scheduler.node_views())
            nodes = await asyncio.to_thread(self._made_of, views)
            self._known = version, self._begun, nodes
            return nodes

    def _made_of(self, views: list[NodeView]) -> list[NodeInfo]:
        jobs = self._loop.job_cache.newest_first()
        return self._infos.of(views, jobs, self._isolation_marks)

    @property
    def _isolation_marks(self) -> tuple[str, str]:
        return self._isolation.apart.trouble, self._unlimited

    async def devices(self, reader: Reader, history: int) -> list[DeviceStatus]:
        """All devices with their latest figures and who makes what of them.

        Args:
            history: how many earlier samples are shown of each.
        """
        nodes = await self._loop.ask(lambda core: core.scheduler.node_views())
        slices = slices_by_device(self._loop.job_cache.newest_first(), self.slices.latest)
        found = device_statuses(nodes, slices, self.telemetry, history)
        return [reader.device(device, self._loop.job_cache.get) for device in found]

    async def detail(self, name: str, reader: Reader) -> NodeDetail:
        """One machine with the figures of its devices, and how they are joined.

        Raises:
            NotFoundError: there is none of that name.
        """
        views, jobs, held = await self._loop.ask(partial(_node_of, name=name))
        if not views:
            raise NotFoundError(f"no node {name!r}", "`pond nodes` lists them")
        held = held if reader.owners is None else None
        find = self._loop.job_cache.get
        placed = [job for job in self._loop.job_cache.newest_first() if job.id in jobs]
        (info,) = NodeInfos().of(views, placed, self._isolation_marks)
        slices = slices_by_device(placed, self.slices.latest)
        devices = await asyncio.to_thread(self._with_processes, device_statuses(views, slices, self.telemetry, 0))
        return NodeDetail(
            node=info if reader.owners is None else reader.node(info, find),
            devices=[reader.device(device, find) for device in devices],
            links=links_of(views[0].node),
            contents=[] if held is None else contents_of(held),
            fetch_rate=0 if held is None else held.fetch_rate,
        )

    def _with_processes(self, devices: Iterable[DeviceStatus]) -> list[DeviceStatus]:
        return [replace(device, processes=self.slices.processes_on(device.uuid)) for device in devices]

    async def close(self, node: str, request: CloseRequest, caller: Caller) -> NodeInfo:
        """Let a machine take no new work, from now or from some time on.

        Raises:
            NotFoundError, InvalidInputError: there is none of that name; the span makes no sense.
        """
        card = "" if request.card is None else await self._card(node, request.card)

        def closed(now: float) -> Event:
            cordon = _cordon(request, caller.user, now)
            return CardClosed(now, node, card, cordon) if card else NodeClosed(now, node, cordon)

        await self._loop.answered(self._loop.change_setting(closed))
        return await self._node(node, caller)

    async def open(self, node: str, request: OpenRequest, caller: Caller) -> NodeInfo:
        """Let a machine take new work again.

        Raises:
            NotFoundError, ConflictError: there is none of that name; it is open.
        """
        card = "" if request.card is None else await self._card(node, request.card)

        def opened(now: float) -> Event:
            by = caller.user
            return CardOpened(now, node, card, by) if card else NodeOpened(now, node, request.planned, by)

        await self._loop.answered(self._loop.change_setting(opened))
        return await self._node(node, caller)

    async def forget(self, node: str, caller: Caller) -> None:
        """Know a machine no more that was switched off and does not come back.

        Raises:
            ConflictError: it is none that is switched off and gone.
        """
        await self._loop.answered(self._loop.change_setting(lambda now: NodeLost(now, node, caller.user)))

    async def _card(self, node: str, index: int) -> str:
        """The UUID of a card by its number on a node.

        Raises:
            NotFoundError: there is none.
            UnavailableError: single cards are not Millpond's to close here.
        """
        if self._cards_not_closed:
            raise UnavailableError(self._cards_not_closed, f"close its node: `pond nodes cordon {node}`")
        machines = await self._loop.ask(lambda core: core.scheduler.machines())
        found = [device for machine in machines if machine.name == node for device in machine.devices]
        card = next((device.card for device in found if device.index == index), None)
        if card is None:
            raise NotFoundError(f"node {node!r} has no card {index}", "`pond nodes -o wide` lists them")
        return card

    async def _node(self, name: str, caller: Caller) -> NodeInfo:
        found = next((node for node in await self.all(reader_of(caller)) if node.name == name), None)
        if found is None:
            raise NotFoundError(f"node {name!r} is gone", "`pond nodes` lists those that are there")
        return found


def _node_of(core: Core, name: str) -> tuple[list[NodeView], set[str], HeldContents | None]:
    """One machine, empty where there is none of that name; the jobs with a place on it, and what it holds."""
    scheduler = core.scheduler
    return scheduler.node_views(name), scheduler.jobs_on(name), scheduler.contents_of(name)


def place_name(node: str, card: int | None) -> str:
    """A node, or one of its cards, as people name it: ``NODE`` or ``NODE/CARD``."""
    return node if card is None else f"{node}/{card}"


def _cordon(request: CloseRequest, by: str, now: float) -> Cordon:
    """What closes a machine or a card on request; one that is planned always drains."""
    begin = now if request.begin is None else request.begin
    is_planned = request.begin is not None
    return Cordon(begin, request.until, request.reason, request.drain or is_planned, is_planned, by)


def contents_of(held: HeldContents) -> list[ContentInfo]:
    """What a machine holds, the largest first."""
    by_size = sorted(held.sizes.items(), key=lambda each: (-each[1], each[0]))
    return [ContentInfo(name=name, bytes=size) for name, size in by_size]


def links_of(node: Node) -> list[list[str]]:
    """A square matrix over the node's devices, in their order: a ``Link`` each, as ``nvlink-double``.

    Empty where there is one device, or nothing is known: devices of which none has a switch or socket of its own.
    """
    devices = node.devices
    costs = LINK_MAPS.get(node.link_map)
    if costs is None or len(costs) != len(devices):
        if len(devices) < 2 or not any(device.switch or device.socket for device in devices):
            return []
        costs = tuple(tuple(_cost(one, other) for other in devices) for one in devices)
    return [[_name(costs, row, column) for column in range(len(devices))] for row in range(len(devices))]


def _cost(one: Device, other: Device) -> int:
    return 0 if one is other else int(id_cost(one.switch, other.switch, one.socket, other.socket))


def _name(costs: Sequence[Sequence[int]], row: int, column: int) -> str:
    return Link(costs[row][column]).name.lower().replace("_", "-")


def node_info(view: NodeView, slices: Sequence[list[SliceInfo]], marks: tuple[str, str]) -> NodeInfo:
    """A machine with what is free of it.

    Args:
        slices: what tasks hold of each of its devices.
        marks: ``NodeInfo.unsandboxed`` and ``NodeInfo.unlimited``.
    """
    node = view.node
    return NodeInfo(
        name=node.name,
        pool=node.pool,
        cpu_milli=node.cpu_milli,
        free_cpu_milli=view.free.cpu_milli,
        cpu_capacity_milli=view.cpu_capacity_milli,
        memory_mib=node.memory_mib,
        free_memory_mib=view.free.memory_mib,
        devices=[_device_info(use, held) for use, held in zip(view.devices, slices, strict=True)],
        rack=node.rack_name,
        zone=node.zone_name,
        cluster=node.cluster,
        schedulable=node.schedulable and view.closure is None,
        unschedulable_reason=view.closure.reason if view.closure is not None else node.unschedulable_reason,
        silent=node.is_silent,
        fake=any(device.fake for device in node.devices),
        closure=None if view.closure is None else _closure_info(view.closure),
        draining=view.draining,
        power=power_state_of(view),
        power_detail="" if view.power is None else view.power.detail,
        planned=[_closure_info(closure) for closure in view.planned],
        jobs=list(view.jobs),
        unsandboxed=marks[0],
        unlimited=marks[1],
    )


def _closure_info(closure: Cordon) -> CordonInfo:
    return CordonInfo(
        begin=closure.begin, until=closure.until, reason=closure.reason, drain=closure.drain, by=closure.by
    )


def _device_info(use: DeviceUse, slices: list[SliceInfo]) -> DeviceInfo:
    return DeviceInfo(
        **device_facts(use.device),
        free_memory_mib=use.memory_free_mib,
        free_compute_milli=use.compute_free_milli,
        holders=list(use.holders),
        slices=slices,
        closure=None if use.closure is None else _closure_info(use.closure),
        probation_until=use.probation_until,
    )
