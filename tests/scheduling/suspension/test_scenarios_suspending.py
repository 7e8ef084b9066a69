"""In a pool that suspends, work is asked to leave its cards without ending before it would be ended for others."""

from __future__ import annotations

from typing import Any

import pytest
from worlds import CARD_MIB, World, asks, gang, machine, queue, single

from ledgers import check_everything
from millpond.model.decisions import Resume, Stop, Suspend, SuspendMode
from millpond.model.errors import ConflictError
from millpond.model.events import (
    DeviceHealthChanged,
    PolicyChanged,
    Refused,
    ResumeRequested,
    StopRequested,
    SuspendRequested,
)
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import Node, Pool, SharingPolicy
from millpond.model.reasons import Cause, Filter
from millpond.model.states import JobState, Outcome
from millpond.model.workloads import Checkpoint, CheckpointMode, Job, Priority, Suspendable
from millpond.scheduling.scheduler import Scheduler

SWAPPING = machine("n", 1, swap_mib=CARD_MIB)
LONGEST_S = 600.0


def pool(**fields: Any) -> World:
    """One pool that suspends, without turns of equals, on one card with host memory for it."""
    return on(SWAPPING, **fields)


def on(*nodes: Node, **fields: Any) -> World:
    fields = {"suspends": True, "turn_s": 0.0, "longest_suspended_s": LONGEST_S, **fields}
    return World(*nodes, pools=(Pool(**fields),))


def low(id_: str = "low", gpus: float = 1, **fields: Any) -> Job:
    return single(id_, gpus, priority=Priority.LOW, **fields)


def high(id_: str = "high", gpus: float = 1, **fields: Any) -> Job:
    return single(id_, gpus, priority=Priority.HIGH, **fields)


def left_by(world: World) -> list[tuple[str, SuspendMode, Cause, str]]:
    return [(each.job, each.mode, each.cause, each.for_job) for each in world.of_kind(Suspend)]


# ---- leaving without ending ---------------------------------------------------------------------------------------


def test_work_is_swapped_for_a_higher_class_and_goes_on_where_it_was() -> None:
    world = pool()
    world.submit(low())
    world.go_to(100)
    world.submit(high())
    assert left_by(world) == [("low", SuspendMode.SWAP, Cause.PREEMPTED, "high")]
    assert world.running() == {"high"}
    check_everything(world.core)
    world.go_to(200)
    world.end("high")
    assert world.running() == {"low"}
    record = world.core.jobs["low"]
    assert (record.attempt, record.preemptions, record.service_s(300)) == (1, 0, 200.0)
    assert not world.of_kind(Stop)


