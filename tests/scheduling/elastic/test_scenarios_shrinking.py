"""Making room without ending running work: elastic gangs shrink, suspended work gives up what it still holds."""

from __future__ import annotations

from scenes import started_tasks
from worlds import World, asks, elastic, gang, machine, queue, single

from ledgers import check_everything
from millpond.model.decisions import Resume, Stop
from millpond.model.events import NodeJoined, NodeLost, QueueChanged, ResumeRequested, StopRequested, SuspendRequested
from millpond.model.hardware.topology import Level
from millpond.model.reasons import Cause
from millpond.model.resources import Amount
from millpond.model.states import JobState, Outcome
from millpond.model.workloads import Priority
from millpond.scheduling.settings import Settings


def suspended(world: World, job: str, *, swap: bool = False) -> None:
    """A running job is asked to leave its cards, and does."""
    world.tell(SuspendRequested(world.now, job, swap))
    world.settle()


# ---- elastic gangs start as large as they may -------------------------------------------------------------------


def test_an_elastic_gang_grows_by_as_much_as_its_queue_allows() -> None:
    world = World(machine("a", 4), queues=[queue("small", limit=3)])
    world.submit(single("other", queue="small"))
    world.submit(elastic("e", (1, 4, 4), asks(1), queue="small"))
    assert len(world.nodes_of("e")) == 2
    world.end("other")
    assert len(world.nodes_of("e")) == 3
    check_everything(world.core)


def test_an_elastic_gang_whose_least_size_is_not_admitted_waits_for_its_queue() -> None:
    world = World(machine("a", 4), queues=[queue("small", limit=2)])
    world.submit(single("other", queue="small"))
    world.submit(elastic("e", (2, 4, 4), asks(1), queue="small"))
    reason = world.why("e")
    assert reason.cause is Cause.QUEUE_LIMIT
    assert dict(reason.numbers)["asked_milli"] == 2000


def test_every_role_of_an_elastic_gang_starts_with_its_minimum() -> None:
    world = World(machine("a", 4), queues=[queue("small", limit=3)])
    base = elastic("e", (1, 3, 3), asks(1), queue="small")
    helper = elastic("x", (1, 2, 2), asks(1)).roles[0]
    job = type(base)("e", (base.roles[0], type(helper)(asks(1), 2, 1, 2, "helper")), queue="small")
    world.submit(job)
    roles = [task.role for task in world.core.jobs["e"].tasks if task.holding is not None]
    assert sorted(roles) == ["helper", "worker", "worker"]


def test_guaranteed_work_starts_with_what_is_guaranteed_and_then_grows_into_what_is_left() -> None:
    world = World(machine("a", 4), queues=[queue("team", guarantee=2), queue("other")])
    world.submit(elastic("e", (1, 4, 4), asks(1), queue="team"), single("o", 1, queue="other"))
    assert world.state("o") is JobState.RUNNING, "borrowing comes after everybody has had a first look"
    assert started_tasks(world, "e") == [(0, 1), (2,)]


def test_a_gang_that_must_share_a_rack_grows_in_its_own() -> None:
    world = World(machine("a", 2, rack_name="r1"), machine("b", 2, rack_name="r2"))
    world.submit(elastic("e", (1, 3, 3), asks(1), together=Level.RACK, together_required=True))
    assert len(set(world.nodes_of("e"))) == 1
    world.tell(NodeJoined(world.now, machine("c", 2, rack_name=f"r{'ab'.index(world.nodes_of('e')[0]) + 1}")))
    world.settle()
    assert set(world.nodes_of("e")) == {world.nodes_of("e")[0], "c"}


# ---- elastic gangs ask for no more than their least size ----------------------------------------------------------


def test_nobody_is_ended_for_more_than_the_least_size_of_an_elastic_gang() -> None:
    world = World(machine("a", 4))
    world.submit(*(single(job, priority=Priority.LOW) for job in "wxyz"))
    world.go_to(100)
    world.submit(elastic("high", (2, 4, 4), asks(1), priority=Priority.HIGH))
    assert len(world.nodes_of("high")) == 2
    assert len(world.of_kind(Stop)) == 2


