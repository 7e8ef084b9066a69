"""Fragmentation as what is useful: how much of a node's free compute the typical mix could take.

Fragmented is what is free (times the total weight of the mix) less what is useful, so the gradient of the one is that
of the other. Devices of one model are taken to sit next to each other on a node; cards of different models do not
count together as free cards. See ``tables.py`` for how the tables make this one look-up per device.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 3.2.
"""

from __future__ import annotations

from millpond.scheduling.placement.arrays import (
    COMPUTE_FREE,
    CPU_FREE,
    DEVICE_MODEL,
    DEVICE_TOTAL,
    DEVICE_USABLE,
    FIRST_DEVICE,
    Int64Array,
)
from millpond.scheduling.placement.kernels import lean_kernel
from millpond.scheduling.placement.tables import (
    FLOOR_AT,
    LEVEL_AT,
    LEVEL_COUNT,
    MODEL_CLASS_AT,
    MULTI_AT,
    MULTI_WIDTH,
    RANK_AT,
    SINGLE_AT,
    SINGLE_WIDTH,
)


@lean_kernel
def summarise(nodes: Int64Array, devices: Int64Array, node: int, tables: Int64Array) -> tuple[int, int, int, int]:
    """What every shape asks about a node: free compute, largest residual, free cards, useful compute."""
    first = nodes[FIRST_DEVICE, node]
    total = nodes[DEVICE_TOTAL, node]
    free = 0
    largest = -1
    cards = 0
    for device in range(first, first + total):
        if devices[DEVICE_USABLE, device] != 0:
            residual = devices[COMPUTE_FREE, device]
            free += residual
            largest = max(largest, residual)
            if residual == 1000:
                cards += 1
    useful = 0
    if free > 0:
        level = cpu_level(tables, nodes[CPU_FREE, node])
        useful = useful_compute(devices, first, total, level, 0, 0, tables)
    return free, largest, cards, useful


@lean_kernel
def useful_compute(
    devices: Int64Array, first: int, total: int, level: int, cards: int, milli: int, tables: Int64Array
) -> int:
    """Free compute that the typical mix can use, milli times weight, after ``milli`` was taken of each of ``cards``.

    ``cards``: bit i set for device i of the node. ``level``: index into the CPU levels of the mix.
    """
    useful = 0
    free_cards = 0
    run_model = -1
    for index in range(total):
        device = first + index
        if devices[DEVICE_USABLE, device] == 0:
            continue
        residual = devices[COMPUTE_FREE, device]
        if (cards >> index) & 1 == 1:
            residual -= milli
        if residual <= 0:
            continue
        model = devices[DEVICE_MODEL, device]
        useful += single_use(tables, model, level, residual)
        if residual == 1000:
            if model != run_model:
                useful += multi_use(tables, run_model, level, free_cards)
                free_cards = 0
                run_model = model
            free_cards += 1
    return int(useful + multi_use(tables, run_model, level, free_cards))


@lean_kernel
def single_use(tables: Int64Array, model: int, level: int, residual: int) -> int:
    """Use of one device's free compute to the typical shapes of one device, milli times weight."""
    row = tables[tables[MODEL_CLASS_AT] + model] * (tables[LEVEL_COUNT] + 1) + level
    rank = tables[tables[RANK_AT] + residual]
    return int(residual * tables[tables[SINGLE_AT] + row * tables[SINGLE_WIDTH] + rank])


@lean_kernel
def multi_use(tables: Int64Array, model: int, level: int, cards: int) -> int:
    """Use of ``cards`` wholly free cards of one model to the typical shapes of several, milli times weight."""
    if cards < 2:
        return 0
    row = tables[tables[MODEL_CLASS_AT] + model] * (tables[LEVEL_COUNT] + 1) + level
    width = tables[MULTI_WIDTH]
    return int(1000 * cards * tables[tables[MULTI_AT] + row * width + min(cards, width - 1)])


@lean_kernel
def slice_effect(
    devices: Int64Array, first: int, total: int, index: int, level: int, milli: int, tables: Int64Array
) -> int:
    """What ``useful_compute`` gains (less than 0: loses) when ``milli`` is taken of device ``index`` of the node."""
    residual = devices[COMPUTE_FREE, first + index]
    model = devices[DEVICE_MODEL, first + index]
    effect = single_use(tables, model, level, residual - milli) - single_use(tables, model, level, residual)
    if residual < 1000 or milli == 0:
        return int(effect)
    # One wholly free card less among its like: count them both ways, up to a free card of another model.
    free_cards = 1
    for step in (-1, 1):
        other = index + step
        while 0 <= other < total:
            device = first + other
            if devices[DEVICE_USABLE, device] != 0 and devices[COMPUTE_FREE, device] == 1000:
                if devices[DEVICE_MODEL, device] != model:
                    break
                free_cards += 1
            other += step
    return int(effect + multi_use(tables, model, level, free_cards - 1) - multi_use(tables, model, level, free_cards))


@lean_kernel
def cpu_level(tables: Int64Array, cpu_milli: int) -> int:
    """How many CPU levels of the mix are <= ``cpu_milli``."""
    low = 0
    high = tables[LEVEL_COUNT]
    while low < high:
        middle = (low + high) >> 1
        if tables[tables[LEVEL_AT] + middle] <= cpu_milli:
            low = middle + 1
        else:
            high = middle
    return int(low)


@lean_kernel
def quantum(tables: Int64Array, gradient: int) -> int:
    """int(100 * sigmoid(gradient)), by the table of step edges."""
    low = 0
    high = 99
    while low < high:
        middle = (low + high + 1) >> 1
        if tables[tables[FLOOR_AT] + middle] <= gradient:
            low = middle
        else:
            high = middle - 1
    return low
