"""The simulator and the real scheduler together: same log, same decisions; nothing lost; work conserved."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from millpond.model.codec import from_plain, to_plain
from millpond.model.decisions import Decision
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import ORDERINGS, PreemptionCost, Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.costs import Costs
from millpond.simulation.history import history_of
from millpond.simulation.kernel import KNOWLEDGE, Simulation, World
from millpond.simulation.log import replay_log
from millpond.simulation.scenario import PREEMPTIVE_ORDERINGS
from millpond.simulation.synthetic import SyntheticOptions, synthesise

CLUSTER = uniform_cluster("3x4")
CROWD = synthesise(SyntheticOptions(jobs=120, load=1.3), 12, 4, seed=2)


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


@pytest.mark.parametrize("durations", KNOWLEDGE)
@pytest.mark.parametrize("ordering", ["default", "srtf", "fair"])
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
    for _, start_at, end_at, placements in simulation.engine.runs:
        for placement in placements:
            for grant in placement.grants:
                by_card.setdefault(grant.device, []).append((start_at, end_at))
    assert by_card
    for stretches in by_card.values():
        stretches.sort()
        assert all(first[1] <= second[0] for first, second in pairwise(stretches))
