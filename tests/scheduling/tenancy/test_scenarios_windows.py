"""Hours that come and go: the windows of jobs, and the hours in which a pool lends."""

from __future__ import annotations

from typing import Any

import pytest
from worlds import CARD_MIB, World, asks, elastic, gang, machine, queue, single

from ledgers import check_everything
from millpond.model.decisions import Stop, Suspend, SuspendMode
from millpond.model.errors import ConflictError
from millpond.model.events import (
    Confirmed,
    DurationPredicted,
    JobSubmitted,
    ResumeRequested,
    StopRequested,
    SuspendRequested,
)
from millpond.model.hardware.nodes import Pool
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.model.windows import Window
from millpond.model.workloads import Checkpoint, CheckpointMode, Suspendable

HOUR_S, DAY_S = 3_600.0, 86_400.0
NIGHT = (Window(20 * 60, 8 * 60),)
"""The clock of these worlds starts at midnight, in the night."""
OPENS_S, CLOSES_S = 20 * HOUR_S, 8 * HOUR_S


def place(**fields: Any) -> World:
    fields = {"suspends": True, "turn_s": 0.0, **fields}
    return World(machine("n", 1, swap_mib=CARD_MIB), pools=(Pool(**fields),))


# ---- windows of jobs ----------------------------------------------------------------------------------------------


def test_a_job_waits_for_its_window_and_starts_when_it_opens() -> None:
    world = place()
    world.go_to(CLOSES_S + 1)
    world.submit(single("j", windows=NIGHT))
    reason = world.why("j")
    assert (reason.cause, reason.opens_at) == (Cause.WINDOW_CLOSED, OPENS_S)
    assert reason.start is not None
    assert reason.start.earliest_at == OPENS_S
    assert "20:00-08:00 UTC" in reason.summary
    world.go_to(OPENS_S - 1)
    assert world.state("j") is JobState.QUEUED
    world.go_to(OPENS_S)
    assert world.running() == {"j"}


def test_a_forecast_that_comes_as_its_window_closes_leaves_a_job_in_no_line() -> None:
    world = place()
    world.submit(single("busy"), single("j", windows=NIGHT))
    world.now = CLOSES_S
    world.tell(DurationPredicted(world.now, "j", 60.0, 60.0))
    check_everything(world.core)
    world.end("busy")
    assert world.running() == set()
    world.go_to(OPENS_S)
    assert world.running() == {"j"}


def test_at_the_end_of_its_window_a_job_is_swapped_and_it_goes_on_the_next_day() -> None:
    world = place()
    world.submit(single("j", windows=NIGHT))
    world.go_to(CLOSES_S)
    (suspend,) = world.of_kind(Suspend)
    assert (suspend.mode, suspend.cause) == (SuspendMode.SWAP, Cause.WINDOW_CLOSED)
    assert (world.why("j").cause, world.why("j").opens_at) == (Cause.WINDOW_CLOSED, OPENS_S)
    world.submit(single("day"))
    assert world.running() == {"day"}
    world.end("day")
    world.go_to(OPENS_S)
    assert world.running() == {"j"}
    assert world.core.jobs["j"].attempt == 1
    assert world.core.jobs["j"].service_s(OPENS_S + 5) == CLOSES_S + 5
    check_everything(world.core)


def test_without_host_memory_or_leave_of_the_pool_it_is_ended_with_notice() -> None:
    for fields in ({"suspends": False}, {"memory_factor_milli": 1_000}):
        world = place(**fields)
        world.submit(single("j", windows=NIGHT))
        world.go_to(CLOSES_S)
        assert [(stop.job, stop.cause) for stop in world.of_kind(Stop)] == [("j", Cause.WINDOW_CLOSED)]
        assert world.state("j") is JobState.QUEUED
        assert world.why("j").cause is Cause.WINDOW_CLOSED
        world.go_to(OPENS_S)
        assert world.running() == {"j"}
        assert (world.core.jobs["j"].attempt, world.core.jobs["j"].preemptions) == (2, 0)


