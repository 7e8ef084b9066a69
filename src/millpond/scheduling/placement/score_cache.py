"""Cached scores: what is remembered per node and per class, and how the change log keeps it exact.

Per node, for all classes: a summary. Per class: a score for every node, and the maximum of every block of nodes.
"""

from __future__ import annotations

from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.placement.fragmentation import summarise
from millpond.scheduling.placement.kernels import lean_kernel
from millpond.scheduling.placement.scoring import NOWHERE, score_summarised
from millpond.scheduling.placement.shapes import SHAPE_COMPUTE, SHAPE_DEVICES

BLOCK = 64
# Columns of the summary.
FREE, LARGEST, CARDS, USEFUL = range(4)
SUMMARY_COLUMNS = 4
_WHOLE = 1000


@lean_kernel
def refresh_summary(
    nodes: Int64Array,
    devices: Int64Array,
    changed: Int64Array,
    begin: int,
    known: int,
    head: int,
    count: int,
    tables: Int64Array,
    summary: Int64Array,
) -> None:
    """Bring ``summary`` (N, 4), what every class asks about a node, up to the log's head; as ``refresh_scores``."""
    if begin < 0:
        known = 0
        begin = head
    logged = head - begin
    place = begin % changed.shape[0]
    for step in range(logged + count - known):
        node = changed[place] if step < logged else known + step - logged
        place = place + 1 if place + 1 < changed.shape[0] else 0
        if step >= logged or node < known:
            free, largest, cards, useful = summarise(nodes, devices, node, tables)
            summary[node, FREE] = free
            summary[node, LARGEST] = largest
            summary[node, CARDS] = cards
            summary[node, USEFUL] = useful


@lean_kernel
def refresh_scores(
    nodes: Int64Array,
    devices: Int64Array,
    changed: Int64Array,
    begin: int,
    known: int,
    head: int,
    count: int,
    shape: Int64Array,
    tables: Int64Array,
    summary: Int64Array,
    scores: Int64Array,
    block_best: Int64Array,
) -> None:
    """Bring a class up to the log's head: rescore what changed since ``begin`` (< 0: everything).

    ``summary`` (N, 4), up to date; ``scores`` (N,), ``block_best`` (N / 64,): the class's cache. Nodes from
    ``known`` to ``count`` are new.
    """
    if begin < 0:
        scores[:] = NOWHERE
        block_best[:] = NOWHERE
        known = 0
        begin = head
    # First what the log names, then the new nodes.
    logged = head - begin
    place = begin % changed.shape[0]
    for step in range(logged + count - known):
        node = changed[place] if step < logged else known + step - logged
        place = place + 1 if place + 1 < changed.shape[0] else 0
        if step < logged and node >= known:
            continue
        score = NOWHERE
        if may_fit(summary, node, shape):
            score, _ = score_summarised(nodes, devices, node, shape, tables, summary[node, FREE], summary[node, USEFUL])
        keep_score(scores, block_best, node, score)


@lean_kernel
def may_fit(summary: Int64Array, node: int, shape: Int64Array) -> bool:
    """Whether the summary leaves it open that the shape fits the node: what keeps most full nodes cheap."""
    wanted = shape[SHAPE_DEVICES]
    compute = shape[SHAPE_COMPUTE]
    if wanted == 0:
        return True
    return bool(summary[node, LARGEST] >= compute and (compute < _WHOLE or summary[node, CARDS] >= wanted))


@lean_kernel
def keep_score(scores: Int64Array, block_best: Int64Array, node: int, score: int) -> None:
    """Enter one node's score; look through its block only if the block's best may have gone."""
    before = scores[node]
    if score == before:
        return
    scores[node] = score
    block = node // BLOCK
    if score >= block_best[block]:
        block_best[block] = score
    elif before == block_best[block]:
        best = NOWHERE
        for other in range(block * BLOCK, min((block + 1) * BLOCK, scores.shape[0])):
            best = max(best, scores[other])
        block_best[block] = best
