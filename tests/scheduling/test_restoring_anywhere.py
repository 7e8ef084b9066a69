"""Bursts of work of all kinds, and a scheduler that is restored from its snapshot again and again on the way.

It has to take every decision that its twin takes, which never was restored: what influences decisions lies in the
snapshot, and what is asked in between influences none.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from millpond.model.decisions import Decision
from millpond.model.events import Event, JobSubmitted
from millpond.model.resources import SHARE_OF_CARD, SliceRequest, TaskRequest
from millpond.model.workloads import Job, Priority, Role
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import PreemptionCost, Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.costs import Costs
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.trace import TraceJob, Workload

CLUSTER = uniform_cluster("3x4:V100-16GB")


def bursts(seed: int, jobs: int) -> Workload:
    """Jobs that come in crowds, so that the cluster fills, overflows and runs nearly empty again."""
    draws = random.Random(seed)
    entries: list[TraceJob] = []
    at = 0.0
    while len(entries) < jobs:
        for _ in range(draws.choice((3, 20, 120))):
            entries.append(TraceJob(job_of(draws, len(entries)), at, draws.choice((5.0, 60.0, 600.0, 4000.0))))
            at += draws.choice((0.0, 0.0, 1.0))
        at += draws.choice((10.0, 300.0, 6000.0))
    return Workload(tuple(entries[:jobs]), "bursts")


def job_of(draws: random.Random, number: int) -> Job:
    """A job of any kind: of CPUs alone, of a part of a card, of cards, a gang, an elastic gang."""
    cards = draws.choice((0, 0, 0, 1, 1, 2, 4))
    part = 500 if cards == 1 and draws.random() < 0.3 else 1000
    request = TaskRequest(100, 100, cards, SliceRequest(part, SHARE_OF_CARD, part))
    wide = cards and draws.random() < 0.3
    bounds = (3, 1, 3) if wide and draws.random() < 0.5 else (3, 3, 3) if wide else (1, 1, 1)
    return Job(
        f"j{number}",
        (Role(request, *bounds),),
        user=draws.choice(("ada", "bob")),
        priority=draws.choice((Priority.LOW, Priority.NORMAL, Priority.NORMAL, Priority.HIGH)),
        time_limit_s=draws.choice((None, None, 1000.0)),
        minimum_run_s=draws.choice((0.0, 0.0, 100.0)),
    )


class Restored:
    """A scheduler, and its twin that is restored at random points."""

    def __init__(self, settings: Settings, seed: int, share: float) -> None:
        self.first = Scheduler(settings)
        self.second = Scheduler(settings)
        self.restored = 0
        self._draws = random.Random(seed)
        self._share = share

    def handle(self, event: Event) -> None:
        self.first.handle(event)
        self.second.handle(event)
        self._restore()
        if isinstance(event, JobSubmitted) and self._draws.random() < self._share:
            self.second.explain(event.job.id, event.at)

    def decide(self, now: float) -> list[Decision]:
        decisions = self.first.decide(now)
        assert self.second.decide(now) == decisions, f"restored {self.restored} times, at {now}"
        self._restore()
        return decisions

    def next_wakeup(self, now: float) -> float | None:
        wakeup = self.first.next_wakeup(now)
        assert self.second.next_wakeup(now) == wakeup, f"restored {self.restored} times, at {now}"
        return wakeup

    def forget(self, job_id: str) -> None:
        self.first.forget(job_id)
        self.second.forget(job_id)

    def _restore(self) -> None:
        if self._draws.random() < self._share:
            self.second = Scheduler.restore(json.loads(json.dumps(self.second.snapshot())))
            self.restored += 1


KINDS: dict[str, tuple[dict[str, Any], str, bool]] = {
    "default": ({}, "none", False),
    "with-forecasts": ({}, "predicted", False),
    "nothing-preempted": ({"preempt": False}, "exact", False),
    "preempted-at-no-cost": ({"preemption_cost": PreemptionCost(0.0, 0.0)}, "exact", False),
    "suspending": ({}, "exact", True),
    "gandiva": ({"placement": "gandiva"}, "none", True),
    "fair": ({"ordering": "fair"}, "none", False),
    "tiresias": ({"ordering": "tiresias"}, "none", False),
    "srtf": ({"ordering": "srtf"}, "exact", False),
}


def play(kind: str, seed: int, jobs: int, share: float) -> int:
    """One log of bursts; returns how often the twin was restored."""
    fields, durations, suspends = KINDS[kind]
    settings = replace(Settings(preempt=True), **fields)
    world = World(
        CLUSTER,
        bursts(seed, jobs),
        durations,
        Costs(preemption=settings.preemption_cost, suspend_s=1.0, swap_mib_per_s=8192.0),
        suspends=suspends,
    )
    both = Restored(settings, seed, share)
    Simulation(world, both).run()
    return both.restored


@pytest.mark.parametrize("kind", KINDS)
def test_a_scheduler_restored_anywhere_goes_on_as_if_it_had_not_been(kind: str) -> None:
    assert play(kind, 1, 80, 0.1) > 20


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_long_logs_of_bursts_are_gone_on_with_from_anywhere(kind: str) -> None:
    assert sum(play(kind, seed, 100, 0.2) for seed in range(2, 6)) > 100
