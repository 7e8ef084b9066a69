"""What a queue says of its jobs one by one: their classes, how many run, how long a run lasts before it may leave."""

from __future__ import annotations

import pytest
from worlds import World, asks, gang, machine, queue, restarted, single

from ledgers import check_everything
from millpond.model.decisions import Stop
from millpond.model.events import LimitChanged, QueueChanged
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.model.tenancy.tenants import Limit, Queue
from millpond.model.workloads import Priority

LOW, NORMAL, HIGH = Priority.LOW, Priority.NORMAL, Priority.HIGH


def world_of(*queues: Queue, cards: int = 4) -> World:
    """One machine and these queues."""
    return World(machine("n", cards), queues=queues)


# ---- classes ----------------------------------------------------------------------------------------------------


def test_a_job_of_a_class_that_its_queue_does_not_allow_is_refused_with_those_that_it_may_have() -> None:
    world = world_of(queue("lab", priorities=(LOW, NORMAL)))
    refusal = world.core.check(single("urgent", queue="lab", priority=HIGH))
    assert refusal is not None
    assert refusal.summary == "the job has priority high; jobs of queue 'lab' may have low, normal"
    assert refusal.remedy is not None
    assert (refusal.remedy.change, refusal.remedy.field, refusal.remedy.value) == (
        "use priority low or normal, or another queue",
        "priority",
        "normal",
    )
    assert world.core.check(single("usual", queue="lab")) is None


def test_a_class_has_to_be_allowed_on_every_level() -> None:
    world = world_of(
        queue("house", priorities=(LOW, NORMAL)),
        queue("lab", parent="house", priorities=(NORMAL, HIGH)),
        queue("den", parent="house"),
        queue("odd", parent="house", priorities=(HIGH,)),
    )

    def refusal(name: str, priority: Priority) -> str:
        reason = world.core.check(single("job", queue=name, priority=priority))
        return "" if reason is None else reason.summary

    assert "jobs of queue 'house' may have low, normal" in refusal("lab", HIGH)
    assert "jobs of queue 'lab' may have normal, high" in refusal("lab", LOW)
    assert "queue 'house'" in refusal("den", Priority.BACKGROUND)
    assert refusal("lab", NORMAL) == refusal("den", LOW) == ""
    reason = world.core.check(single("job", queue="odd", priority=HIGH))
    assert reason is not None
    assert reason.remedy is not None
    assert reason.remedy.change == "use another queue"


def test_what_was_accepted_keeps_its_class_when_the_queue_changes() -> None:
    world = world_of(queue("lab"))
    world.submit(single("runs", 4, queue="lab", priority=HIGH), single("waits", 4, queue="lab", priority=HIGH))
    world.tell(QueueChanged(world.now, queue("lab", priorities=(LOW,))))
    assert world.running() == {"runs"}
    assert world.why("waits").cause is not Cause.IMPOSSIBLE
    world.end("runs")
    assert world.running() == {"waits"}


# ---- how many run -----------------------------------------------------------------------------------------------


def test_a_queue_runs_as_many_jobs_as_it_says_and_those_behind_them_of_others_go_past() -> None:
    world = world_of(queue("lab", running_jobs=2), queue("den"))
    world.submit(*(single(f"l{number}", queue="lab") for number in range(4)), single("d", queue="den"))
    assert world.running() == {"l0", "l1", "d"}
    reason = world.why("l2")
    assert reason.cause is Cause.QUEUE_LIMIT
    assert reason.summary == "queue lab runs 2 jobs with 2 GPUs and 2 CPUs, and may have at most 2 running jobs"
    world.end("l0")
    assert world.running() == {"l1", "l2", "d"}


def test_the_jobs_of_all_queues_below_count_together_and_their_groups_limits_beside() -> None:
    world = world_of(queue("house", running_jobs=3), queue("lab", parent="house"), queue("den", parent="house"))
    world.tell(LimitChanged(0.0, Limit(queue="lab", jobs=2)))
    world.submit(*(single(f"l{number}", queue="lab") for number in range(3)))
    world.submit(*(single(f"d{number}", queue="den") for number in range(2)))
    assert world.running() == {"l0", "l1", "d0"}
    assert "queue lab runs 2 jobs" in world.why("l2").summary
    reason = world.why("d1")
    assert (reason.summary[:30], reason.blocked_by) == ("queue house runs 3 jobs with 3", "house")
    check_everything(world.core)


