"""Whether a shape fits a node, and if not, which filter says so first."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from millpond.scheduling.placement.arrays import (
    COMPUTE_FREE,
    CPU_FREE,
    DEVICE_MEMORY,
    DEVICE_MEMORY_FREE,
    DEVICE_MODEL,
    DEVICE_TOTAL,
    DEVICE_USABLE,
    FIRST_DEVICE,
    FIRST_EXTRA,
    LIMIT_FREE,
    MEMORY_FREE,
    NODE_USABLE,
    POOL,
    Int64Array,
    NodeMask,
)
from millpond.scheduling.placement.kernels import kernel, lean_kernel
from millpond.scheduling.placement.shapes import (
    FIRST_SHAPE_EXTRA,
    SHAPE_COMPUTE,
    SHAPE_CPU,
    SHAPE_DEVICE_MEMORY,
    SHAPE_DEVICES,
    SHAPE_LIMIT,
    SHAPE_MEMORY,
    SHAPE_MODELS,
    SHAPE_POOL,
)


class FilterStep(IntEnum):
    """The filters in the order they are asked; the first to say no is the reason."""

    FITS = 0
    UNUSABLE = 1  # cordoned or lost
    WRONG_POOL = 2
    MASKED = 3  # excluded by the caller: reservation, quota, cell
    CPU = 4
    MEMORY = 5
    EXTRAS = 6
    DEVICE_COUNT = 7  # the node has fewer devices than asked for
    MODEL = 8  # too few of the allowed models
    DEVICE_HEALTH = 9  # enough of the models, too few of them usable
    DEVICE_COMPUTE = 10  # less free compute in sum than asked for
    FRAGMENTED = 11  # enough in sum, but not on enough single cards
    DEVICE_LIMIT = 12  # the sum of limits would exceed the pool's factor
    DEVICE_MEMORY = 13


# Kernels need plain integers.
_FITS, _UNUSABLE, _WRONG_POOL, _MASKED, _CPU, _MEMORY, _EXTRAS = range(7)
_COUNT, _MODEL, _HEALTH, _COMPUTE, _FRAGMENTED, _LIMIT, _DEVICE_MEMORY = range(7, 14)


@lean_kernel
def device_idle(devices: Int64Array, device: int) -> bool:
    """Whether a device is usable and holds nothing."""
    return bool(
        devices[DEVICE_USABLE, device] != 0
        and devices[COMPUTE_FREE, device] == 1000
        and devices[DEVICE_MEMORY_FREE, device] == devices[DEVICE_MEMORY, device]
    )


@lean_kernel
def device_fits(devices: Int64Array, device: int, shape: Int64Array) -> bool:
    """Whether one device can hold one device's part of the shape. A whole card must be wholly free."""
    if devices[COMPUTE_FREE, device] < shape[SHAPE_COMPUTE] or devices[LIMIT_FREE, device] < shape[SHAPE_LIMIT]:
        return False
    if devices[DEVICE_USABLE, device] == 0 or (shape[SHAPE_MODELS] >> devices[DEVICE_MODEL, device]) & 1 == 0:
        return False
    return bool(memory_fits(devices, device, shape))


