"""What switching idle nodes off saves, per card-hour of the same work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.energy.energy_saved import CARD_W, NODE_W, RULE, Drawn, is_met, measured, saved_percent
from millpond.model.resources import SliceRequest, TaskRequest
from millpond.model.workloads import Job, Role
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.kernel import World
from millpond.simulation.trace import TraceJob, Workload

HOUR_S = 3_600.0


def day_of_work() -> World:
    """An hour of work on one card at midnight, and again a day later, when the span that counts is over."""
    roles = (Role.rigid(TaskRequest(devices=1, slice=SliceRequest()), 1),)
    jobs = tuple(TraceJob(Job(f"j{day}", roles), 24 * HOUR_S * day, HOUR_S) for day in range(2))
    return World(uniform_cluster("2x8"), Workload(jobs, "two days"))


def test_the_same_work_takes_less_energy_where_the_nodes_without_work_are_off() -> None:
    world = day_of_work()
    on = measured(world, Scheduler(Settings()))
    assert on.kwh_per_card_hour == pytest.approx((2 * 24 * NODE_W + CARD_W) / 1000)
    assert (on.on, on.p95_wait_s) == (100.0, 0.0)
    rule = replace(RULE, spare=0, cover=None)
    switched = measured(replace(world, power={"default": rule}), Scheduler(Settings()))
    hours_on = switched.on / 100 * 2 * 24
    assert 2.0 < hours_on < 3.0  # each stays on for an hour at least, one until half an hour after its work
    assert switched.kwh_per_card_hour == pytest.approx((hours_on * NODE_W + CARD_W) / 1000)
    assert saved_percent(on, switched) > 90
    assert switched.p95_wait_s == pytest.approx(0.95 * rule.boot_s)


def test_saving_counts_only_where_jobs_hardly_wait_longer() -> None:
    on = Drawn(1.0, 100.0, 1_000.0, 10.0)
    assert is_met(on, Drawn(0.7, 60.0, 1_040.0, 200.0), 100)
    assert not is_met(on, Drawn(0.8, 60.0, 1_040.0, 200.0), 100)
    assert is_met(on, Drawn(0.8, 60.0, 1_040.0, 200.0), 80)
    assert not is_met(on, Drawn(0.7, 60.0, 1_060.0, 200.0), 100)
    assert not is_met(on, Drawn(0.7, 60.0, 1_040.0, 311.0), 100)
    assert is_met(on, Drawn(0.7, 60.0, 1_040.0, 200.0), 99) is None
