"""The simulator and the real scheduler together: same log, same decisions; nothing lost; work conserved."""

from __future__ import annotations

import json
from itertools import pairwise, product

import pytest

from event_logs import replay_log
from millpond.model.codec import from_plain, to_plain
from millpond.model.decisions import Decision
from millpond.model.policies import ORDERINGS
from millpond.model.workloads import Job, Priority
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import PreemptionCost, Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.kernel import KNOWLEDGE, Simulation, World
from millpond.simulation.results.history import history_of
from millpond.simulation.scenario import PREEMPTIVE_ORDERINGS
from millpond.simulation.synthetic import SyntheticOptions, synthesise
from millpond.simulation.trace import TraceJob, Workload, gang_roles
from millpond.simulation.world.costs import Costs
from seeds import few_then_many

CLUSTER = uniform_cluster("3x4")
REPLAYED = {"default": "predicted", "srtf": "exact", "fair": "none"}
CROWD = synthesise(SyntheticOptions(jobs=60, load=1.3), 12, 4, seed=2)


def settings(ordering: str) -> Settings:
    return Settings(ordering=ordering, preempt=ordering in PREEMPTIVE_ORDERINGS)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_every_job_ends_and_gets_exactly_its_work_under_every_ordering(ordering: str) -> None:
    simulation = Simulation(World(CLUSTER, CROWD, "exact"), Scheduler(settings(ordering)))
    simulation.run()
    history = history_of(simulation)
    assert history.finished.all()
    assert history.held_s == pytest.approx(history.duration_s)


@pytest.mark.parametrize("ordering", ["default", "srtf", "tiresias"])
def test_preempted_jobs_do_their_work_and_their_overhead(ordering: str) -> None:
    costs = Costs(preemption=PreemptionCost(40, 60))
    simulation = Simulation(World(CLUSTER, CROWD, "exact", costs), Scheduler(settings(ordering)))
    simulation.run()
    history = history_of(simulation)
    assert history.held_s == pytest.approx(history.duration_s + history.overhead_s)


@pytest.mark.sources
@pytest.mark.parametrize(
    ("ordering", "durations"),
    few_then_many(REPLAYED.items(), (pair for pair in product(REPLAYED, KNOWLEDGE) if pair not in REPLAYED.items())),
)
def test_a_log_that_was_stored_and_read_back_gives_the_identical_decisions(ordering: str, durations: str) -> None:
    taken: list[Decision] = []

    class Remembering(Scheduler):
        def decide(self, now: float) -> list[Decision]:
            decisions = super().decide(now)
            taken.extend(decisions)
            return decisions

    simulation = Simulation(World(CLUSTER, CROWD, durations), Remembering(settings(ordering)), record=True)
    simulation.run()
    stored = json.dumps([to_plain(event) for event in simulation.log])
    log = [from_plain(plain) for plain in json.loads(stored)]
    assert replay_log(log, Scheduler(settings(ordering))) == taken


def test_no_card_is_held_by_two_jobs_at_once() -> None:
    simulation = Simulation(World(CLUSTER, CROWD), Scheduler(settings("default")))
    simulation.run()
    by_card: dict[str, list[tuple[float, float]]] = {}
    for _, start_at, end_at, placements, _ in simulation.engine.runs:
        for placement in placements:
            for grant in placement.grants:
                by_card.setdefault(grant.device, []).append((start_at, end_at))
    assert by_card
    for stretches in by_card.values():
        stretches.sort()
        assert all(first[1] <= second[0] for first, second in pairwise(stretches))


def pair(length_s: float) -> Workload:
    """Two equal jobs that come together."""
    entries = (TraceJob(Job(name, gang_roles(1, 1)), 0.0, length_s, name) for name in "ab")
    return Workload(tuple(entries), "test")


def test_equals_go_round_on_a_full_card_at_a_small_cost() -> None:
    costs = Costs(suspend_s=1.0, swap_mib_per_s=8 * 1024)
    world = World(uniform_cluster("1x1:V100-16GB"), pair(5_000.0), costs=costs, suspends=True)
    simulation = Simulation(world, Scheduler(Settings()))
    simulation.run()
    a, b = (work.ended_at for work in simulation.works)
    assert abs(a - b) < 300.0, "they went round"
    assert 10_000.0 < max(a, b) < 10_000.0 * 1.04
    assert max(works.preemptions for works in simulation.works) == 0


def test_where_nothing_suspends_the_first_ends_first() -> None:
    simulation = Simulation(World(uniform_cluster("1x1:V100-16GB"), pair(5_000.0)), Scheduler(Settings()))
    simulation.run()
    assert [work.ended_at for work in simulation.works] == [5_000.0, 10_000.0]


def test_every_job_ends_where_work_is_suspended() -> None:
    cluster = uniform_cluster("3x4:V100-16GB")
    world = World(cluster, CROWD, "exact", Costs(suspend_s=2.0, swap_mib_per_s=4_096), suspends=True)
    simulation = Simulation(world, Scheduler(Settings(preempt=True)))
    simulation.run()
    history = history_of(simulation)
    assert history.finished.all()
    assert (history.held_s >= history.duration_s * (1 - 1e-9)).all()


def test_a_confirmed_start_is_followed_by_a_cycle_as_on_a_server() -> None:
    """Work that is starting is not asked to leave; once it runs it is, without waiting for anything else."""
    low = TraceJob(Job("low", gang_roles(4, 4), priority=Priority.LOW), 0.0, 1000.0, "test:0")
    high = TraceJob(Job("high", gang_roles(4, 4), priority=Priority.HIGH), 5.0, 10.0, "test:1")
    world = World(uniform_cluster("1x4"), Workload((low, high), "test"), "exact", Costs(start_s=10))
    simulation = Simulation(world, Scheduler())
    simulation.run()
    assert [work.first_start_at for work in simulation.works] == [0.0, 10.0]
