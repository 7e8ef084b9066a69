"""Whether there is hardware for what all queues together are to be owed, before any of that changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millpond.model.errors import InvalidInputError
from millpond.model.hardware.nodes import Node
from millpond.model.tenancy.cells import CellCount
from millpond.model.tenancy.tenants import Queue, pinned_twice
from millpond.scheduling.tenancy.cells.hardware import Assignment, kinds_of

if TYPE_CHECKING:
    from millpond.scheduling.ledger.cluster import Cluster


def require_room(cluster: Cluster, before: Sequence[Queue], after: Sequence[Queue]) -> None:
    """Refuse queues whose cells together are more than the machines that are there have, or pinned twice.

    Before any has joined, and for what had no place before either, nothing is refused for want of hardware.

    Args:
        cluster: whose machines count.
        before: those of now, each after its parent.
        after: the same as they are to be.

    Raises:
        InvalidInputError: what is too much at which level.
    """
    owed = [(queue.name, queue.cells, queue.pinned) for queue in after if queue.cells or queue.pinned]
    if owed == [(queue.name, queue.cells, queue.pinned) for queue in before if queue.cells or queue.pinned]:
        return
    for message, remedy in pinned_twice(after).values():
        raise InvalidInputError(message, remedy)
    nodes = [node for node in cluster.nodes if node is not None and node.devices]
    if not nodes:
        return
    there_already = {name for queue in before for name in queue.pinned} | {node.name for node in nodes}
    for queue in after:
        if unknown := [name for name in queue.pinned if name not in there_already]:
            raise InvalidInputError(
                f"queue {queue.name!r} is owed machine {unknown[0]!r}, and no machine with cards has this name",
                "`pond nodes` lists the machines",
            )
    kinds = kinds_of(nodes, [CellCount("node", 1), *(cell for each in (*before, *after) for cell in each.cells)])
    known = {level for kind in kinds.values() for level in kind.level_of}
    lacked = Assignment(kinds, before).missing
    for name, cells in Assignment(kinds, after).missing.items():
        for cell in cells:
            had = sum(each.count for each in lacked.get(name, ()) if each.level == cell.level)
            if cell.count <= had:
                continue
            if cell.level not in known:
                there = ", ".join(dict.fromkeys(level for kind in kinds.values() for level in kind.spec.levels))
                raise InvalidInputError(
                    f"queue {name!r} is owed {cell.level!r}, and no machine has such cells", f"there are {there}"
                )
            raise InvalidInputError(
                f"{cell.count} x {cell.level} of queue {name!r} have no place beside all other cells",
                "ask for fewer or smaller cells, or add machines",
            )


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
