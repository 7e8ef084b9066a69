"""Work that comes in crowds, for tests that look for what a scheduler forgets when it is restored."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from millpond.model.resources import SHARE_OF_CARD, SliceRequest, TaskRequest
from millpond.model.workloads import Job, Priority, Role
from millpond.scheduling.settings import PreemptionCost, Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.kernel import World
from millpond.simulation.trace import TraceJob, Workload
from millpond.simulation.world.costs import Costs

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
FEW = ("default", "suspending")
OTHERS = tuple(kind for kind in KINDS if kind not in FEW)


def settings_of(kind: str) -> Settings:
    """The settings of a kind."""
    return replace(Settings(preempt=True), **KINDS[kind][0])


def world_of(kind: str, seed: int, jobs: int) -> World:
    """A world of bursts."""
    _, durations, suspends = KINDS[kind]
    costs = Costs(preemption=settings_of(kind).preemption_cost, suspend_s=1.0, swap_mib_per_s=8192.0)
    return World(CLUSTER, bursts(seed, jobs), durations, costs, suspends=suspends)
