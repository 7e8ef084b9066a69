"""Between two events from outside, evictions end, and no job is evicted for one that was evicted for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import World, asks, elastic, gang, machine, queue, single

from benchmarks.tenancy.evictions import Walk
from millpond.model.decisions import Stop, Suspend
from millpond.model.hardware.nodes import Pool
from millpond.model.tenancy.tenants import Queue
from millpond.model.workloads import Checkpoint, CheckpointMode, Job, Priority
from millpond.scheduling.settings import PreemptionCost, Settings
from seeds import few_then_many

LEAVES = ("red", "blue", "guest", "free", "default")
SAVES = Checkpoint(CheckpointMode.SIGNAL)
BLUE = queue("blue", parent="team", guarantee=1)
A_WEEK_S = 7 * 86_400.0

sizes = st.integers(0, 4)


@st.composite
def trees(draw: st.DrawFn) -> tuple[Queue, ...]:
    """Guarantees on two floors; together they may be more than there is."""
    return (
        queue("team", guarantee=draw(sizes)),
        queue("red", parent="team", guarantee=draw(st.integers(0, 2))),
        queue("blue", parent="team", guarantee=draw(st.integers(0, 1))),
        queue("guest", guarantee=draw(sizes)),
        queue("free"),
    )


@st.composite
def worlds(draw: st.DrawFn, preempt: bool) -> World:
    policy = Settings(
        ordering=draw(st.sampled_from(("default", "fair", "fifo"))),
        preempt=preempt,
        preemption_cost=draw(st.sampled_from((PreemptionCost(), PreemptionCost(0.0, 0.0)))),
    )
    cards = draw(st.lists(st.sampled_from((1, 2, 4, 8)), min_size=1, max_size=3))
    nodes = [machine(f"n{number}", count, swap_mib=64_000) for number, count in enumerate(cards)]
    return World(*nodes, settings=policy, queues=draw(trees()), pools=(Pool(suspends=draw(st.booleans()), turn_s=0.0),))


@st.composite
def jobs(draw: st.DrawFn, id_: str) -> Job:
    fields = {
        "queue": draw(st.sampled_from(LEAVES)),
        "priority": draw(st.sampled_from((Priority.BACKGROUND, Priority.LOW, Priority.NORMAL, Priority.HIGH))),
        "checkpoint": draw(st.sampled_from((SAVES, Checkpoint()))),
    }
    match draw(st.sampled_from(("single", "gang", "elastic"))):
        case "single":
            return single(id_, draw(st.sampled_from((0, 0.5, 1, 2, 4))), **fields)
        case "gang":
            return gang(id_, draw(st.integers(2, 3)), asks(draw(st.integers(1, 2))), **fields)
        case _:
            least = draw(st.integers(1, 2))
            return elastic(id_, (least, least + draw(st.integers(0, 2)), least + 3), asks(1), **fields)


batches = st.lists(st.integers(1, 3), min_size=2, max_size=5)


def evictions(data: st.DataObject, preempt: bool) -> Iterator[tuple[int, Sequence[Stop | Suspend]]]:
    """Jobs that run until they are ended come in batches, a week apart: how many so far, and who left for another."""
    world, count = data.draw(worlds(preempt)), 0
    for size in data.draw(batches):
        seen = len(world.decisions)
        world.submit(*(data.draw(jobs(f"j{count + each}")) for each in range(size)))
        count += size
        world.go_to(world.now + A_WEEK_S)
        found = [each for each in world.decisions[seen:] if isinstance(each, Stop | Suspend)]
        yield count, [each for each in found if each.for_job]


@pytest.mark.long
@given(st.data())
@settings(max_examples=60, derandomize=True, deadline=None)
def test_no_job_is_evicted_for_one_that_was_evicted_for_it(data: st.DataObject) -> None:
    for _, found in evictions(data, preempt=False):
        pairs = {(each.job, each.for_job) for each in found}
        assert not {(one, other) for one, other in pairs if (other, one) in pairs}


@pytest.mark.long
@given(st.data())
@settings(max_examples=30, derandomize=True, deadline=None)
def test_where_the_ordering_preempts_a_week_of_fixed_work_sees_few_evictions(data: st.DataObject) -> None:
    # Keys of unknown lengths rise with the service attained, each time by a margin: a week has few such steps.
    for count, found in evictions(data, preempt=True):
        assert len(found) <= 10 * count


def test_three_jobs_on_the_guarantees_of_a_group_and_of_a_queue_below_it_come_to_rest() -> None:
    world = World(machine("n", 2), queues=(queue("team", guarantee=4), queue("red", parent="team"), BLUE))
    world.submit(
        elastic("gang", (2, 4, 5), asks(1), queue="red", priority=Priority.HIGH),
        single("narrow", 0.5, queue="blue", priority=Priority.LOW),
        single("wide", 2, queue="blue", priority=Priority.HIGH),
    )
    world.go_to(world.now + A_WEEK_S)
    assert world.running() == {"wide"}
    assert world.of_kind(Stop) == []


def test_what_is_left_of_the_room_of_those_who_end_is_not_for_lower_work_that_they_would_displace_again() -> None:
    nodes = [machine(model, 1, model=model) for model in ("A100", "H100", "L40")]
    world = World(*nodes, queues=(queue("red", guarantee=1),))
    world.submit(gang("wide", 2, asks(1), queue="default"))
    world.submit(single("low", 1, queue="default", priority=Priority.LOW))
    world.submit(single("behind", 1, queue="default", priority=Priority.LOW))
    world.submit(gang("owed", 1, asks(1, models=tuple(world.nodes_of("wide")[:1])), queue="red"))
    assert world.running() == {"owed", "wide"}
    assert [each.job for each in world.of_kind(Stop)] == ["wide", "low"]


def test_what_is_left_of_the_room_of_those_who_end_is_for_their_equals_at_once() -> None:
    world = World(*(machine(f"n{number}", 1) for number in range(2)), queues=(queue("red", guarantee=1),))
    world.submit(gang("wide", 2, asks(1), queue="default"))
    world.submit(single("behind", 1, queue="default"))
    world.submit(single("owed", 1, queue="red"))
    assert world.running() == {"owed", "behind"}
    assert [each.job for each in world.of_kind(Stop)] == ["wide"]


@pytest.mark.long
@pytest.mark.parametrize(("seed", "with_models", "steps"), [(1000, False, 19), (1006, True, 21)])
def test_in_random_worlds_nobody_starts_where_one_who_just_left_comes_back(
    seed: int, with_models: bool, steps: int
) -> None:
    walk = Walk(seed, any_tree=True, with_models=with_models)
    for _ in range(steps):
        walk.step()
    assert walk.wrong == []
    assert walk.found["in vain"] == 0


@pytest.mark.parametrize("seed", few_then_many([928, 1312, 702692], [6542, 11230, 706493]))
def test_random_worlds_that_went_on_evicting_come_to_rest(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(walk.draws.randint(3, 14)):
        walk.step()
    assert walk.wrong == []


@pytest.mark.parametrize("seed", few_then_many(range(2, 4), [1, *range(4, 13)]))
def test_evictions_end_in_trees_of_any_shape(seed: int) -> None:
    walk = Walk(seed, any_tree=True)
    for _ in range(12):
        walk.step()
    assert walk.wrong == []


@pytest.mark.parametrize("seed", few_then_many(range(2, 4), [1, *range(4, 13)]))
def test_evictions_end_where_guarantees_are_of_single_models(seed: int) -> None:
    walk = Walk(seed, any_tree=True, with_models=True)
    for _ in range(12):
        walk.step()
    assert walk.wrong == []