def test_an_elastic_gang_takes_all_the_room_that_its_victims_leave() -> None:
    world = World(machine("a", 4))
    world.submit(gang("x", 4, asks(1), priority=Priority.LOW))
    world.go_to(100)
    world.submit(elastic("high", (1, 3, 3), asks(1), priority=Priority.HIGH))
    assert started_tasks(world, "high") == [(0, 1, 2)]


def test_an_elastic_gang_reclaims_its_least_size_when_the_rest_would_be_borrowed() -> None:
    world = World(machine("a", 4), queues=[queue("team", guarantee=2), queue("other")])
    world.submit(*(single(job, queue="other") for job in "wxyz"))
    world.go_to(100)
    world.submit(elastic("e", (2, 4, 4), asks(1), queue="team"))
    assert len(world.nodes_of("e")) == 2
    assert [stop.cause for stop in world.of_kind(Stop)] == [Cause.RECLAIMED] * 2


# ---- elastic gangs shrink for others ------------------------------------------------------------------------------


def test_an_elastic_gang_gives_up_tasks_for_a_higher_class_and_gets_them_back() -> None:
    world = World(machine("a", 4))
    world.submit(elastic("e", (1, 3, 3), asks(1), priority=Priority.LOW), single("x", priority=Priority.LOW))
    world.go_to(100)
    world.submit(single("high", 2, priority=Priority.HIGH))
    assert world.running() == {"e", "x", "high"}
    assert [(stop.job, stop.cause, stop.for_job) for stop in world.of_kind(Stop)] == [("e", Cause.SHRUNK, "high")]
    assert len(world.nodes_of("e")) == 1
    assert world.core.jobs["e"].attempt == 1
    world.end("high")
    assert len(world.nodes_of("e")) == 3
    check_everything(world.core)


def test_only_as_many_tasks_are_given_up_as_are_needed() -> None:
    world = World(machine("a", 4), queues=[queue("team", guarantee=1), queue("other")])
    world.submit(elastic("e", (1, 4, 4), asks(1), queue="other"))
    world.go_to(100)
    world.submit(single("mine", queue="team"))
    assert world.running() == {"e", "mine"}
    assert len(world.nodes_of("e")) == 3


def test_a_gang_keeps_its_minimum_and_the_rest_is_found_elsewhere() -> None:
    world = World(machine("a", 4))
    world.submit(elastic("e", (2, 3, 3), asks(1), priority=Priority.LOW), single("x", priority=Priority.LOW))
    world.go_to(100)
    world.submit(single("high", 2, priority=Priority.HIGH))
    assert world.running() == {"e", "high"}
    assert sorted((stop.job, stop.cause) for stop in world.of_kind(Stop)) == [
        ("e", Cause.SHRUNK), ("x", Cause.PREEMPTED),
    ]  # fmt: skip


def test_a_whole_gang_is_ended_where_its_spare_tasks_are_not_enough() -> None:
    world = World(machine("a", 4))
    world.submit(elastic("e", (3, 4, 4), asks(1), priority=Priority.LOW))
    world.go_to(100)
    world.submit(single("high", 2, priority=Priority.HIGH))
    (stop,) = world.of_kind(Stop)
    assert (stop.job, stop.cause) == ("e", Cause.PREEMPTED)
    assert world.running() == {"high"}


def test_the_room_is_kept_until_the_tasks_that_were_given_up_have_ended() -> None:
    world = World(machine("a", 4))
    world.submit(elastic("e", (1, 4, 4), asks(1), priority=Priority.LOW))
    world.go_to(100)
    world.lingering = {"e"}
    world.submit(single("high", 2, priority=Priority.HIGH))
    assert world.why("high").cause is Cause.ROOM_BEING_MADE
    world.submit(single("late", priority=Priority.LOW))
    twin = world.core.fork()
    world.leave("e")
    assert world.running() == {"e", "high"}
    assert "high" in twin._claims.by_job
    check_everything(world.core)


