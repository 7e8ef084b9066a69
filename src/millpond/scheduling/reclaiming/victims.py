"""The kernels that look for room in occupied nodes: who would have to leave, and when it becomes free by itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from millpond.scheduling.placement.arrays import (
    COMPUTE_FREE,
    CPU_FREE,
    DEVICE_MEMORY_FREE,
    DEVICE_TOTAL,
    DEVICE_USABLE,
    FIRST_DEVICE,
    FIRST_EXTRA,
    LIMIT_FREE,
    MEMORY_FREE,
    NODE_USABLE,
    WHOLE_CARD_MILLI,
    FloatArray,
    Int64Array,
)
from millpond.scheduling.placement.filters import first_failure, tasks_held
from millpond.scheduling.placement.kernels import lean_kernel
from millpond.scheduling.reclaiming.roster import (
    ROW_COMPUTE,
    ROW_CPU,
    ROW_DEVICES,
    ROW_FIRST_EXTRA,
    ROW_LIMIT,
    ROW_NEXT,
    ROW_RAM,
    ROW_SLOT,
    SLOT_ALIVE,
    SLOT_PRIORITY,
    SLOT_PROTECTED_UNTIL,
    RosterTables,
)

MOST_ROWS = 512
"""Tasks looked at on one node; more than any node runs in practice."""


@lean_kernel
def shift_row(
    nodes: Int64Array,
    devices: Int64Array,
    node: int,
    roster: RosterTables,
    row: int,
    sign: int,
) -> None:
    """Add ``sign`` times what a row holds to what is free."""
    rows = roster.rows
    nodes[CPU_FREE, node] += sign * rows[ROW_CPU, row]
    nodes[MEMORY_FREE, node] += sign * rows[ROW_RAM, row]
    for extra in range(rows.shape[0] - ROW_FIRST_EXTRA):
        nodes[FIRST_EXTRA + extra, node] += sign * rows[ROW_FIRST_EXTRA + extra, row]
    for position in range(rows[ROW_DEVICES, row]):
        device = roster.row_devices[row, position]
        devices[COMPUTE_FREE, device] += sign * rows[ROW_COMPUTE, row]
        devices[LIMIT_FREE, device] += sign * rows[ROW_LIMIT, row]
        devices[DEVICE_MEMORY_FREE, device] += sign * roster.row_memory[row, position]


@lean_kernel
def shift_slot(
    nodes: Int64Array,
    devices: Int64Array,
    node: int,
    roster: RosterTables,
    slot: int,
    sign: int,
) -> None:
    """The same for all rows that one job has on the node."""
    row = roster.node_head[node]
    while row >= 0:
        if roster.rows[ROW_SLOT, row] == slot:
            shift_row(nodes, devices, node, roster, row, sign)
        row = roster.rows[ROW_NEXT, row]


@lean_kernel
def unprotected(slots: FloatArray, now: float, lowest: float, highest: float, found: NDArray[np.bool_]) -> bool:
    """Fill ``found`` (slots,) with who runs, is of a class from ``lowest`` to ``highest`` and may be asked to leave.

    Returns whether there is any.
    """
    any_found = False
    for slot in range(slots.shape[1]):
        found[slot] = (
            slots[SLOT_ALIVE, slot] > 0.0
            and slots[SLOT_PROTECTED_UNTIL, slot] <= now
            and lowest <= slots[SLOT_PRIORITY, slot] <= highest
        )
        any_found = any_found or found[slot]
    return any_found


@lean_kernel
def slots_above(bounds: FloatArray, least: float, found: Int64Array) -> int:
    """Fill ``found`` (slots,) with the slots whose bound is above the least; returns how many there are."""
    count = 0
    for slot in range(bounds.shape[0]):
        if bounds[slot] > least:
            found[count] = slot
            count += 1
    return count


@lean_kernel
def free_cards(nodes: Int64Array, devices: Int64Array, node: int) -> int:
    """Wholly free, usable cards of a usable node."""
    if nodes[NODE_USABLE, node] == 0:
        return 0
    first = nodes[FIRST_DEVICE, node]
    free = 0
    for device in range(first, first + nodes[DEVICE_TOTAL, node]):
        if devices[DEVICE_USABLE, device] != 0 and devices[COMPUTE_FREE, device] == WHOLE_CARD_MILLI:
            free += 1
    return free


@lean_kernel
def two_roomiest(nodes: Int64Array, devices: Int64Array, count: int) -> tuple[int, int]:
    """The most wholly free cards that a node has, and the most that another one has."""
    roomiest = 0
    second = 0
    for node in range(count):
        free = free_cards(nodes, devices, node)
        if free > roomiest:
            second = roomiest
            roomiest = free
        elif free > second:
            second = free
    return roomiest, second


@lean_kernel
def free_compute(nodes: Int64Array, devices: Int64Array, node: int) -> int:
    """Milli of compute that are free on all devices of the node."""
    first = nodes[FIRST_DEVICE, node]
    free = 0
    for device in range(first, first + nodes[DEVICE_TOTAL, node]):
        free += devices[COMPUTE_FREE, device]
    return free


@lean_kernel
def join(order: Int64Array, found: int, slot: int, key: FloatArray, sign: int, sequence: FloatArray) -> int:
    """Put a slot among the first ``found`` of ``order``: the highest ``sign * key`` first, then who came first.

    ``key``, ``sequence``: (slots,). Returns how many there are then; who is there already is not put there again.
    """
    for other in range(found):
        if order[other] == slot:
            return found
    place = found
    while place > 0 and (
        sign * key[order[place - 1]] < sign * key[slot]
        or (key[order[place - 1]] == key[slot] and sequence[order[place - 1]] > sequence[slot])
    ):
        order[place] = order[place - 1]
        place -= 1
    order[place] = slot
    return found + 1


@lean_kernel
def line_up(
    roster: RosterTables,
    node: int,
    key: FloatArray,
    sign: int,
    least: float,
    sequence: FloatArray,
    order: Int64Array,
) -> int:
    """Fill ``order`` with the jobs of a node whose ``sign * key`` is above ``least``, as ``join`` does: how many."""
    found = 0
    row = roster.node_head[node]
    while row >= 0 and found < MOST_ROWS:
        slot = roster.rows[ROW_SLOT, row]
        if sign * key[slot] > least:
            found = join(order, found, slot, key, sign, sequence)
        row = roster.rows[ROW_NEXT, row]
    return found


@lean_kernel
def vacate(
    nodes: Int64Array,
    devices: Int64Array,
    node: int,
    shape: Int64Array,
    roster: RosterTables,
    victims: Int64Array,
    found: int,
) -> int:
    """Take jobs off the node until the shape fits, the first of ``victims`` first; then put back the others.

    Returns how many have to go: they stand first in ``victims`` then, and are off the node. -1, and none is, if it
    does not fit without all ``found`` of them.
    """
    taken = 0
    fits = first_failure(nodes, devices, node, shape) == 0
    while not fits and taken < found:
        shift_slot(nodes, devices, node, roster, victims[taken], 1)
        taken += 1
        fits = first_failure(nodes, devices, node, shape) == 0
    if not fits:
        for position in range(taken):
            shift_slot(nodes, devices, node, roster, victims[position], -1)
        return -1
    kept = taken
    position = taken - 2
    while position >= 0:
        slot = victims[position]
        shift_slot(nodes, devices, node, roster, slot, -1)
        if first_failure(nodes, devices, node, shape) == 0:
            for other in range(position, kept - 1):
                victims[other] = victims[other + 1]
            kept -= 1
        else:
            shift_slot(nodes, devices, node, roster, slot, 1)
        position -= 1
    return kept


@lean_kernel
def room_times(
    nodes: Int64Array,
    devices: Int64Array,
    count: int,
    shape: Int64Array,
    mask: NDArray[np.uint8],
    rows: Int64Array,
    row_devices: Int64Array,
    row_memory: Int64Array,
    node_head: Int64Array,
    ends: FloatArray,
    sequence: FloatArray,
    now: float,
    wanted: int,
    soonest_only: bool,
    order: Int64Array,
    times: FloatArray,
) -> None:
    """Fill ``times`` (nodes, wanted): when the node has room for 1, 2, … tasks, if running work ends at ``ends``.

    ``ends``: (slots,) seconds; infinite when unknown. ``sequence``: (slots,) breaks ties. ``soonest_only``: only the
    first node that has room for one soonest is asked for; others may be infinite. ``order``: (MOST_ROWS,) scratch. A
    job counts as ended on a node as a whole.
    """
    roster = RosterTables(rows, row_devices, row_memory, node_head)
    before = np.inf
    for node in range(count):
        for copy in range(wanted):
            times[node, copy] = np.inf
        if nodes[NODE_USABLE, node] == 0 or (mask.shape[0] > 0 and mask[node] == 0):
            continue
        have = min(tasks_held(nodes, devices, node, shape), wanted)
        for copy in range(have):
            times[node, copy] = now
        if node >= node_head.shape[0]:
            continue
        found = line_up(roster, node, ends, -1, -before, sequence, order)
        for position in range(found):
            shift_slot(nodes, devices, node, roster, order[position], 1)
            now_fit = min(tasks_held(nodes, devices, node, shape), wanted)
            for copy in range(have, now_fit):
                times[node, copy] = max(ends[order[position]], now)
            have = max(have, now_fit)
            if have == wanted or (soonest_only and have > 0):
                found = position + 1  # the others stay
                break
        for position in range(found):
            shift_slot(nodes, devices, node, roster, order[position], -1)
        if soonest_only:
            before = min(before, times[node, 0])
