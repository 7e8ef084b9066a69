"""Figures of merit on a schedule small enough to compute by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from first_come import FirstCome

from millpond.model.decisions import Grant, Placement
from millpond.model.resources import SliceRequest, TaskRequest
from millpond.model.workloads import Job
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.results.fairness import jain_index, tenant_shares
from millpond.simulation.results.fragmentation import (
    FreeRoom,
    Mix,
    fragmentation_at,
    mean_fragmentation_percent,
    popular_mix,
)
from millpond.simulation.results.history import History, history_of
from millpond.simulation.results.metrics import measure
from millpond.simulation.results.series import allocation, queue_length, steps
from millpond.simulation.trace import TraceJob, Workload, gang_roles
from millpond.simulation.world.costs import Costs

# On four cards: a holds all of them 0..100; b and c wait, then run side by side 100..150 and 100..180.
WORKLOAD = Workload(
    (
        TraceJob(Job("a", gang_roles(4, 4), user="ada", deadline_s=90.0), 0, 100, "1"),
        TraceJob(Job("b", gang_roles(2, 4), user="bob", deadline_s=200.0), 20, 50, "2"),
        TraceJob(Job("c", gang_roles(1, 4), user="bob"), 60, 80, "3"),
    ),
    "test",
)


@pytest.fixture
def history() -> History:
    simulation = Simulation(World(uniform_cluster("1x4"), WORKLOAD, costs=Costs()), FirstCome())
    simulation.run()
    return history_of(simulation)


def test_times_of_a_schedule_computed_by_hand(history: History) -> None:
    metrics = measure(history)
    assert metrics.jobs == 3
    assert metrics.makespan_s == 180
    assert metrics.jct_s.mean == pytest.approx((100 + 130 + 120) / 3)
    assert metrics.jct_s.median == 120
    assert metrics.jct_s.max == 130
    assert metrics.jct_s.p99 == pytest.approx(120 + 0.98 * 10)
    assert metrics.wait_s.mean == pytest.approx((0 + 80 + 40) / 3)
    assert metrics.response_s.max == 80
    assert metrics.slowdown.mean == pytest.approx((1 + 130 / 50 + 120 / 80) / 3)
    assert metrics.jobs_per_hour == pytest.approx(60)


def test_shares_of_a_schedule_computed_by_hand(history: History) -> None:
    metrics = measure(history)
    used = 4 * 100 + 2 * 50 + 1 * 80
    assert metrics.allocation_percent == pytest.approx(100 * used / (4 * 180))
    assert metrics.utilisation_percent == pytest.approx(100 * used / (4 * 180))
    assert (metrics.deadlines, metrics.deadline_misses) == (2, 1)
    assert metrics.preemptions == 0


def test_finish_time_fairness_compares_with_an_equal_part_of_the_cluster(history: History) -> None:
    ada, bob = tenant_shares(history)
    # two tenants, two cards each: alone, a would take twice as long
    assert (ada.name, ada.rho) == ("ada", pytest.approx(100 / 200))
    assert bob.rho == pytest.approx((130 / 50 + 120 / 80) / 2)
    assert bob.gpu_hours == pytest.approx((2 * 50 + 80) / 3600)


def test_a_job_of_less_than_a_second_that_never_waits_is_neither_faster_than_it_is_nor_favoured() -> None:
    workload = Workload((TraceJob(Job("a", gang_roles(1, 4)), 0, 0.5, "1"),), "test")
    simulation = Simulation(World(uniform_cluster("1x4"), workload, costs=Costs()), FirstCome())
    simulation.run()
    metrics = measure(history_of(simulation))
    assert (metrics.slowdown.mean, metrics.jain_index, metrics.worst_rho) == (1, 1, 1)


def test_allocation_and_queue_length_over_time(history: History) -> None:
    held = allocation(history)
    assert list(zip(held.at, held.value, strict=True)) == [(0, 4000), (100, 3000), (150, 1000), (180, 0)]
    waiting = queue_length(history)
    edges = np.array([0.0, 20.0, 60.0, 100.0, 180.0])
    assert list(waiting.means(edges)) == [0, 1, 2, 0]


def test_a_step_function_averages_over_intervals_that_cut_its_steps() -> None:
    function = steps(np.array([10.0, 20.0, 10.0]), np.array([2.0, -3.0, 1.0]))
    assert function.mean(0, 30) == pytest.approx((3 * 10 + 0 * 10) / 30)
    assert function.mean(15, 25) == pytest.approx(1.5)
    assert function.mean(5, 5) == 0


def test_wait_after_a_preemption_counts_and_overhead_is_no_useful_work() -> None:
    workload = Workload(
        (TraceJob(Job("a", gang_roles(4, 4)), 0, 100, "1"), TraceJob(Job("b", gang_roles(2, 4)), 40, 20, "2")), "test"
    )
    costs = Costs(lost_work_s=15)
    simulation = Simulation(World(uniform_cluster("1x4"), workload, costs=costs), FirstCome(smallest_first=True))
    simulation.run()
    metrics = measure(history_of(simulation))
    assert metrics.wait_s.max == 20
    assert metrics.preemptions == 1
    assert metrics.lost_gpu_hours == pytest.approx(15 * 4 / 3600)
    assert metrics.utilisation_percent < metrics.allocation_percent


def test_jains_index_is_one_for_equals_and_one_over_n_for_one_who_has_all() -> None:
    assert jain_index(np.array([3.0, 3.0, 3.0])) == pytest.approx(1)
    assert jain_index(np.array([5.0, 0.0, 0.0, 0.0])) == pytest.approx(1 / 4)
    assert math.isnan(jain_index(np.array([])))


def test_fragmentation_counts_free_compute_that_the_mix_cannot_use() -> None:
    room = FreeRoom(uniform_cluster("1x2:T4"))
    half = TaskRequest(0, 0, 1, SliceRequest(500, limit_milli=500))
    whole = TaskRequest(0, 0, 1)
    other_model = TaskRequest(0, 0, 1, models=("A100",))
    cpu_work = TaskRequest(1000, 0, 0)
    room.take(Placement(0, "worker", "node-0", (Grant("node-0/0", 700, 700, 0),)), 1000)
    # free: 300 on one card, 1000 on the other
    assert room.fragmented_milli(Mix((half,), (1.0,))) == 300
    assert room.fragmented_milli(Mix((whole, half), (0.5, 0.5))) == 300
    assert room.fragmented_milli(Mix((other_model,), (1.0,))) == 1300
    assert room.fragmented_milli(Mix((cpu_work,), (1.0,))) == 1300
    assert room.fragmented_milli(Mix((TaskRequest(0, 0, 2),), (1.0,))) == 1300


def test_the_popular_mix_stops_at_95_percent_of_tasks() -> None:
    one, two, rare = TaskRequest(0, 0, 1), TaskRequest(0, 64, 2), TaskRequest(0, 0, 4)
    from collections import Counter

    mix = popular_mix(Counter({one: 60, two: 36, rare: 4}))
    assert [request.devices for request in mix.requests] == [1, 2]
    assert mix.weights == pytest.approx((60 / 96, 36 / 96))


def test_fragmentation_over_time_follows_the_schedule(history: History) -> None:
    # the mix asks for 4, 2 and 1 cards alike: of the 1 free card at 120 only the smallest can make use,
    # of the 3 free cards at 160 all but the largest
    found = fragmentation_at(history, WORKLOAD, [50, 120, 160])
    assert list(found) == pytest.approx([0, 1000 * 2 / 3, 3000 / 3])
    assert 0 < mean_fragmentation_percent(history, WORKLOAD) < 25
