"""The queue tree: what each queue is guaranteed, what it may not exceed, and what it uses.

Usage is charged along the path from a leaf to the root, and recorded in the journal, so a trial placement is charged
and uncharged with the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from millpond.model.errors import InconsistentStateError, InvalidInputError
from millpond.model.resources import Amount
from millpond.model.tenants import DEFAULT_QUEUE, ROOT_QUEUE, Queue
from millpond.scheduling.ledger.journal import Journal

UNBOUNDED = (math.inf, math.inf)


class QueueNode:
    """One queue with its present usage (guaranteed GPU milli, CPU milli, memory MiB of what it holds)."""

    __slots__ = ("children", "cpu_milli", "gpu_milli", "guarantor", "memory_mib", "parent", "path", "queue", "weights")

    def __init__(self, queue: Queue, parent: QueueNode | None) -> None:
        self.queue = queue
        self.parent = parent
        self.children: list[str] = []
        self.weights = 0.0
        """Those of its children, added up."""
        self.gpu_milli = 0
        self.cpu_milli = 0
        self.memory_mib = 0
        self.path: tuple[QueueNode, ...] = (self,) if parent is None else (self, *parent.path)
        """From this queue up to the root."""
        self.guarantor: QueueNode | None = None
        """The queue whose guarantee it lives on: its own, or the nearest above it; None if there is none."""

    @property
    def part(self) -> float:
        """Its part of what its parent gets, above 0: its weight among its siblings."""
        weights = 0.0 if self.parent is None else self.parent.weights
        return max(self.queue.weight / weights, 1e-9) if weights > 0 else 1.0

    def exceeds_limit(self, amount: Amount) -> bool:
        """Whether ``amount`` more would go beyond this queue's own limit; nothing more of a resource never does."""
        limit = self.queue.limit
        return limit is not None and (
            _exceeds(self.gpu_milli, amount.gpu_milli, limit.gpu_milli)
            or (limit.cpu_milli > 0 and _exceeds(self.cpu_milli, amount.cpu_milli, limit.cpu_milli))
            or (limit.memory_mib > 0 and _exceeds(self.memory_mib, amount.memory_mib, limit.memory_mib))
        )

    @property
    def room(self) -> tuple[float, float]:
        """How much more compute and CPU, in milli, this queue's own limit allows; infinite where it bounds nothing."""
        limit = self.queue.limit
        if limit is None:
            return UNBOUNDED
        cpu = max(limit.cpu_milli - self.cpu_milli, 0) if limit.cpu_milli > 0 else math.inf
        return max(limit.gpu_milli - self.gpu_milli, 0), cpu

    def within_guarantee(self, amount: Amount) -> bool:
        """Whether with ``amount`` more this queue still stays within its own guarantee of cards."""
        return self.gpu_milli + amount.gpu_milli <= self.queue.guarantee.gpu_milli


def _exceeds(used: int, more: int, limit: int) -> bool:
    return more > 0 and used + more > limit


