"""Bounds for all that ask for the same: up to which ``displaces_above`` departures by the ordering make room for it.

On some node all those must leave without whom there is no room, and the bound is the lowest of theirs. It is lower for
those whose reach is less: some work is of queues whose turn comes before theirs, or would without it, and some nodes
are kept from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millpond.scheduling.ordering.base import cards_of
from millpond.scheduling.placement.arrays import BoolArray, FloatArray, Int64Array
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.reclaiming.kept_turns import KeptTurns
from millpond.scheduling.reclaiming.room_bounds import rooms_below
from millpond.scheduling.reclaiming.roster import LEAST_MOVING_CARDS, SLOT_SEQUENCE
from millpond.scheduling.reclaiming.running_work import RunningWork
from millpond.scheduling.reclaiming.victims import MOST_ROWS
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
        queue: whose turn it has to be without each; empty: that does not matter.
    """

    key: tuple[bytes, tuple[str, bool, int] | None, str]
    owners: BoolArray | None
    kept: BarredNodes | None
    queue: str

    @classmethod
    def of(cls, owners: BoolArray | None, kept: BarredNodes | None, queue: str = "") -> Reach:
        """That of some owners on the nodes that are not kept."""
        key = b"" if owners is None else owners.tobytes(), None if kept is None else kept.key, queue
        return cls(key, owners, kept, queue)


EVERYWHERE = Reach.of(None, None)


class Asked(NamedTuple):
    """What jobs of one task ask for, (asked,) each but the last.

    Attributes:
        shapes: (asked, fields) as kernels read them.
        classes: of priority.
        moving: for how many cards others may be moved aside for each; 0: nobody may be.
        above: how low a bound is of interest.
        of_reaches: which of ``reaches`` each has: who may leave for it at most.
    """

    shapes: Int64Array
    classes: Int64Array
    moving: FloatArray
    above: FloatArray
    of_reaches: Int64Array
    reaches: Sequence[Reach]


class RequestBounds:
    """Bounds on one state, on the trial ledger as it is when they are asked for."""

    def __init__(self, state: State, running: RunningWork, kept_turns: KeptTurns) -> None:
        self._state = state
        self._running = running
        self._kept_turns = kept_turns
        self._order = np.zeros(MOST_ROWS, dtype=np.int64)
        self.use_kernels(interpreted())

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; bounds are the same."""
        self._rooms_below = kernels.call(rooms_below.__name__)

    def of(self, asked: Asked) -> FloatArray:
        """(asked,) departures make room for each only if its ``displaces_above`` is below this.

        No lower than what is of interest.
        """
        arrays, roster, below = self._state.cluster.arrays, self._state.roster, asked.above.copy()
        budget = self._running.payable
        for priority, moving in set(zip(asked.classes.tolist(), asked.moving.tolist(), strict=True)):
            alike = np.flatnonzero((asked.classes == priority) & (asked.moving == moving))
            bounds, of_alike = self._running.bounds(priority, moving), below[alike]
            could_leave = self._running.above(float(of_alike.min()), priority, moving)
            nodes, slots, _ = roster.places(could_leave)
            if len(nodes):
                numbers, of_reaches = np.unique(asked.of_reaches[alike], return_inverse=True)
                reaches = [asked.reaches[number] for number in numbers.tolist()]
                self._rooms_below(
                    arrays.node_table, arrays.device_table, asked.shapes[alike], of_reaches, self._open_nodes(reaches),
                    self._open_slots(reaches, could_leave), nodes, slots, roster.rows,
                    roster.row_devices, roster.row_memory, roster.node_head, bounds, self._running.costs(), budget,
                    roster.slots[SLOT_SEQUENCE], of_alike, np.full(arrays.node_count, -np.inf),
                    np.empty(arrays.node_count, dtype=np.int64), self._order,
                )  # fmt: skip
                below[alike] = of_alike
        return below

    def _open_nodes(self, reaches: Sequence[Reach]) -> NDArray[np.uint8]:
        """(reaches, nodes) 0 for the nodes that are kept from each reach."""
        found = np.ones((len(reaches), self._state.cluster.arrays.node_count), dtype=np.uint8)
        for number, reach in enumerate(reaches):
            if reach.kept is not None:
                found[number] = reach.kept.mask
        return found

    def _open_slots(self, reaches: Sequence[Reach], slots: Int64Array) -> BoolArray:
        """(reaches, slots of the roster) which of these slots are within each reach."""
        roster = self._state.roster
        found, owners = np.zeros((len(reaches), roster.width), dtype=np.bool_), roster.owners[slots]
        for number, reach in enumerate(reaches):
            is_open = np.ones(len(slots), dtype=np.bool_) if reach.owners is None else reach.owners[owners]
            kept = self._kept_turns.of(reach.queue, slots) if reach.queue else None
            found[number, slots] = is_open if kept is None else is_open & kept
        return found


def moving_for(gpu_milli: int) -> float:
    """For how many cards others may be moved aside for a job of this size; 0: nobody may be."""
    return cards if (cards := cards_of(gpu_milli)) >= LEAST_MOVING_CARDS else 0.0
