"""What jobs emit that may start later, on a day that can be computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.energy.cleaner_hours import (
    HOUR_S,
    Emitted,
    Intensity,
    best_with_all_known,
    best_without_bounds,
    emitted,
    is_met,
    saved_percent,
)
from millpond.model.energy import EnergyRates, RateMeasure, RateSeries
from millpond.model.resources import TaskRequest
from millpond.model.workloads import Job, Role
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.results.history import History, history_of
from millpond.simulation.trace import TraceJob, Workload
from millpond.simulation.world.simulated_rates import PublishedRates

BEGIN_S = 20 * 86_400.0
SERIES = RateSeries(
    tuple(HOUR_S * hour for hour in range(30 * 24)),
    tuple(100.0 if hour % 24 == 6 else 200.0 if hour % 24 == 7 else 400.0 for hour in range(30 * 24)),
    30 * 86_400.0,
)
"""Of each day hour 6 is the cleanest, hour 7 the next, and all others are alike."""


def play(*, flexible: bool) -> History:
    """Three jobs of an hour come at midnight to one card."""
    job = Job("j", (Role.rigid(TaskRequest(0, 0, 1), 1),), flexible_s=86_400.0 * flexible)
    jobs = tuple(TraceJob(replace(job, id=f"j{number}"), BEGIN_S, HOUR_S) for number in range(3))
    world = World(uniform_cluster("1x1"), Workload(jobs, "three"), "exact", rates=EnergyRates(carbon=SERIES))
    world = replace(world, published=PublishedRates(RateMeasure.CARBON) if flexible else None)
    simulation = Simulation(world, make_scheduler(Settings()))
    simulation.run()
    return history_of(simulation)


def test_jobs_share_the_cleanest_hours_and_bounds_are_no_worse() -> None:
    intensity = Intensity(SERIES)
    at_once, flexible = play(flexible=False), play(flexible=True)
    before, after = emitted(at_once, at_once, intensity), emitted(flexible, at_once, intensity)
    assert before.intensity == pytest.approx(400.0)
    assert after.intensity == pytest.approx((100.0 + 200.0 + 400.0) / 3)
    assert (after.late, after.late_by_shifting) == (0, 0)
    assert best_with_all_known(at_once, intensity) == pytest.approx((100.0 + 200.0 + 400.0) / 3)
    assert best_without_bounds(at_once, intensity) == pytest.approx(100.0)
    assert saved_percent(before.intensity, after.intensity) == pytest.approx(100 * (1 - 700 / 1_200))


def test_a_start_a_day_behind_is_late_by_shifting_unless_it_was_so_at_once() -> None:
    at_once = play(flexible=False)
    late = replace(at_once, first_start_at=at_once.submit_at + np.array([0.0, 25.0, 30.0]) * HOUR_S)
    crowded = replace(at_once, first_start_at=at_once.submit_at + np.array([0.0, 0.0, 29.0]) * HOUR_S)
    found = emitted(late, crowded, Intensity(SERIES))
    assert (found.late, found.late_by_shifting) == (2, 1)


def test_the_target_is_a_part_of_the_oracle_without_a_late_start() -> None:
    rows = {"by what is known": Emitted(100.0, 3, 0, 0.0, 0.0)}
    assert is_met(rows, {"by what is known": 8.6, "oracle": 10.0})
    assert not is_met(rows, {"by what is known": 8.4, "oracle": 10.0})
    assert not is_met({"by what is known": Emitted(100.0, 3, 1, 0.0, 0.0)}, {"by what is known": 9.0, "oracle": 10.0})
    assert math.isfinite(saved_percent(1.0, 2.0))
