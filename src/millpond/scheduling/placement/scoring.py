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
from millpond.scheduling.placement.kernels import kernel
from millpond.scheduling.placement.shapes import SHAPE_COMPUTE, SHAPE_CPU, SHAPE_DEVICES
from millpond.scheduling.placement.tables import (
    BID_WEIGHT,
    CPU_WEIGHT,
    GPU_WEIGHT,
    LOAD_WEIGHT,
    SCARCITY_WEIGHT,
    SCORER,
    TOTAL_WEIGHT,
    ScoreTables,
)

NOWHERE = -(1 << 62)

_DEFAULT, _FGD, _BEST_FIT, _DOT_PRODUCT = range(4)
_QUANTUM = 8_000_000


@kernel
def score_node(
    nodes: Int64Array, devices: Int64Array, node: int, shape: Int64Array, tables: ScoreTables, excluded: int
) -> tuple[int, int]:
    """Score of the shape on the node, and the device that earns it.

    ``excluded``: bit i set keeps device i of the node out. For whole cards and CPU-only shapes the device is -1.
    """
    free, _, _, useful = summarise(nodes, devices, node, tables)
    return score_summarised(nodes, devices, node, shape, tables, excluded, free, useful)


@kernel
def summarise(nodes: Int64Array, devices: Int64Array, node: int, tables: ScoreTables) -> tuple[int, int, int, int]:
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
        level = cpu_level(tables.cpu_levels, nodes[CPU_FREE, node])
        useful = useful_compute(devices, first, total, level, 0, 0, tables)
    return free, largest, cards, useful


@kernel
def score_summarised(
    nodes: Int64Array,
    devices: Int64Array,
    node: int,
    shape: Int64Array,
    tables: ScoreTables,
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
    scorer = tables.settings[SCORER]
    if scorer in (_DEFAULT, _FGD):
        return gradient_score(nodes, devices, node, shape, tables, fitting, free, useful)
    best_device = -1
    for device in range(first, last):
        if (fitting >> (device - first)) & 1 == 0 or wanted != 1 or shape[SHAPE_COMPUTE] == 1000:
            continue
        if best_device < 0 or devices[COMPUTE_FREE, device] < devices[COMPUTE_FREE, first + best_device]:
            best_device = device - first
    return baseline_score(scorer, nodes[CPU_FREE, node], free, shape), best_device


@kernel
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


@kernel
def gradient_score(
    nodes: Int64Array,
    devices: Int64Array,
    node: int,
    shape: Int64Array,
    tables: ScoreTables,
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
    level = cpu_level(tables.cpu_levels, cpu - shape[SHAPE_CPU])
    if level != cpu_level(tables.cpu_levels, cpu):
        useful_then = useful_compute(devices, first, total, level, 0, 0, tables)
    else:
        useful_then = useful
    taken = wanted * compute
    # Fragmented = free * total weight - useful, so the gradient is what was fragmented less what will be.
    base = taken * tables.settings[TOTAL_WEIGHT] - useful
    fixed = node_terms(nodes, node, free - taken, cpu - shape[SHAPE_CPU], tables)
    if wanted != 1 or compute == 1000:
        cards = first_cards(fitting, wanted)
        after = useful_then
        if cards != 0:
            after = useful_compute(devices, first, total, level, cards, compute, tables)
        score = quantum(tables.quantum_floor, base + after)
        if tables.settings[SCORER] == _DEFAULT:
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
        score = quantum(tables.quantum_floor, base + after)
        if tables.settings[SCORER] == _DEFAULT:
            loss = tables.slice_value[residual] - tables.slice_value[residual - compute]
            score = score * _QUANTUM + fixed - tables.settings[BID_WEIGHT] * loss
            score -= scarcity_cost(devices, first, 1 << index, compute, tables)
        if score > best:
            best = score
            best_device = index
    return best, best_device


@kernel
def useful_compute(
    devices: Int64Array, first: int, total: int, level: int, cards: int, milli: int, tables: ScoreTables
) -> int:
    """Free compute that the typical mix can use, milli times weight, after ``milli`` was taken of each of ``cards``.

    ``cards``: bit i set for device i of the node. ``level``: index into the CPU levels of the mix.
    """
    useful = 0
    free_cards = 0
    run_model = -1
    most = tables.multi_weight.shape[2] - 1
    for index in range(total):
        device = first + index
        if devices[DEVICE_USABLE, device] == 0:
            continue
        residual = devices[COMPUTE_FREE, device]
        if (cards >> index) & 1 == 1:
            residual -= milli
        model = devices[DEVICE_MODEL, device]
        if residual <= 0:
            continue
        useful += residual * tables.single_weight[tables.model_class[model], level, tables.size_rank[residual]]
        if residual == 1000:
            if model != run_model:
                if free_cards > 0:
                    weight = tables.multi_weight[tables.model_class[run_model], level, min(free_cards, most)]
                    useful += 1000 * free_cards * weight
                free_cards = 0
                run_model = model
            free_cards += 1
    if free_cards > 0:
        useful += 1000 * free_cards * tables.multi_weight[tables.model_class[run_model], level, min(free_cards, most)]
    return useful


@kernel
def slice_effect(
    devices: Int64Array, first: int, total: int, index: int, level: int, milli: int, tables: ScoreTables
) -> int:
    """What ``useful_compute`` gains (less than 0: loses) when ``milli`` is taken of device ``index`` of the node."""
    residual = devices[COMPUTE_FREE, first + index]
    left = residual - milli
    model = devices[DEVICE_MODEL, first + index]
    weights = tables.single_weight[tables.model_class[model], level]
    effect = left * weights[tables.size_rank[left]] - residual * weights[tables.size_rank[residual]]
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
    cards_weight = tables.multi_weight[tables.model_class[model], level]
    most = cards_weight.shape[0] - 1
    effect += 1000 * (free_cards - 1) * cards_weight[min(free_cards - 1, most)]
    return int(effect - 1000 * free_cards * cards_weight[min(free_cards, most)])


@kernel
def node_terms(nodes: Int64Array, node: int, gpu_left: int, cpu_left: int, tables: ScoreTables) -> int:
    """Terms of the default score that do not depend on the device: what is left free, and the measured load."""
    cost = tables.settings[GPU_WEIGHT] * gpu_left + tables.settings[CPU_WEIGHT] * cpu_left
    return int(-cost - tables.settings[LOAD_WEIGHT] * nodes[LOAD, node])


@kernel
def scarcity_cost(devices: Int64Array, first: int, cards: int, milli: int, tables: ScoreTables) -> int:
    """Cost of taking ``milli`` of each of ``cards`` from models that constrained demand needs."""
    if tables.settings[SCARCITY_WEIGHT] == 0:
        return 0
    cost = 0
    index = 0
    while (cards >> index) != 0:
        if (cards >> index) & 1 == 1:
            cost += tables.scarcity[devices[DEVICE_MODEL, first + index]]
        index += 1
    return int(cost * milli * tables.settings[SCARCITY_WEIGHT])


@kernel
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


@kernel
def cpu_level(levels: Int64Array, cpu_milli: int) -> int:
    """How many of the ascending ``levels`` are <= ``cpu_milli``."""
    low = 0
    high = levels.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if levels[middle] <= cpu_milli:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def quantum(floors: Int64Array, gradient: int) -> int:
    """int(100 * sigmoid(gradient)), by the table of step edges."""
    low = 0
    high = floors.shape[0] - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if floors[middle] <= gradient:
            low = middle
        else:
            high = middle - 1
    return low