@lean_kernel
def memory_fits(devices: Int64Array, device: int, shape: Int64Array) -> bool:
    """Whether the device's free memory suffices; for a whole card it must be all of its memory."""
    capacity = devices[DEVICE_MEMORY, device]
    free = devices[DEVICE_MEMORY_FREE, device]
    if shape[SHAPE_COMPUTE] == 1000:
        return bool(free == capacity and (capacity == 0 or capacity >= shape[SHAPE_DEVICE_MEMORY]))
    if capacity == 0:  # unknown: a share of the card stands for its memory, a slice by memory alone cannot be granted
        return bool(shape[SHAPE_COMPUTE] > 0)
    if shape[SHAPE_DEVICE_MEMORY] < 0:
        return bool(free >= capacity * shape[SHAPE_COMPUTE] // 1000)
    return bool(free >= shape[SHAPE_DEVICE_MEMORY])


@lean_kernel
def host_failure(nodes: Int64Array, node: int, shape: Int64Array) -> int:
    """First filter of the node itself, its devices aside, that refuses the shape; 0 if none."""
    if nodes[NODE_USABLE, node] == 0:
        return _UNUSABLE
    if shape[SHAPE_POOL] >= 0 and nodes[POOL, node] != shape[SHAPE_POOL]:
        return _WRONG_POOL
    if nodes[CPU_FREE, node] < shape[SHAPE_CPU]:
        return _CPU
    if nodes[MEMORY_FREE, node] < shape[SHAPE_MEMORY]:
        return _MEMORY
    for extra in range(shape.shape[0] - FIRST_SHAPE_EXTRA):
        if nodes[FIRST_EXTRA + extra, node] < shape[FIRST_SHAPE_EXTRA + extra]:
            return _EXTRAS
    return _FITS


@lean_kernel
def device_failure(nodes: Int64Array, devices: Int64Array, node: int, shape: Int64Array) -> int:
    """First filter of the node's devices that refuses the shape; 0 if none."""
    wanted = shape[SHAPE_DEVICES]
    if wanted == 0:
        return _FITS
    if nodes[DEVICE_TOTAL, node] < wanted:
        return _COUNT
    first = nodes[FIRST_DEVICE, node]
    of_model = 0
    healthy = 0
    free = 0
    with_compute = 0
    with_limit = 0
    fitting = 0
    for device in range(first, first + nodes[DEVICE_TOTAL, node]):
        if (shape[SHAPE_MODELS] >> devices[DEVICE_MODEL, device]) & 1 == 0:
            continue
        of_model += 1
        if devices[DEVICE_USABLE, device] == 0:
            continue
        healthy += 1
        free += devices[COMPUTE_FREE, device]
        if devices[COMPUTE_FREE, device] < shape[SHAPE_COMPUTE]:
            continue
        with_compute += 1
        if devices[LIMIT_FREE, device] < shape[SHAPE_LIMIT]:
            continue
        with_limit += 1
        if memory_fits(devices, device, shape):
            fitting += 1
    if fitting >= wanted:
        return _FITS
    if of_model < wanted:
        return _MODEL
    if healthy < wanted:
        return _HEALTH
    if free < wanted * shape[SHAPE_COMPUTE]:
        return _COMPUTE
    if with_compute < wanted:
        return _FRAGMENTED
    if with_limit < wanted:
        return _LIMIT
    return _DEVICE_MEMORY


@lean_kernel
def count_room(
    nodes: Int64Array, devices: Int64Array, count: int, shape: Int64Array, mask: NodeMask, room: Int64Array
) -> None:
    """How many tasks of the shape each node could hold at once, into ``room`` (N,); 0 where ``mask`` (N,) is 0."""
    for node in range(count):
        room[node] = tasks_held(nodes, devices, node, shape) if mask[node] != 0 else 0


@lean_kernel
def tasks_held(nodes: Int64Array, devices: Int64Array, node: int, shape: Int64Array) -> int:
    """How many tasks of the shape a node could hold at once."""
    if host_failure(nodes, node, shape) != _FITS:
        return 0
    held = 1 << 40
    if shape[SHAPE_CPU] > 0:
        held = min(held, nodes[CPU_FREE, node] // shape[SHAPE_CPU])
    if shape[SHAPE_MEMORY] > 0:
        held = min(held, nodes[MEMORY_FREE, node] // shape[SHAPE_MEMORY])
    for extra in range(shape.shape[0] - FIRST_SHAPE_EXTRA):
        if shape[FIRST_SHAPE_EXTRA + extra] > 0:
            held = min(held, nodes[FIRST_EXTRA + extra, node] // shape[FIRST_SHAPE_EXTRA + extra])
    if shape[SHAPE_DEVICES] > 0:
        parts = 0
        first = nodes[FIRST_DEVICE, node]
        for device in range(first, first + nodes[DEVICE_TOTAL, node]):
            parts += parts_held(devices, device, shape)
        held = min(held, parts // shape[SHAPE_DEVICES])
    return int(held)


@lean_kernel
def parts_held(devices: Int64Array, device: int, shape: Int64Array) -> int:
    """How many one-device parts of the shape a device could hold at once."""
    if not device_fits(devices, device, shape):
        return 0
    if shape[SHAPE_COMPUTE] == 1000:
        return 1
    held = 1 << 40
    if shape[SHAPE_LIMIT] > 0:
        held = min(held, devices[LIMIT_FREE, device] // shape[SHAPE_LIMIT])
    if shape[SHAPE_COMPUTE] > 0:
        held = min(held, devices[COMPUTE_FREE, device] // shape[SHAPE_COMPUTE])
    capacity = devices[DEVICE_MEMORY, device]
    part = shape[SHAPE_DEVICE_MEMORY]
    if part < 0:
        part = capacity * shape[SHAPE_COMPUTE] // 1000
    if capacity > 0 and part > 0:
        held = min(held, devices[DEVICE_MEMORY_FREE, device] // part)
    return int(held)


@lean_kernel
def first_failure(nodes: Int64Array, devices: Int64Array, node: int, shape: Int64Array) -> int:
    """The first ``FilterStep`` that refuses the shape on the node, masks and vetoes aside; 0 if it fits."""
    failure = host_failure(nodes, node, shape)
    if failure != _FITS:
        return int(failure)
    return int(device_failure(nodes, devices, node, shape))


@kernel
def fit_on_any(
    nodes: Int64Array, devices: Int64Array, wanted: Int64Array, shapes: Int64Array, found: NDArray[np.bool_]
) -> None:
    """Fill ``found`` (shapes,) with whether each shape fits on one of the nodes ``wanted``, masks and vetoes aside."""
    for number in range(shapes.shape[0]):
        position = 0
        while position < wanted.shape[0] and first_failure(nodes, devices, wanted[position], shapes[number]) != 0:
            position += 1
        found[number] = position < wanted.shape[0]