def test_a_task_that_is_lost_while_it_makes_room_does_not_break_its_gang() -> None:
    world = World(machine("a", 2), machine("b", 2))
    world.submit(elastic("e", (1, 2, 2), asks(2), priority=Priority.LOW))
    world.go_to(100)
    world.lingering = {"e"}
    world.submit(single("high", 2, priority=Priority.HIGH))
    (stop,) = world.of_kind(Stop)
    lost = world.core.jobs["e"].tasks[stop.tasks[0]].placement
    assert lost is not None
    world.tell(NodeJoined(world.now, machine("c", 4)))
    world.tell(NodeLost(world.now, lost.node))
    world.settle()
    assert world.running() == {"e", "high"}
    assert world.core.jobs["e"].attempt == 1
    assert len(world.nodes_of("e")) == 2
    check_everything(world.core)


def test_a_gang_whose_mates_all_succeed_does_not_run_again_for_a_task_that_made_room() -> None:
    world = World(machine("a", 2))
    world.submit(elastic("e", (1, 2, 2), asks(1), priority=Priority.LOW))
    world.go_to(100)
    world.lingering = {"e"}
    world.submit(single("high", 1, priority=Priority.HIGH))
    (stop,) = world.of_kind(Stop)
    world.end("e", Outcome.SUCCESS, 1 - stop.tasks[0])
    world.leave("e")
    assert world.state("e") is JobState.SUCCEEDED
    assert world.running() == {"high"}


def test_the_time_limit_of_a_gang_holds_although_it_gives_up_a_task_at_that_instant() -> None:
    world = World(machine("a", 2))
    world.submit(elastic("e", (1, 2, 2), asks(1), priority=Priority.LOW, time_limit_s=100.0))
    world.lingering = {"e"}
    world.go_to(99)
    world.submit(single("high", 1, priority=Priority.HIGH))
    world.go_to(101)
    assert [stop.cause for stop in world.of_kind(Stop, "e")] == [Cause.SHRUNK, Cause.TIME_LIMIT]


# ---- suspended work ---------------------------------------------------------------------------------------------


def test_borrowed_work_that_is_frozen_is_ended_when_its_device_memory_is_asked_back() -> None:
    world = World(machine("a", 2), queues=[queue("team", guarantee=2), queue("other")])
    world.submit(single("x", 2, queue="other"))
    suspended(world, "x")
    world.submit(single("borrows too", 2, queue="other"))
    assert world.running() == set(), "its memory is still there"
    world.submit(single("mine", 2, queue="team"))
    assert world.running() == {"mine"}
    assert [(stop.job, stop.cause) for stop in world.of_kind(Stop)] == [("x", Cause.RECLAIMED)]
    assert world.state("x") is JobState.QUEUED
    check_everything(world.core)


def test_suspended_work_that_is_not_in_the_way_is_left_alone() -> None:
    world = World(machine("a", 2), machine("b", 2), queues=[queue("team", guarantee=4), queue("other")])
    world.submit(single("x", 2, queue="other"))
    suspended(world, "x")
    world.submit(single("y", 2, queue="other"))
    world.go_to(100)
    world.submit(single("mine", 2, queue="team"))
    (stop,) = world.of_kind(Stop)
    assert stop.job == "x", "what is frozen uses no card, so it leaves before what runs"
    world.submit(single("more", 2, queue="team"))
    assert world.running() == {"mine", "more"}


def test_work_of_a_queue_within_its_guarantee_stays_frozen() -> None:
    world = World(machine("a", 2), queues=[queue("team", guarantee=2), queue("owner", guarantee=2)])
    world.submit(single("x", 2, queue="owner"))
    suspended(world, "x")
    world.submit(single("mine", 2, queue="team"))
    assert world.of_kind(Stop) == []
    assert world.state("x") is JobState.SUSPENDED


