"""Bounds for all that ask for the same: up to which ``displaces_above`` departures by the ordering make room for it.

On some node all those must leave without whom there is no room, and the bound is the lowest of theirs. It is lower for
those whose reach is less: some work is of queues whose turn comes before theirs, and some nodes are kept from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from millpond.scheduling.ordering.base import cards
from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.placement.selector import Selector
from millpond.scheduling.reclaiming.room_bounds import rooms_below
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


_NOBODY: BoolArray = np.zeros(0, dtype=np.bool_)


class RequestBounds:
    """Bounds on one state, on the trial ledger as it is when they are asked for."""

    def __init__(self, state: State, selector: Selector, running: RunningWork) -> None:
        self._state = state
        self._selector = selector
        self._running = running
        self._order = np.zeros(MOST_ROWS, dtype=np.int64)
        self._highest: dict[tuple[object, ...], tuple[Int64Array, FloatArray]] = {}
        """See ``_highest_of``."""
        self.use_kernels(interpreted())

    def begin(self) -> None:
        """A walk begins."""
        self._highest.clear()

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; bounds are the same."""
        self._rooms_below = kernels.call(rooms_below.__name__)

    def of(self, asked: Sequence[Asked]) -> FloatArray:
        """(asked,) departures make room for each only if its ``displaces_above`` is below this.

        No lower than what is of interest; infinite for a job of several tasks: those without room may find it where
        others leave it.
        """
        found = np.full(len(asked), np.inf)
        searches: dict[tuple[object, ...], list[int]] = {}
        for number, (record, _, reach) in enumerate(asked):
            if len(record.tasks) == 1:
                searches.setdefault((record.job.priority, _moving(record), reach.key), []).append(number)
        for numbers in searches.values():
            found[numbers] = self._below([asked[number] for number in numbers])
        return found

    def _below(self, asked: Sequence[Asked]) -> FloatArray:
        """(asked,) the bounds of some for which the same work may leave or be moved."""
        arrays, roster, words = self._state.cluster.arrays, self._state.roster, self._state.cluster.words
        record, _, reach = asked[0]
        bounds = self._running.bounds(record.job.priority, _moving(record))
        owners, slot_owners = _NOBODY if reach.owners is None else reach.owners, roster.slots[SLOT_OWNER]
        below = np.array([above for _, above, _ in asked])
        order, highest = self._highest_of(record, reach, bounds, owners)
        if len(order) and highest[0] > below.min():
            shapes = self._selector.vectors(
                [words.shapes_of(record.demand)[record.tasks[0].role_index] for record, _, _ in asked]
            )
            self._rooms_below(
                arrays.node_table, arrays.device_table, order, highest, shapes, roster.rows,
                roster.row_devices, roster.row_memory, roster.node_head, bounds, slot_owners, owners,
                roster.slots[SLOT_SEQUENCE], below, self._order,
            )  # fmt: skip
        return below

    def _highest_of(
        self, record: JobRecord, reach: Reach, bounds: FloatArray, owners: BoolArray
    ) -> tuple[Int64Array, FloatArray]:
        """Nodes from which work may leave, and the highest bound on each, or more, descending.

        In a walk bounds only fall, as others are asked to leave, so what was found first does for all of it.
        """
        key = record.job.priority, _moving(record), reach.key
        found = self._highest.get(key)
        if found is None:
            roster = self._state.roster
            may_leave = bounds > -np.inf
            nodes, slots = roster.places_of(may_leave if reach.owners is None else may_leave & roster.are_of(owners))
            highest = np.full(self._state.cluster.arrays.node_count, -np.inf)
            np.maximum.at(highest, nodes, bounds[slots])
            if reach.kept is not None:
                highest[reach.kept.mask == 0] = -np.inf
            order: Int64Array = np.argsort(-highest)[: np.count_nonzero(highest > -np.inf)]
            found = self._highest[key] = order, highest[order]
        return found


def _moving(record: JobRecord) -> float:
    """For how many cards others may be moved aside for a job; 0: for none."""
    return cards(record) if cards(record) >= LEAST_MOVING_CARDS else 0.0
