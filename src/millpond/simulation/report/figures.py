"""What the page draws of one replay, reduced to a few hundred numbers so that a process can hand it over."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from millpond.simulation.packing import PackingResult
from millpond.simulation.results.fairness import tenant_shares
from millpond.simulation.results.history import History, Run
from millpond.simulation.results.series import allocation, queue_length

BINS = 240
QUANTILES = 121
LANES = 96
GANTT_BINS = 360
SIZE_CLASSES = (1000, 2000, 4000, 8000)
"""Upper bounds in GPU milli of the first classes of job size; larger jobs make one more."""

SIZE_NAMES = ("1 GPU", "2 GPUs", "3 to 4 GPUs", "5 to 8 GPUs", "more GPUs")

Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Lane:
    """One card over time: (first bin, bins, size class) of the jobs that held it longest in each bin."""

    bars: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class GanttNode:
    """A node's cards."""

    name: str
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """Curves of one replay; a packing replay has the last two, a queueing replay all others.

    Attributes:
        span_s: from the first submission to the last end.
        queue: (seconds, mean jobs waiting).
        allocation: (seconds, mean percent of GPUs held).
        completion: (seconds, percent of jobs that took no longer).
        fairness: (name, mean finish-time fairness) of every user or queue; where there is only one, of job sizes.
        gantt: some nodes, evenly chosen, of ``node_count``.
        packing, packing_learnt: (percent of GPUs asked for, percent allocated), with the mix of shapes known
            beforehand and with it learnt.
    """

    span_s: float = 0.0
    queue: Points = field(default_factory=list)
    allocation: Points = field(default_factory=list)
    completion: Points = field(default_factory=list)
    fairness: tuple[tuple[str, float], ...] = ()
    gantt: tuple[GanttNode, ...] = ()
    node_count: int = 0
    packing: Points = field(default_factory=list)
    packing_learnt: Points = field(default_factory=list)


def packing_figures(known: PackingResult, learnt: PackingResult) -> Figures:
    """The curves of a packing replay."""
    return Figures(packing=list(known.curve), packing_learnt=list(learnt.curve))


def queueing_figures(history: History, *, with_gantt: bool) -> Figures:
    """The curves of a queueing replay."""
    start_at = float(history.submit_at.min())
    ends = history.ended_at[history.finished]
    end_at = float(ends.max()) if len(ends) else start_at
    if end_at <= start_at:
        return Figures(node_count=len(history.nodes))
    edges = np.linspace(start_at, end_at, BINS + 1)
    middles = (edges[:-1] + edges[1:]) / 2 - start_at
    held = 100 * allocation(history).means(edges) / max(history.capacity_milli, 1)
    parts = np.linspace(0, 100, QUANTILES)
    taken = np.percentile(history.jct_s[history.finished], parts)
    return Figures(
        span_s=end_at - start_at,
        queue=_points(middles, queue_length(history).means(edges)),
        allocation=_points(middles, held),
        completion=_points(taken, parts),
        fairness=_fairness(history),
        gantt=_gantt(history, start_at, end_at) if with_gantt else (),
        node_count=len(history.nodes),
    )


def _fairness(history: History) -> tuple[tuple[str, float], ...]:
    shares = tenant_shares(history)
    if len(shares) < 2:
        sizes = tuple(SIZE_NAMES[_size_class(gpu_milli)] for gpu_milli in history.gpu_milli)
        slowdown = history.jct_s / np.maximum(history.duration_s, 1.0)
        groups = {name: history.finished & (np.array(sizes) == name) for name in SIZE_NAMES}
        return tuple((name, round(float(slowdown[of].mean()), 4)) for name, of in groups.items() if of.any())
    return tuple((share.name, round(share.rho, 4)) for share in shares)


def _points(horizontal: np.ndarray, vertical: np.ndarray) -> Points:
    return [(round(float(x), 2), round(float(y), 3)) for x, y in zip(horizontal, vertical, strict=True)]


def _gantt(history: History, start_at: float, end_at: float) -> tuple[GanttNode, ...]:
    """At most ``LANES`` cards on whole nodes, evenly chosen, in ``GANTT_BINS`` bins of time."""
    widest = max((len(node.devices) for node in history.nodes), default=1) or 1
    count = min(len(history.nodes), max(LANES // widest, 1))
    chosen = [history.nodes[round(index)] for index in np.linspace(0, len(history.nodes) - 1, count)]
    by_device: dict[str, list[Run]] = {device.uuid: [] for node in chosen for device in node.devices}
    for run in history.runs:
        for placement in run.placements:
            for grant in placement.grants:
                if grant.device in by_device:
                    by_device[grant.device].append(run)
    width = (end_at - start_at) / GANTT_BINS
    return tuple(
        GanttNode(node.name, tuple(_lane(by_device[device.uuid], history, start_at, width) for device in node.devices))
        for node in chosen
    )


def _lane(runs: list[Run], history: History, start_at: float, width: float) -> Lane:
    """For each bin the run that covers most of it, if any covers half; equal neighbours become one bar."""
    longest = [0.0] * GANTT_BINS
    covered = [0.0] * GANTT_BINS
    owner = [-1] * GANTT_BINS
    for run in runs:
        first, last = (run.start_at - start_at) / width, (run.end_at - start_at) / width
        for position in range(max(int(first), 0), min(int(last) + 1, GANTT_BINS)):
            part = min(last, position + 1) - max(first, position)
            covered[position] += part
            if part > longest[position]:
                longest[position], owner[position] = part, run.job
    bars: list[tuple[int, int, int]] = []
    begin = 0
    for position in range(1, GANTT_BINS + 1):
        if position < GANTT_BINS and owner[position] == owner[begin] and covered[position] >= 0.5:
            continue
        if owner[begin] >= 0 and covered[begin] >= 0.5:
            bars.append((begin, position - begin, _size_class(history.gpu_milli[owner[begin]])))
        begin = position
    return Lane(tuple(bars))


def _size_class(gpu_milli: float) -> int:
    return next((index for index, bound in enumerate(SIZE_CLASSES) if gpu_milli <= bound), len(SIZE_CLASSES))