class QueueTree:
    """All queues. There is always a root and, under it, the leaf that takes jobs naming no other."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.by_name: dict[str, QueueNode] = {}
        self.has_guarantees = False
        """Whether any queue is guaranteed anything."""
        self.has_bounds = False
        """Whether any queue has a limit or may not borrow."""
        self.depth = 0
        """Queues from the deepest one up to the root, without that."""
        self.set_queue(Queue(ROOT_QUEUE, parent=""))
        self.set_queue(Queue(DEFAULT_QUEUE))

    def copy_from(self, other: QueueTree) -> None:
        """Become like another tree, with the same usage."""
        for node in other.by_name.values():
            self.set_queue(node.queue)
            own = self.by_name[node.queue.name]
            own.gpu_milli, own.cpu_milli, own.memory_mib = node.gpu_milli, node.cpu_milli, node.memory_mib

    def set_queue(self, queue: Queue) -> None:
        """Define or redefine a queue; its parent comes first.

        Raises:
            InvalidInputError: the parent is unknown, or another than before.
        """
        self.journal.require_no_trial()
        self._define(queue)
        parent = self.by_name[queue.name].parent
        if parent is not None:
            parent.weights = sum(self.by_name[child].queue.weight for child in parent.children)
        for node in self.by_name.values():
            node.guarantor = next((each for each in node.path if each.queue.guarantee.gpu_milli > 0), None)
        self.depth = max(len(node.path) for node in self.by_name.values()) - 1
        self.has_guarantees = any(node.guarantor is not None for node in self.by_name.values())
        self.has_bounds = any(node.queue.limit is not None or not node.queue.borrows for node in self.by_name.values())

    def _define(self, queue: Queue) -> None:
        existing = self.by_name.get(queue.name)
        if existing is not None:
            if existing.queue.parent != queue.parent:
                raise InvalidInputError(
                    f"queue {queue.name!r} would move from {existing.queue.parent!r} to {queue.parent!r}",
                    "define a new queue under the new parent",
                )
            existing.queue = queue
            return
        if queue.name == ROOT_QUEUE:
            self.by_name[queue.name] = QueueNode(queue, None)
            return
        parent = self.by_name.get(queue.parent)
        if parent is None:
            raise InvalidInputError(
                f"queue {queue.name!r} names an unknown parent {queue.parent!r}", "define the parent first"
            )
        parent.children.append(queue.name)
        self.by_name[queue.name] = QueueNode(queue, parent)

    def is_leaf(self, name: str) -> bool:
        """Whether the queue exists and takes jobs."""
        node = self.by_name.get(name)
        return node is not None and not node.children and name != ROOT_QUEUE

    def leaves(self) -> Iterator[QueueNode]:
        """Queues that take jobs, in order of definition."""
        return (node for name, node in self.by_name.items() if self.is_leaf(name))

    def charge(self, name: str, amount: Amount, sign: int) -> None:
        """Count ``amount`` for a leaf and all queues above it (``sign`` -1: no longer)."""
        self.journal.record(self._add, name, amount, -sign)
        self._add(name, amount, sign)

    def _add(self, name: str, amount: Amount, sign: int) -> None:
        gpu, cpu, memory = sign * amount.gpu_milli, sign * amount.cpu_milli, sign * amount.memory_mib
        for node in self.by_name[name].path:
            node.gpu_milli += gpu
            node.cpu_milli += cpu
            node.memory_mib += memory
            if sign < 0 and (node.gpu_milli < 0 or node.cpu_milli < 0 or node.memory_mib < 0):
                raise InconsistentStateError(f"usage of queue {node.queue.name!r} fell below zero")

    def limiting(self, name: str, amount: Amount) -> QueueNode | None:
        """The first queue on the way up whose limit ``amount`` would break; None when all allow it."""
        if not self.has_bounds:
            return None
        for node in self.by_name[name].path:
            if node.exceeds_limit(amount):
                return node
        return None

    def borrows(self, name: str, amount: Amount) -> bool:
        """Whether ``amount`` more for this leaf would be beyond what it is guaranteed.

        A leaf without a guarantee of its own lives on its parent's, and so on up; the root guarantees nothing.
        """
        guarantor = self.guarantor(name)
        return guarantor is None or not guarantor.within_guarantee(amount)

    def guaranteed_left(self, name: str) -> int:
        """How much more, in milli, a leaf may hold within its guarantee, or one above it; -1 where it borrows."""
        guarantor = self.guarantor(name)
        return -1 if guarantor is None else max(guarantor.queue.guarantee.gpu_milli - guarantor.gpu_milli, -1)

    def guarantor(self, name: str) -> QueueNode | None:
        """The queue whose guarantee a leaf lives on: its own, or the nearest above it; None if there is none."""
        return self.by_name[name].guarantor

    def shields(self, name: str, newcomer: str) -> bool:
        """Whether a leaf is within a guarantee on which another leaf does not live."""
        guarantor = self.guarantor(name)
        return (
            guarantor is not None and guarantor is not self.guarantor(newcomer) and guarantor.within_guarantee(Amount())
        )

    def may_borrow(self, name: str) -> bool:
        """Whether the leaf and every queue above it may run beyond their guarantees."""
        return all(node.queue.borrows for node in self.by_name[name].path)

    def admits(self, name: str, amount: Amount) -> bool:
        """Whether the leaf may hold ``amount`` more: by all limits on the way up, and by who may borrow."""
        if not self.has_bounds:
            return True
        if self.limiting(name, amount) is not None:
            return False
        return amount.gpu_milli == 0 or self.may_borrow(name) or not self.borrows(name, amount)

    def room(self, name: str) -> tuple[float, float]:
        """The most compute and CPU, in milli, that ``admits`` may allow a leaf."""
        milli, cpu = map(min, zip(*(node.room for node in self.by_name[name].path), strict=True))
        return milli if self.may_borrow(name) else min(milli, max(self.guaranteed_left(name), 0)), cpu

    def is_below(self, name: str, ancestor: str) -> bool:
        """Whether a queue is another one, or one below it."""
        return self.by_name[ancestor] in self.by_name[name].path

    def may_take_back(self, name: str, victim: str) -> bool:
        """Whether a leaf within its guarantee may take back work of another leaf, because that is borrowed.

        It is where the other holds more than it is guaranteed. Of what a queue above both of them is guaranteed, that
        goes first to which one of them is guaranteed a part of its own.
        """
        path = self.by_name[name].path
        own = next((level for level, node in enumerate(path) if node.queue.guarantee.gpu_milli > 0), len(path))
        for node in self.by_name[victim].path:
            if node in path[own + 1 :]:
                return True
            if node.queue.guarantee.gpu_milli > 0:
                return node.gpu_milli > node.queue.guarantee.gpu_milli
        return True