@pytest.mark.parametrize(
    "job",
    [
        gang("j", 1, asks(0), windows=NIGHT),
        single("j", windows=NIGHT, suspendable=Suspendable.FREEZE),
    ],
)
def test_a_job_is_frozen_where_that_keeps_no_card_or_is_all_it_allows(job: Any) -> None:
    world = place()
    world.submit(job)
    world.go_to(CLOSES_S)
    assert [suspend.mode for suspend in world.of_kind(Suspend)] == [SuspendMode.FREEZE]


def test_what_cannot_be_suspended_at_the_end_of_its_window_is_ended() -> None:
    world = place()
    world.clinging = {"j"}
    world.submit(single("j", windows=NIGHT))
    world.go_to(CLOSES_S)
    assert [stop.cause for stop in world.of_kind(Stop)] == [Cause.WINDOW_CLOSED]


def test_a_job_that_waits_when_its_window_closes_leaves_its_line() -> None:
    world = place(suspends=False)
    world.submit(single("other"))
    world.submit(single("j", windows=NIGHT))
    assert world.why("j").cause is Cause.NO_ROOM
    world.go_to(CLOSES_S)
    world.end("other")
    assert world.state("j") is JobState.QUEUED
    world.go_to(OPENS_S)
    assert world.running() == {"j"}


def test_people_neither_wake_a_job_out_of_its_hours_nor_are_overruled_by_them() -> None:
    world = place()
    world.submit(single("j", windows=NIGHT))
    world.go_to(CLOSES_S)
    with pytest.raises(ConflictError, match="closed"):
        world.tell(ResumeRequested(world.now, "j"))
    world.tell(SuspendRequested(world.now, "j"))
    world.go_to(OPENS_S + 1)
    assert world.state("j") is JobState.SUSPENDED
    world.tell(ResumeRequested(world.now, "j"))
    world.settle()
    assert world.running() == {"j"}


def test_a_job_ends_and_no_hour_wakes_anybody_any_more() -> None:
    world = place()
    world.submit(single("j", windows=NIGHT))
    world.tell(StopRequested(world.now, "j"))
    world.settle()
    assert world.core.next_wakeup(world.now) is None


def test_a_scheduler_that_is_restored_in_the_night_closes_in_the_morning_all_the_same() -> None:
    world = place()
    world.submit(single("j", windows=NIGHT))
    world.go_to(HOUR_S)
    twin = type(world.core).restore(world.core.snapshot())
    assert twin.next_wakeup(world.now) == CLOSES_S
    assert [type(decision) for decision in twin.decide(CLOSES_S)] == [Suspend]


def test_a_snapshot_is_the_same_after_a_restart_though_a_job_with_a_window_has_ended() -> None:
    world = place()
    world.submit(single("day"))
    for hour in (9, 13, 10, 14, 15, 11, 12):
        world.submit(single(f"at-{hour}", windows=(Window(hour * 60, (hour + 1) * 60),)))
    world.tell(StopRequested(world.now, "at-13"))
    world.settle()
    kept = world.core.snapshot()
    assert type(world.core).restore(kept).snapshot() == kept


# ---- the hours in which a pool lends ------------------------------------------------------------------------------


def lending(**fields: Any) -> World:
    return World(
        machine("n", 2, swap_mib=2 * CARD_MIB),
        pools=(Pool(lending=NIGHT, turn_s=0.0, **fields),),
        queues=[queue("team", guarantee=1), queue("other")],
    )


def test_queues_borrow_only_in_the_hours_in_which_the_pool_lends() -> None:
    world = lending()
    world.go_to(CLOSES_S)
    world.submit(single("a", queue="team"), single("b", queue="team"), single("c", queue="other"))
    assert world.running() == {"a"}
    assert (world.why("b").cause, world.why("c").opens_at) == (Cause.LENDING_OVER, OPENS_S)
    assert world.why("b").summary.startswith("1 GPU more would exceed the guarantee of queue team")
    assert world.why("c").summary.startswith("queue other has no guarantee, and pool")
    for name in ("b", "c"):
        start = world.why(name).start
        assert start is not None
        assert start.unknown == "it starts when its pool lends again, or when the guarantee of its queue covers it"
    world.go_to(OPENS_S)
    assert len(world.running()) == 2


