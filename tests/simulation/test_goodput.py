"""What displacing equals costs stays a small part of what the cluster does, on any workload."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import KNOWLEDGE, Simulation, World
from millpond.simulation.synthetic import SyntheticOptions, synthesise
from millpond.simulation.world.costs import Costs

LOST_AT_MOST = 0.02
NOTHING_SAVED, ALL_SAVED = math.inf, 0.0


def goodput(options: SyntheticOptions, durations: str, lost_work_s: float, seed: int) -> float:
    """Card-seconds of work over card-seconds held, of a replay with preemption; 1 without."""
    policy = Settings(preempt=True)
    workload = synthesise(options, 64, 8, seed)
    costs = Costs(preemption=policy.preemption_cost, lost_work_s=lost_work_s)
    simulation = Simulation(World(uniform_cluster("8x8"), workload, durations, costs), make_scheduler(policy))
    simulation.run()
    pairs = zip(workload.jobs, simulation.works, strict=True)
    work = sum(entry.job.gpu_milli * entry.duration_s for entry, _ in pairs)
    return work / sum(work.job.gpu_milli * work.held_s for work in simulation.works)


@pytest.mark.parametrize("durations", [pytest.param("none", marks=pytest.mark.long), *KNOWLEDGE[1:]])
def test_long_jobs_that_save_nothing_are_hardly_ever_thrown_away(durations: str) -> None:
    weeks_of_long_jobs = SyntheticOptions(jobs=150, load=1.3, median_s=20_000.0, spread=2.3)

    assert goodput(weeks_of_long_jobs, durations, NOTHING_SAVED, seed=2) >= 1.0 - LOST_AT_MOST


@pytest.mark.long
@given(
    st.integers(100, 400),
    st.sampled_from((0.9, 1.3, 2.0)),
    st.sampled_from((600.0, 7_200.0, 40_000.0)),
    st.sampled_from((1.0, 1.7, 2.5)),
    st.sampled_from(KNOWLEDGE),
    st.sampled_from((NOTHING_SAVED, ALL_SAVED)),
    st.integers(0, 1_000),
)
@settings(max_examples=40, derandomize=True, deadline=None)
def test_no_workload_loses_more_than_a_small_part_of_its_goodput(
    jobs: int, load: float, median_s: float, spread: float, durations: str, lost_work_s: float, seed: int
) -> None:
    options = SyntheticOptions(jobs=jobs, load=load, median_s=median_s, spread=spread)

    assert goodput(options, durations, lost_work_s, seed) >= 1.0 - LOST_AT_MOST
