"""The score of one shape on one node, for every scorer, as one kernel.

All scores are int64 and larger is better. ``NOWHERE`` marks a node that does not fit. Devices of one model are
taken to sit next to each other on a node; cards of different models do not count together as free cards.

Sources: FGD, best-fit and dot-product as in github.com/hkust-adsl/kubernetes-scheduler-simulator,
pkg/simulator/plugin (fgd_score.go, best_fit_score.go, dot_product_score.go with dimext=merge, norm=max,
gpusel=best); the default adds the bid price (``bid_price.py``) and tie-breaks.
"""

from __future__ import annotations

from millpond.scheduling.placement.arrays import (
    COMPUTE_FREE,
    CPU_FREE,
    DEVICE_MODEL,
    DEVICE_TOTAL,
    DEVICE_USABLE,
    FIRST_DEVICE,
    LOAD,
    Int64Array,
)
from millpond.scheduling.placement.filters import device_fits, host_failure
from millpond.scheduling.placement.kernels import lean_kernel
from millpond.scheduling.placement.shapes import SHAPE_COMPUTE, SHAPE_CPU, SHAPE_DEVICES
from millpond.scheduling.placement.tables import (
    BID_WEIGHT,
    CPU_WEIGHT,
    FLOOR_AT,
    GPU_WEIGHT,
    LEVEL_AT,
    LEVEL_COUNT,
    LOAD_WEIGHT,
    MODEL_CLASS_AT,
    MULTI_AT,
    MULTI_WIDTH,
    RANK_AT,
    SCARCITY_AT,
    SCARCITY_WEIGHT,
    SCORER,
    SINGLE_AT,
    SINGLE_WIDTH,
    TOTAL_WEIGHT,
    VALUE_AT,
)

NOWHERE = -(1 << 62)

_DEFAULT, _FGD, _BEST_FIT, _DOT_PRODUCT = range(4)
_QUANTUM = 8_000_000


@lean_kernel
def score_node(
    nodes: Int64Array, devices: Int64Array, node: int, shape: Int64Array, tables: Int64Array, excluded: int
) -> tuple[int, int]:
    """Score of the shape on the node, and the device that earns it.

    ``excluded``: bit i set keeps device i of the node out. For whole cards and CPU-only shapes the device is -1.
    """
    free, _, _, useful = summarise(nodes, devices, node, tables)
    return score_summarised(nodes, devices, node, shape, tables, excluded, free, useful)


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
def score_summarised(
    nodes: Int64Array,
    devices: Int64Array,
    node: int,
    shape: Int64Array,
    tables: Int64Array,
    excluded: int,
    free: int,
    useful: int,
) -> tuple[int, int]:
    """As ``score_node``, given the node's free and useful compute from ``summarise``."""
    if host_failure(nodes, node, shape) != 0:
        return NOWHERE, -1
    wanted = shape[SHAPE_DEVICES]
    first = nodes[FIRST_DEVICE, node]
    last = first + nodes[DEVICE_TOTAL, node]
    fitting = 0
    found = 0
    for device in range(first, last if wanted > 0 else first):
        if (excluded >> (device - first)) & 1 == 0 and device_fits(devices, device, shape):
            fitting |= 1 << (device - first)
            found += 1
    if found < wanted:
        return NOWHERE, -1
    scorer = tables[SCORER]
    if scorer in (_DEFAULT, _FGD):
        return gradient_score(nodes, devices, node, shape, tables, fitting, free, useful)
    best_device = -1
    for device in range(first, last):
        if (fitting >> (device - first)) & 1 == 0 or wanted != 1 or shape[SHAPE_COMPUTE] == 1000:
            continue
        if best_device < 0 or devices[COMPUTE_FREE, device] < devices[COMPUTE_FREE, first + best_device]:
            best_device = device - first
    return baseline_score(scorer, nodes[CPU_FREE, node], free, shape), best_device


