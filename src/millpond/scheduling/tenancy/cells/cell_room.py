"""Whether there is hardware for what all queues together are to be owed, before any of that changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millpond.model.errors import InvalidInputError
from millpond.model.hardware.nodes import Node
from millpond.model.tenancy.cells import CellCount
from millpond.model.tenancy.tenants import Queue, pinned_twice
from millpond.scheduling.tenancy.cells.hardware import Assignment, kinds_of

if TYPE_CHECKING:
    from millpond.scheduling.ledger.cluster import Cluster


class CellFault(NamedTuple):
    """Why a queue cannot be owed its cells.

    Attributes:
        field: of the queue: ``cells`` or ``pinned``.
    """

    queue: str
    field: str
    message: str
    remedy: str


def require_room(cluster: Cluster, before: Sequence[Queue], after: Sequence[Queue]) -> None:
    """Refuse queues whose cells together are more than the machines that are there have, or pinned twice.

    Args:
        cluster: whose machines count.
        before, after: as for ``cell_faults``.

    Raises:
        InvalidInputError: what is too much at which level.
    """
    for fault in cell_faults([node for node in cluster.nodes if node is not None], before, after):
        raise InvalidInputError(fault.message, fault.remedy)


def cell_faults(nodes: Sequence[Node], before: Sequence[Queue], after: Sequence[Queue]) -> Iterator[CellFault]:
    """What is wrong with cells of queues, all queues together.

    Without machines with cards, and for what had no place before either, nothing is wrong for want of hardware.

    Args:
        nodes: the machines that count.
        before: the queues of now, each after its parent.
        after: the same as they are to be.
    """
    if _what_is_owed(before) == _what_is_owed(after):
        return
    if twice := pinned_twice(after):
        yield from (CellFault(queue, "pinned", *texts) for queue, texts in twice.items())
        return
    nodes = [node for node in nodes if node.devices]
    if not nodes:
        return
    there_already = {name for queue in before for name in queue.pinned} | {node.name for node in nodes}
    unknown = [(queue.name, name) for queue in after for name in queue.pinned if name not in there_already]
    for owner, name in unknown:
        message = f"queue {owner!r} is owed machine {name!r}, and no machine with cards has this name"
        yield CellFault(owner, "pinned", message, "`pond nodes` lists the machines")
    if not unknown:
        yield from _without_place(nodes, before, after)


def _what_is_owed(queues: Sequence[Queue]) -> list[object]:
    """Cells, and which guarantees name which models: cells are on cards of these."""
    models = {queue.name: queue.guarantee.models for queue in queues if queue.guarantee.models}
    return [models, *((queue.name, queue.cells, queue.pinned) for queue in queues if queue.cells or queue.pinned)]


def _without_place(nodes: Sequence[Node], before: Sequence[Queue], after: Sequence[Queue]) -> Iterator[CellFault]:
    kinds = kinds_of(nodes, [CellCount("node", 1), *(cell for each in (*before, *after) for cell in each.cells)])
    known = {level for kind in kinds.values() for level in kind.level_of}
    lacked = Assignment(kinds, before).missing
    fields = {queue.name: "cells" if queue.cells else "pinned" for queue in after}
    guaranteed = " on cards that its guarantee covers" if any(queue.guarantee.models for queue in after) else ""
    for name, cells in Assignment(kinds, after).missing.items():
        for cell in cells:
            had = sum(each.count for each in lacked.get(name, ()) if each.level == cell.level)
            if cell.count <= had:
                continue
            if cell.level not in known:
                there = ", ".join(dict.fromkeys(level for kind in kinds.values() for level in kind.spec.levels))
                message = f"queue {name!r} is owed {cell.level!r}, and no machine has such cells"
                yield CellFault(name, fields[name], message, f"there are {there}")
                continue
            what = f"{cell.count} x {cell.level} of queue {name!r}"
            message = f"{what} have no place beside all other cells{guaranteed}"
            yield CellFault(name, fields[name], message, "ask for fewer or smaller cells, or add machines")


def cards_of_cells(nodes: Sequence[Node], queue: Queue) -> int:
    """How many cards the cells of a queue have at least on some machines; of others nothing is known."""
    kinds = kinds_of((node for node in nodes if node.devices), queue.cells)
    sizes = [
        (cell, [kind.spec.sizes[kind.level_of[cell.level]] for kind in kinds.values() if cell.level in kind.level_of])
        for cell in queue.cells
    ]
    of_cells = sum(cell.count * min(cards, default=cell.least_cards) for cell, cards in sizes)
    of_nodes = {node.name: len(node.devices) for node in nodes}
    return of_cells + sum(max(of_nodes.get(name, 1), 1) for name in queue.pinned)
