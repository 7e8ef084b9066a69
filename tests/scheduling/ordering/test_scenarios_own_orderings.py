"""A queue, or a kind of jobs, may have an ordering of its own: who of its jobs takes the turns that it has."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import World, machine, queue, single

from millpond.model.decisions import Start
from millpond.model.errors import InvalidInputError
from millpond.model.events import DurationPredicted, JobSubmitted, PolicyChanged, QueueChanged
from millpond.model.policies import OWN_ORDERINGS
from millpond.model.reasons import Cause
from millpond.model.workloads import Checkpoint, CheckpointMode, Kind
from millpond.scheduling.records import JobRecord
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.scheduling.tenancy.queue_rank import QueueRank

HOUR = 3600.0


def full(*queues: Any, cards: int = 1, **settings: Any) -> World:
    """One machine, all of whose cards are held by one job, until ``first`` is ended."""
    world = World(machine("n", cards), settings=Settings(**settings), queues=queues)
    world.submit(single("holder", cards))
    return world


def wait(world: World, id_: str, length: float, **fields: Any) -> None:
    """A job of one card, or of ``gpus``, of known length waits."""
    job = single(id_, fields.pop("gpus", 1), **fields)
    world.tell(JobSubmitted(world.now, job))
    world.tell(DurationPredicted(world.now, id_, length, length))
    world.settle()


def order(world: World) -> list[str]:
    """Who starts, one after the other, on one card."""
    started = ["holder"]
    while decisions := world.end(started[-1]):
        started += [decision.job for decision in decisions if isinstance(decision, Start)]
    return started[1:]


def test_in_a_queue_that_goes_by_deadlines_the_nearest_goes_first_also_under_the_default_ordering() -> None:
    world = full(queue("lab", ordering="edf"))
    wait(world, "short", 60, queue="lab")
    wait(world, "late", 2 * HOUR, queue="lab", deadline_s=90 * HOUR)
    wait(world, "soon", 3 * HOUR, queue="lab", deadline_s=80 * HOUR)
    assert order(world) == ["soon", "late", "short"]


def test_without_an_ordering_of_its_own_a_queue_goes_by_that_of_the_cluster() -> None:
    world = full(queue("lab"), reserve=False)
    wait(world, "short", 60, queue="lab")
    wait(world, "late", 2 * HOUR, queue="lab", deadline_s=90 * HOUR)
    wait(world, "soon", 3 * HOUR, queue="lab", deadline_s=80 * HOUR)
    assert order(world) == ["short", "late", "soon"]


def positions(world: World) -> list[str]:
    state = world.core._state
    return [record.id for record in state.waiting.ranked(QueueRank(state).place_of)]


def test_a_queue_has_the_turns_that_its_jobs_would_have_had() -> None:
    def world_of(ordering: str) -> World:
        world = full(queue("lab", ordering=ordering), queue("club"), queue("gym"))
        wait(world, "brief", 60, queue="lab")
        wait(world, "medium", 600, queue="club")
        wait(world, "long", 6000, queue="lab", deadline_s=90 * HOUR)
        return world

    assert positions(world_of("")) == ["brief", "medium", "long"]
    # The first turn of the queue is that of its shortest job; its nearest deadline takes it.
    assert positions(world_of("edf")) == ["long", "medium", "brief"]


def test_in_a_queue_that_lets_nobody_pass_all_wait_behind_the_first_and_others_do_not() -> None:
    world = full(queue("lab", ordering="fifo"), queue("club"), cards=2)
    world.end("holder")
    wait(world, "one", 600, queue="lab")
    wait(world, "wide", 600, gpus=2, queue="lab")
    wait(world, "narrow", 600, queue="lab")
    assert world.running() == {"one"}
    wait(world, "other", 60, queue="club")
    assert world.running() == {"one", "other"}
    why = world.core.explain("narrow", world.now)
    assert (why.cause, why.blocked_by) == (Cause.BEHIND, "wide")
    assert "'fifo' of train jobs in queue lab" in why.summary


def test_a_kind_of_jobs_has_an_ordering_of_its_own_in_every_queue() -> None:
    world = full(ordering="default,dev=fifo", reserve=False)
    for number, length in enumerate((6000, 60, 600)):
        wait(world, f"dev-{number}", length, kind=Kind.DEV)
        wait(world, f"train-{number}", length + 1)
    assert positions(world) == ["dev-0", "train-1", "dev-1", "train-2", "dev-2", "train-0"]
    # While the shortest of them waits, the first of them has its turn.
    assert order(world) == ["dev-0", "dev-1", "train-1", "dev-2", "train-2", "train-0"]


@pytest.mark.parametrize(
    ("of_cluster", "of_group", "of_queue", "name"),
    [
        ("default", "", "", None),
        ("default", "edf", "", "edf"),
        ("default", "edf", "sjf", "sjf"),
        ("default,train=ssf", "", "", "ssf"),
        ("default,train=ssf", "edf", "", "edf"),
        ("default,train=ssf", "dev=edf", "", "ssf"),
        ("default,train=ssf", "edf,train=sjf", "dev=fifo", "sjf"),
        ("default,train=ssf", "", "default", None),
        ("fair", "", "edf", "edf"),
        ("fifo", "", "default", "default"),
    ],
)
def test_the_nearest_choice_counts(of_cluster: str, of_group: str, of_queue: str, name: str | None) -> None:
    queues = (queue("group", ordering=of_group), queue("lab", parent="group", ordering=of_queue))
    world = full(*queues, ordering=of_cluster)
    wait(world, "job", 60, queue="lab")
    group = world.core.jobs["job"].group
    assert (group and group[0]) == name


def test_another_ordering_of_a_queue_holds_from_the_next_cycle_on() -> None:
    lab = queue("lab")
    world = full(lab)
    wait(world, "short", 60, queue="lab")
    wait(world, "soon", 3 * HOUR, queue="lab", deadline_s=80 * HOUR)
    wait(world, "later", 2 * HOUR, queue="lab", deadline_s=90 * HOUR)
    world.tell(QueueChanged(world.now, replace(lab, ordering="edf")))
    assert positions(world) == ["soon", "later", "short"]
    world.end("holder")
    assert world.running() == {"soon"}
    world.tell(QueueChanged(world.now, lab))
    assert positions(world) == ["short", "later"]


def test_another_policy_keeps_the_orderings_of_queues() -> None:
    world = full(queue("lab", ordering="edf"))
    wait(world, "short", 60, queue="lab")
    wait(world, "soon", 3 * HOUR, queue="lab", deadline_s=80 * HOUR)
    for ordering in ("fifo", "fair", "default,train=sjf"):
        world.tell(PolicyChanged(world.now, ordering, "default", preempt=False, reserve=True))
        assert positions(world) == ["soon", "short"]


def test_within_a_group_nothing_that_runs_leaves_for_a_lower_key_and_other_queues_are_not_bound_by_that() -> None:
    def left_for(newcomer: str) -> bool:
        world = World(
            machine("n", 1), settings=Settings(preempt=True), queues=(queue("lab", ordering="edf"), queue("club"))
        )
        saves = Checkpoint(CheckpointMode.SIGNAL)
        wait(world, "long", 40 * HOUR, queue="lab", deadline_s=90 * HOUR, checkpoint=saves)
        world.go_to(10 * HOUR)
        wait(world, "brief", 60, queue=newcomer)
        return world.running() != {"long"}

    assert not left_for("lab")
    assert left_for("club")


@pytest.mark.parametrize("ordering", ["fair", "srtf", "tiresias", "lifo", "dev=fair", "edf,sjf", "dev=edf,dev=edf"])
def test_a_queue_can_have_no_such_ordering(ordering: str) -> None:
    world = World(machine("n", 1))
    with pytest.raises(InvalidInputError):
        world.tell(QueueChanged(0.0, queue("lab", ordering=ordering)))
    assert not world.core.has_queue("lab")


def test_the_cluster_can_have_no_shares_for_one_kind_alone() -> None:
    with pytest.raises(InvalidInputError, match="'fair' of kind dev alone"):
        Settings(ordering="default,dev=fair")


# ---- what holds of all -------------------------------------------------------------------------------------------

LENGTHS = st.sampled_from((30.0, 60.0, 600.0, 6000.0))
DRAWN = st.lists(
    st.tuples(
        st.sampled_from(("lab", "club", "gym")), st.sampled_from(list(Kind)), LENGTHS,
        st.sampled_from((None, 50 * HOUR, 60 * HOUR)), st.sampled_from((1, 2, 4)), st.sampled_from(("", "ada", "bob")),
    ),
    max_size=12,
)  # fmt: skip
OWN = st.sampled_from(("", *OWN_ORDERINGS, "dev=fifo,train=edf"))
BASES = st.sampled_from(("default", "edf", "fair", "fifo", "default,dev=sjf"))


def waiting(drawn: list[Any], base: str, own: str, users: bool) -> World:
    world = full(queue("lab", ordering=own), queue("club"), queue("gym", ordering=own), cards=4, ordering=base)
    for number, (of, kind, length, deadline, cards, user) in enumerate(drawn):
        job = single(f"j{number}", cards, queue=of, kind=kind, deadline_s=deadline, user=user if users else "")
        world.tell(JobSubmitted(world.now, job))
        world.tell(DurationPredicted(world.now, job.id, length, length))
        world.now += 1.0
    return world


@pytest.mark.long
@given(drawn=DRAWN, base=BASES, own=OWN)
def test_each_group_has_its_turns_and_takes_them_in_its_own_order(drawn: list[Any], base: str, own: str) -> None:
    world, plain = waiting(drawn, base, own, users=False), waiting(drawn, base.split(",")[0], "", users=False)
    state = world.core._state
    ranked = state.waiting.ranked(QueueRank(state).place_of)

    def group(record: JobRecord) -> object:
        return record.group or record.queue

    of_plain = [group(world.core.jobs[job]) for job in positions(plain)]
    assert [group(record) for record in ranked] == of_plain
    for each in {record.group for record in ranked} - {None}:
        keys = [(record.key, record.sequence) for record in ranked if record.group == each]
        assert keys == sorted(keys)


@pytest.mark.long
@given(drawn=DRAWN, base=BASES, own=OWN)
def test_a_copy_has_the_same_order(drawn: list[Any], base: str, own: str) -> None:
    world = waiting(drawn, base, own, users=True)
    before = positions(world)
    for twin in (Scheduler.restore(json.loads(json.dumps(world.core.snapshot()))), world.core.fork()):
        world.core = twin
        assert positions(world) == before
