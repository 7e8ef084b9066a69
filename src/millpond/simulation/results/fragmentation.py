"""How much of the free GPU compute the usual jobs cannot use: the fragmentation measure of FGD (ATC'23, section 3).

Written apart from the scheduler's own kernels, so that a replay is measured by something that did not place it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from millpond.model.decisions import Placement
from millpond.model.hardware.nodes import Node
from millpond.model.resources import TaskRequest
from millpond.scheduling.placement.arrays import FloatArray
from millpond.simulation.results.history import History
from millpond.simulation.trace import Workload

COVERAGE = 0.95
SAMPLES = 100


@dataclass(frozen=True, slots=True)
class Mix:
    """The most popular requests, which cover 95 % of all tasks, with weights that sum to 1."""

    requests: tuple[TaskRequest, ...]
    weights: tuple[float, ...]


def task_counts(workload: Workload) -> Counter[TaskRequest]:
    """How many tasks ask for what."""
    counts: Counter[TaskRequest] = Counter()
    for entry in workload.jobs:
        for role in entry.job.roles:
            counts[role.request] += role.desired
    return counts


def popular_mix(counts: Counter[TaskRequest]) -> Mix:
    """The mix of a workload; the same request with other memory is one shape, for memory plays no part here."""
    merged: Counter[TaskRequest] = Counter()
    for request, count in counts.items():
        merged[TaskRequest(request.cpu_milli, 0, request.devices, request.slice, request.models)] += count
    total = sum(merged.values())
    chosen: list[tuple[TaskRequest, int]] = []
    covered = 0
    for request, count in merged.most_common():
        if covered >= COVERAGE * total:
            break
        chosen.append((request, count))
        covered += count
    return Mix(tuple(request for request, _ in chosen), tuple(count / covered for _, count in chosen))


class FreeRoom:
    """What is free on each node, kept by adding and removing placements."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        widest = max((len(node.devices) for node in nodes), default=0)
        self._nodes = nodes
        self._index = {node.name: index for index, node in enumerate(nodes)}
        self._slot = {device.uuid: slot for node in nodes for slot, device in enumerate(node.devices)}
        self._cpu = np.array([node.cpu_milli for node in nodes], dtype=np.int64)
        self._gpu = np.zeros((len(nodes), widest), dtype=np.int64)
        for index, node in enumerate(nodes):
            self._gpu[index, : len(node.devices)] = 1000
        self._allowed: dict[tuple[str, ...], np.ndarray] = {}

    def take(self, placement: Placement, cpu_milli: int, sign: int = 1) -> None:
        """Book a task; ``sign`` -1 gives its room back."""
        index = self._index[placement.node]
        self._cpu[index] -= sign * cpu_milli
        for grant in placement.grants:
            self._gpu[index, self._slot[grant.device]] -= sign * grant.compute_milli

    def fragmented_milli(self, mix: Mix) -> float:
        """Expected free compute, over the whole cluster, that a task drawn from the mix cannot use."""
        gpu = np.maximum(self._gpu, 0)  # of a card that two whole jobs share nothing is free
        free = gpu.sum(axis=1)
        total = 0.0
        for request, weight in zip(mix.requests, mix.weights, strict=True):
            if not request.devices:
                total += weight * float(free.sum())
                continue
            fitting = gpu >= request.slice.compute_milli
            usable = self._models(request.models) & (self._cpu >= request.cpu_milli)
            usable &= fitting.sum(axis=1) >= request.devices
            stranded = np.where(usable, np.where(fitting, 0, gpu).sum(axis=1), free)
            total += weight * float(stranded.sum())
        return total

    def _models(self, models: tuple[str, ...]) -> np.ndarray:
        """Which nodes have a card of an allowed model."""
        if models not in self._allowed:
            self._allowed[models] = np.array(
                [not models or any(device.model in models for device in node.devices) for node in self._nodes]
            )
        return self._allowed[models]


def fragmentation_at(history: History, workload: Workload, instants: Iterable[float]) -> FloatArray:
    """Fragmented GPU milli at rising instants of a replay."""
    mix = popular_mix(task_counts(workload))
    cpu_of = [{role.name: role.request.cpu_milli for role in entry.job.roles} for entry in workload.jobs]
    moves = sorted(
        (at, sign, number)
        for number, run in enumerate(history.runs)
        for at, sign in ((run.start_at, 1), (run.end_at, -1))
    )
    room = FreeRoom(history.nodes)
    found: list[float] = []
    position = 0
    for instant in instants:
        while position < len(moves) and moves[position][0] <= instant:
            _, sign, number = moves[position]
            run = history.runs[number]
            for placement in run.placements:
                room.take(placement, cpu_of[run.job].get(placement.role, 0), sign)
            position += 1
        found.append(room.fragmented_milli(mix))
    return np.array(found)


def mean_fragmentation_percent(history: History, workload: Workload) -> float:
    """Fragmented compute in percent of the cluster's, averaged over evenly spaced instants of the replay.

    Not a number where it means nothing: no job has ended, or none asks for a GPU.
    """
    done = history.ended_at[history.finished]
    if not len(done) or not history.capacity_milli or not history.gpu_milli.any():
        return float("nan")
    instants = np.linspace(float(history.submit_at.min()), float(done.max()), SAMPLES, endpoint=False)
    return 100 * float(fragmentation_at(history, workload, instants).mean()) / history.capacity_milli
