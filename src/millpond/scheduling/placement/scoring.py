"""The score of one shape on one node, for every scorer, as one kernel.

All scores are int64 and larger is better. ``NOWHERE`` marks a node that does not fit.

Sources: FGD, best-fit and dot-product as in github.com/hkust-adsl/kubernetes-scheduler-simulator,
pkg/simulator/plugin (fgd_score.go, best_fit_score.go, dot_product_score.go with dimext=merge, norm=max,
gpusel=best); the default adds the bid price (``bid_price.py``) and tie-breaks.
"""

from __future__ import annotations

from millpond.scheduling.placement.arrays import (
    COMPUTE_FREE,
    CPU_FREE,
    DEVICE_MEMORY,
    DEVICE_MEMORY_FREE,
    DEVICE_MODEL,
    DEVICE_TOTAL,
    FIRST_DEVICE,
    LOAD_BASE,
    LOAD_RATE,
    Int64Array,
)
from millpond.scheduling.placement.filters import device_fits, device_idle, host_failure
from millpond.scheduling.placement.fragmentation import (
    cpu_level,
    quantum,
    slice_effect,
    summarise,
    useful_compute,
)
from millpond.scheduling.placement.kernels import lean_kernel
from millpond.scheduling.placement.shapes import SHAPE_COMPUTE, SHAPE_CPU, SHAPE_DEVICE_MEMORY, SHAPE_DEVICES
from millpond.scheduling.placement.tables import (
    BID_WEIGHT,
    CPU_WEIGHT,
    GPU_WEIGHT,
    LOAD_WEIGHT,
    NEED_COLUMNS,
    NEED_COMPUTE,
    NEED_MEMORY,
    NEED_SHARE,
    NEEDS_AT,
    NEEDS_COUNT,
    QUANTUM,
    SCARCITY_AT,
    SCARCITY_WEIGHT,
    SCORER,
    TOTAL_WEIGHT,
    VALUE_AT,
)

NOWHERE = -(1 << 62)

_DEFAULT, _FGD, _BEST_FIT, _DOT_PRODUCT = range(4)
# What a slice by memory alone costs where no typical work with compute could use the card beside it any more: more than
# any fragmentation, which counts compute, can gain. Where a part of that work could not, that part of it; on an idle
# card so many thousandths at least.
_CARD_BROKEN = 101 * QUANTUM
_CARD_BEGUN = 100


@lean_kernel
def score_node(
    nodes: Int64Array, devices: Int64Array, node: int, shape: Int64Array, tables: Int64Array
) -> tuple[int, int]:
    """Score of the shape on the node, and the device that earns it: -1 for whole cards and CPU-only shapes."""
    free, _, _, useful = summarise(nodes, devices, node, tables)
    return score_summarised(nodes, devices, node, shape, tables, free, useful)


@lean_kernel
def score_summarised(
    nodes: Int64Array,
    devices: Int64Array,
    node: int,
    shape: Int64Array,
    tables: Int64Array,
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
        if device_fits(devices, device, shape):
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
    fixed = -(tables[GPU_WEIGHT] * (free - taken) + tables[CPU_WEIGHT] * (cpu - shape[SHAPE_CPU]))
    by_load = tables[LOAD_WEIGHT]
    if wanted != 1 or compute == 1000:
        cards = first_cards(fitting, wanted)
        after = useful_then
        if cards != 0:
            after = useful_compute(devices, first, total, level, cards, compute, tables)
        score = quantum(tables, base + after)
        if tables[SCORER] == _DEFAULT:
            if by_load != 0:
                fixed -= by_load * mean_load(devices, first, total)
            return score * QUANTUM + fixed - scarcity_cost(devices, first, cards, compute, tables), -1
        return score, -1
    best = NOWHERE
    best_device = -1
    previous = -1
    for index in range(total):
        if (fitting >> index) & 1 == 0:
            continue
        residual = devices[COMPUTE_FREE, first + index]
        loss_milli = 0
        if compute == 0:
            loss_milli = memory_loss(devices, first + index, shape[SHAPE_DEVICE_MEMORY], tables)
        kind = (residual * 64 + devices[DEVICE_MODEL, first + index]) * 1001 + loss_milli
        if kind == previous and by_load == 0:
            continue
        previous = kind
        after = useful_then + slice_effect(devices, first, total, index, level, compute, tables)
        score = quantum(tables, base + after)
        if tables[SCORER] == _DEFAULT:
            loss = tables[tables[VALUE_AT] + residual] - tables[tables[VALUE_AT] + residual - compute]
            score = score * QUANTUM + fixed - tables[BID_WEIGHT] * loss
            score -= scarcity_cost(devices, first, 1 << index, compute, tables) + loss_milli * (_CARD_BROKEN // 1000)
            if by_load != 0:
                score -= by_load * card_load(devices, first + index)
        if score > best:
            best = score
            best_device = index
    return best, best_device


@lean_kernel
def memory_loss(devices: Int64Array, device: int, memory_mib: int, tables: Int64Array) -> int:
    """Part of typical work, in thousandths, that a card can take now, and could not beside so much more memory."""
    begun = _CARD_BEGUN if device_idle(devices, device) else 0
    if tables[NEEDS_COUNT] == 0:
        return 1000 if begun else 0
    lost = 0
    free = devices[DEVICE_MEMORY_FREE, device]
    for row in range(tables[NEEDS_COUNT]):
        at = tables[NEEDS_AT] + row * NEED_COLUMNS
        compute = tables[at + NEED_COMPUTE]
        needed = tables[at + NEED_MEMORY]
        if needed < 0:
            needed = devices[DEVICE_MEMORY, device] * compute // 1000
        if compute <= devices[COMPUTE_FREE, device] and free - memory_mib < needed <= free:
            lost += tables[at + NEED_SHARE]
    return int(max(lost, begun))


@lean_kernel
def card_load(devices: Int64Array, device: int) -> int:
    """The use that is expected of a device, in milli: as measured, and what came or left since by estimate."""
    free = devices[COMPUTE_FREE, device]
    return int(max(devices[LOAD_BASE, device] - devices[LOAD_RATE, device] * free // 1000, 0))


@lean_kernel
def mean_load(devices: Int64Array, first: int, total: int) -> int:
    """The mean of ``card_load`` over the devices of a node; 0 where it has none."""
    load = 0
    for device in range(first, first + total):
        load += card_load(devices, device)
    return int(load // max(total, 1))


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
