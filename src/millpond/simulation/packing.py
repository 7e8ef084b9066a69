"""Replaying a packing trace: pods arrive one by one, each is placed for good or fails for good.

This is how FGD (ATC'23) compares placements: no departures, no second try; what counts is how much of the
cluster is allocated by the time so many GPUs were asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from millpond.model.decisions import Placement, Start
from millpond.model.errors import InvalidInputError
from millpond.model.events import Confirmed, Event, JobSubmitted, NodeJoined, PoolChanged, StopRequested
from millpond.model.hardware.nodes import Node
from millpond.model.workloads import Job
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import capacity_milli
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel_warmup import warm_up
from millpond.simulation.results.fragmentation import FreeRoom, popular_mix, task_counts
from millpond.simulation.trace import Workload, admissible

CHECKPOINTS = (95, 100, 130)
SHORT_OF_CHECKPOINT = 0.005
"""A run that ends this little below a checkpoint counts as having reached it (published orders stop just short)."""
PROGRESS_EVERY = 64
WARM_UP_PODS = 40


@dataclass(frozen=True, slots=True)
class PackingResult:
    """What one order of arrival came to.

    Attributes:
        allocated_gpu_percent: allocated over all GPU compute when requests first reached so many percent of it;
            None where they never did.
        curve: (percent asked for, percent allocated) along the way, about 200 points.
        fragmented_gpu_milli: FGD's measure at the end.
        cpu_s: processor time from the first arrival to the last.
    """

    allocated_gpu_percent: dict[str, float | None]
    unallocated_gpus: float
    fragmented_gpu_milli: float
    placed: int
    failed: int
    arrivals: int
    cpu_s: float
    curve: tuple[tuple[float, float], ...]


def packing_settings(settings: Settings, pods: Workload, *, mix_known: bool) -> Settings:
    """Settings for a packing replay: strictly one by one, with the pods' shapes known beforehand or learnt.

    Only the static mix of the pod list is given, never how the arrivals are drawn from it.
    """
    mix = tuple(task_counts(pods).items()) if mix_known else ()
    return replace(one_by_one(settings), typical_mix=mix)


def one_by_one(settings: Settings) -> Settings:
    """The settings without anything that looks beyond the pod that has just arrived."""
    return replace(settings, ordering="fifo", preempt=False, reserve=False)


def admissible_pods(nodes: Sequence[Node], pods: Workload, *, skip_bad_rows: bool) -> Workload:
    """The pods without those that no node could ever take; refused unless they are to be skipped."""
    return admissible(pods, _scheduler_on(nodes, Settings(), pods).check, skip_bad_rows=skip_bad_rows)


def inflate(gpu_milli: list[int], capacity_milli: int, until: float, seed: int) -> list[int]:
    """Indices of arriving pods: every pod once, clones until ``until`` times the capacity is asked for, shuffled once.

    Clones are drawn with replacement, each pod as likely as any other; the same seed gives the same order
    (numpy's ``default_rng``). This is the workload inflation of FGD (ATC'23, section 6.1).

    Args:
        gpu_milli: what each pod asks for.

    Raises:
        InvalidInputError: no pod asks for GPUs, so that clones would never get there.
    """
    if not any(gpu_milli):
        raise InvalidInputError("no pod asks for a GPU", "give a pod list with GPU work, or an --order file")
    draws = np.random.default_rng(seed)
    arriving = list(range(len(gpu_milli)))
    requested = sum(gpu_milli)
    goal = until * capacity_milli
    while requested < goal:
        clone = int(draws.integers(len(gpu_milli)))
        arriving.append(clone)
        requested += gpu_milli[clone]
    draws.shuffle(arriving)
    return arriving


def pack(
    nodes: Sequence[Node],
    pods: Workload,
    order: Sequence[int],
    settings: Settings,
    progress: Callable[[int], None] | None = None,
) -> PackingResult:
    """Let pods arrive in ``order`` (indices into ``pods``; one that repeats is a clone).

    Args:
        settings: as ``packing_settings`` makes them.
        progress: called now and then with the number of pods that have arrived.
    """
    arrivals = _numbered(pods, order)
    warm_up(settings)
    _place_all(_scheduler_on(nodes, settings, pods), arrivals[:WARM_UP_PODS], None)
    scheduler = _scheduler_on(nodes, settings, pods)
    before = time.process_time()
    placed = _place_all(scheduler, arrivals, progress)
    cpu_s = time.process_time() - before
    return _result(nodes, pods, arrivals, placed, cpu_s)


def _scheduler_on(nodes: Sequence[Node], settings: Settings, pods: Workload) -> Scheduler:
    scheduler = make_scheduler(settings)
    opening: list[Event] = [PoolChanged(0.0, pods.pool()), *(NodeJoined(0.0, node) for node in nodes)]
    for event in opening:
        scheduler.handle(event)
    return scheduler


def _numbered(pods: Workload, order: Sequence[int]) -> list[Job]:
    """Arriving jobs: the first arrival of a pod keeps its name, clones get a number."""
    seen: dict[int, int] = {}
    arrivals = []
    for index in order:
        job = pods.jobs[index].job
        copies = seen[index] = seen.get(index, 0) + 1
        arrivals.append(job if copies == 1 else replace(job, id=f"{job.id}+{copies - 1}"))
    return arrivals


def _place_all(
    scheduler: Scheduler, arrivals: Sequence[Job], progress: Callable[[int], None] | None
) -> list[tuple[Placement, ...]]:
    """Submit the jobs one by one, a second apart; returns each one's placements, empty for one that failed."""
    placed: list[tuple[Placement, ...]] = []
    for number, job in enumerate(arrivals, 1):
        now = float(number)
        scheduler.handle(JobSubmitted(now, job))
        found: tuple[Placement, ...] = ()
        for decision in scheduler.decide(now):
            if isinstance(decision, Start):
                found = decision.placements
                scheduler.handle(Confirmed(now, decision.id))
        if not found:
            scheduler.handle(StopRequested(now, job.id))
            scheduler.forget(job.id)
        placed.append(found)
        if progress is not None and number % PROGRESS_EVERY == 0:
            progress(number)
    return placed


