"""Which idle card to divide otherwise (MIG), so that a job that waits can start.

A layout is tried on a twin of the scheduler: the job that starts there, and not here, is what it is good for. So
limits, claims and all other rules count as they will. A card is left as it is while

- anything holds any of it, work that was swapped off it too, a claim lies on it, or others use it;
- it, or its node, is closed, soon will be, or has a fault; or cards of its node are reserved, as they are now;
- a job further ahead, or for which nodes are reserved, could use what it is now, and not what it would become;
- its last change, done or failed, is not ``stay_s`` ago: so demand that alternates does not make layouts alternate.

Nothing is divided for a job that has waited for less than ``LEAST_WAIT_S``, nor beyond what jobs wait for. One card
changes at a time. No layout changes while queues are owed cells, as these are bound to cards as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Final

from millpond.model.hardware.card_layouts import CardLayout, DivisibleCard, LayoutChangeState
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.nodes import Node
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.estimating.line_order import LineOrder
from millpond.scheduling.feasibility.single_tasks import can_hold
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

LEAST_WAIT_S: Final = 10.0
MOST_JOBS: Final = 64
"""So many of those that are next in line and could use the cards are looked at."""
MOST_TRIALS: Final = 16

Play = Callable[[Node | None], Sequence[str]]
"""Gives the jobs that a cycle would start now, with a node described otherwise."""


@dataclass(frozen=True, slots=True)
class LayoutStep:
    """A card to be divided."""

    node: str
    card: str
    layout: CardLayout
    for_job: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Cards of one node, all alike, that may change, and what into.

    Attributes:
        now: the devices that the cards are now.
    """

    node: Node
    cards: tuple[str, ...]
    now: tuple[Device, ...]
    layout: CardLayout


def next_layout_step(state: State, claims: Claims, play: Play) -> LayoutStep | None:
    """The change by which the job that is furthest ahead in line would start; None when none helps."""
    changes = state.card_cordons.layout_changes.values()
    if any(each.state is LayoutChangeState.CHANGING for each in changes):
        return None
    if not state.waiting.count or state.holds or state.cluster.cells.allocator is not None:
        return None
    candidates = list(_candidates(state, claims))
    if not candidates:
        return None
    line = list(islice(_in_line(state, claims, candidates), MOST_JOBS))
    places = {record.id: place for place, record in enumerate(line)}
    holders = [state.jobs[each.job] for each in claims.reservations.values() if each.job in places]
    wanted = [each for each in candidates if any(_wants(state, record, each) for record in line)]
    if not wanted or play(None):
        return None  # what may start as it is has not started yet
    found = []
    for each in wanted[:MOST_TRIALS]:
        started = {job for job in play(_divided(each)) if job in places}
        ready = [places[job] for job in started if has_waited(state, line[places[job]])]
        if ready and not _is_needed_as_it_is(each, [*line[: min(ready)], *holders], started):
            found.append((min(ready), len(each.cards), -len(started), each))
    if not found:
        return None
    place, _, _, best = min(found, key=lambda entry: entry[:3])
    return LayoutStep(best.node.name, best.cards[0], best.layout, line[place].id)


def idle_cards(state: State, claims: Claims, node: Node) -> dict[str, list[Device]]:
    """The cards of a node of which nothing is held or claimed, by UUID, each with its devices."""
    index = state.cluster.node_index[node.name]
    first = int(state.cluster.arrays.first_device[index])
    holdings = [
        held
        for record in state.running.values()
        for task in record.tasks
        for held in (task.holding, task.vacating)
        if held is not None
    ]
    holdings += [holding for claim in claims.by_job.values() for _, holding in claim.placed]
    held = {device for holding in holdings if holding.node == index for device in holding.devices}
    used = {device.card for number, device in enumerate(node.devices, start=first) if number in held}
    cards: dict[str, list[Device]] = {}
    for device in node.devices:
        if device.card not in used:
            cards.setdefault(device.card, []).append(device)
    return cards


