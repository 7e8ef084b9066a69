"""The ordering ``learned``: the default one, with a correction that moves jobs within their class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import World, machine, single

from millpond.model.decisions import Start
from millpond.model.errors import InvalidInputError
from millpond.model.events import DurationPredicted, JobSubmitted
from millpond.model.policies import LEARNED_FIGURES, learned_name, orderings_of
from millpond.model.workloads import Priority
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.simulation.queueing import replay
from millpond.simulation.scenario import Scenario, read_world

CASE = Path(__file__).parents[2] / "data" / "case.csv"
NONE = learned_name([0.0] * len(LEARNED_FIGURES))


def weights(**by_figure: float) -> str:
    """The name of an ordering with a weight for some of the figures."""
    return learned_name([by_figure.get(figure, 0.0) for figure in LEARNED_FIGURES])


def queued(ordering: str, *jobs: tuple[str, float, dict[str, Any]]) -> World:
    """One card that is held, and jobs of known lengths that wait for it."""
    world = World(machine("n", 1), settings=Settings(ordering=ordering, reserve=False))
    world.submit(single("holder", 1, priority=Priority.HIGH))
    for name, length_s, fields in jobs:
        world.tell(JobSubmitted(world.now, single(name, 1, **fields)))
        world.tell(DurationPredicted(world.now, name, length_s, length_s))
    world.settle()
    return world


def order(world: World) -> list[str]:
    started = ["holder"]
    while decisions := world.end(started[-1]):
        started += [decision.job for decision in decisions if isinstance(decision, Start)]
    return started[1:]


@pytest.mark.parametrize("durations", ["none", "predicted"])
@pytest.mark.parametrize("preempt", [False, True])
def test_with_weights_of_zero_all_is_decided_as_by_default(durations: str, preempt: bool) -> None:
    world = read_world(Scenario("philly", str(CASE), cluster="2x8", durations=durations))
    runs = [replay(world, Settings(ordering=name, preempt=preempt)).history.runs for name in ("default", NONE)]
    assert runs[0] == runs[1]


def test_a_correction_moves_jobs_within_their_class_and_not_between_classes() -> None:
    jobs = (("short", 600.0, {}), ("long", 7200.0, {}), ("high", 86400.0, {"priority": Priority.HIGH}))
    assert order(queued("default", *jobs)) == ["high", "short", "long"]
    assert order(queued(weights(length=-2.0), *jobs)) == ["high", "long", "short"]


def test_a_scheduler_that_is_restored_has_the_same_correction() -> None:
    world = queued(weights(length=-2.0), ("short", 600.0, {}), ("long", 7200.0, {}))
    world.core = Scheduler.restore(json.loads(json.dumps(world.core.snapshot())))
    assert order(world) == ["long", "short"]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=12))
def test_a_name_is_taken_only_with_a_finite_weight_for_each_figure(drawn: list[float]) -> None:
    name = ":".join(("learned", *map(repr, drawn)))
    if len(drawn) == len(LEARNED_FIGURES) and all(abs(weight) <= 100.0 for weight in drawn):
        assert orderings_of(name)[0] == name
    else:
        with pytest.raises(InvalidInputError, match="pond learn"):
            orderings_of(name)


@pytest.mark.parametrize("name", ["learned", "learned:", "learned:x", "learn", NONE + ":0"])
def test_what_is_no_learned_ordering_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError):
        orderings_of(name)


def test_no_queue_alone_has_a_learned_ordering() -> None:
    with pytest.raises(InvalidInputError, match="whole cluster"):
        orderings_of(f"fifo,dev={NONE}")