def test_a_queue_that_never_borrows_waits_for_its_own_work_and_for_no_hour() -> None:
    teams = [queue("team", guarantee=1, borrows=False)]
    world = World(machine("n", 2), pools=(Pool(lending=NIGHT, turn_s=0.0),), queues=teams)
    world.go_to(CLOSES_S)
    for name in ("a", "b"):
        world.submit(single(name, queue="team"), lasting=HOUR_S, known=True)
    reason = world.why("b")
    assert reason.summary == "queue team may not borrow, and 1 GPU more would exceed its guarantee"
    assert (reason.cause, reason.opens_at) == (Cause.GUARANTEE_OF_OTHERS, None)
    assert reason.start is not None
    assert reason.start.likely_at == CLOSES_S + HOUR_S


def test_the_youngest_borrowed_work_leaves_when_the_hours_of_lending_end() -> None:
    for suspends, leaves in ((True, Suspend), (False, Stop)):
        world = lending(suspends=suspends)
        world.submit(single("a", queue="team"))
        world.go_to(HOUR_S)
        world.submit(single("b", queue="team"))
        world.go_to(CLOSES_S)
        assert [(each.job, each.cause) for each in world.of_kind(leaves)] == [("b", Cause.LENDING_OVER)]
        assert world.running() == {"a"}
        assert world.why("b").cause is Cause.LENDING_OVER
        world.go_to(OPENS_S)
        assert world.running() == {"a", "b"}
        assert world.core.jobs["b"].preemptions == 0
        check_everything(world.core)


LATE_S = CLOSES_S - HOUR_S
SAVES = Checkpoint(CheckpointMode.SIGNAL)


@pytest.mark.parametrize(
    ("lasting", "suspends", "fields", "starts"),
    [
        (2 * HOUR_S, False, {}, False),
        (0.5 * HOUR_S, False, {}, True),
        (2 * HOUR_S, False, {"checkpoint": SAVES}, True),
        (2 * HOUR_S, True, {}, True),
        (2 * HOUR_S, True, {"suspendable": Suspendable.NEVER}, False),
    ],
)
def test_shortly_before_lending_ends_only_what_can_be_handed_back_comes_in(
    lasting: float, suspends: bool, fields: dict[str, Any], starts: bool
) -> None:
    world = lending(suspends=suspends)
    world.go_to(LATE_S)
    world.submit(single("owned", queue="team"), lasting=2 * HOUR_S, known=True)
    world.submit(single("borrowed", queue="other", **fields), lasting=lasting, known=True)
    assert world.running() == ({"owned", "borrowed"} if starts else {"owned"})
    if not starts:
        reason = world.why("borrowed")
        assert (reason.cause, reason.opens_at) == (Cause.LENDING_OVER, OPENS_S)
        assert reason.start is not None
        assert reason.start.unknown
        world.submit(single("short", queue="other"), lasting=60.0, known=True)
        assert world.state("short") is JobState.RUNNING
        world.go_to(OPENS_S)
        assert world.state("borrowed") is JobState.RUNNING


def test_growth_that_starts_as_lending_ends_is_given_back_once_it_runs() -> None:
    world = lending()
    world.tell(
        JobSubmitted(0.0, elastic("e", (1, 2, 2), asks(1), queue="team", preemptible=False, rest_preemptible=True))
    )
    (start,) = world.tick()
    world.tell(Confirmed(0.0, start.id))
    (growth,) = world.tick()
    world.now = CLOSES_S
    assert world.tick() == []
    world.tell(Confirmed(CLOSES_S, growth.id))
    (stop,) = world.settle()
    assert (stop.cause, len(stop.tasks)) == (Cause.SHRUNK, 1)
    assert len(world.nodes_of("e")) == 1
    check_everything(world.core)


def test_an_elastic_gang_grows_beyond_its_guarantee_only_while_the_pool_lends() -> None:
    world = lending()
    world.go_to(CLOSES_S)
    world.submit(elastic("e", (1, 2, 2), asks(1), queue="team"))
    assert len(world.nodes_of("e")) == 1
    world.go_to(OPENS_S)
    assert len(world.nodes_of("e")) == 2