def _result(
    nodes: Sequence[Node],
    pods: Workload,
    arrivals: Sequence[Job],
    placed: Sequence[tuple[Placement, ...]],
    cpu_s: float,
) -> PackingResult:
    capacity = capacity_milli(nodes)
    room = FreeRoom(nodes)
    reached: dict[str, float | None] = {str(percent): None for percent in CHECKPOINTS}
    curve: list[tuple[float, float]] = []
    requested = allocated = 0
    every = max(len(arrivals) // 200, 1)
    for number, (job, placements) in enumerate(zip(arrivals, placed, strict=True), 1):
        requested += job.gpu_milli
        for placement in placements:
            allocated += job.gpu_milli
            room.take(placement, job.roles[0].request.cpu_milli)
        last = number == len(arrivals)
        slack = SHORT_OF_CHECKPOINT if last else 0.0
        for percent in CHECKPOINTS:
            if reached[str(percent)] is None and requested >= capacity * (percent / 100 - slack):
                reached[str(percent)] = round(100 * allocated / capacity, 3)
        if number % every == 0 or last:
            curve.append((round(100 * requested / capacity, 2), round(100 * allocated / capacity, 2)))
    done = sum(1 for placements in placed if placements)
    return PackingResult(
        allocated_gpu_percent=reached,
        unallocated_gpus=(capacity - allocated) / 1000,
        fragmented_gpu_milli=round(room.fragmented_milli(popular_mix(task_counts(pods))), 1),
        placed=done,
        failed=len(arrivals) - done,
        arrivals=len(arrivals),
        cpu_s=cpu_s,
        curve=tuple(curve),
    )
