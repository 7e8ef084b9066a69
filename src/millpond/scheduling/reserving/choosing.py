"""Which nodes a reservation gets: those whose cards can be had in time, at the least harm to what runs there.

Work that may be asked to leave has left when its grace is over; work that may not stays to its time limit, or for good.
Nodes that are closed in the span, or whose cards other reservations have then, are no choice, nor are those without
which cells of other queues have no place; what these are owed of cells in use stays (``cells_of_others``). Of the rest
those come first on which the queue has cells of its own, which nobody else could have; then those that were kept before
(at the last choice: at the same harm), then those with the least work to end, that of queues within their guarantee
counting most, then those that give most cards, so that gangs find them together. Nodes that are off, and would hardly
be on by the begin, come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millpond.model.hardware.node_power import NodePowerState
from millpond.model.hardware.nodes import Node
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.scheduling.reserving.cells_of_others import cells_of_others
from millpond.scheduling.reserving.counted_reservations import covered_at_begin
from millpond.scheduling.reserving.parts import is_gone_by, leaves_at, parts_of
from millpond.scheduling.reserving.reserved_rooms import ReservedRoom, most_kept
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.cells.reservable import nodes_of_cells, spare_of

GUARANTEED_HARM = 1_000
"""So many cards of borrowed work are ended sooner than one that a guarantee covers."""


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


def tenancies(state: State, begin: float, own: ReservedRoom, *, patient: bool = False) -> Tenancies:
    """Who holds what at an instant, as far as it can be known now.

    Cells of other queues that are in use then stay as a whole.

    Args:
        own: those who started on its cards are left out.
        patient: what can be asked to leave may still be there at the begin.
    """
    owed = cells_of_others(state, own)
    staying, harm_on, covered = set(owed.cards), dict[int, int](), covered_at_begin(state, own)
    for record, tasks, may_be_asked in (part for each in state.running.values() for part in parts_of(each)):
        if state.reserved.uses_at(record, begin, own):
            continue
        gone_at = leaves_at(state, record, may_be_asked=may_be_asked)
        is_late = gone_at > begin and not (patient and may_be_asked)
        if not is_late and is_gone_by(state, record, begin):
            continue
        is_late = is_late or record.id in owed.staying
        each = GUARANTEED_HARM if not record.job.is_background and record.queue in covered else 1
        for device in (device for task in tasks if task.holding is not None for device in task.holding.devices):
            if is_late:
                staying.add(device)
            else:
                harm_on[device] = harm_on.get(device, 0) + each
    stays, harm, leaves = dict[int, int](), dict[int, int](), dict[int, int]()
    for device in staying:
        node = state.cluster.node_of(device)
        stays[node] = stays.get(node, 0) + 1
    for device, harmed in harm_on.items():
        if device not in staying:
            node = state.cluster.node_of(device)
            harm[node] = harm.get(node, 0) + harmed
            leaves[node] = leaves.get(node, 0) + 1
    return Tenancies(stays, harm, leaves)


def choose(
    state: State,
    room: ReservedRoom,
    others: Sequence[ReservedRoom],
    *,
    patient: bool = False,
) -> dict[str, int]:
    """By name of the node, how many cards of it the reservation should have; in all fewer than asked if not there.

    Args:
        others: reservations that have their cards before it.
        patient: see ``tenancies``.
    """
    wanted, cluster, cells = room.wanted, state.cluster, state.cluster.cells
    begin, taken = max(wanted.begin, state.now), most_kept(others, wanted.begin, wanted.until)
    held = tenancies(state, begin, room, patient=patient)
    used = state.reserved.used_nodes(room, state.running)
    own_cells = nodes_of_cells(cells, cluster.hardware, wanted.queue)
    offers = []
    for name, index in cluster.node_index.items():
        node = cluster.nodes[index]
        if node is None or node.pool != wanted.pool or not node.schedulable or _closes(state, name, wanted):
            continue
        cards = usable_cards(state, node, wanted)
        there = cards - taken.get(name, 0) - held.stays.get(index, 0)
        if there <= 0 or (wanted.whole_nodes and there < len(node.devices)):
            continue
        is_asleep = _is_asleep(state, node, begin)
        harm, is_new = held.harm.get(index, 0), name not in room.cards_on
        rank = (index not in used, is_asleep, index not in own_cells, *((harm, is_new) if patient else (is_new, harm)))
        offers.append(_Offer(rank, there - held.leaves.get(index, 0), there, index, name))
    offers.sort(key=lambda each: (each.rank, -each.untouched, -each.there, each.place))
    # What other queues with cells have reserved may be these.
    beside = [each for each in others if each.wanted.queue == wanted.queue or not cells.clusters_of(each.wanted.queue)]
    kept = {
        cluster.node_index[name]: cards
        for name, cards in most_kept(beside, wanted.begin, wanted.until).items()
        if name in cluster.node_index
    }
    spare = spare_of(cells, cluster.hardware, [each.place for each in offers], wanted.queue, kept)
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


def reserved_soon(state: State) -> dict[str, str]:
    """The nodes that have to be on for reservations that hold, or begin soon, each with the reservation, in words."""
    return {
        node: f"reservation {name}"
        for name, room in state.reserved.by_name.items()
        for node in room.cards_on
        if room.wanted.begin - state.now <= state.cluster.pools[room.wanted.pool].longest_boot_s
    }


def _is_asleep(state: State, node: Node, begin: float) -> bool:
    """Whether a node that was switched off will hardly be on by then: it failed to boot, or it is too late."""
    power = state.cordons.power.get(node.name)
    if power is None or not power.is_closed:
        return False
    boot_s = state.cluster.pools[node.pool].longest_boot_s
    is_late = power.state is not NodePowerState.BOOTING and begin - state.now < boot_s
    return is_late or power.state is NodePowerState.FAILED


def _closes(state: State, node: str, wanted: AdvanceReservation) -> bool:
    """Whether a node is closed at any instant of a span."""
    return any(
        each.begin < wanted.until and not each.is_over(max(wanted.begin, state.now))
        for each in state.cordons.by_node.get(node, ())
    )
