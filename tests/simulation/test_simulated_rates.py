"""Jobs that may start later, in a world with prices or carbon intensities by the hour."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.energy import EnergyRates, RateHours, RateMeasure, RateSeries
from millpond.model.errors import InvalidInputError
from millpond.model.resources import TaskRequest
from millpond.model.workloads import Job, Role
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.trace import TraceJob, Workload
from millpond.simulation.world.simulated_rates import PublishedRates

HOUR_S, DAY_S = 3_600.0, 86_400.0
BEGIN_S = 20 * DAY_S
CARBON = RateMeasure.CARBON


def series(values: list[float] | None = None) -> RateSeries:
    """Hours from the 20 days before the play on; by default cleanest at noon, each day alike."""
    known = values or [300.0 - 200.0 * math.sin(math.pi * (hour % 24) / 24.0) for hour in range(40 * 24)]
    return RateSeries(tuple(HOUR_S * hour for hour in range(len(known))), tuple(known), HOUR_S * len(known))


def job(number: int, submit_h: float, hours: float, *, gpus: int = 1, flexible_h: float = 24.0) -> TraceJob:
    made = Job(f"j{number}", (Role.rigid(TaskRequest(0, 0, gpus), 1),), flexible_s=flexible_h * HOUR_S)
    return TraceJob(made, BEGIN_S + submit_h * HOUR_S, hours * HOUR_S)


def play(jobs: list[TraceJob], carbon: RateSeries, cluster: str = "1x4", ahead_s: float = 0.0) -> Simulation:
    workload = Workload(tuple(sorted(jobs, key=lambda each: each.submit_at)), "made here")
    world = World(uniform_cluster(cluster), workload, "exact", rates=EnergyRates(carbon=carbon))
    simulation = Simulation(
        replace(world, published=PublishedRates(CARBON, ahead_s)), make_scheduler(Settings()), record=True
    )
    simulation.run()
    return simulation


def starts(simulation: Simulation) -> list[float]:
    """In hours of the play."""
    return [(work.first_start_at - BEGIN_S) / HOUR_S for work in simulation.works]


def test_jobs_start_when_it_is_cleanest_by_the_days_before() -> None:
    assert starts(play([job(0, 0.0, 1.0), job(1, 0.5, 3.0), job(2, 20.0, 1.0)], series())) == [12.0, 11.0, 36.0]


def test_hours_that_are_not_published_yet_do_not_change_what_is_decided() -> None:
    jobs = [job(number, number / 2, 2.0) for number in range(8)]
    truth = [value for value in series().values if value is not None]
    other = series([*truth[: 20 * 24 + 6], *(500.0 - value for value in truth[20 * 24 + 6 :])])
    early = [[at for at in starts(play(jobs, each)) if at < 6.0] for each in (series(), other)]
    assert early[0] == early[1]
    assert starts(play(jobs, other, ahead_s=2 * DAY_S)) != starts(play(jobs, series(), ahead_s=2 * DAY_S))


@pytest.mark.long
@given(
    drawn=st.lists(
        st.tuples(st.floats(0.0, 30.0), st.sampled_from((0.2, 1.0, 5.0)), st.sampled_from((1, 2, 4))),
        min_size=1,
        max_size=12,
    )
)
def test_where_all_hours_are_equal_flexible_jobs_start_as_all_others(drawn: list[tuple[float, float, int]]) -> None:
    flat = series([100.0] * (40 * 24))
    flexible = [job(number, *each[:2], gpus=each[2]) for number, each in enumerate(drawn)]
    rigid = [job(number, *each[:2], gpus=each[2], flexible_h=0.0) for number, each in enumerate(drawn)]
    assert starts(play(flexible, flat)) == starts(play(rigid, flat))


@pytest.mark.long
@given(
    drawn=st.lists(st.tuples(st.floats(0.0, 30.0), st.sampled_from((0.2, 1.0, 5.0))), min_size=1, max_size=12),
    values=st.lists(st.sampled_from((-5.0, 1.0, 50.0, 51.0, 400.0)), min_size=24, max_size=24),
    flexible_h=st.sampled_from((0.7, 6.0, 24.0)),
)
def test_nobody_starts_later_than_it_may_while_there_is_room(
    drawn: list[tuple[float, float]], values: list[float], flexible_h: float
) -> None:
    jobs = [job(number, *each, flexible_h=flexible_h) for number, each in enumerate(drawn)]
    played = play(jobs, series(values * 40), cluster="3x4")
    for work, entry in zip(played.works, played.world.workload.jobs, strict=True):
        assert work.first_start_at <= entry.submit_at + flexible_h * HOUR_S + 1e-6


def test_a_world_without_a_series_of_the_measure_is_refused() -> None:
    world = World(uniform_cluster("1x4"), Workload((job(0, 0.0, 1.0),), "made here"), "exact")
    tariff = EnergyRates(carbon=RateHours(1.0, ()))
    for rates in (EnergyRates(), tariff):
        with pytest.raises(InvalidInputError, match="no series of carbon"):
            Simulation(replace(world, rates=rates, published=PublishedRates(CARBON)), make_scheduler(Settings()))
