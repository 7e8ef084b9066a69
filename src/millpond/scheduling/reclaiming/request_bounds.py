"""Bounds for all that ask for the same: up to which ``displaces_above`` departures by the ordering make room for it.

On some node all those must leave without whom there is no room, and the bound is the lowest of theirs. It is lower for
those whose reach is less: some work is of queues whose turn comes before theirs, and some nodes are kept from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.ordering.base import cards
from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.placement.selector import Selector
from millpond.scheduling.reclaiming.room_bounds import highest_bounds, rooms_below
from millpond.scheduling.reclaiming.roster import (
    LEAST_MOVING_CARDS,
    SLOT_OWNER,
    SLOT_SEQUENCE,
    BoolArray,
    FloatArray,
)
from millpond.scheduling.reclaiming.running_work import RunningWork
from millpond.scheduling.reclaiming.victims import MOST_ROWS
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State


class BarredNodes(NamedTuple):
    """Nodes that are kept from jobs.

    Attributes:
        key: differs where the nodes may.
        mask: (nodes,), 0 for those.
    """

    key: tuple[str, bool, int]
    mask: NDArray[np.uint8]


class Reach(NamedTuple):
    """Whose running work may leave by the ordering, and where.

    Attributes:
        key: differs where the others may.
        owners: (owners of the roster,) whose; None: everybody's.
        kept: where not; None: it may anywhere.
    """

    key: tuple[bytes, tuple[str, bool, int] | None]
    owners: BoolArray | None
    kept: BarredNodes | None


EVERYWHERE = Reach((b"", None), None, None)

Asked: TypeAlias = tuple[JobRecord, float, Reach]
"""A job, how low a bound for what it asks for is of interest, and who may leave for it at most."""


@dataclass(slots=True)
class RequestBound:
    """What is known of those that ask for the same.

    Attributes:
        below: the bound, or ``above`` where it is no higher.
        above: what was asked for; how low the bound is below that is not known.
        leaving: how many jobs had been asked to leave then.
        change_head: how long the arrays' change log was then; -1: it was never looked for.
    """

    below: float
    above: float
    leaving: int
    change_head: int = -1


class Search(NamedTuple):
    """What a kernel is asked for at once: who may leave is the same, and the nodes that have changed are.

    Attributes:
        moving: for how many cards others may be moved aside; 0: for none.
    """

    priority: int
    moving: float
    reach: tuple[bytes, tuple[str, bool, int] | None]
    since: int


_NOBODY: BoolArray = np.zeros(0, dtype=np.bool_)
_NO_MASK: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)


class RequestBounds:
    """Bounds on one state during one walk."""

    def __init__(self, state: State, selector: Selector, running: RunningWork) -> None:
        self._state = state
        self._selector = selector
        self._running = running
        self._known: dict[tuple[RequestClass, int, object], RequestBound] = {}
        self._order = np.zeros(MOST_ROWS, dtype=np.int64)
        self.use_kernels(interpreted())

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; bounds are the same."""
        self._highest_bounds = kernels.call(highest_bounds.__name__)
        self._rooms_below = kernels.call(rooms_below.__name__)

    def begin(self) -> None:
        """A walk begins."""
        self._known.clear()

    def of(self, asked: Sequence[Asked]) -> FloatArray:
        """(asked,) departures make room for each only if its ``displaces_above`` is below this.

        No lower than what is of interest; infinite for a job of several tasks: those without room may find it where
        others leave it.
        """
        leaving, found = len(self._running.leaving), [np.inf] * len(asked)
        known: dict[int, RequestBound] = {}
        searches: dict[Search, list[int]] = {}
        for number, (record, above, reach) in enumerate(asked):
            if len(record.tasks) > 1:
                continue
            kind = record.demand, int(record.job.priority), reach.key
            bound = self._known.get(kind)
            if bound is None or bound.above > above:
                bound = self._known[kind] = RequestBound(above, above, leaving)
            known[number] = bound
            # Who leaves makes room where it was; elsewhere there is no more than there was.
            if bound.change_head < 0 or bound.leaving != leaving:
                moving = cards(record) if cards(record) >= LEAST_MOVING_CARDS else 0.0
                search = Search(kind[1], moving, reach.key, bound.change_head)
                searches.setdefault(search, []).append(number)
        for search, numbers in searches.items():
            self._raise(search, [asked[number] for number in numbers], [known[number] for number in numbers])
        for number, bound in known.items():
            # Another may have asked for less: who asks now is told of no bound below what is of interest to it.
            found[number] = max(bound.below, asked[number][1])
        return np.array(found)

    def _raise(self, search: Search, asked: Sequence[Asked], known: Sequence[RequestBound]) -> None:
        """Bring bounds up to date, of all nodes or of those that have changed."""
        arrays, roster, words = self._state.cluster.arrays, self._state.roster, self._state.cluster.words
        below = np.array([bound.below for bound in known])
        bounds = self._running.bounds(search.priority, search.moving)
        _, _, reach = asked[0]
        owners = _NOBODY if reach.owners is None else reach.owners
        mask = _NO_MASK if reach.kept is None else reach.kept.mask
        nodes: Int64Array = np.arange(arrays.node_count) if search.since < 0 else arrays.changed_since(search.since)
        highest, slot_owners = np.empty(len(nodes)), roster.slots[SLOT_OWNER]
        self._highest_bounds(nodes, roster.rows, roster.node_head, bounds, slot_owners, owners, mask, highest)
        useful = np.flatnonzero(highest > below.min())
        if len(useful):
            order = useful[np.argsort(-highest[useful])]
            shapes = self._selector.vectors(
                [words.shapes_of(record.demand)[record.tasks[0].role_index] for record, _, _ in asked]
            )
            self._rooms_below(
                arrays.node_table, arrays.device_table, nodes[order], highest[order], shapes, roster.rows,
                roster.row_devices, roster.row_memory, roster.node_head, bounds, slot_owners, owners,
                roster.slots[SLOT_SEQUENCE], below, self._order,
            )  # fmt: skip
        leaving, head = len(self._running.leaving), arrays.change_head
        for bound, raised in zip(known, below.tolist(), strict=True):
            bound.below, bound.leaving, bound.change_head = raised, leaving, head
