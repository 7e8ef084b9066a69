"""What the scheduler promises and says, where all that it knows happens close together on few cards.

With cards of several models, cards that are divided, jobs that choose nodes, and gangs whose tasks must lie apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
from dense_worlds import DenseWorld
from explanation_oracle import Oracle, is_familiar
from promises import EvictionWatch, unmet_guarantees
from varied_worlds import VariedWorld

from millpond.model.states import JobState
from millpond.model.workloads import Job, Priority
from seeds import few_then_many

STEPS = 40
EACH = 3
"""After so many steps all that wait are asked about."""


class StayingWorld(DenseWorld):
    """Dense worlds in which half of the work of teams is not preemptible."""

    def _job(self) -> Job:
        job = super()._job()
        if job.queue == "guest":
            return job
        if self.draws.random() < 0.5:
            return replace(job, preemptible=False, rest_preemptible=False, priority=max(job.priority, Priority.LOW))
        return replace(job, preemptible=True, rest_preemptible=False) if self.draws.random() < 0.5 else job


@pytest.mark.usefixtures("_few_futures")
@pytest.mark.parametrize("seed", few_then_many([3], [9, 16, 45], range(100, 130)))
def test_with_models_spacing_and_divided_cards_it_comes_to_rest_and_its_twins_agree(seed: int) -> None:
    scene = VariedWorld(seed, share_of_twins=0.03)
    for number in range(STEPS):
        scene.step()
        scene.check()
        if number % 10 == 9:
            scene.ask_why()


@pytest.mark.sources
@pytest.mark.usefixtures("_no_futures")
@pytest.mark.parametrize(
    ("kind", "seed"),
    few_then_many(
        [(DenseWorld, 1), (VariedWorld, 1), (StayingWorld, 562)],
        [
            *product((DenseWorld, VariedWorld), (*range(2, 6), 49)),
            *product((StayingWorld,), (512, 689, 1027)),
            (DenseWorld, 4009),
        ],
        [*product((DenseWorld, VariedWorld), (*range(6, 49), *range(50, 60))), *product((StayingWorld,), range(30))],
    ),
)
def test_what_is_said_to_start_a_job_does_and_why_it_waits_is_true(
    seed: int, kind: Callable[[int, float], DenseWorld]
) -> None:
    scene = kind(seed, 0.0)
    world, complaints = scene.world, list[str]()
    for number in range(STEPS):
        scene.step()
        oracle = Oracle(world.core, world.now)
        waiting = [job for job, record in world.core.jobs.items() if record.state is JobState.QUEUED]
        for job in waiting if number % EACH == EACH - 1 else ():
            knows = is_familiar(world.core)
            complaints += (
                oracle.complaints(job) if knows else oracle.about_remedy(job, world.core.explain(job, world.now))
            )
    assert not complaints


@pytest.mark.usefixtures("_no_futures")
@pytest.mark.parametrize("kind", [DenseWorld, VariedWorld])
@pytest.mark.parametrize("seed", few_then_many([2], [*range(3, 7), 7176, 7264, 7286, 7305, 7312, 7434], range(7, 60)))
def test_what_is_guaranteed_comes_back_at_once_and_nothing_leaves_twice_at_one_instant(
    seed: int, kind: Callable[[int, float], DenseWorld]
) -> None:
    scene = kind(seed, 0.0)
    watch = EvictionWatch(scene.world)
    for _ in range(STEPS):
        scene.step()
        assert watch.wrong == []
        assert list(unmet_guarantees(scene.world.core, scene.world.now, "guest")) == []
