"""What a reservation leaves alone of the cells of other queues: their work there, and what they may still ask for.

Cells are the shape of a guarantee, not more of it. Where the reservations of a queue, and its work that cannot be asked
to leave, have what it is guaranteed, its other work in cells holds what is borrowed: the youngest of it may be asked to
leave as borrowed work is, and no more of its cells is kept free than what is left of the guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.model.resources import CARD_MILLI
from millpond.scheduling.records import JobRecord
from millpond.scheduling.reserving.parts import is_gone_by, parts_of
from millpond.scheduling.reserving.reserved_rooms import ReservedRoom
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.cells.reservable import cards_owed
from millpond.scheduling.tenancy.cells.stakes import holdings_on_cards


@dataclass(frozen=True, slots=True)
class CellsOfOthers:
    """What is owed in the cells of other queues at the begin of a reservation.

    Attributes:
        staying: jobs, by id, that are in cells and not asked to leave them.
        cards: by number, the cards of cells in use that these queues use then, or may ask for.
    """

    staying: frozenset[str] = frozenset()
    cards: frozenset[int] = frozenset()


def cells_of_others(state: State, room: ReservedRoom) -> CellsOfOthers:
    """What is owed to other queues in their cells as a reservation begins; now, if it has begun."""
    if state.cluster.cells.allocator is None:
        return CellsOfOthers()
    instant, queues = max(room.wanted.begin, state.now), state.queues
    others = [each for each in state.reserved.beside(room.wanted.name) if each.wanted.covers(instant)]
    mark = state.journal.begin()
    for other in others:
        queues.charge(other.wanted.queue, state.unused_of(other), 1)
    in_cells: list[JobRecord] = []
    users: list[JobRecord] = []
    for record in state.running.values():
        if is_gone_by(state, record, instant):
            queues.charge(record.queue, state.amounts.held(record, record.holding_tasks()), -1)
        elif state.reserved.uses_at(record, instant, room):
            users.append(record)
        elif _is_in_cells_of_others(state, record, room):
            in_cells.append(record)
        else:
            for part in parts_of(record):
                if part.may_be_asked:
                    queues.charge(record.queue, state.amounts.held(record, part.tasks), -1)
    staying: set[str] = set()
    for record in sorted(in_cells, key=lambda each: (each.started_at or state.now, each.sequence), reverse=True):
        if record.job.preemptible and not queues.covers_all(record.queue):
            queues.charge(record.queue, state.amounts.held(record, record.holding_tasks()), -1)
        else:
            staying.add(record.id)
    left = {name: max(node.cards_left_of_each) // CARD_MILLI for name, node in queues.by_name.items()}
    cluster, owners = state.cluster, {*staying, *(user.id for user in users)}
    cards = cards_owed(cluster.cells, cluster.hardware, room.wanted.queue, owners, left)
    state.journal.rollback(mark)
    # What reservations have is counted as theirs.
    cards.difference_update(device for user in users for each in holdings_on_cards(user) for device in each.devices)
    return CellsOfOthers(frozenset(staying), frozenset(cards))


def _is_in_cells_of_others(state: State, record: JobRecord, room: ReservedRoom) -> bool:
    is_own = state.queues.is_below(record.queue, room.wanted.queue)
    return not is_own and state.cluster.cells.is_in_cells(record)
