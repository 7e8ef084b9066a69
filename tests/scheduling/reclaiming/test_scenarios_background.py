"""Background work: outside every quota, on what is idle, and the first to leave."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import Scene, play
from worlds import World, asks, elastic, gang, machine, queue, single

from ledgers import check_everything
from millpond.model.decisions import Start, Stop, Suspend, SuspendMode
from millpond.model.errors import InvalidInputError
from millpond.model.events import (
    DurationPredicted,
    Ended,
    JobSubmitted,
    LimitChanged,
    NodeClosed,
    QueueChanged,
    StopRequested,
)
from millpond.model.hardware.nodes import Cordon, Pool
from millpond.model.reasons import Cause
from millpond.model.states import JobState, Outcome
from millpond.model.tenancy.tenants import BACKGROUND_QUEUE, Limit, Queue
from millpond.model.windows import Window
from millpond.model.workloads import Job, Priority
from millpond.scheduling.settings import Settings

BACKGROUND, LOW, HIGH = Priority.BACKGROUND, Priority.LOW, Priority.HIGH
ONE = (machine("n", 4),)
TWO = (machine("n0", 4), machine("n1", 4))
HALVES = (queue("red", guarantee=2), queue("blue", guarantee=2))


def idler(id_: str, gpus: float = 1, **fields: object) -> Job:
    """Background work of one task."""
    return single(id_, gpus, priority=BACKGROUND, **fields)


SCENES = [
    Scene(
        "work of the lowest other class has background work leave",
        ONE,
        (single("low", 4, priority=LOW),),
        "low",
        before=(idler("idler", 4),),
        stopped="idler",
    ),
    Scene(
        "it leaves for a strict ordering and for one that preempts too",
        ONE,
        (single("a", 4),),
        "a",
        before=(idler("idler", 4),),
        stopped="idler",
        settings=Settings(ordering="fifo", preempt=True),
    ),
    Scene(
        "it leaves for the published orderings that plan all anew",
        ONE,
        (single("a", 4),),
        "a",
        before=(idler("idler", 4),),
        stopped="idler",
        settings=Settings(ordering="srtf", preempt=True),
    ),
    Scene(
        "nobody leaves while there is free room",
        TWO,
        (single("a", 4),),
        "idler a",
        before=(idler("idler", 4),),
    ),
    Scene(
        "background work leaves before lower work",
        TWO,
        (single("high", 4, priority=HIGH),),
        "low high",
        before=(idler("idler", 4), single("low", 4, priority=LOW)),
        stopped="idler",
    ),
    Scene(
        "background work leaves before an elastic gang of others is made smaller",
        TWO,
        (single("high", 4, priority=HIGH),),
        "wide high",
        before=(idler("idler", 4), elastic("wide", (1, 4, 4), asks(1), priority=LOW)),
        stopped="idler",
    ),
    Scene(
        "background work leaves before what was borrowed",
        TWO,
        (single("owner", 2, queue="red"),),
        "borrowed owner",
        before=(single("borrowed", 4, queue="blue"), idler("idler", 4)),
        stopped="idler",
        queues=HALVES,
    ),
    Scene(
        "background work leaves together with lower work where a job needs the room of both",
        TWO,
        (gang("high", 2, asks(4), priority=HIGH),),
        "high",
        before=(idler("idler", 4), single("low", 4, priority=LOW)),
        stopped="idler low",
    ),
    Scene(
        "what was borrowed stays where background work of the same node makes room in its place, though it began later",
        ONE,
        (single("owner", 2, queue="red"),),
        "x y owner",
        before=(idler("idler"), *(single(name) for name in "xyz")),
        stopped="idler z",
        cause=Cause.RECLAIMED,
        queues=HALVES,
    ),
    Scene(
        "no more of it leaves than a job needs",
        ONE,
        (single("a", 2),),
        "w x a",
        before=tuple(idler(name) for name in "wxyz"),
        stopped="y z",
    ),
    Scene(
        "it has nobody leave, however its queue is guaranteed",
        ONE,
        (idler("idler", 2, queue="red"),),
        "borrowed",
        before=(single("borrowed", 4, queue="blue", priority=LOW),),
        queues=HALVES,
    ),
    Scene(
        "it starts beside a limit of its queue that is reached",
        ONE,
        (single("b", queue="small"), idler("idler", 2, queue="small")),
        "a idler",
        before=(single("a", 2, queue="small"),),
        queues=(queue("small", limit=2),),
    ),
    Scene(
        "it starts behind a blocked job of a strict ordering",
        ONE,
        (single("big", 4), single("c"), idler("idler", 2)),
        "a idler",
        before=(single("a", 2),),
        settings=Settings(ordering="fifo"),
    ),
]


@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_background_work_takes_what_is_idle_and_leaves_first(scene: Scene) -> None:
    check_everything(play(scene).core)


def test_it_gives_up_tasks_it_can_do_without_before_it_ends() -> None:
    world = World(*ONE)
    world.submit(elastic("idler", (1, 4, 4), asks(1), priority=BACKGROUND))
    world.submit(single("a", 2))
    (stop,) = world.of_kind(Stop)
    assert (stop.job, stop.cause, stop.tasks) == ("idler", Cause.SHRUNK, (2, 3))
    assert world.running() == {"idler", "a"}


def test_it_is_swapped_where_the_pool_suspends_and_goes_on_in_what_is_left() -> None:
    world = World(machine("n", 4, swap_mib=256_000), pools=(Pool(suspends=True, turn_s=0.0),))
    world.submit(idler("idler", 4))
    world.go_to(100.0)
    world.submit(single("a", 4), lasting=50.0)
    (suspend,) = world.of_kind(Suspend)
    assert (suspend.job, suspend.mode, suspend.for_job) == ("idler", SuspendMode.SWAP, "a")
    assert world.running() == {"a"}
    world.go_to(200.0)
    assert world.running() == {"idler"}
    assert world.of_kind(Stop) == []


def test_its_usage_counts_for_no_queue_and_no_user_and_is_shown_apart() -> None:
    world = World(*ONE, queues=(queue("team", limit=4), queue("red", parent="team", limit=1)))
    world.tell(LimitChanged(0.0, Limit("ann", jobs=1)))
    world.submit(single("own", queue="red", user="ann"), idler("idler", 2, queue="red", user="ann"))
    assert world.running() == {"own", "idler"}
    shown = {each.queue.name: (each.share.used, each.work.background_milli) for each in world.core.queue_statuses()}
    assert shown == {"root": (1_000, 2_000), "default": (0, 0), "team": (1_000, 2_000), "red": (1_000, 2_000)}
    held = sum(4_000 - sum(use.compute_free_milli for use in view.devices) for view in world.core.node_views())
    assert held == sum(shown["root"])
    world.end("idler")
    assert [each.work.background_milli for each in world.core.queue_statuses()] == [0, 0, 0, 0]


def test_what_it_has_had_leaves_its_user_as_near_to_a_turn_as_others() -> None:
    world = World(*ONE, settings=Settings(ordering="fair"))
    world.submit(idler("idler", 4, user="ann"))
    world.go_to(10_000.0)
    world.submit(single("rock", 4, user="cid"), lasting=100.0)
    world.submit(single("first", 4, user="ann"), single("second", 4, user="bob"))
    world.go_to(world.now + 150.0)
    assert world.running() == {"first"}


def test_users_take_turns_with_what_is_idle() -> None:
    world = World(*ONE, settings=Settings(ordering="fair"))
    world.submit(idler("a1", 4, user="ann"), lasting=1_000.0)
    world.submit(idler("a2", 4, user="ann"), idler("b1", 4, user="bob"), lasting=1_000.0)
    world.go_to(1_500.0)
    assert world.running() == {"b1"}


def test_it_runs_on_reserved_nodes_and_leaves_them_when_the_job_has_room() -> None:
    world = World(*ONE)
    world.submit(single("a", 3), lasting=1_000.0, known=True)
    world.submit(single("big", 4))
    world.submit(single("beside"), lasting=5_000.0, known=True)
    assert world.running() == {"a"}, "it would be in the way of the reservation"
    world.submit(idler("idler"), lasting=5_000.0, known=True)
    assert world.running() == {"a", "idler"}
    world.go_to(1_001.0)
    assert world.running() == {"big"}
    assert [stop.job for stop in world.of_kind(Stop)] == ["idler"]


@pytest.mark.parametrize(("spare", "starts"), [(1, True), (0, False)])
def test_it_leaves_reserved_nodes_for_a_job_beside_which_the_holder_has_room_as_soon(spare: int, starts: bool) -> None:
    world = World(machine("n", 7 + spare))
    world.submit(single("a", 5), lasting=1_000.0, known=True)
    world.submit(*(idler(f"idler{number}") for number in range(2 + spare)))
    world.submit(single("big", 7), lasting=1_000.0, known=True)
    world.submit(single("beside"), lasting=50_000.0, known=True)
    assert ("beside" in world.running()) is starts
    world.go_to(1_001.0)
    assert "big" in world.running()


def test_it_does_not_postpone_a_reservation_and_gets_none() -> None:
    world = World(*TWO)
    world.submit(idler("idler", 2))
    world.submit(single("a", 3), single("b", 4), lasting=1_000.0, known=True)
    world.tell(JobSubmitted(world.now, gang("big", 2, asks(4))))
    world.settle()
    (kept,) = world.core._claims.reservations.values()
    assert (kept.job, kept.at) == ("big", 1_000.0)
    waiting = World(*ONE)
    waiting.submit(single("a", 4), lasting=1_000.0, known=True)
    waiting.submit(idler("idler", 4))
    waiting.go_to(900.0)
    assert waiting.core._claims.reservations == {}


def test_it_leaves_a_drained_node_and_a_pool_that_lends_no_longer() -> None:
    by_day = Pool(lending=(Window(0, 60),))
    world = World(machine("n0", 2), machine("n1", 2), pools=(by_day,), queues=HALVES)
    world.submit(idler("idler", 2), idler("other", 2), single("own", queue="red", priority=HIGH))
    assert "own" in world.running()
    world.tell(NodeClosed(world.now, "n0", Cordon(world.now, None, "repair", drain=True)))
    world.settle()
    assert all(world.nodes_of(job) == ["n1"] for job in world.running())
    world.go_to(3_601.0)
    assert not world.running() & {"idler", "other"}
    assert world.why("idler").cause is Cause.LENDING_OVER


def test_work_that_waits_for_its_place_is_not_overtaken_by_work_in_the_background() -> None:
    world = World(*ONE)
    world.lingering.add("idler")
    world.submit(idler("idler", 4))
    world.submit(single("a", 4), idler("later", 1))
    assert world.running() == set()
    world.leave("idler")
    assert world.running() == {"a"}


@pytest.mark.parametrize(
    "protection", [{"preemptible": False}, {"minimum_run_s": 10.0}, {"preemption_budget": 3}], ids=str
)
def test_background_work_cannot_be_protected(protection: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match="background work"):
        idler("idler", **protection)


def test_no_queue_has_the_name_of_the_one_that_background_work_stands_in() -> None:
    world = World(*ONE)
    for each in (Queue(BACKGROUND_QUEUE), Queue("below", parent=BACKGROUND_QUEUE)):
        with pytest.raises(InvalidInputError):
            world.tell(QueueChanged(0.0, each))
    with pytest.raises(InvalidInputError):
        world.tell(JobSubmitted(0.0, single("a", queue=BACKGROUND_QUEUE)))


@pytest.mark.long
def test_a_fork_and_a_restored_twin_count_it_alike() -> None:
    world = World(*ONE, queues=(queue("red", limit=1),))
    world.submit(idler("idler", 3, queue="red", user="ann"))
    for twin in (world.core.fork(), type(world.core).restore(world.core.snapshot())):
        assert twin._state.queues.background.gpu_milli == 3_000
        assert twin._state.queues.by_name["root"].gpu_milli == 0
        check_everything(twin)


@st.composite
def jobs(draw: st.DrawFn, id_: str) -> Job:
    fields = {
        "queue": draw(st.sampled_from(("red", "blue", "default"))),
        "priority": draw(st.sampled_from((BACKGROUND, BACKGROUND, LOW, Priority.NORMAL, HIGH))),
        "user": draw(st.sampled_from(("ann", "bob"))),
    }
    match draw(st.sampled_from(("single", "gang", "elastic"))):
        case "single":
            return single(id_, draw(st.sampled_from((0.5, 1, 2, 4))), **fields)
        case "gang":
            return gang(id_, draw(st.integers(2, 3)), asks(draw(st.integers(1, 2))), **fields)
        case _:
            return elastic(id_, (1, draw(st.integers(1, 3)), 3), asks(1), **fields)


def could_start_without_background(world: World, waiting: str) -> bool:
    """Whether a waiting job would start if no background work were there."""
    twin = world.core.fork()
    for record in list(twin.jobs.values()):
        if record.job.is_background and not record.state.ended:
            twin.handle(StopRequested(world.now, record.id))
            if not record.state.ended:
                twin.handle(Ended(world.now, record.id, record.attempt, Outcome.STOPPED))
    return any(isinstance(each, Start) and each.job == waiting for each in twin.decide(world.now))


@pytest.mark.long
@given(st.data())
@settings(max_examples=60, derandomize=True, deadline=None)
def test_no_other_job_waits_that_would_start_in_the_place_of_background_work(data: st.DataObject) -> None:
    policy = Settings(
        ordering=data.draw(st.sampled_from(("default", "fair", "fifo"))),
        preempt=data.draw(st.booleans()),
        reserve=False,  # a job that is kept off reserved nodes takes nobody's place there
    )
    cards = data.draw(st.lists(st.sampled_from((1, 2, 4)), min_size=1, max_size=3))
    pool = Pool(suspends=data.draw(st.booleans()), turn_s=0.0)
    nodes = [machine(f"n{number}", count, swap_mib=64_000) for number, count in enumerate(cards)]
    world = World(*nodes, settings=policy, queues=HALVES, pools=(pool,))
    for number in range(data.draw(st.integers(2, 10))):
        job = data.draw(jobs(f"j{number}"))
        if world.core.check(job) is not None:
            continue
        world.tell(JobSubmitted(world.now, job))
        if data.draw(st.booleans()):
            world.tell(DurationPredicted(world.now, job.id, 100.0, 200.0))
        world.settle()
        if data.draw(st.booleans()) and world.running():
            world.end(data.draw(st.sampled_from(sorted(world.running()))))
        world.go_to(world.now + data.draw(st.sampled_from((0.0, 30.0, 5_000.0))))
        check_everything(world.core)
        for id_, record in world.core.jobs.items():
            if record.state is JobState.QUEUED and record.line and not record.job.is_background:
                assert not could_start_without_background(world, id_), f"{id_} waits"


def test_background_work_leaves_for_tasks_that_a_running_gang_misses() -> None:
    world = World(*ONE)
    world.submit(single("other", 2), *(idler(f"idler{number}") for number in range(2)))
    world.submit(elastic("gang", (1, 4, 4), asks(1), priority=LOW))
    assert world.running() == {"other", "gang"}
    assert len(world.nodes_of("gang")) == 2
    world.end("other")
    assert len(world.nodes_of("gang")) == 4
    assert {stop.for_job for stop in world.of_kind(Stop)} == {"gang"}
    check_everything(world.core)


def test_a_gang_asks_no_more_background_work_while_some_is_leaving() -> None:
    world = World(machine("n", 8))
    world.lingering.update(("idler0", "idler1", "idler2", "idler3"))
    world.submit(*(idler(f"idler{number}", 2) for number in range(4)))
    world.submit(elastic("gang", (1, 2, 2), asks(2)))
    asked = len(world.of_kind(Stop))
    for _ in range(3):
        world.go_to(world.now + 1.0)
    assert len(world.of_kind(Stop)) == asked == 1


def test_a_gang_that_may_not_grow_has_no_background_work_leave() -> None:
    world = World(*ONE, queues=(queue("lab", limit=2),))
    world.submit(*(idler(f"idler{number}") for number in range(2)))
    world.submit(elastic("gang", (1, 4, 4), asks(1), queue="lab"))
    assert len(world.nodes_of("gang")) == 2
    assert world.of_kind(Stop) == []


def test_a_gang_has_as_much_background_work_leave_as_gives_it_whole_tasks_and_no_more() -> None:
    world = World(machine("n", 8))
    world.submit(*(idler(f"idler{number}") for number in range(7)))
    world.submit(elastic("gang", (1, 3, 3), asks(2)))
    for _ in range(3):
        world.settle()
    assert len(world.nodes_of("gang")) == 3
    assert len([job for job in world.running() if job.startswith("idler")]) == 2
    check_everything(world.core)
