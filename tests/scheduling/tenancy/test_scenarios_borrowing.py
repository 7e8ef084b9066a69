"""Borrowing and reclaim: a queue gets its guarantee whenever it asks, and may use what is idle until then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from explanation_oracle import changed_job
from scenes import Scene, play
from worlds import World, asks, gang, machine, queue, single

from millpond.model.decisions import Start, Stop
from millpond.model.errors import InvalidInputError
from millpond.model.events import QueueChanged, StopRequested
from millpond.model.reasons import Cause
from millpond.model.resources import Amount
from millpond.model.states import JobState
from millpond.model.tenancy.cells import CellCount
from millpond.model.tenancy.tenants import Queue
from millpond.model.workloads import Priority
from millpond.scheduling.settings import Settings

POOL = (machine("n", 4),)
HALVES = (queue("a", guarantee=2), queue("b", guarantee=2))
A1, A2, A3, A4 = (single(f"a{i}", queue="a") for i in range(1, 5))
B1, B2, B3 = (single(f"b{i}", queue="b") for i in range(1, 4))
GROUP = (
    queue("group", guarantee=3),
    queue("x", parent="group", guarantee=2),
    queue("y", parent="group", guarantee=1),
    queue("z"),
)
CPUS = tuple(Queue(name, guarantee=Amount(2_000, 4_000)) for name in "ab")

SCENES = [
    Scene("a queue alone in the pool borrows all of it", POOL, (A1, A2, A3, A4), "a1 a2 a3 a4", queues=HALVES),
    Scene(
        "a queue within its guarantee takes back what another borrowed and the youngest run leaves",
        POOL,
        (B1,),
        "a1 a2 a3 b1",
        before=(A1, A2, A3, A4),
        stopped="a4",
        cause=Cause.RECLAIMED,
        queues=HALVES,
    ),
    Scene(
        "no more is taken back than the guarantee",
        POOL,
        (B1, B2, B3),
        "a1 a2 b1 b2",
        before=(A1, A2, A3, A4),
        stopped="a3 a4",
        cause=Cause.RECLAIMED,
        queues=HALVES,
    ),
    Scene(
        "work within its own guarantee is never taken back",
        POOL,
        (A3,),
        "a1 a2 b1 b2",
        before=(A1, A2, B1, B2),
        queues=HALVES,
    ),
    Scene(
        "a higher class that would borrow ends no work within the guarantee of another queue",
        POOL,
        (single("high", 4, queue="c", priority=Priority.HIGH),),
        "low",
        before=(single("low", 2, queue="a", priority=Priority.LOW),),
        queues=(*HALVES, queue("c")),
    ),
    Scene(
        "nor does one within a guarantee of its own",
        (machine("n0", 2), machine("n1", 2)),
        (single("high", 2, queue="b", priority=Priority.HIGH),),
        "low1 low2",
        before=(
            gang("low1", 2, asks(1), queue="a", priority=Priority.LOW, preemptible=False),
            gang("low2", 2, asks(1), queue="c", priority=Priority.LOW),
        ),
        queues=(*HALVES, queue("c", guarantee=2)),
    ),
    Scene(
        "what is borrowed leaves for a higher class that borrows too, down to the guarantee",
        POOL,
        (single("high", 2, queue="c", priority=Priority.HIGH),),
        "low0 low1 high",
        before=tuple(single(f"low{i}", queue="a", priority=Priority.LOW) for i in range(4)),
        stopped="low2 low3",
        queues=(*HALVES, queue("c")),
    ),
    Scene(
        "within a queue the class decides although all of it is within the guarantee",
        POOL,
        (single("high", 2, queue="a", priority=Priority.HIGH),),
        "other high",
        before=(
            single("other", 2, queue="b", priority=Priority.LOW),
            single("low", 2, queue="a", priority=Priority.LOW),
        ),
        stopped="low",
        queues=HALVES,
    ),
    Scene(
        "but a higher class that would borrow ends no work within the guarantee of its own queue",
        POOL,
        (single("high", 3, queue="a", priority=Priority.HIGH),),
        "other low",
        before=(
            single("other", 1, queue="b", priority=Priority.LOW),
            single("low", 2, queue="a", priority=Priority.LOW),
        ),
        queues=HALVES,
    ),
    Scene(
        "work of several lower classes leaves where the higher class comes within the guarantee without them",
        POOL,
        (single("high", 2, queue="a", priority=Priority.HIGH),),
        "b1 b2 high",
        before=(
            single("low", queue="a", priority=Priority.LOW),
            single("normal", queue="a"),
            B1,
            B2,
        ),
        stopped="low normal",
        queues=HALVES,
    ),
    Scene(
        "what a queue is owed is its highest class and that is not taken back",
        POOL,
        (single("b1", 2, queue="b"),),
        "high b1",
        before=(
            single("low", 2, queue="a", priority=Priority.LOW),
            single("high", 2, queue="a", priority=Priority.HIGH),
        ),
        stopped="low",
        cause=Cause.RECLAIMED,
        queues=HALVES,
    ),
    Scene(
        "nothing leaves for a borrower that would have to give the room back to a guarantee above",
        POOL,
        (single("high", 4, queue="c", priority=Priority.HIGH),),
        "wide",
        before=(single("wide", 3, queue="x"), single("waits", 2, queue="y", priority=Priority.LOW)),
        queues=(
            queue("group", guarantee=2),
            queue("x", parent="group", guarantee=1),
            queue("y", parent="group"),
            queue("c"),
        ),
    ),
    Scene(
        "leaves that live on the guarantee of their group displace each other by class",
        POOL,
        (single("high", 4, queue="x", priority=Priority.HIGH),),
        "high",
        before=(single("low", 4, queue="y", priority=Priority.LOW),),
        stopped="low",
        queues=(queue("group", guarantee=4), queue("x", parent="group"), queue("y", parent="group")),
    ),
    Scene(
        "a gang within the guarantee takes back room for all its tasks",
        POOL,
        (gang("g", 2, asks(1), queue="b"),),
        "a1 a2 g",
        before=(A1, A2, A3, A4),
        stopped="a3 a4",
        cause=Cause.RECLAIMED,
        queues=HALVES,
    ),
    Scene(
        "a gang that would exceed its guarantee takes nothing back",
        POOL,
        (gang("g", 3, asks(1), queue="b"),),
        "a1 a2 a3 a4",
        before=(A1, A2, A3, A4),
        queues=HALVES,
    ),
    Scene(
        "work that is not preemptible borrows nothing",
        POOL,
        (single("kept3", 1, queue="a", preemptible=False), A1),
        "kept1 kept2 a1",
        before=tuple(single(f"kept{i}", queue="a", preemptible=False) for i in (1, 2)),
        queues=HALVES,
    ),
    Scene(
        "borrowed work stays for its minimum run time",
        POOL,
        (B1,),
        "big",
        before=(single("big", 4, queue="a", minimum_run_s=1000),),
        queues=HALVES,
    ),
    Scene(
        "a queue without any guarantee only borrows",
        POOL,
        (A1,),
        "a1",
        before=(single("big", 4, queue="c"),),
        stopped="big",
        cause=Cause.RECLAIMED,
        queues=(queue("a", guarantee=1), queue("c")),
    ),
    Scene(
        "the guarantee of a group serves the leaves below it",
        POOL,
        (single("x1", queue="x"),),
        "z1 z2 z3 x1",
        before=(*(single(f"z{i}", queue="z") for i in range(1, 5)),),
        stopped="z4",
        cause=Cause.RECLAIMED,
        queues=(queue("group", guarantee=2), queue("x", parent="group"), queue("z")),
    ),
    Scene(
        "what a group leaves of its guarantee its queues have beyond their own and keep it from others",
        POOL,
        (single("z", queue="z", priority=Priority.HIGH),),
        "x1 x2 x3 z1",
        before=(*(single(f"x{i}", queue="x") for i in range(1, 4)), single("z1", queue="z", priority=Priority.HIGH)),
        queues=GROUP,
    ),
    Scene(
        "and take it back from others",
        POOL,
        (single("x3", queue="x"),),
        "x1 x2 z1 x3",
        before=(*(single(f"x{i}", queue="x") for i in (1, 2)), *(single(f"z{i}", queue="z") for i in (1, 2))),
        stopped="z2",
        cause=Cause.RECLAIMED,
        queues=GROUP,
    ),
    Scene(
        "but give it back to the queue of their group that it was promised to",
        POOL,
        (single("y1", queue="y"),),
        "x1 x2 z1 y1",
        before=(*(single(f"x{i}", queue="x") for i in range(1, 4)), single("z1", queue="z")),
        stopped="x3",
        cause=Cause.RECLAIMED,
        queues=(queue("group", guarantee=3), *GROUP[1:3], queue("z", guarantee=1)),
    ),
    Scene(
        "a queue of a group takes nothing of that from another that has as little of its own",
        POOL,
        (single("y1", queue="y"),),
        "x1 x2 x3 x4",
        before=tuple(single(f"x{i}", queue="x") for i in range(1, 5)),
        queues=(queue("group", guarantee=4), queue("x", parent="group"), queue("y", parent="group")),
    ),
    Scene(
        "guaranteed CPUs are taken back by work without cards",
        (machine("n", 4, cpu_milli=8_000),),
        (gang("b1", 1, asks(0, cpus=2), queue="b"),),
        "a1 b1",
        before=(gang("a1", 1, asks(0, cpus=4), queue="a"), gang("a2", 1, asks(0, cpus=4), queue="a")),
        stopped="a2",
        cause=Cause.RECLAIMED,
        queues=CPUS,
    ),
    Scene(
        "guaranteed cards are none for work without",
        (machine("n", 4, cpu_milli=8_000),),
        (gang("b1", 1, asks(0, cpus=2), queue="b"),),
        "a1 a2",
        before=(gang("a1", 1, asks(0, cpus=4), queue="a"), gang("a2", 1, asks(0, cpus=4), queue="a")),
        queues=HALVES,
    ),
    Scene(
        "work with cards is guaranteed its CPUs too where the guarantee names them",
        (machine("n", 4),),
        (gang("b1", 1, asks(1, cpus=8), queue="b"),),
        "a1 a2 a3 a4",
        before=(A1, A2, A3, A4),
        queues=CPUS,
    ),
    Scene(
        "a group that may not borrow keeps its queues to its guarantee and lets them borrow of each other",
        POOL,
        tuple(single(f"x{i}", queue="x") for i in range(1, 5)),
        "x1 x2 x3",
        queues=(queue("group", guarantee=3, borrows=False), *GROUP[1:3], queue("z")),
    ),
    Scene(
        "a queue that may not borrow leaves idle cards alone",
        POOL,
        (A1, A2, A3),
        "a1 a2",
        queues=(queue("a", guarantee=2, borrows=False), queue("b", guarantee=2)),
    ),
    Scene(
        "a queue never exceeds its limit",
        POOL,
        (A1, A2, A3),
        "a1",
        queues=(queue("a", limit=1),),
    ),
    Scene(
        "the limit of a group counts all leaves below it",
        POOL,
        (single("x1", queue="x"), single("y1", queue="y"), single("x2", queue="x"), single("d")),
        "x1 y1 d",
        queues=(queue("group", limit=2), queue("x", parent="group"), queue("y", parent="group")),
    ),
]


@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_borrowing_and_reclaim(scene: Scene) -> None:
    play(scene)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"weight": 0.0}, "weight of 0"),
        ({"weight": float("nan")}, "weight of nan"),
        ({"guarantee": Amount(-1)}, "less than nothing"),
        ({"limit": Amount(0, -1)}, "less than nothing"),
        ({"guarantee": Amount(2_000), "limit": Amount(1_000)}, "may hold at most"),
    ],
)
def test_what_no_queue_can_be_is_refused_and_changes_nothing(fault: dict[str, Any], words: str) -> None:
    world = World(*POOL, queues=HALVES)
    before = world.core.snapshot()
    with pytest.raises(InvalidInputError, match=words):
        world.tell(QueueChanged(world.now, replace(HALVES[0], **fault)))
    assert world.core.snapshot() == before


@pytest.mark.parametrize("cards", [1, 4], ids=["on one node", "on nodes apart"])
def test_what_is_borrowed_leaves_before_younger_work_within_the_guarantee_of_its_group(cards: int) -> None:
    machines = [machine("n", 4)] if cards == 1 else [machine(f"n{number}", 4) for number in range(4)]
    queues = (
        queue("group", guarantee=3 * cards),
        queue("x", parent="group", guarantee=cards),
        queue("y", parent="group"),
        queue("z"),
    )
    world = World(*machines, queues=queues)
    world.submit(*(single(f"z{number}", cards, queue="z") for number in range(3)))
    world.go_to(600.0)
    world.submit(single("y", cards, queue="y"))
    world.go_to(900.0)
    world.submit(single("x", cards, queue="x"))
    assert {"x", "y"} < world.running()
    assert [stop.job for stop in world.of_kind(Stop)] == [
        stop.job for stop in world.of_kind(Stop) if stop.job[0] == "z"
    ]


def test_borrowed_work_that_is_not_preemptible_stays() -> None:
    world = World(*POOL, queues=(queue("a", guarantee=4), queue("b")))
    world.submit(single("big", 4, queue="a", preemptible=False))
    for each in HALVES:  # what it has is borrowed from now on
        world.tell(QueueChanged(world.now, each))
    world.submit(B1)
    assert world.running() == {"big"}
    assert "not preemptible" in world.core.explain("b1", world.now).summary


def test_a_job_that_is_not_preemptible_is_refused_where_no_guarantee_ever_covers_it() -> None:
    world = World(*POOL, queues=(*HALVES, queue("c")))
    for job in (single("wide", 3, queue="a", preemptible=False), single("poor", queue="c", preemptible=False)):
        refusal = world.core.check(job)
        assert refusal is not None
        assert "borrows nothing" in refusal.summary
    assert world.core.check(single("fits", 2, queue="a", preemptible=False)) is None
    assert world.core.check(gang("light", 1, asks(0, cpus=4), queue="c", preemptible=False)) is None


def test_what_waits_behind_work_that_may_not_borrow_does() -> None:
    world = World(*POOL, queues=HALVES)
    world.submit(*(single(f"kept{i}", queue="a", preemptible=False) for i in range(3)), A1)
    assert world.running() == {"kept0", "kept1", "a1"}
    assert "not preemptible, so it borrows nothing" in world.core.explain("kept2", world.now).summary


@pytest.mark.parametrize("cells", [(), (CellCount("card", 2),)])
def test_what_is_not_preemptible_starts_on_idle_cards_while_its_queue_s_other_work_holds_the_guarantee(
    cells: tuple[CellCount, ...],
) -> None:
    world = World(*POOL, queues=(queue("a", guarantee=2, cells=cells), queue("b", guarantee=2)))
    world.submit(*(gang(f"part{number}", 1, asks(0.5), queue="a") for number in range(4)))
    world.submit(single("kept", queue="a", preemptible=False))
    assert world.running() == {"part0", "part1", "part2", "part3", "kept"}
    world.submit(single("owner", 2, queue="b"))
    assert {each.job for each in world.of_kind(Stop)} == {"part2", "part3"}
    assert world.running() == {"part0", "part1", "kept", "owner"}


def test_a_higher_class_that_is_not_preemptible_displaces_lower_work_that_holds_the_guarantee_of_its_queue() -> None:
    world = World(machine("n", 2), settings=Settings(preempt=True), queues=(queue("a", guarantee=2),))
    world.submit(*(single(f"low{number}", queue="a", priority=Priority.LOW) for number in range(2)))
    world.submit(single("kept", queue="a", preemptible=False))
    assert [each.for_job for each in world.of_kind(Stop)] == ["kept"]
    assert "kept" in world.running()


def test_a_guarantee_is_owed_to_what_never_leaves_before_higher_work_that_may() -> None:
    world = World(*POOL, queues=HALVES)
    world.submit(*(single(f"kept{number}", queue="a", priority=Priority.LOW, preemptible=False) for number in range(2)))
    world.submit(single("high", queue="a", priority=Priority.HIGH))
    world.submit(single("owner", 2, queue="b"))
    assert world.running() == {"kept0", "kept1", "owner"}


def test_work_of_a_higher_class_keeps_its_guarantee_beside_what_is_not_preemptible() -> None:
    world = World(*POOL, queues=(queue("a", guarantee=2), queue("b")))
    world.submit(*(single(f"high{number}", queue="a", priority=Priority.HIGH) for number in range(2)))
    kept = single("kept", queue="a", preemptible=False)
    world.submit(kept)
    reason = world.core.explain("kept", world.now)
    assert "preemptible work of a higher class holds 2 GPUs of the guarantee of queue a" in reason.summary
    assert reason.remedy is not None
    assert reason.remedy.field == "preemptible"
    world.submit(changed_job(kept, reason.remedy))
    assert world.state("kept-changed") is JobState.RUNNING


def test_what_took_its_place_back_is_borrowed_too_once_what_is_not_preemptible_starts_on_the_guarantee() -> None:
    world = World(*POOL, queues=HALVES)
    world.submit(single("lent", 4, queue="b"))
    world.submit(single("back", 2, queue="a"))
    assert world.of_kind(Start, "back")[0].cause is Cause.RECLAIMED
    world.tell(StopRequested(world.now, "lent"))
    world.submit(single("kept", 2, queue="a", preemptible=False))
    assert world.running() == {"back", "kept"}
    world.submit(B1)
    assert world.running() == {"kept", "b1"}


@pytest.mark.parametrize(("priority", "starts"), [(Priority.NORMAL, False), (Priority.HIGH, True)])
def test_work_in_cells_keeps_them_from_what_is_not_preemptible_of_its_own_class_alone(
    priority: Priority, starts: bool
) -> None:
    world = World(machine("n", 3), queues=(queue("a", guarantee=2, cells=(CellCount("card", 2),)),))
    world.submit(*(single(f"own{number}", queue="a") for number in range(2)))
    world.submit(single("kept", queue="a", priority=priority, preemptible=False))
    assert ("kept" in world.running()) is starts
    if not starts:
        assert "preemptible work in cells holds 2 GPUs of the guarantee of queue a" in world.why("kept").summary


def test_whose_guarantee_is_held_is_told_where_a_queue_lives_on_that_of_its_group() -> None:
    world = World(*POOL, queues=(queue("group", guarantee=2), queue("x", parent="group"), queue("y", parent="group")))
    world.submit(single("high", 2, queue="x", priority=Priority.HIGH), single("kept", queue="y", preemptible=False))
    summary = world.why("kept").summary
    assert "1 GPU more would exceed the guarantee of queue group" in summary
    assert "preemptible work of a higher class holds 2 GPUs of the guarantee of queue group" in summary


def test_reclaimed_work_returns_to_its_queue_and_runs_again_when_the_guarantee_is_not_used() -> None:
    world = World(*POOL, queues=HALVES)
    world.submit(single("big", 4, queue="a"))
    world.go_to(10)
    world.submit(B1, lasting=50)
    assert world.state("big") is JobState.QUEUED
    world.go_to(60)
    assert world.state("b1") is JobState.SUCCEEDED
    assert world.state("big") is JobState.RUNNING
    assert (world.core.jobs["big"].attempt, world.core.jobs["big"].preemptions) == (2, 1)


def test_a_queue_within_its_guarantee_goes_before_one_that_would_borrow() -> None:
    world = World(*POOL, queues=(queue("a", guarantee=2), queue("b")))
    world.submit(single("first", 4, queue="a", preemptible=False), lasting=100)
    world.submit(single("borrower", 4, queue="b"))
    world.submit(single("entitled", 2, queue="a"))
    world.go_to(100)
    assert world.running() == {"entitled"}


def test_a_place_that_is_being_vacated_is_given_to_nobody_else() -> None:
    world = World(*POOL, queues=HALVES)
    world.lingering.add("big")
    world.submit(single("big", 4, queue="a"))
    world.submit(single("want", 2, queue="b"))
    world.submit(single("other", 1, queue="a"))
    (stop,) = world.of_kind(Stop)
    assert (stop.job, stop.for_job) == ("big", "want")
    assert world.running() == set()
    assert world.why("want").cause is Cause.ROOM_BEING_MADE
    world.leave("big")
    assert "want" in world.running()
    assert world.of_kind(Start, "want")[0].cause is Cause.RECLAIMED


@pytest.mark.parametrize(
    ("newcomer", "settings"), [(Priority.HIGH, Settings()), (Priority.LOW, Settings(preempt=True))], ids=str
)
def test_work_within_a_guarantee_and_a_job_that_would_borrow_do_not_evict_each_other(
    newcomer: Priority, settings: Settings
) -> None:
    world = World(*POOL, queues=(*HALVES, queue("c")), settings=settings)
    world.submit(single("owed", 2, queue="a", priority=Priority.LOW))
    world.submit(single("borrower", 4, queue="c", priority=newcomer))
    world.go_to(86_400)
    assert world.running() == {"owed"}
    assert world.of_kind(Stop) == []


def test_why_says_that_lower_work_is_within_the_guarantee_of_its_queue() -> None:
    world = World(*POOL, queues=(*HALVES, queue("c")))
    world.submit(single("owed", 2, queue="a", priority=Priority.LOW))
    world.submit(single("borrower", 4, queue="c", priority=Priority.HIGH))
    assert world.why("borrower").cause is Cause.VICTIMS_PROTECTED
    assert "within the guarantee of its queue" in world.why("borrower").summary


@pytest.mark.parametrize("lingers", [False, True])
def test_what_took_its_place_back_keeps_it_though_its_queue_borrows_more_at_once(lingers: bool) -> None:
    # Two jobs of one queue come together: the narrow one takes back the card that it is guaranteed, the wide one
    # borrows by its class. Who borrowed that card may not have the narrow one leave again.
    world = World(machine("n", 4), queues=(queue("a", guarantee=1), queue("b")))
    world.submit(single("lent", queue="b", priority=Priority.HIGH), single("low", 3, queue="b", priority=Priority.LOW))
    world.lingering = {"lent"} if lingers else set()
    wide = single("wide", 3, queue="a", priority=Priority.HIGH)
    world.submit(wide, single("narrow", queue="a", priority=Priority.NORMAL))
    if lingers:
        world.leave("lent")
    world.go_to(86_400)
    assert world.running() == {"wide", "narrow"}
    assert {(each.job, each.for_job) for each in world.of_kind(Stop)} == {("lent", "narrow"), ("low", "wide")}
