"""Cached scores: what is remembered per node and per class, and how the change log keeps it exact.

Per node, for all classes: a summary. Per class: a score for every node, and the maximum of every block of nodes.
"""

from __future__ import annotations

from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.placement.kernels import kernel
from millpond.scheduling.placement.scoring import NOWHERE, score_summarised, summarise
from millpond.scheduling.placement.shapes import SHAPE_COMPUTE, SHAPE_DEVICES
from millpond.scheduling.placement.tables import ScoreTables

BLOCK = 64
# Rows of the summary.
FREE, LARGEST, CARDS, USEFUL = range(4)
SUMMARY_ROWS = 4
_WHOLE = 1000


@kernel
def refresh_summary(
    nodes: Int64Array,
    devices: Int64Array,
    changed: Int64Array,
    begin: int,
    known: int,
    head: int,
    count: int,
    tables: ScoreTables,
    summary: Int64Array,
) -> None:
    """Bring ``summary`` (4, N), what every class asks about a node, up to the log's head; as ``refresh_scores``."""
    if begin < 0:
        known = 0
        begin = head
    size = changed.shape[0]
    for entry in range(begin, head):
        node = changed[entry % size]
        if node < known:
            summary[:, node] = summarise(nodes, devices, node, tables)
    for node in range(known, count):
        summary[:, node] = summarise(nodes, devices, node, tables)


@kernel
def refresh_scores(
    nodes: Int64Array,
    devices: Int64Array,
    changed: Int64Array,
    begin: int,
    known: int,
    head: int,
    count: int,
    shape: Int64Array,
    tables: ScoreTables,
    summary: Int64Array,
    scores: Int64Array,
    block_best: Int64Array,
) -> None:
    """Bring a class up to the log's head: rescore what changed since ``begin`` (< 0: everything).

    ``summary`` (4, N), up to date; ``scores`` (N,), ``block_best`` (N / 64,): the class's cache. Nodes from
    ``known`` to ``count`` are new.
    """
    if begin < 0:
        scores[:] = NOWHERE
        block_best[:] = NOWHERE
        known = 0
        begin = head
    size = changed.shape[0]
    for entry in range(begin, head):
        node = changed[entry % size]
        if node < known:
            rescore(nodes, devices, node, shape, tables, summary, scores, block_best)
    for node in range(known, count):
        rescore(nodes, devices, node, shape, tables, summary, scores, block_best)


@kernel
def rescore(
    nodes: Int64Array,
    devices: Int64Array,
    node: int,
    shape: Int64Array,
    tables: ScoreTables,
    summary: Int64Array,
    scores: Int64Array,
    block_best: Int64Array,
) -> None:
    """Recompute one node's score; look through its block only if the block's best may have gone."""
    score = NOWHERE
    wanted = shape[SHAPE_DEVICES]
    compute = shape[SHAPE_COMPUTE]
    if wanted == 0 or (summary[LARGEST, node] >= compute and (compute < _WHOLE or summary[CARDS, node] >= wanted)):
        score, _ = score_summarised(nodes, devices, node, shape, tables, 0, summary[FREE, node], summary[USEFUL, node])
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