def test_work_is_frozen_where_its_device_memory_may_stay_beside() -> None:
    world = pool(sharing=SharingPolicy.SLICED)
    half = asks(1, card_mib=CARD_MIB // 2)
    world.submit(gang("low", 1, asks(0.9, card_mib=CARD_MIB // 2), priority=Priority.LOW))
    world.submit(gang("high", 1, asks(0.5, card_mib=half.slice.memory_mib), priority=Priority.HIGH))
    assert left_by(world) == [("low", SuspendMode.FREEZE, Cause.PREEMPTED, "high")]
    assert world.running() == {"high"}
    check_everything(world.core)


def test_borrowed_work_is_suspended_when_a_queue_takes_back_its_guarantee() -> None:
    world = World(
        machine("n", 2, swap_mib=2 * CARD_MIB), pools=(Pool(suspends=True, turn_s=0.0),),
        queues=[queue("team", guarantee=1), queue("other")],
    )  # fmt: skip
    world.submit(single("a", queue="other"), single("b", queue="other"))
    world.go_to(100)
    world.submit(single("mine", queue="team"))
    ((job, mode, cause, successor),) = left_by(world)
    assert (mode, cause, successor) == (SuspendMode.SWAP, Cause.RECLAIMED, "mine")
    assert world.running() == {"a", "b", "mine"} - {job}
    world.end("mine")
    assert world.running() == {"a", "b"}
    assert not world.of_kind(Stop)
    check_everything(world.core)


def test_nobody_is_suspended_where_the_pool_does_not_say_so() -> None:
    world = pool(suspends=False)
    world.submit(low())
    world.submit(high())
    assert [stop.job for stop in world.of_kind(Stop)] == ["low"]
    assert not world.of_kind(Suspend)


@pytest.mark.parametrize(
    ("swap_mib", "fields"),
    [
        (CARD_MIB - 1, {}),
        (CARD_MIB, {"suspendable": Suspendable.NEVER}),
        (CARD_MIB, {"suspendable": Suspendable.FREEZE}),
    ],
)
def test_work_is_ended_where_it_cannot_leave_otherwise(swap_mib: int, fields: dict[str, Any]) -> None:
    world = on(machine("n", 1, swap_mib=swap_mib))
    world.submit(low(**fields))
    world.submit(high())
    assert [(stop.job, stop.cause) for stop in world.of_kind(Stop)] == [("low", Cause.PREEMPTED)]
    assert not world.of_kind(Suspend)


def test_a_gang_is_swapped_only_if_it_says_that_it_can_be() -> None:
    for checkpoint, leaves in ((Checkpoint(), Stop), (Checkpoint(CheckpointMode.TRANSPARENT), Suspend)):
        world = on(machine("n", 2, swap_mib=2 * CARD_MIB))
        world.submit(gang("low", 2, asks(1), priority=Priority.LOW, checkpoint=checkpoint))
        world.submit(high())
        assert [decision.job for decision in world.of_kind(leaves)] == ["low"]
        assert world.running() == {"high"}


def test_only_as_many_are_swapped_as_host_memory_takes_and_the_others_end() -> None:
    world = on(machine("n", 2, swap_mib=CARD_MIB))
    world.submit(low("a"), low("b"))
    world.submit(high(gpus=2))
    assert len(world.of_kind(Suspend)) == len(world.of_kind(Stop)) == 1
    assert world.running() == {"high"}
    check_everything(world.core)


def test_the_memory_factor_of_a_pool_bounds_what_comes_to_a_card_that_work_was_swapped_off() -> None:
    world = on(machine("n", 1, swap_mib=CARD_MIB), memory_factor_milli=1_250)
    world.submit(low("stays", gpus=0.25, preemptible=False), low("large", gpus=0.75))
    world.submit(high(gpus=0.25))
    assert world.running() == {"stays", "high"}
    assert world.state("large") is JobState.SUSPENDED
    world.submit(low("late", gpus=0.25))
    why = world.why("late")
    assert (why.cause, dict(why.nodes)) == (Cause.NO_ROOM, {Filter.DEVICE_MEMORY: 1})
    assert f"{CARD_MIB // 2} MiB of device memory are kept for work that was swapped off" in why.summary
    check_everything(world.core)
    world.end("high")
    assert world.running() == {"stays", "large"}
    check_everything(world.core)


def test_the_memory_factor_of_a_pool_bounds_what_is_swapped_off_a_card() -> None:
    node = machine("n", 1, swap_mib=10 * CARD_MIB)
    for factor, leaves in ((1_999, Stop), (2_000, Suspend)):
        world = on(node, memory_factor_milli=factor)
        world.submit(low())
        world.submit(high())
        assert len(world.of_kind(leaves)) == 1


def test_what_was_promised_holds_for_suspending_too() -> None:
    world = pool()
    world.submit(low(minimum_run_s=50.0))
    world.submit(high())
    world.go_to(49)
    assert world.running() == {"low"}
    world.go_to(51)
    assert world.running() == {"high"}
    assert world.state("low") is JobState.SUSPENDED


# ---- the engine has its say ---------------------------------------------------------------------------------------


def test_work_that_cannot_be_suspended_is_ended_instead_and_not_asked_again_in_this_run() -> None:
    world = pool()
    world.clinging = {"low"}
    world.submit(low())
    world.submit(high())
    assert [(stop.job, stop.cause, stop.for_job) for stop in world.of_kind(Stop)] == [("low", Cause.PREEMPTED, "high")]
    assert world.running() == {"high"}
    assert world.core.jobs["low"].preemptions == 1
    check_everything(world.core)


def test_work_that_cannot_be_suspended_stays_if_nobody_needs_its_place_any_more() -> None:
    world = pool()
    world.slow = {"low"}
    world.submit(low())
    world.submit(high())
    world.tell(StopRequested(world.now, "high"))
    world.tell(Refused(world.now, world.of_kind(Suspend)[0].id, "it cannot be suspended"))
    world.settle()
    assert world.running() == {"low"}
    assert not world.of_kind(Stop)
    check_everything(world.core)


def test_the_successor_waits_until_its_place_is_really_free() -> None:
    world = pool()
    world.slow = {"low"}
    world.submit(low())
    world.submit(high())
    assert world.why("high").cause is Cause.ROOM_BEING_MADE
    twin = world.core.fork()
    world.submit(single("late"))
    assert world.running() == set()
    world.leave_devices("low")
    assert world.running() == {"high"}
    assert "high" in twin._claims.by_job


# ---- coming back --------------------------------------------------------------------------------------------------


def test_suspended_work_that_finds_no_room_for_long_is_ended_and_runs_anew() -> None:
    world = pool()
    world.submit(low())
    world.go_to(10)
    world.submit(high())
    world.go_to(10 + LONGEST_S - 1)
    assert world.state("low") is JobState.SUSPENDED
    assert "ended" in world.why("low").summary
    world.go_to(10 + LONGEST_S)
    assert [(stop.job, stop.cause) for stop in world.of_kind(Stop)] == [("low", Cause.SUSPENDED_TOO_LONG)]
    assert world.state("low") is JobState.QUEUED
    assert world.core.jobs["low"].preemptions == 1
    world.end("high")
    assert world.running() == {"low"}
    assert world.core.jobs["low"].attempt == 2


def test_work_that_people_suspended_waits_for_them_as_long_as_they_like() -> None:
    world = pool()
    world.submit(low())
    world.tell(SuspendRequested(world.now, "low", swap=True))
    world.settle()
    world.go_to(10 * LONGEST_S)
    assert world.state("low") is JobState.SUSPENDED
    world.tell(ResumeRequested(world.now, "low"))
    world.settle()
    assert world.running() == {"low"}


def test_suspended_work_does_not_go_on_before_a_queue_that_is_owed_its_room() -> None:
    world = World(
        machine("n", 1, swap_mib=CARD_MIB), pools=(Pool(suspends=True, turn_s=0.0),),
        queues=[queue("team", guarantee=1), queue("other")],
    )  # fmt: skip
    world.submit(single("borrowed", queue="other"))
    world.submit(single("first", queue="team"))
    world.submit(single("second", queue="team"))
    world.end("first")
    assert world.running() == {"second"}
    assert len(world.of_kind(Suspend)) == 1
    assert not world.of_kind(Resume)


# ---- host memory, and what cannot come back -----------------------------------------------------------------------


@pytest.mark.parametrize("gpus", [1, 0.5])
def test_work_that_wants_to_be_swapped_starts_where_host_memory_takes_it_and_else_where_there_is_room(
    gpus: float,
) -> None:
    bare, able = machine("bare", 1), machine("able", 1, swap_mib=CARD_MIB)
    world = World(bare, able, pools=(Pool(suspends=True, sharing=SharingPolicy.SLICED),))
    jobs = [low(f"j{number}", gpus, suspendable=Suspendable.SWAP) for number in range(round(2 / gpus))]
    world.submit(*jobs)
    places = [world.nodes_of(job.id) for job in jobs]
    assert places == [["able"]] * (len(jobs) // 2) + [["bare"]] * (len(jobs) // 2)


def test_a_job_that_could_not_leave_its_cards_runs_on_and_is_told_why() -> None:
    world = pool()
    world.submit(low())
    world.clinging.add("low")
    world.tell(SuspendRequested(world.now, "low", swap=True))
    world.settle()
    assert world.running() == {"low"}
    assert world.why("low").summary == "running on n, run 1; it could not leave its cards: it cannot be moved"


@pytest.mark.parametrize(("lost", "cause"), [(True, Cause.DEVICE_FAILED), (False, Cause.NO_RETURN)])
def test_what_cannot_be_brought_back_is_ended_with_the_reason_and_runs_again(lost: bool, cause: Cause) -> None:
    world = pool()
    world.submit(low())
    world.tell(SuspendRequested(world.now, "low", swap=True))
    world.settle()
    world.lingering.add("low")
    world.tell(ResumeRequested(world.now, "low"))
    (resume,) = world.tick()
    world.tell(Refused(world.now, resume.id, "the driver lost it", lost))
    world.settle()
    assert [(stop.job, stop.cause) for stop in world.of_kind(Stop)] == [("low", cause)]
    assert world.core.jobs["low"].tasks[0].detail == "the driver lost it"
    world.leave("low")
    assert (world.running(), world.core.jobs["low"].attempt, world.core.jobs["low"].failures) == ({"low"}, 2, 0)
    check_everything(world.core)


@pytest.mark.parametrize("leaves", [True, False])
def test_frozen_work_is_swapped_when_somebody_asks_or_stays_frozen_if_that_cannot_be(leaves: bool) -> None:
    world = pool()
    world.submit(low())
    world.tell(SuspendRequested(world.now, "low"))
    world.settle()
    if not leaves:
        world.clinging.add("low")
    world.tell(SuspendRequested(world.now, "low", swap=True))
    world.settle()
    record = world.core.jobs["low"]
    assert (record.state, record.suspend_mode is SuspendMode.SWAP) == (JobState.SUSPENDED, leaves)
    assert record.tasks[0].detail == ("" if leaves else "it cannot be moved")
    check_everything(world.core)
    world.submit(low("other"))
    assert world.running() == ({"other"} if leaves else set())
    if leaves:
        world.end("other")
    world.tell(ResumeRequested(world.now, "low"))
    world.settle()
    assert "low" in world.running()
    check_everything(world.core)


def test_why_work_cannot_be_swapped_is_said_with_the_numbers() -> None:
    for swap_mib, said in ((0, "node n can keep no device memory"), (CARD_MIB - 1, f"sets {CARD_MIB - 1} MiB aside")):
        world = on(machine("n", 1, swap_mib=swap_mib))
        world.submit(low())
        with pytest.raises(ConflictError, match=said):
            world.core.handle(SuspendRequested(world.now, "low", swap=True))


# ---- lost while people kept it suspended --------------------------------------------------------------------------


def lost_while_suspended() -> World:
    """Somebody suspended a job, and then its machine was lost, and is back with room for it."""
    world = World(machine("n", 1))
    world.submit(single("j"))
    world.tell(SuspendRequested(world.now, "j", by="ada"))
    world.settle()
    world.end("j", Outcome.NODE_LOST, detail="the machine was started anew")
    return world


def test_what_people_suspended_does_not_run_again_by_itself_when_its_run_was_lost() -> None:
    world = lost_while_suspended()
    world.go_to(10_000)
    assert (world.state("j"), world.core.jobs["j"].attempt) == (JobState.QUEUED, 1)
    reason = world.why("j")
    lost = "suspended on request, and its run ended meanwhile (the machine was started anew)"
    assert (reason.cause, reason.summary) == (Cause.SUSPENDED, f"{lost}; it lines up again once it is resumed")
    check_everything(world.core)


def test_it_waits_over_a_restart_and_under_another_policy_and_holds_nobody_up() -> None:
    world = lost_while_suspended()
    world.core = Scheduler.restore(world.core.snapshot())
    world.submit(single("other"))
    assert world.running() == {"other"}
    world.tell(PolicyChanged(world.now, "fifo", "default", preempt=False, reserve=True))
    world.end("other")
    assert world.state("j") is JobState.QUEUED
    world.tell(ResumeRequested(world.now, "j"))
    world.settle()
    assert (world.state("j"), world.core.jobs["j"].attempt) == (JobState.RUNNING, 2)
    check_everything(world.core)


def test_one_that_is_resumed_while_its_run_is_being_ended_has_another_at_once() -> None:
    world = World(machine("n", 2))
    world.submit(single("j"))
    world.tell(SuspendRequested(world.now, "j"))
    world.settle()
    world.lingering.add("j")
    (grant,) = world.core.jobs["j"].tasks[0].placement.grants
    world.tell(DeviceHealthChanged(world.now, "n", grant.device, DeviceHealth.FAULTY))
    world.settle()
    assert world.state("j") is JobState.STOPPING
    world.tell(ResumeRequested(world.now, "j"))
    world.leave("j")
    assert (world.state("j"), world.core.jobs["j"].attempt) == (JobState.RUNNING, 2)


def test_one_whose_failure_is_final_has_ended_although_it_was_suspended() -> None:
    world = World(machine("n", 1))
    world.submit(single("j"))
    world.tell(SuspendRequested(world.now, "j"))
    world.settle()
    world.end("j", Outcome.USER_ERROR, exit_code=1)
    assert (world.state("j"), world.core.jobs["j"].suspended_by) == (JobState.FAILED, "")


def test_one_that_waits_to_be_resumed_is_resumed_once_and_can_be_stopped() -> None:
    world = lost_while_suspended()
    world.submit(single("other"))
    world.tell(ResumeRequested(world.now, "j"))
    world.settle()
    assert world.why("j").cause is Cause.NO_ROOM
    with pytest.raises(ConflictError, match="queued"):
        world.tell(ResumeRequested(world.now, "j"))
    world = lost_while_suspended()
    world.tell(StopRequested(world.now, "j"))
    world.settle()
    assert world.state("j") is JobState.CANCELLED
    check_everything(world.core)
