"""A queue within its guarantee whose parent is at its limit takes back what its siblings borrowed of that limit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from explanation_oracle import changed_job
from scenes import Scene, play
from worlds import World, asks, elastic, gang, machine, queue, single

from ledgers import check_everything
from millpond.model.decisions import Start, Stop
from millpond.model.events import SuspendRequested
from millpond.model.reasons import Cause
from millpond.model.resources import Amount
from millpond.model.states import JobState
from millpond.model.tenancy.tenants import Queue
from millpond.model.workloads import Job, Priority

ROOMY = (machine("n", 8),)
TEAM = (queue("team", limit=4), queue("red", parent="team", guarantee=2), queue("blue", parent="team"))
B1, B2, B3, B4 = (single(f"b{i}", queue="blue") for i in range(1, 5))
R1, R2, R3 = (single(f"r{i}", queue="red") for i in range(1, 4))


def scene(name: str, arriving: str, runs: str, stopped: str = "", queues: tuple[Queue, ...] = TEAM) -> Scene:
    """Four cards borrowed by one child of the team, and jobs of the other one that arrive."""
    jobs = {job.id: job for job in (R1, R2, R3, gang("g", 2, asks(1), queue="red"))}
    return Scene(
        name,
        ROOMY,
        tuple(jobs[id_] for id_ in arriving.split()),
        runs,
        before=(B1, B2, B3, B4),
        stopped=stopped,
        cause=Cause.RECLAIMED,
        queues=queues,
    )


SCENES = [
    scene("a child within its guarantee takes back a card of the limit", "r1", "b1 b2 b3 r1", "b4"),
    scene("a gang takes back as much as it needs", "g", "b1 b2 g", "b3 b4"),
    scene("no more is taken back than the guarantee", "r1 r2 r3", "b1 b2 r1 r2", "b3 b4"),
    scene(
        "what the parent is guaranteed is its children's by their own guarantees first",
        "g",
        "b1 b2 g",
        "b3 b4",
        (queue("team", guarantee=4, limit=4), *TEAM[1:]),
    ),
    scene(
        "what a sibling is guaranteed itself stays",
        "r1 r2 r3",
        "b1 b2 b3 r1",
        "b4",
        (*TEAM[:2], queue("blue", parent="team", guarantee=3)),
    ),
    scene(
        "children that live on the guarantee of their parent alone take nothing from each other",
        "r1",
        "b1 b2 b3 b4",
        queues=(queue("team", guarantee=4, limit=4), queue("red", parent="team"), queue("blue", parent="team")),
    ),
    scene(
        "the limit of a grandparent is taken back from a cousin",
        "r1",
        "b1 b2 b3 r1",
        "b4",
        (
            queue("house", limit=4),
            queue("team", parent="house"),
            queue("red", parent="team", guarantee=2),
            queue("blue", parent="house"),
        ),
    ),
]


@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_what_was_borrowed_of_a_limit_is_taken_back(scene: Scene) -> None:
    play(scene)


def test_only_those_under_the_limit_are_asked() -> None:
    world = World(*ROOMY, queues=[*TEAM, queue("other")])
    world.submit(single("old", 4, queue="blue"))
    world.go_to(100)
    world.submit(single("young", 1, queue="other"))
    world.submit(R1)
    assert [stop.job for stop in world.of_kind(Stop)] == ["old"]
    assert world.running() == {"young", "r1"}


def test_whoever_makes_room_on_a_full_cluster_makes_room_under_the_limit_too() -> None:
    world = World(machine("n", 4), queues=TEAM)
    world.submit(B1, B2, B3, B4)
    world.go_to(100)
    world.submit(R1)
    assert len(world.of_kind(Stop)) == 1
    assert "r1" in world.running()


def test_room_and_limit_are_taken_from_different_queues_where_no_one_has_both() -> None:
    world = World(machine("n", 4), machine("m", 4, model="V100"), queues=[*TEAM, queue("other")])
    world.submit(single("x", 4, queue="other"))
    world.submit(*(gang(f"b{i}", 1, asks(1, models=["V100"]), queue="blue") for i in range(1, 5)))
    world.go_to(100)
    world.submit(gang("r", 1, asks(1, models=["A100"]), queue="red"))
    assert {stop.job for stop in world.of_kind(Stop)} >= {"x"}
    assert len(world.of_kind(Stop)) == 2
    assert "r" in world.running()


def test_the_limit_holds_while_victims_leave_and_nobody_else_slips_under_it() -> None:
    world = World(*ROOMY, queues=TEAM)
    world.submit(B1, B2, B3, B4)
    world.submit(single("b5", queue="blue"))
    world.go_to(100)
    world.lingering = {"b3", "b4"}
    world.submit(gang("g", 2, asks(1), queue="red"))
    assert {stop.job for stop in world.of_kind(Stop)} == {"b3", "b4"}
    assert world.why("g").cause is Cause.ROOM_BEING_MADE
    for leaver in ("b4", "b3"):
        assert "g" not in world.running()
        assert world.core._state.queues.by_name["team"].gpu_milli <= 4_000
        world.leave(leaver)
        check_everything(world.core)
    assert world.running() == {"b1", "b2", "g"}
    assert world.of_kind(Start, "g")[0].cause is Cause.RECLAIMED


def test_two_jobs_in_a_row_ask_for_no_more_than_both_need() -> None:
    world = World(*ROOMY, queues=TEAM)
    world.submit(B1, B2, B3, B4)
    world.go_to(100)
    world.lingering = {"b1", "b2", "b3", "b4"}
    world.submit(R1)
    world.submit(R2)
    assert len(world.of_kind(Stop)) == 1, "whoever leaves still counts, so it cannot be seen yet who else has to"
    for number in (0, 1):
        world.leave(world.of_kind(Stop)[number].job)
    assert world.running() == {"b1", "b2", "r1", "r2"}
    assert len(world.of_kind(Stop)) == 2


def test_an_elastic_sibling_gives_up_tasks_instead_of_ending() -> None:
    world = World(*ROOMY, queues=TEAM)
    world.submit(elastic("e", (1, 4, 4), asks(1), queue="blue"))
    world.go_to(100)
    world.submit(gang("g", 2, asks(1), queue="red"))
    assert world.running() == {"e", "g"}
    assert len(world.nodes_of("e")) == 2
    check_everything(world.core)


def test_frozen_work_under_the_limit_leaves_before_what_runs() -> None:
    world = World(*ROOMY, queues=TEAM)
    world.submit(B1, B2, B3, B4)
    world.tell(SuspendRequested(world.now, "b1"))
    world.settle()
    world.submit(R1)
    assert [stop.job for stop in world.of_kind(Stop)] == ["b1"]
    assert world.running() == {"b2", "b3", "b4", "r1"}


def test_where_nobody_may_be_asked_the_job_waits_for_the_limit() -> None:
    world = World(*ROOMY, queues=TEAM)
    world.submit(gang("b", 4, asks(1), queue="blue", minimum_run_s=10_000.0))
    world.submit(single("high", queue="red", priority=Priority.HIGH))
    assert world.state("high") is JobState.QUEUED
    assert world.why("high").cause is Cause.QUEUE_LIMIT
    assert world.of_kind(Stop) == []


@pytest.mark.parametrize(
    ("job", "team", "field", "value"),
    [
        (gang("job", 4, asks(2)), queue("team", limit=5), "tasks", "2"),
        (elastic("job", (3, 3, 4), asks(1)), queue("team", limit=2), "tasks", "2"),
        (gang("job", 4, asks(1)), queue("team", guarantee=3, borrows=False), "tasks", "3"),
        (gang("job", 2, asks(0, cpus=3)), replace(queue("team"), limit=Amount(8_000, 4_000)), "tasks", "1"),
        (gang("job", 2, asks(4)), queue("team", limit=2), "", ""),
        (single("job", 4), queue("team", limit=2.5), "gpus", "2"),
        (single("job", 4), queue("team", limit=0.5), "gpus", "0.5"),
    ],
)
def test_a_job_that_is_too_large_for_a_limit_is_possible_as_it_is_said_to_be(
    job: Job, team: Queue, field: str, value: str
) -> None:
    world = World(*ROOMY, queues=(team,))
    refusal = world.core.check(replace(job, queue="team"))
    assert refusal is not None
    assert refusal.remedy is not None
    assert (refusal.remedy.field, refusal.remedy.value) == (field, value)
    assert not field or world.core.check(changed_job(replace(job, queue="team"), refusal.remedy)) is None
