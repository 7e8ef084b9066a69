"""Finding the best node of a class: cached scores, block maxima, and the exact argmax under masks."""

from __future__ import annotations

from millpond.scheduling.placement.arrays import DEVICE_TOTAL, FIRST_DEVICE, Int64Array, NodeMask
from millpond.scheduling.placement.filters import device_fits, first_failure
from millpond.scheduling.placement.kernels import lean_kernel
from millpond.scheduling.placement.links import closest_cards
from millpond.scheduling.placement.score_cache import BLOCK, refresh_scores, refresh_summary
from millpond.scheduling.placement.scoring import NOWHERE, score_node
from millpond.scheduling.placement.shapes import SHAPE_COMPUTE, SHAPE_DEVICES

_MASKED = 3
_WHOLE = 1000


@lean_kernel
def best_node(scores: Int64Array, block_best: Int64Array, count: int, mask: NodeMask) -> int:
    """The node of the highest score, lowest index on ties; -1 if none. ``mask`` (N,), 0 = excluded, or empty."""
    best = NOWHERE
    found = -1
    for block in range((count + BLOCK - 1) // BLOCK):
        if block_best[block] <= best:
            continue
        for node in range(block * BLOCK, min((block + 1) * BLOCK, count)):
            if scores[node] > best and (mask.shape[0] == 0 or mask[node] != 0):
                best = scores[node]
                found = node
                if best == block_best[block]:
                    break
    return found


@lean_kernel
def scattered_node(scores: Int64Array, count: int, mask: NodeMask, seed: int) -> int:
    """A pseudo-random one of the nodes that fit, by ``seed``; -1 if none.

    Their order counts and their indices do not: a restored cluster has the same nodes without gaps.
    """
    best = -1
    found = -1
    fitting = 0
    for node in range(count):
        if scores[node] > NOWHERE and (mask.shape[0] == 0 or mask[node] != 0):
            number = scatter(seed, fitting)
            fitting += 1
            if number > best:
                best = number
                found = node
    return found


@lean_kernel
def scatter(seed: int, place: int) -> int:
    """A number in 0..2**31 - 1 that depends on both arguments without pattern; no product leaves 63 bits."""
    state = (seed ^ (place * 2_654_435)) & 0x7FFFFFFF
    for _ in range(3):
        state = ((state ^ (state >> 15)) * 739_982_445) & 0x7FFFFFFF
        state = ((state ^ (state >> 12)) * 695_872_825) & 0x7FFFFFFF
    return int(state ^ (state >> 15))


@lean_kernel
def fitting_devices(nodes: Int64Array, devices: Int64Array, node: int, shape: Int64Array) -> int:
    """Devices of the node, as bits, that can each hold one device's part of the shape."""
    first = nodes[FIRST_DEVICE, node]
    fitting = 0
    for index in range(nodes[DEVICE_TOTAL, node]):
        if device_fits(devices, first + index, shape):
            fitting |= 1 << index
    return fitting


@lean_kernel
def free_choice(
    nodes: Int64Array,
    devices: Int64Array,
    node: int,
    shape: Int64Array,
    tables: Int64Array,
    lookup: Int64Array,
    costs: Int64Array,
) -> tuple[int, int]:
    """Score and devices (bits) of the shape on the node; (NOWHERE, 0) if it does not fit."""
    score, device = score_node(nodes, devices, node, shape, tables)
    if score == NOWHERE or shape[SHAPE_DEVICES] == 0:
        return score, 0
    if shape[SHAPE_COMPUTE] < _WHOLE:
        return score, 1 << device
    free = fitting_devices(nodes, devices, node, shape)
    return score, closest_cards(nodes, devices, lookup, costs, node, free, shape[SHAPE_DEVICES])


@lean_kernel
def count_failures(
    nodes: Int64Array, devices: Int64Array, count: int, shape: Int64Array, mask: NodeMask, histogram: Int64Array
) -> None:
    """Count the live nodes by the first ``FilterStep`` that refuses the shape, into ``histogram`` (14,)."""
    for node in range(count):
        failure = first_failure(nodes, devices, node, shape)
        if failure != 1 and failure != 2 and mask.shape[0] > 0 and mask[node] == 0:
            failure = _MASKED
        histogram[failure] += 1


@lean_kernel
def select_best(
    nodes: Int64Array,
    devices: Int64Array,
    changed: Int64Array,
    summary_begin: int,
    summary_known: int,
    begin: int,
    known: int,
    head: int,
    count: int,
    shape: Int64Array,
    tables: Int64Array,
    summary: Int64Array,
    scores: Int64Array,
    block_best: Int64Array,
    mask: NodeMask,
    lookup: Int64Array,
    costs: Int64Array,
) -> tuple[int, int, int]:
    """Refresh summary and class, then (node, score, devices as bits) of its best node; (-1, NOWHERE, 0) if none."""
    refresh_summary(nodes, devices, changed, summary_begin, summary_known, head, count, tables, summary)
    refresh_scores(nodes, devices, changed, begin, known, head, count, shape, tables, summary, scores, block_best)
    node = best_node(scores, block_best, count, mask)
    if node < 0:
        return -1, NOWHERE, 0
    score, cards = free_choice(nodes, devices, node, shape, tables, lookup, costs)
    return node, score, cards
