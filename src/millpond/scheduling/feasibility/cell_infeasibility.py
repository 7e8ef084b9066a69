"""What the cells that queues are owed keep out for ever: work that stays fits in none of its own, nor beside them all.

Work that may be asked to leave goes anywhere as a visitor, so cells keep none of it out for good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from millpond.model.amounts import count_text, milli_text
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.topology import Level
from millpond.model.resources import CARD_MILLI
from millpond.model.workloads import Job
from millpond.scheduling.cycle.places_in_cells import cells_would_do
from millpond.scheduling.explaining.infeasibility import Infeasibility
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.cells.book import CellBook


def cell_infeasibility(
    state: State, job: Job, nodes: Sequence[Node], room: Callable[[tuple[Node, ...]], Infeasibility | None]
) -> Infeasibility | None:
    """Why cells never leave a possible job a place; None if they may, or while it is not known where all are.

    Args:
        nodes: those on which the job could run.
        room: why the job has no room on some of these, were they empty.
    """
    book = state.cluster.cells
    if job.preemptible or book.allocator is None or book.stale or book.missing:
        return None
    # How its tasks lie to each other is tried from some machines alone, so it decides nothing here.
    apart = replace(job, together=Level.CLUSTER, together_required=False, spacing=())
    record = JobRecord(apart, RequestClass(apart), 0, 0.0)
    if cells_would_do(state, record):
        return None
    with book.unused():
        mask = book.mask(record)
        index = state.cluster.node_index
        beside = nodes if mask is None else [node for node in nodes if mask[index[node.name]]]
        most = _cards_beside(book, {index[node.name]: len(node.devices) for node in beside})
    has_room, asked = bool(beside) and room(tuple(beside)) is None, record.demand.least_amount.gpu_milli
    if has_room and asked <= CARD_MILLI * most:
        return None
    own = book.clusters_of(job.queue)
    of_own = f"; the cells of queue {own[0]} have no room for it, even if all of them are free" if own else ""
    cards = count_text(max(role.request.devices for role in job.roles), "card")
    lacking = f"there is never room for it, with {cards} a task"
    if has_room:
        lacking = f"there are never more than {count_text(most, 'card')}, and it asks for {milli_text(asked)}"
    return Infeasibility(
        f"the job is not preemptible, so it stays off what other queues are owed as cells{of_own}; beside all cells "
        f"{lacking}",
        "leave it preemptible, ask for less, or have the cells changed",
        "preemptible",
        "true",
    )


def _cards_beside(book: CellBook, cards: Mapping[int, int]) -> int:
    """No more of the cards of some nodes than this are ever left beside all cells, wherever these lie.

    Args:
        cards: of each node, by its index.
    """
    most = sum(cards.values())
    for name, chain in book.allocator.chains.items() if book.allocator is not None else ():
        owed = sum(size * count for size, count in zip(chain.size, chain.demand, strict=True))
        owed += sum(chain.size[level] for level, _ in chain.bound)
        elsewhere = sum(chain.size[chain.node_level] for node in book.machines[name] if node not in cards)
        most -= max(owed - elsewhere, 0)
    return most
