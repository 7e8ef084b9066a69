"""On which node making room for one task does the least harm: kept for all nodes while a plan takes shape.

Who would have to leave a node is worked out only where room might cost less than the cheapest found so far. For this
every node has a lower bound of its cost: the least harm of any job there, and the least harm for each milli of compute.

A plan for a gang asks once for each task, and from one task to the next few nodes change: those of the victims, and
where the task went. The arrays' change log names them, so only they are looked at again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millpond.scheduling.placement.arrays import (
    DEVICE_TOTAL,
    NODE_USABLE,
    WHOLE_CARD_MILLI,
    ClusterArrays,
    FloatArray,
    Int64Array,
)
from millpond.scheduling.placement.filters import first_failure
from millpond.scheduling.placement.kernels import KernelSet, interpreted, lean_kernel
from millpond.scheduling.placement.shapes import SHAPE_COMPUTE, SHAPE_DEVICES
from millpond.scheduling.reclaiming.attempts import Attempt, RoomCosts
from millpond.scheduling.reclaiming.roster import (
    MOST_MOVED_CARDS,
    NO_NODE,
    ROW_COMPUTE,
    ROW_DEVICES,
    ROW_NEXT,
    ROW_SLOT,
    SLOT_SEQUENCE,
    Roster,
    RosterTables,
)
from millpond.scheduling.reclaiming.victims import (
    MOST_ROWS,
    free_cards,
    free_compute,
    join,
    shift_slot,
    two_roomiest,
    vacate,
)

_NO_MASK: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)

_LEAST, _RATE, _MILLI = range(3)
"""Rows of the bounds of ``bound_costs``."""

_ROUNDING = 1.0 - 1e-9
"""Factor on a bound, so that rounding does not lift it above what it bounds."""


class Harms(NamedTuple):
    """What departures cost.

    Attributes:
        harm: (slots,) cost of ending each job; infinite for those that may not be asked.
        preference: (slots,) who leaves first on a node, highest first.
        move_harm: (slots,) cost of moving each aside to whole cards that are free elsewhere; infinite for those that
            may not be moved; or empty.
        charges: (slots,) what each takes of the budget if it leaves, or less; or empty.
        sequence: (slots,) order of arrival; ties go to who came first.
    """

    harm: FloatArray
    preference: FloatArray
    move_harm: FloatArray
    charges: FloatArray
    sequence: FloatArray


class NodeCosts(NamedTuple):
    """What room costs on each node.

    Attributes:
        costs, spent, surplus: (N,) the harm of making room on each, infinite where none can be made, what that takes of
            the budget, and its free compute then. ``surplus`` is -1 where the harm is a bound alone: it is no less.
        roomiest: (2,) the most wholly free cards of a node and of another one.
    """

    costs: FloatArray
    spent: FloatArray
    surplus: Int64Array
    roomiest: Int64Array


@lean_kernel
def room_on(
    nodes: Int64Array,
    devices: Int64Array,
    node: int,
    shape: Int64Array,
    mask: NDArray[np.uint8],
    roster: RosterTables,
    harms: Harms,
    elsewhere: int,
    victims: Int64Array,
) -> int:
    """Take those off a node that have to leave it for one task: how many, the first of ``victims``; -1: no room.

    Args:
        mask: (N,), 0 excludes a node; or empty.
        elsewhere: how many wholly free cards some other node has.
        victims: (MOST_ROWS,) receives the slots.
    """
    row = roster.node_head[node]
    if row < 0 or nodes[NODE_USABLE, node] == 0 or nodes[DEVICE_TOTAL, node] < shape[SHAPE_DEVICES]:
        return -1
    if mask.shape[0] > 0 and mask[node] == 0:
        return -1
    rows, harm, move_harm = roster.rows, harms.harm, harms.move_harm
    moves = move_harm.shape[0] > 0
    found = 0
    while row >= 0 and found < MOST_ROWS:
        slot = rows[ROW_SLOT, row]
        wanted = harm[slot] < np.inf
        if not wanted and moves and move_harm[slot] < np.inf and rows[ROW_COMPUTE, row] == WHOLE_CARD_MILLI:
            wanted = 0 < rows[ROW_DEVICES, row] <= min(MOST_MOVED_CARDS, elsewhere)
        if wanted:
            found = join(victims, found, slot, harms.preference, 1, harms.sequence)
        row = rows[ROW_NEXT, row]
    if found == 0:
        return -1
    return vacate(nodes, devices, node, shape, roster, victims, found)


@lean_kernel
def bound_costs(
    places: Int64Array,
    slots: Int64Array,
    milli: Int64Array,
    harm: FloatArray,
    move_harm: FloatArray,
    bounds: FloatArray,
) -> None:
    """Fill ``bounds`` (3, N) for the jobs that may leave a node, or be moved off it.

    Its rows are the least harm of any of them, the least harm for each milli of compute that a job holds in all, and
    the sum of that compute, once for each holding on the node. A node without such jobs has infinite harm and sum 0.

    ``places``, ``slots``, ``milli``: (rows,), see ``Roster.places``.
    """
    for node in range(bounds.shape[1]):
        bounds[_LEAST, node] = np.inf
        bounds[_RATE, node] = np.inf
        bounds[_MILLI, node] = 0.0
    for place in range(places.shape[0]):
        node = places[place]
        if node == NO_NODE:
            continue
        slot = slots[place]
        least = harm[slot]
        if move_harm.shape[0] > 0:
            least = min(least, move_harm[slot])
        if least < np.inf:
            bounds[_LEAST, node] = min(bounds[_LEAST, node], least)
            bounds[_MILLI, node] += milli[place]
            if milli[place] > 0:
                bounds[_RATE, node] = min(bounds[_RATE, node], least / milli[place])


@lean_kernel
def bound_on(nodes: Int64Array, devices: Int64Array, node: int, shape: Int64Array, bounds: FloatArray) -> float:
    """Lower bound of what room for one task on a node costs, by ``bound_costs``; infinite where there can be none."""
    if bounds[_LEAST, node] == np.inf:
        return np.inf
    missing = shape[SHAPE_DEVICES] * shape[SHAPE_COMPUTE] - free_compute(nodes, devices, node)
    if missing > bounds[_MILLI, node]:
        return np.inf
    if missing > 0:
        return float(max(bounds[_LEAST, node], bounds[_RATE, node] * missing * _ROUNDING))
    return 0.0 if first_failure(nodes, devices, node, shape) == 0 else float(bounds[_LEAST, node])


@lean_kernel
def cost_on(
    nodes: Int64Array,
    devices: Int64Array,
    node: int,
    shape: Int64Array,
    mask: NDArray[np.uint8],
    roster: RosterTables,
    harms: Harms,
    known: NodeCosts,
    victims: Int64Array,
) -> int:
    """Bring what room costs on one node up to date; returns how many leave for it, the first of ``victims``."""
    elsewhere = known.roomiest[1] if free_cards(nodes, devices, node) == known.roomiest[0] else known.roomiest[0]
    kept = room_on(nodes, devices, node, shape, mask, roster, harms, elsewhere, victims)
    known.costs[node] = 0.0 if kept >= 0 else np.inf
    known.spent[node] = 0.0
    known.surplus[node] = free_compute(nodes, devices, node)
    for position in range(kept):
        slot = victims[position]
        known.costs[node] += harms.harm[slot] if harms.harm[slot] < np.inf else harms.move_harm[slot]
        known.spent[node] += harms.charges[slot] if harms.charges.shape[0] > 0 else 0.0
        shift_slot(nodes, devices, node, roster, slot, -1)
    return kept


@lean_kernel
def cheapest_room(
    nodes: Int64Array,
    devices: Int64Array,
    count: int,
    shape: Int64Array,
    mask: NDArray[np.uint8],
    rows: Int64Array,
    row_devices: Int64Array,
    row_memory: Int64Array,
    node_head: Int64Array,
    harm: FloatArray,
    preference: FloatArray,
    move_harm: FloatArray,
    charges: FloatArray,
    left: float,
    sequence: FloatArray,
    bounds: FloatArray,
    changed: Int64Array,
    begin: int,
    head: int,
    costs: FloatArray,
    spent: FloatArray,
    surplus: Int64Array,
    roomiest: Int64Array,
    victims: Int64Array,
    chosen: Int64Array,
) -> tuple[int, int]:
    """The node on which making room for one task does the least harm: (node, number of victims), (-1, 0) if none.

    Args:
        left: no more of the budget may be taken.
        bounds: of all that may leave, and perhaps of others, see ``bound_costs``.
        changed: the arrays' change log, to be read from ``begin`` to ``head``; ``begin`` -1: all nodes have changed.
        victims: (MOST_ROWS,) scratch.
        chosen: (MOST_ROWS,) receives the victims: twice the slot, plus one if it is moved.

    Others are as in ``RosterTables``, ``Harms`` and ``NodeCosts``; the last are as of ``begin``, and are brought up to
    date. The tables are changed and changed back. Ties: the least surplus of free compute, then the lowest node.
    """
    roster = RosterTables(rows, row_devices, row_memory, node_head)
    harms = Harms(harm, preference, move_harm, charges, sequence)
    known = NodeCosts(costs, spent, surplus, roomiest)
    if move_harm.shape[0] > 0:
        first, second = two_roomiest(nodes, devices, count)
        if first != roomiest[0] or second != roomiest[1]:
            begin = -1  # what can be moved aside elsewhere may be another everywhere
            roomiest[0] = first
            roomiest[1] = second
    count = min(count, node_head.shape[0])
    for step in range(costs.shape[0] if begin < 0 else head - begin):
        node = step if begin < 0 else changed[(begin + step) % changed.shape[0]]
        if node >= count:
            costs[node] = np.inf
            continue
        is_out = nodes[NODE_USABLE, node] == 0 or (mask.shape[0] > 0 and mask[node] == 0)
        costs[node] = np.inf if is_out else bound_on(nodes, devices, node, shape, bounds)
        surplus[node] = -1
    likely = 0
    for node in range(count):
        if costs[node] < costs[likely]:
            likely = node
    best = -1
    for step in range(-1, count):
        node = likely if step < 0 else step  # the first look spares most of the others
        if costs[node] == np.inf or (best >= 0 and costs[node] > costs[best]):
            continue
        if surplus[node] < 0:
            cost_on(nodes, devices, node, shape, mask, roster, harms, known, victims)
        if costs[node] == np.inf or spent[node] > left:
            continue
        if (
            best < 0
            or costs[node] < costs[best]
            or (
                costs[node] == costs[best]
                and (surplus[node] < surplus[best] or (surplus[node] == surplus[best] and node < best))
            )
        ):
            best = node
    if best < 0:
        return -1, 0
    kept = cost_on(nodes, devices, best, shape, mask, roster, harms, known, victims)
    for position in range(kept):
        chosen[position] = 2 * victims[position] + (0 if harm[victims[position]] < np.inf else 1)
    return best, kept


class RoomSearch:
    """Looks for the cheapest room on one cluster."""

    def __init__(self, arrays: ClusterArrays, roster: Roster) -> None:
        self._arrays, self._roster = arrays, roster
        self._victims, self._chosen = np.zeros((2, MOST_ROWS), dtype=np.int64)
        self.use_kernels(interpreted())

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; costs are the same."""
        self._bound_costs = kernels.call(bound_costs.__name__)
        self._cheapest_room = kernels.call(cheapest_room.__name__)

    def cheapest(self, attempt: Attempt, shape: Int64Array, known: RoomCosts) -> tuple[int, list[int]]:
        """The node with the least harm and whom to ask there: twice the slot, plus one if it is moved; -1: none.

        Args:
            shape: as kernels want it.
            known: of this attempt and this shape; brought up to date.
        """
        arrays, roster = self._arrays, self._roster
        if attempt.bounds is None:
            attempt.bounds = np.empty((3, arrays.node_count))
            self._bound_costs(*roster.places(attempt.rule.slots), attempt.harm, attempt.move_harm, attempt.bounds)
        head, begin = arrays.change_head, known.as_of
        if head - begin > len(arrays.changed):
            begin = -1
        node, count = self._cheapest_room(
            arrays.node_table, arrays.device_table, arrays.node_count, shape,
            _NO_MASK if attempt.mask is None else attempt.mask, roster.rows, roster.row_devices, roster.row_memory,
            roster.node_head, attempt.harm, attempt.rule.preference, attempt.move_harm, attempt.rule.charges,
            attempt.left, roster.slots[SLOT_SEQUENCE], attempt.bounds, arrays.changed, begin, head, known.costs,
            known.spent, known.surplus, known.roomiest, self._victims, self._chosen,
        )  # fmt: skip
        known.as_of = head
        return int(node), self._chosen[:count].tolist()
