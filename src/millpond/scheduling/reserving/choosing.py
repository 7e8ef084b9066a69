"""Which nodes a reservation gets: those whose cards can be had in time, at the least harm to what runs there.

Work that may be asked to leave has left when its grace is over; work that may not stays to its time limit, or for good.
Nodes that are closed in the span, or whose cards other reservations have then, are no choice, nor are those without
which cells of other queues have no place; work in cells of other queues stays. Of the rest those come
first that were kept before (at the last choice: at the same harm), then those with the least work to end, that of
queues within their guarantee counting most, then those that give most cards, so that gangs find them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from millpond.model.hardware.nodes import Node
from millpond.model.states import JobState, TaskState
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.scheduling.elastic.gang_sizes import is_enough, spare_tasks
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.reserving.reserved_rooms import ReservedRoom
from millpond.scheduling.state import State

GUARANTEED_HARM = 1_000
"""So many cards of borrowed work are ended sooner than one that a guarantee covers."""


def stays_in_cells(state: State, record: JobRecord, room: ReservedRoom) -> bool:
    """Whether running work is in cells of its queue, which reservations of other queues leave alone."""
    is_own = state.queues.is_below(record.queue, room.wanted.queue)
    return not is_own and state.cluster.cells.is_in_cells(record)


@dataclass(frozen=True, slots=True)
class Tenancies:
    """How the cards of nodes, by index, are held at the begin of a span.

    Attributes:
        stays: cards whose work cannot have left by then.
        harm: what it costs to empty the rest.
        leaves: cards that others hold now and that can be had by then.
    """

    stays: Mapping[int, int]
    harm: Mapping[int, int]
    leaves: Mapping[int, int]


class _Offer(NamedTuple):
    """A node and how many of its cards can be had; a lower rank is chosen first."""

    rank: tuple[int, ...]
    untouched: int
    there: int
    place: int
    name: str


class Part(NamedTuple):
    """Tasks of running work, and whether they may be asked to leave."""

    record: JobRecord
    tasks: list[TaskRecord]
    may_be_asked: bool


def parts_of(record: JobRecord) -> list[Part]:
    """Running work by what may be asked to leave: of a gang whose minimum alone stays, each task beyond that."""
    held = record.holding_tasks()
    if record.job.preemptible or record.kept is not None or record.is_ending:
        return [Part(record, held, not record.is_ending)]
    rest = [task for task in held if task.state is TaskState.STOPPING]
    if record.job.rest_preemptible and record.state is JobState.RUNNING:
        running = [task for task in held if task.state is TaskState.RUNNING]
        rest += spare_tasks(record.job, running) if is_enough(record.job, running) else []
    stays = Part(record, [task for task in held if task not in rest], False)
    return [stays, *(Part(record, [task], True) for task in rest)]


def leaves_at(state: State, record: JobRecord, *, may_be_asked: bool) -> float:
    """When running work, or a part of it, has left its cards at the latest; ``NEVER`` if it cannot be asked to."""
    grace_s = record.job.checkpoint.grace_s
    kept = record.kept
    if kept is not None:
        return state.now
    if record.is_ending:
        return state.now + grace_s
    ends = state.ordering.time_left.cautious_end(record, state.now)
    if may_be_asked:
        return min(ends, state.now + grace_s)
    limit = record.job.time_limit_s
    return NEVER if limit is None else state.now + max(limit - record.service_s(state.now), 0.0) + grace_s


def tenancies(state: State, begin: float, *, own: ReservedRoom | None = None, patient: bool = False) -> Tenancies:
    """Who holds what at an instant, as far as it can be known now.

    Args:
        own: those who started on its cards are left out.
        patient: what can be asked to leave may still be there at the begin.
    """
    stays: dict[int, int] = {}
    harm: dict[int, int] = {}
    leaves: dict[int, int] = {}
    for record, tasks, may_be_asked in (part for each in state.running.values() for part in parts_of(each)):
        if own is not None and own.has_user(record):
            continue
        gone_at = leaves_at(state, record, may_be_asked=may_be_asked)
        is_late = gone_at > begin and not (patient and may_be_asked)
        if not is_late and state.ordering.time_left.cautious_end(record, state.now) <= begin:
            continue
        is_late = is_late or (own is not None and stays_in_cells(state, record, own))
        is_covered = not record.job.is_background and state.queues.covers_all(record.queue)
        each = GUARANTEED_HARM if is_covered else 1
        for task in tasks:
            if task.holding is None or not (count := len(task.holding.devices)):
                continue
            node = task.holding.node
            if is_late:
                stays[node] = stays.get(node, 0) + count
            else:
                harm[node] = harm.get(node, 0) + each * count
                leaves[node] = leaves.get(node, 0) + count
    return Tenancies(stays, harm, leaves)


def choose(
    state: State,
    room: ReservedRoom,
    taken: Mapping[str, int],
    *,
    patient: bool = False,
) -> dict[str, int]:
    """By name of the node, how many cards of it the reservation should have; in all fewer than asked if not there.

    Args:
        taken: cards of nodes that other reservations have at any one instant of its span.
        patient: see ``tenancies``.
    """
    wanted, cluster = room.wanted, state.cluster
    begin = max(wanted.begin, state.now)
    held = tenancies(state, begin, own=room, patient=patient)
    used = state.reserved.used_nodes(room, state.running)
    offers = []
    for name, index in cluster.node_index.items():
        node = cluster.nodes[index]
        if node is None or node.pool != wanted.pool or not node.schedulable or _closes(state, name, wanted):
            continue
        cards = usable_cards(state, node, wanted)
        there = cards - taken.get(name, 0) - held.stays.get(index, 0)
        if there <= 0 or (wanted.whole_nodes and there < len(node.devices)):
            continue
        harm, is_new = held.harm.get(index, 0), name not in room.cards_on
        rank = (index not in used, *((harm, is_new) if patient else (is_new, harm)))
        offers.append(_Offer(rank, there - held.leaves.get(index, 0), there, index, name))
    offers.sort(key=lambda each: (each.rank, -each.untouched, -each.there, each.place))
    spare = cluster.cells.spare_of([each.place for each in offers], wanted.queue)
    return _filled(wanted, [each for each in offers if each.place in spare])


def _filled(wanted: AdvanceReservation, offers: list[_Offer]) -> dict[str, int]:
    """The first of the offers that make up the cards; the rest from the smallest that has it, at the same harm."""
    chosen: dict[str, int] = {}
    left = wanted.cards
    for offer in offers:
        if left == 0:
            break
        if offer.there <= left:
            chosen[offer.name] = offer.there
            left -= offer.there
        elif not wanted.whole_nodes:
            larger = [each for each in offers if each.there >= left and each.name not in chosen]
            best = min(larger, key=lambda each: (each.rank, each.there, each.place))
            chosen[best.name] = left
            left = 0
    return chosen


def usable_cards(state: State, node: Node, wanted: AdvanceReservation) -> int:
    """How many cards of a node the reservation could have."""
    return sum(
        state.cluster.hardware.is_usable(device) and (not wanted.models or device.model in wanted.models)
        for device in node.devices
    )


def _closes(state: State, node: str, wanted: AdvanceReservation) -> bool:
    """Whether a node is closed at any instant of a span."""
    return any(
        each.begin < wanted.until and not each.is_over(max(wanted.begin, state.now))
        for each in state.cordons.by_node.get(node, ())
    )