def test_a_lower_bound_ends_nothing() -> None:
    world = world_of(queue("lab"), cards=4)
    world.submit(*(single(f"l{number}", queue="lab") for number in range(3)))
    world.tell(QueueChanged(world.now, queue("lab", running_jobs=1)))
    world.submit(single("late", queue="lab"))
    assert world.running() == {"l0", "l1", "l2"}
    assert world.of_kind(Stop) == []
    world.end("l0")
    world.end("l1")
    assert world.running() == {"l2"}
    world.tell(QueueChanged(world.now, queue("lab")))
    world.settle()
    assert world.running() == {"l2", "late"}
    check_everything(world.core)


def test_background_work_does_not_count_and_is_not_bounded() -> None:
    world = world_of(queue("lab", running_jobs=1))
    world.submit(single("idle", queue="lab", priority=Priority.BACKGROUND), single("own", queue="lab"))
    assert world.running() == {"idle", "own"}


def test_a_queue_that_may_run_no_jobs_refuses_them_at_submission() -> None:
    world = world_of(queue("house", running_jobs=0), queue("lab", parent="house"))
    refusal = world.core.check(single("job", queue="lab"))
    assert refusal is not None
    assert refusal.summary == "queue 'house' may run no jobs"


def test_the_count_is_the_same_in_a_restored_scheduler_and_in_a_fork() -> None:
    world = world_of(queue("house", running_jobs=2), queue("lab", parent="house", minimum_run_s=60.0))
    world.submit(*(single(f"l{number}", queue="lab") for number in range(3)))
    restored = restarted(world.core)
    for core in (restored, world.core.fork()):
        check_everything(core)
        assert core.explain("l2", world.now).summary == world.why("l2").summary


# ---- how long a run lasts ---------------------------------------------------------------------------------------


def borrowed(*queues: Queue, minimum_run_s: float = 0.0) -> World:
    """A machine full of what ``lab`` has borrowed, on which ``own`` is guaranteed two cards and wants them."""
    world = world_of(queue("own", guarantee=2), *queues)
    world.submit(single("lent", 4, queue="lab", minimum_run_s=minimum_run_s))
    world.submit(single("due", 2, queue="own"))
    return world


@pytest.mark.parametrize(
    ("queues", "own_s", "until_s"),
    [
        ((queue("lab", minimum_run_s=100.0),), 0.0, 100.0),
        ((queue("lab", minimum_run_s=100.0),), 300.0, 300.0),
        ((queue("house", minimum_run_s=100.0), queue("lab", parent="house")), 0.0, 100.0),
        ((queue("house", minimum_run_s=900.0), queue("lab", parent="house", minimum_run_s=100.0)), 0.0, 100.0),
        ((queue("house", minimum_run_s=900.0), queue("lab", parent="house", minimum_run_s=0.0)), 20.0, 20.0),
    ],
    ids=["its queue", "the job itself, longer", "a queue above", "the nearest one", "the nearest one, none"],
)
def test_work_runs_as_long_as_its_queue_says_before_it_is_reclaimed(
    queues: tuple[Queue, ...], own_s: float, until_s: float
) -> None:
    world = borrowed(*queues, minimum_run_s=own_s)
    world.go_to(until_s - 1.0)
    assert world.running() == {"lent"}
    assert "minimum run time" in world.why("due").summary
    assert world.core.next_wakeup(world.now) == pytest.approx(until_s)
    world.go_to(until_s)
    assert world.running() == {"due"}
    assert [stop.cause for stop in world.of_kind(Stop)] == [Cause.RECLAIMED]


def test_the_reason_names_the_queue_whose_time_it_is() -> None:
    world = borrowed(queue("lab", minimum_run_s=100.0))
    assert "in the minimum run time of queue lab" in world.why("due").summary


def test_work_that_runs_is_protected_by_what_its_queue_says_from_now_on() -> None:
    world = world_of(queue("own", guarantee=2), queue("lab"))
    world.submit(single("lent", 4, queue="lab"))
    world.tell(QueueChanged(world.now, queue("lab", minimum_run_s=500.0)))
    world.submit(single("due", 2, queue="own"))
    assert world.running() == {"lent"}
    world.tell(QueueChanged(world.now, queue("lab")))
    world.settle()
    assert world.running() == {"due"}


def test_work_beyond_recall_and_background_work_are_as_before() -> None:
    world = world_of(queue("own", guarantee=2), queue("lab", guarantee=2, minimum_run_s=500.0))
    world.submit(single("kept", 2, queue="lab", preemptible=False))
    world.submit(gang("idle", 2, asks(1), queue="lab", priority=Priority.BACKGROUND))
    world.submit(single("due", 2, queue="own"))
    assert world.running() == {"kept", "due"}
    assert world.state("idle") is JobState.QUEUED