def in_layout(node: Node, cards: Sequence[str], layout: CardLayout) -> Node:
    """A node as it would be with these of its cards divided so."""
    devices: list[Device] = []
    for card, group in groupby(node.devices, key=lambda device: device.card):
        now = list(group)
        if card not in cards:
            devices += now
            continue
        made = enumerate(layout.devices)
        devices += [
            replace(
                device,
                uuid=f"{card}/{number}",
                parent=card,
                instance=number,
                index=now[0].index,
                switch=now[0].switch,
                socket=now[0].socket,
            )
            for number, device in made
        ]
    return replace(node, devices=tuple(devices))


def _candidates(state: State, claims: Claims) -> Iterator[_Candidate]:
    """One card, and all alike, of each node for each layout that they may have and do not have."""
    for node in state.cluster.nodes:
        if node is None or not node.divisible or not node.schedulable or node.name in state.cluster.closed:
            continue
        if node.name in state.cordons.kept or state.cordons.next_of(node.name, state.now) is not None:
            continue
        idle = idle_cards(state, claims, node)
        alike: dict[tuple[CardLayout, tuple[str, ...]], list[tuple[str, list[Device]]]] = {}
        for each in node.divisible:
            devices = idle.get(each.card, [])
            if _may_change(state, each, devices):
                models = tuple(sorted(device.model for device in devices))
                for layout in each.layouts:
                    if not layout.is_on(devices):
                        alike.setdefault((layout, models), []).append((each.card, devices))
        for (layout, _), some in alike.items():
            for count in sorted({1, len(some)}):
                now = tuple(device for _, devices in some[:count] for device in devices)
                yield _Candidate(node, tuple(card for card, _ in some[:count]), now, layout)


def _in_line(state: State, claims: Claims, candidates: Sequence[_Candidate]) -> Iterator[JobRecord]:
    """Those that wait and could use any of the cards, as they are or would become; the first in line first."""
    kinds: dict[str, dict[tuple[str, int], Device]] = {}
    for each in candidates:
        well = (device for device in each.now if device.health is DeviceHealth.OK)
        found = {(device.model, device.memory_mib): device for device in (*well, *each.layout.devices)}
        kinds.setdefault(each.node.pool, {}).update(found)
    devices = {pool: list(found.values()) for pool, found in kinds.items()}
    for record in LineOrder(state).records:
        if record.id not in claims.by_job and could_use(record, devices.get(record.job.pool, [])):
            yield record


def _may_change(state: State, card: DivisibleCard, devices: Sequence[Device]) -> bool:
    """Whether an idle card is open and well, nobody else uses it, and it has been as it is for long."""
    last = state.card_cordons.layout_changes.get(card.card)
    if last is not None and state.now - last.since < card.stay_s:
        return False
    if not devices or card.card in state.cluster.closed_cards:
        return False
    # A card in MIG mode of which nothing is cut out cannot be used by anybody, and says so by its health.
    return all(
        device.health is DeviceHealth.OK or (device.health is DeviceHealth.BUSY_ELSEWHERE and not device.parent)
        for device in devices
    )


def _divided(candidate: _Candidate) -> Node:
    return in_layout(candidate.node, candidate.cards, candidate.layout)


def _wants(state: State, record: JobRecord, candidate: _Candidate) -> bool:
    """Whether a job has waited for long enough and could use a card divided so: a quick first look."""
    is_there = record.job.pool == candidate.node.pool and has_waited(state, record)
    return is_there and could_use(record, candidate.layout.devices)


def _is_needed_as_it_is(candidate: _Candidate, ahead: Sequence[JobRecord], started: set[str]) -> bool:
    """Whether a job that stays waiting could use what the cards are now, and not what they would become."""
    now = [device for device in candidate.now if device.health is DeviceHealth.OK]
    return any(
        record.job.pool == candidate.node.pool
        and record.id not in started
        and could_use(record, now)
        and not could_use(record, candidate.layout.devices)
        for record in ahead
    )


def has_waited(state: State, record: JobRecord) -> bool:
    """Whether a job has waited for so long that cards may be divided for it."""
    return state.now - record.requeued_at >= LEAST_WAIT_S


def could_use(record: JobRecord, devices: Sequence[Device]) -> bool:
    """Whether one of these could hold a part of what a job asks for, if it were free."""
    requests = [role.request for role in record.job.roles if role.request.devices]
    return any(can_hold(device, request) for request in requests for device in devices)
