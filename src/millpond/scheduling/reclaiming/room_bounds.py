"""The kernels behind bounds on what the ordering displaces: up to which bound departures make room for a task."""

from __future__ import annotations

from millpond.scheduling.placement.arrays import DEVICE_TOTAL, NODE_USABLE, Int64Array
from millpond.scheduling.placement.filters import first_failure
from millpond.scheduling.placement.kernels import kernel, lean_kernel
from millpond.scheduling.placement.shapes import SHAPE_DEVICES
from millpond.scheduling.reclaiming.roster import ROW_NEXT, ROW_SLOT, BoolArray, FloatArray
from millpond.scheduling.reclaiming.victims import MOST_ROWS, join, shift_slot


@lean_kernel
def may_leave(slot: int, slot_owners: FloatArray, owners: BoolArray) -> bool:
    """Whether a job is of one of some owners, (owners of the roster,); if that is empty, of any."""
    return bool(owners.shape[0] == 0 or owners[int(slot_owners[slot])])


@kernel
def rooms_below(
    nodes: Int64Array,
    devices: Int64Array,
    wanted: Int64Array,
    highest: FloatArray,
    shapes: Int64Array,
    rows: Int64Array,
    row_devices: Int64Array,
    row_memory: Int64Array,
    node_head: Int64Array,
    bounds: FloatArray,
    slot_owners: FloatArray,
    owners: BoolArray,
    sequence: FloatArray,
    below: FloatArray,
    order: Int64Array,
) -> None:
    """Raise ``below`` to the highest bound below which work leaves that makes room for one task on some node.

    Args:
        wanted, highest: (wanted,), nodes and the highest bound of the work on each, or more; the highest first.
        shapes: (tasks, fields), what each asks for; below: (tasks,).
        bounds: (slots,) below which each leaves.
        slot_owners: (slots,); owners: whose work may leave, see ``may_leave``.
        sequence: (slots,) breaks ties.
        order: (MOST_ROWS,) scratch.

    The tables are changed and changed back. A node that has room already counts with the highest of its bounds, as it
    may be filled until one asks.
    """
    for task in range(shapes.shape[0]):
        shape = shapes[task]
        best = below[task]
        for position in range(wanted.shape[0]):
            if highest[position] <= best:
                break
            node = wanted[position]
            if nodes[NODE_USABLE, node] == 0 or nodes[DEVICE_TOTAL, node] < shape[SHAPE_DEVICES]:
                continue
            head = node_head[node]
            found = 0
            row = head
            while row >= 0 and found < MOST_ROWS:
                slot = rows[ROW_SLOT, row]
                if bounds[slot] > best and may_leave(slot, slot_owners, owners):
                    found = join(order, found, slot, bounds, 1, sequence)
                row = rows[ROW_NEXT, row]
            if found == 0:
                continue
            released = 0
            fits = first_failure(nodes, devices, node, shape) == 0
            while not fits and released < found:
                shift_slot(nodes, devices, node, rows, row_devices, row_memory, head, order[released], 1)
                released += 1
                fits = first_failure(nodes, devices, node, shape) == 0
            if fits:
                best = bounds[order[max(released - 1, 0)]]
            for taken in range(released):
                shift_slot(nodes, devices, node, rows, row_devices, row_memory, head, order[taken], -1)
        below[task] = best
