"""What is said about waiting jobs in random worlds is held against forks, cause by cause (``explanation_oracle``)."""

from __future__ import annotations

import pytest
from contended_worlds import CardMemoryWorld, ContendedWorld
from explanation_oracle import Oracle

from millpond.model.reasons import Cause
from millpond.model.states import JobState
from seeds import few_then_many

pytestmark = pytest.mark.usefixtures("_few_futures")

STEPS = 60
FIRST_STEP = 10
"""Not much waits before."""
ASKED = 3
"""Jobs that are asked about after every third step."""
WRONG_ONCE = (1032, 1060, 1079, 1165, 1244)
"""Worlds of which an answer has been false, or in which the scheduler failed."""


def judge(seed: int, kind: type[ContendedWorld] = ContendedWorld, steps: int = STEPS) -> tuple[list[Cause], list[str]]:
    """The causes given in one world, and what is false in the answers."""
    scene = kind(seed)
    world, causes, complaints = scene.world, list[Cause](), list[str]()
    for step in range(steps):
        scene.step()
        if step > FIRST_STEP and world.core.jobs:
            latest = list(world.core.jobs)[-1]
            if world.core.cause(latest, world.now).cause is Cause.NOT_CONSIDERED:  # the cycle is yet to come
                complaints += Oracle(world.core, world.now).complaints(latest)
        world.settle()
        if step > FIRST_STEP and step % 3 == 2:
            waiting = [job for job, record in world.core.jobs.items() if record.state is JobState.QUEUED]
            oracle = Oracle(world.core, world.now)
            for job in scene.draws.sample(waiting, min(ASKED, len(waiting))):
                causes.append(world.core.cause(job, world.now).cause)
                complaints += oracle.complaints(job)
    return causes, [f"seed {seed}: {each}" for each in complaints]


@pytest.mark.sources
@pytest.mark.parametrize("seed", few_then_many((), range(6)))
def test_causes_are_true_and_remedies_start_their_jobs(seed: int) -> None:
    _, complaints = judge(seed)
    assert not complaints


@pytest.mark.sources
@pytest.mark.parametrize(
    ("seed", "steps"),
    few_then_many([(0, 36)], [(seed, STEPS) for seed in range(4)], [(seed, STEPS) for seed in range(4, 40)]),
)
def test_causes_are_true_where_card_memory_is_limited_and_guaranteed(seed: int, steps: int) -> None:
    causes, complaints = judge(seed, CardMemoryWorld, steps)
    assert causes
    assert not complaints


@pytest.mark.sources
@pytest.mark.usefixtures("_no_futures")
@pytest.mark.parametrize("part", few_then_many((), range(2), range(2, 25)))
def test_causes_are_true_and_remedies_start_their_jobs_in_ten_thousand_answers(part: int) -> None:
    answers: list[Cause] = []
    tenancy = [*range(100 + 10 * part, 106 + 10 * part), 400 + part, 1000 + part, *WRONG_ONCE[part : part + 1]]
    card_memory = [1000 + part, 1025 + part, 1050 + part]
    worlds = [*((seed, ContendedWorld) for seed in tenancy), *((seed, CardMemoryWorld) for seed in card_memory)]
    for seed, kind in worlds:
        causes, complaints = judge(seed, kind)
        assert not complaints
        answers += causes
    assert len(answers) >= 350
    assert len(set(answers)) >= 8
