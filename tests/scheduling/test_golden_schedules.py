"""Tiny traces whose schedules can be computed by hand, one ordering after the other.

All run on one node of four cards, with preemption and restart free unless said otherwise. A row is (submitted at,
length, cards); jobs are named a, b, c, ... and the expected numbers are the instants at which they end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from millpond.model.workloads import Job
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import PreemptionCost, Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.trace import TraceJob, Workload, gang_roles
from millpond.simulation.world.costs import Costs

FREE = PreemptionCost(0, 0)


@dataclass(frozen=True)
class Golden:
    """A trace, the settings, and when each job must end.

    Attributes:
        extra: further fields of single jobs, by name.
        durations: what the policy knows of lengths.
    """

    name: str
    ordering: str
    rows: Sequence[tuple[float, float, int]]
    ends: Sequence[float]
    preempt: bool = False
    durations: str = "exact"
    extra: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    costs: Costs = Costs()

    def __str__(self) -> str:
        return f"{self.ordering}: {self.name}".replace(" ", "-")


MIXED = ((0, 100, 1), (0, 50, 4), (0, 10, 2))
"""By length c b a; by card-seconds c (20), a (100), b (200); by arrival a b c."""

GOLDEN = [
    # a 0-100; b needs all cards, so 100-150; c may not pass b, so 150-160.
    Golden("first come first served and nobody passes", "fifo", MIXED, [100, 150, 160], durations="none"),
    # c 0-10; b needs all cards, so 10-60; a may not pass b, so 60-160.
    Golden("the shortest goes first and nobody passes", "sjf", MIXED, [160, 60, 10]),
    # c 0-10 and a 0-100 side by side; b 100-150.
    Golden("the smallest in card-seconds goes first", "ssf", MIXED, [100, 150, 10]),
    # at 10 b has 20 s left and a 90: b 10-30, a 30-120.
    Golden("less time left displaces more", "srtf", ((0, 100, 4), (10, 20, 4)), [120, 30], preempt=True),
    # at 10 b has 120 s left and a 90: b waits.
    Golden("more time left does not displace less", "srtf", ((0, 100, 4), (10, 120, 2)), [100, 220], preempt=True),
    # at 10 b has 240 card-seconds left and a 360: b 10-130, then a 130-220.
    Golden("less card-time left displaces more", "srsf", ((0, 100, 4), (10, 120, 2)), [220, 130], preempt=True),
    # at 80 b has 40 s left, a 20: the progress of a counts, and b waits until 100.
    Golden("what is left counts and not the whole", "srtf", ((0, 100, 4), (80, 40, 4)), [100, 140], preempt=True),
    # a has had 4 x 50 = 200 card-seconds at 50 and falls behind b, which needs 20 x 4 = 80: b 50-70, a 70-120.
    Golden(
        "who has had the threshold falls behind newcomers",
        "tiresias",
        ((0, 100, 4), (10, 20, 4)),
        [120, 70],
        preempt=True,
        durations="none",
        settings={"tiresias_thresholds_gpu_s": (200.0,)},
    ),
    # b falls behind too, at 50 + 50 = 100, and joins the end of the lower queue: a goes on 100-150, then b 150-200.
    Golden(
        "the lower queue is first come first served",
        "tiresias",
        ((0, 100, 4), (10, 100, 4)),
        [150, 200],
        preempt=True,
        durations="none",
        settings={"tiresias_thresholds_gpu_s": (200.0,)},
    ),
    # after a: d is due first, then c, then b, which has no deadline.
    Golden(
        "the earliest deadline goes first and work without one last",
        "edf",
        ((0, 100, 4), (1, 10, 4), (2, 10, 4), (3, 10, 4)),
        [100, 130, 120, 110],
        extra={"c": {"deadline_s": 500.0}, "d": {"deadline_s": 200.0}},
    ),
    # big b waits until 100; c ends by then and passes, d does not.
    Golden(
        "a gap before a reservation is filled by what ends in time",
        "edf",
        ((0, 100, 3), (1, 50, 4), (2, 90, 1), (3, 110, 1)),
        [100, 150, 92, 260],
    ),
    # one user has had 400 card-seconds when c of the other comes to choose: c 100-110 before b 110-120.
    Golden(
        "the user who has had less goes first",
        "fair",
        ((0, 100, 4), (1, 10, 4), (2, 10, 4)),
        [100, 120, 110],
        extra={"a": {"user": "ann"}, "b": {"user": "ann"}, "c": {"user": "bob"}},
    ),
    # alike for one user: first come, first served.
    Golden(
        "one user alone is served in order of arrival",
        "fair",
        ((0, 100, 4), (1, 50, 4), (2, 10, 4)),
        [100, 150, 160],
        extra={name: {"user": "ann"} for name in "abc"},
    ),
    Golden("the least work left goes first", "default", ((0, 100, 4), (1, 50, 4), (2, 10, 4)), [100, 160, 110]),
    Golden(
        "far less work left displaces more",
        "default",
        ((0, 10_000, 4), (100, 10, 4)),
        [10_010, 110],
        preempt=True,
        settings={"preemption_cost": FREE},
    ),
    # 50 s left against 49 s: too little is won.
    Golden(
        "hardly less work left does not pay",
        "default",
        ((0, 100, 4), (50, 49, 4)),
        [100, 149],
        preempt=True,
        settings={"preemption_cost": FREE},
    ),
    # nothing is known: work of one size goes by arrival.
    Golden(
        "jobs alike that nothing is known of go by arrival",
        "default",
        ((0, 100, 4), (1, 50, 4), (2, 10, 4)),
        [100, 150, 160],
        durations="none",
    ),
    # the engine charges 40 s to a, once, when it runs again: 11,010 + 9,000 + 40.
    Golden(
        "the displaced pays for coming back",
        "default",
        ((0, 20_000, 4), (11_000, 10, 4)),
        [20_050, 11_010],
        preempt=True,
        costs=Costs(preemption=PreemptionCost(40, 60)),
    ),
]


def ends_of(golden: Golden) -> list[float]:
    """When the jobs end, in order of their names."""
    entries = tuple(
        TraceJob(Job(name, gang_roles(cards, 4), **golden.extra.get(name, {})), at, length, f"test:{name}")
        for name, (at, length, cards) in zip("abcdefgh", golden.rows, strict=False)
    )
    options = {"preemption_cost": golden.costs.preemption, **golden.settings}
    settings = Settings(ordering=golden.ordering, preempt=golden.preempt, **options)
    world = World(uniform_cluster("1x4"), Workload(entries, "golden"), golden.durations, golden.costs)
    simulation = Simulation(world, Scheduler(settings))
    simulation.run()
    return [work.ended_at for work in simulation.works]


@pytest.mark.parametrize("golden", GOLDEN, ids=str)
def test_the_schedule_is_the_one_computed_by_hand(golden: Golden) -> None:
    assert ends_of(golden) == pytest.approx(list(golden.ends), abs=0.01)
