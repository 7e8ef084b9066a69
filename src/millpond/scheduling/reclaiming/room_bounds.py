"""The kernels behind bounds on what the ordering displaces: up to which bound departures make room for a task."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from millpond.scheduling.placement.arrays import (
    COMPUTE_FREE,
    DEVICE_TOTAL,
    FIRST_DEVICE,
    NODE_USABLE,
    BoolArray,
    FloatArray,
    Int64Array,
)
from millpond.scheduling.placement.filters import first_failure
from millpond.scheduling.placement.kernels import kernel, lean_kernel
from millpond.scheduling.placement.shapes import SHAPE_COMPUTE, SHAPE_DEVICES
from millpond.scheduling.reclaiming.roster import ROW_COMPUTE, ROW_DEVICES, ROW_NEXT, ROW_SLOT, RosterTables
from millpond.scheduling.reclaiming.victims import MOST_ROWS, join, shift_row, shift_slot


@lean_kernel
def highest_of_owners(owners: Int64Array, bounds: FloatArray, highest: FloatArray) -> None:
    """Raise ``highest`` (owners,) to the highest of the ``bounds`` of the work of each; those are (slots,) both."""
    for slot in range(owners.shape[0]):
        highest[owners[slot]] = max(highest[owners[slot]], bounds[slot])


@kernel
def rooms_below(
    nodes: Int64Array,
    devices: Int64Array,
    shapes: Int64Array,
    of_reaches: Int64Array,
    open_nodes: NDArray[np.uint8],
    open_slots: BoolArray,
    place_nodes: Int64Array,
    place_slots: Int64Array,
    rows: Int64Array,
    row_devices: Int64Array,
    row_memory: Int64Array,
    node_head: Int64Array,
    bounds: FloatArray,
    costs: FloatArray,
    budget: float,
    sequence: FloatArray,
    below: FloatArray,
    highest: FloatArray,
    wanted: Int64Array,
    order: Int64Array,
) -> None:
    """Raise ``below`` to the highest bound below which work leaves that makes room for one task on some node.

    Args:
        shapes: (tasks, fields), what each asks for; below: (tasks,).
        of_reaches: (tasks,), to which of the reaches each is confined.
        open_nodes, open_slots: (reaches, nodes) and (reaches, slots), where work may leave, and which.
        place_nodes, place_slots: (places,), on which nodes work has something that could leave for any of the tasks.
        bounds: (slots,) below which each leaves.
        costs: (slots,) what each takes of the budget if it leaves, or less; budget: the most that all may take.
        sequence: (slots,) breaks ties.
        highest, wanted, order: (nodes,), all -inf; (nodes,); and (MOST_ROWS,): scratch.

    The tables are changed and changed back.
    """
    roster = RosterTables(rows, row_devices, row_memory, node_head)
    fits = np.zeros((place_nodes.shape[0], shapes.shape[0]), dtype=np.bool_)
    number_of = np.full(highest.shape[0], -1, dtype=np.int64)
    known = 0
    lowest_of_all = below.min()
    for node in place_nodes:
        if number_of[node] < 0:
            fit_if_all_leave(nodes, devices, node, shapes, roster, bounds, lowest_of_all, fits[known])
            number_of[node] = known
            known += 1
    for reach in range(open_slots.shape[0]):
        lowest = np.inf
        for task in range(shapes.shape[0]):
            if of_reaches[task] == reach:
                lowest = min(lowest, below[task])
        if lowest == np.inf:
            continue
        count = 0
        for place in range(place_nodes.shape[0]):
            node = place_nodes[place]
            slot = place_slots[place]
            if bounds[slot] <= lowest or open_nodes[reach, node] == 0 or not open_slots[reach, slot]:
                continue
            if highest[node] == -np.inf:
                wanted[count] = node
                count += 1
            highest[node] = max(highest[node], bounds[slot])
        descending = np.argsort(-highest[wanted[:count]])
        for task in range(shapes.shape[0]):
            best = below[task]
            for place in range(count if of_reaches[task] == reach else 0):
                node = wanted[descending[place]]
                if highest[node] <= best:
                    break
                if not fits[number_of[node], task]:
                    continue
                best = room_below(
                    nodes, devices, node, shapes[task], roster, bounds, costs, budget, open_slots[reach], sequence,
                    best, order,
                )  # fmt: skip
            below[task] = best
        for place in range(count):
            highest[wanted[place]] = -np.inf


@lean_kernel
def fit_if_all_leave(
    nodes: Int64Array,
    devices: Int64Array,
    node: int,
    shapes: Int64Array,
    roster: RosterTables,
    bounds: FloatArray,
    lowest: float,
    fits: BoolArray,
) -> None:
    """Fill ``fits`` (tasks,) with which tasks fit on a node without all whose bound is above the lowest one."""
    for sign in (1, -1):
        row = roster.node_head[node]
        while row >= 0:
            slot = roster.rows[ROW_SLOT, row]
            if bounds[slot] > lowest:
                shift_row(nodes, devices, node, roster, row, sign)
            row = roster.rows[ROW_NEXT, row]
        for task in range(shapes.shape[0] if sign > 0 else 0):
            fits[task] = first_failure(nodes, devices, node, shapes[task]) == 0


@lean_kernel
def missing_compute(nodes: Int64Array, devices: Int64Array, node: int, shape: Int64Array) -> int:
    """Milli of compute that departures have to free at least on the devices of a node for one task."""
    first = nodes[FIRST_DEVICE, node]
    wanted = shape[SHAPE_DEVICES]
    missing = 0
    level = 0
    while wanted > 0:  # first the devices that lack least
        at_level = 0
        next_level = np.iinfo(np.int64).max
        for device in range(first, first + nodes[DEVICE_TOTAL, node]):
            lacks = max(shape[SHAPE_COMPUTE] - devices[COMPUTE_FREE, device], 0)
            if lacks == level:
                at_level += 1
            elif level < lacks < next_level:
                next_level = lacks
        missing += min(at_level, wanted) * level
        wanted -= at_level
        level = next_level
    return missing


@lean_kernel
def room_below(
    nodes: Int64Array,
    devices: Int64Array,
    node: int,
    shape: Int64Array,
    roster: RosterTables,
    bounds: FloatArray,
    costs: FloatArray,
    budget: float,
    open_slots: BoolArray,
    sequence: FloatArray,
    least: float,
    order: Int64Array,
) -> float:
    """The bound below which work leaves a node that makes room for one task; ``least`` if it is no higher.

    A node that has room already counts with the highest of its bounds, as it may be filled until one asks. Where no two
    of its jobs may leave within the budget, one alone has to make room; nor is there any where the compute that is
    missing takes more of it, though it were freed by those that take least for what they free.
    """
    if nodes[NODE_USABLE, node] == 0 or nodes[DEVICE_TOTAL, node] < shape[SHAPE_DEVICES]:
        return least
    found = 0
    cheapest = dearer = np.inf
    cost_of_milli = np.inf  # at least
    rows = roster.rows
    row = roster.node_head[node]
    while row >= 0 and found < MOST_ROWS:
        slot = rows[ROW_SLOT, row]
        if bounds[slot] > least and open_slots[slot]:
            before = found
            found = join(order, found, slot, bounds, 1, sequence)
            if found > before:
                dearer = min(dearer, max(cheapest, costs[slot]))
                cheapest = min(cheapest, costs[slot])
                milli = rows[ROW_COMPUTE, row] * rows[ROW_DEVICES, row]
                cost_of_milli = min(cost_of_milli, costs[slot] / max(milli, 1))
            else:  # of several tasks there: what it frees for its cost is not counted
                cost_of_milli = 0.0
        row = rows[ROW_NEXT, row]
    if found == 0 or cost_of_milli * missing_compute(nodes, devices, node, shape) > budget:
        return least
    released = 0
    alone = cheapest + dearer > budget
    fits = first_failure(nodes, devices, node, shape) == 0
    while not fits and released < found:
        if alone and released > 0:
            shift_slot(nodes, devices, node, roster, order[released - 1], -1)
        shift_slot(nodes, devices, node, roster, order[released], 1)
        released += 1
        fits = first_failure(nodes, devices, node, shape) == 0
    for taken in range(max(released - 1, 0) if alone else 0, released):
        shift_slot(nodes, devices, node, roster, order[taken], -1)
    return bounds[order[max(released - 1, 0)]] if fits else least
