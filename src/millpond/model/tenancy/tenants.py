"""Who the pool is for: a tree of queues (organisation > group > user)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millpond.model.resources import Amount
from millpond.model.tenancy.cells import CellCount
from millpond.model.units import DAY_S

USAGE_HALF_LIFE_S = 7 * DAY_S
"""After so long past usage of queues and users counts half, unless the configuration has another span."""
ROOT_QUEUE = "root"
DEFAULT_QUEUE = "default"
BACKGROUND_QUEUE = "(background)"
"""Outside the tree: what background work is counted for, whatever queue it was submitted to. No queue has this name."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A node of the tenant tree; only leaves take jobs.

    Attributes:
        guarantee: what the queue gets whenever it asks.
        limit: what it never exceeds; None is no limit.
        weight: its part of what is left over, against its siblings.
        borrows: may run beyond its guarantee on idle capacity; borrowed work is the first to leave.
        cells: in which shapes its guaranteed cards come.
        pinned: machines that are its own among these.
        ordering: who of its jobs, or of those of some kinds, is next; empty: as in the queue above. See
            ``policies.own_orderings_of``.
        placement: where they go, in the same way; see ``policies.own_placements_of``.
        priorities: classes that its jobs may have, as ``Priority`` numbers them; empty is all.
        running_jobs: how many jobs of it and of the queues below it may run at once; None is no limit.
        minimum_run_s: its work is not asked to leave for others before it has run this long; None is what the queue
            above it says.
    """

    name: str
    parent: str = ROOT_QUEUE
    guarantee: Amount = Amount()
    limit: Amount | None = None
    weight: float = 1.0
    borrows: bool = True
    cells: tuple[CellCount, ...] = ()
    pinned: tuple[str, ...] = ()
    ordering: str = ""
    placement: str = ""
    priorities: tuple[int, ...] = ()
    running_jobs: int | None = None
    minimum_run_s: float | None = None


def pinned_twice(queues: Iterable[Queue]) -> dict[str, tuple[str, str]]:
    """By queue, which of its pinned machines it or one before it has pinned already, and the remedy."""
    owners: dict[str, str] = {}
    found: dict[str, tuple[str, str]] = {}
    for queue in queues:
        for machine in queue.pinned:
            if machine in owners:
                other = "itself" if owners[machine] == queue.name else f"queue {owners[machine]!r}"
                found[queue.name] = (
                    f"machine {machine!r} is pinned to queue {queue.name!r}, and to {other} before",
                    "pin it once",
                )
            owners.setdefault(machine, queue.name)
    return found


def takes_more_cells(queue: Queue, before: Queue) -> bool:
    """Whether a queue is owed any cells or pinned machines that it was not before."""
    counts = {cell.level: cell.count for cell in before.cells}
    return any(cell.count > counts.get(cell.level, 0) for cell in queue.cells) or not (
        set(queue.pinned) <= set(before.pinned)
    )


@dataclass(frozen=True, slots=True)
class Limit:
    """What the running work of one user, in all queues, or of one queue, by all users, may hold at once.

    Attributes:
        user, queue: whose limit it is: exactly one of the two is named.
        jobs: how many jobs may run; None is no limit, here and below.
        gpu_milli, cpu_milli, card_mib: the sum of what they hold.
    """

    user: str = ""
    queue: str = ""
    jobs: int | None = None
    gpu_milli: int | None = None
    cpu_milli: int | None = None
    card_mib: int | None = None