def test_frozen_work_that_may_not_be_preempted_stays() -> None:
    world = World(machine("a", 2))
    world.submit(single("x", 2, preemptible=False, priority=Priority.LOW))
    suspended(world, "x")
    world.submit(single("high", 2, priority=Priority.HIGH))
    assert world.of_kind(Stop) == []


def test_a_higher_class_ends_lower_work_that_is_frozen() -> None:
    world = World(machine("a", 2))
    world.submit(single("x", 2, priority=Priority.LOW))
    suspended(world, "x")
    world.submit(single("high", 2, priority=Priority.HIGH))
    assert world.running() == {"high"}
    assert [(stop.job, stop.cause) for stop in world.of_kind(Stop)] == [("x", Cause.PREEMPTED)]


def test_frozen_and_running_work_leave_together_where_only_both_are_enough() -> None:
    world = World(machine("a", 2))
    world.submit(single("x", priority=Priority.LOW), single("y", priority=Priority.LOW))
    suspended(world, "x")
    world.go_to(100)
    world.submit(single("high", 2, priority=Priority.HIGH))
    assert world.running() == {"high"}
    assert {stop.job for stop in world.of_kind(Stop)} == {"x", "y"}


def test_swapped_work_leaves_its_part_of_the_limit_to_others_and_waits_until_it_has_it_again() -> None:
    world = World(machine("a", 4, swap_mib=64_000), queues=[queue("small", limit=2)])
    world.submit(single("x", 2, queue="small"))
    suspended(world, "x", swap=True)
    world.submit(single("y", 2, queue="small"))
    assert world.state("y") is JobState.RUNNING
    world.tell(ResumeRequested(world.now, "x"))
    world.settle()
    assert world.state("x") is JobState.SUSPENDED
    check_everything(world.core)
    world.end("y")
    assert world.state("x") is JobState.RUNNING
    assert len(world.of_kind(Resume, "x")) == 1
    check_everything(world.core)


def test_frozen_work_keeps_its_part_of_the_limit_for_its_cards_are_not_free() -> None:
    world = World(machine("a", 4), queues=[queue("small", limit=2)])
    world.submit(single("x", 2, queue="small"))
    suspended(world, "x")
    world.submit(single("y", 2, queue="small"))
    assert world.why("y").cause is Cause.QUEUE_LIMIT
    world.tell(QueueChanged(world.now, queue("small", limit=1)))
    world.tell(ResumeRequested(world.now, "x"))
    world.settle()
    assert world.state("x") is JobState.RUNNING, "it asks for no more cards than it has"


def test_suspended_work_counts_alike_after_a_restart() -> None:
    world = World(machine("a", 4, swap_mib=64_000), queues=[queue("small", limit=2)])
    world.submit(single("x", 1, queue="small"), single("y", 1, queue="small"))
    suspended(world, "x", swap=True)
    suspended(world, "y")
    twin = world.core.fork()
    check_everything(twin)
    used = twin._state.queues.by_name["small"]
    assert Amount(used.gpu_milli, used.cpu_milli, used.memory_mib) == Amount(1000, 0, 2000)


def test_the_fair_share_does_not_count_the_cards_of_swapped_work() -> None:
    world = World(machine("a", 2, swap_mib=64_000), settings=Settings(ordering="fair"))
    world.submit(single("x", 2, user="ann"))
    suspended(world, "x", swap=True)
    world.go_to(100_000)
    shares = world.core.snapshot()["usage"]
    gpu, cpu, memory = shares["default/ann"][:3]
    assert (gpu, cpu, memory) == (0.0, 0.0, 1000.0)


def test_a_suspended_job_that_was_to_go_on_and_is_stopped_does_not_go_on() -> None:
    world = World(machine("a", 2))
    world.submit(single("x", 2))
    suspended(world, "x")
    world.lingering = {"x"}
    world.tell(ResumeRequested(world.now, "x"))
    world.tell(StopRequested(world.now, "x"))
    world.settle()
    assert world.of_kind(Resume) == []
    world.leave("x")
    assert world.state("x") is JobState.CANCELLED