@lean_kernel
def baseline_score(scorer: int, cpu: int, gpu: int, shape: Int64Array) -> int:
    """Best-fit and dot-product as in the paper's simulator, 0..100; for random 0, the choice is made later."""
    if scorer == _BEST_FIT:
        left = (cpu - shape[SHAPE_CPU]) + 16 * (gpu - shape[SHAPE_DEVICES] * shape[SHAPE_COMPUTE])
        return int(100 * (256_000 - left) // 256_000)
    if scorer == _DOT_PRODUCT:
        aligned = cpu * shape[SHAPE_CPU] + 256 * gpu * shape[SHAPE_DEVICES] * shape[SHAPE_COMPUTE]
        twice_square = 2 * 128_000 * 128_000
        return int(100 * (twice_square - aligned) // twice_square)
    return 0


@lean_kernel
def gradient_score(
    nodes: Int64Array,
    devices: Int64Array,
    node: int,
    shape: Int64Array,
    tables: Int64Array,
    fitting: int,
    free: int,
    useful: int,
) -> tuple[int, int]:
    """FGD, or the default built on it, and the best device if one is asked for in part.

    ``fitting``: bit i set if device i of the node can hold a part of the shape; ``free`` and ``useful`` compute as
    the node is now.
    """
    first = nodes[FIRST_DEVICE, node]
    total = nodes[DEVICE_TOTAL, node]
    wanted = shape[SHAPE_DEVICES]
    compute = shape[SHAPE_COMPUTE]
    cpu = nodes[CPU_FREE, node]
    level = cpu_level(tables, cpu - shape[SHAPE_CPU])
    if level != cpu_level(tables, cpu):
        useful_then = useful_compute(devices, first, total, level, 0, 0, tables)
    else:
        useful_then = useful
    taken = wanted * compute
    # Fragmented = free * total weight - useful, so the gradient is what was fragmented less what will be.
    base = taken * tables[TOTAL_WEIGHT] - useful
    fixed = node_terms(nodes, node, free - taken, cpu - shape[SHAPE_CPU], tables)
    if wanted != 1 or compute == 1000:
        cards = first_cards(fitting, wanted)
        after = useful_then
        if cards != 0:
            after = useful_compute(devices, first, total, level, cards, compute, tables)
        score = quantum(tables, base + after)
        if tables[SCORER] == _DEFAULT:
            return score * _QUANTUM + fixed - scarcity_cost(devices, first, cards, compute, tables), -1
        return score, -1
    best = NOWHERE
    best_device = -1
    previous = -1
    for index in range(total):
        if (fitting >> index) & 1 == 0:
            continue
        residual = devices[COMPUTE_FREE, first + index]
        kind = residual * 64 + devices[DEVICE_MODEL, first + index]
        if kind == previous:
            continue
        previous = kind
        after = useful_then + slice_effect(devices, first, total, index, level, compute, tables)
        score = quantum(tables, base + after)
        if tables[SCORER] == _DEFAULT:
            loss = tables[tables[VALUE_AT] + residual] - tables[tables[VALUE_AT] + residual - compute]
            score = score * _QUANTUM + fixed - tables[BID_WEIGHT] * loss
            score -= scarcity_cost(devices, first, 1 << index, compute, tables)
        if score > best:
            best = score
            best_device = index
    return best, best_device


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
def node_terms(nodes: Int64Array, node: int, gpu_left: int, cpu_left: int, tables: Int64Array) -> int:
    """Terms of the default score that do not depend on the device: what is left free, and the measured load."""
    cost = tables[GPU_WEIGHT] * gpu_left + tables[CPU_WEIGHT] * cpu_left
    return int(-cost - tables[LOAD_WEIGHT] * nodes[LOAD, node])


@lean_kernel
def scarcity_cost(devices: Int64Array, first: int, cards: int, milli: int, tables: Int64Array) -> int:
    """Cost of taking ``milli`` of each of ``cards`` from models that constrained demand needs."""
    if tables[SCARCITY_WEIGHT] == 0:
        return 0
    cost = 0
    index = 0
    while (cards >> index) != 0:
        if (cards >> index) & 1 == 1:
            cost += tables[tables[SCARCITY_AT] + devices[DEVICE_MODEL, first + index]]
        index += 1
    return int(cost * milli * tables[SCARCITY_WEIGHT])


@lean_kernel
def first_cards(fitting: int, wanted: int) -> int:
    """The lowest ``wanted`` bits of ``fitting``."""
    cards = 0
    index = 0
    while wanted > 0:
        if (fitting >> index) & 1 == 1:
            cards |= 1 << index
            wanted -= 1
        index += 1
    return cards


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
