"""People close nodes, empty them, and plan to: what starts there, what leaves, and when they are open again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from worlds import World, asks, elastic, gang, machine, queue, single

from millpond.model.decisions import Start, Stop
from millpond.model.errors import ConflictError, InvalidInputError, NotFoundError
from millpond.model.events import (
    CardClosed,
    Confirmed,
    JobSubmitted,
    NodeClosed,
    NodeJoined,
    NodeLost,
    NodeOpened,
    PolicyChanged,
    StopRequested,
    SuspendRequested,
)
from millpond.model.hardware.nodes import Cordon
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.model.workloads import Checkpoint, CheckpointMode, GangRule, Priority
from millpond.scheduling.scheduler import Scheduler


def close(world: World, node: str, until: float | None = None, **fields: Any) -> None:
    """The node takes nothing new from now on."""
    world.tell(NodeClosed(world.now, node, Cordon(world.now, until, **fields)))
    world.settle()


def plan(world: World, node: str, begin: float, until: float | None, **fields: Any) -> None:
    """The node will be emptied and closed for a while."""
    closure = Cordon(begin, until, drain=True, planned=True, **fields)
    world.tell(NodeClosed(world.now, node, closure))
    world.settle()


def open_again(world: World, node: str, **fields: Any) -> None:
    world.tell(NodeOpened(world.now, node, **fields))
    world.settle()


# ---- closing and opening ----------------------------------------------------------------------------------------


def test_nothing_starts_on_a_closed_node_and_what_runs_there_goes_on() -> None:
    world = World(machine("a", 2))
    world.submit(single("old"))
    close(world, "a", reason="new disks")
    world.submit(single("new"))
    assert world.running() == {"old"}
    assert world.of_kind(Stop) == []
    open_again(world, "a")
    assert world.running() == {"old", "new"}


def test_a_closed_node_opens_by_itself_when_its_time_is_over() -> None:
    world = World(machine("a", 1))
    close(world, "a", until=500.0)
    world.submit(single("j"))
    world.go_to(499.0)
    assert world.running() == set()
    world.go_to(501.0)
    assert world.running() == {"j"}
    assert world.core.jobs["j"].first_started_at == 500.0
    assert world.view("a").closure is None


@pytest.mark.parametrize("again", ["the same", "after it was lost", "with other cards"])
def test_a_node_that_reports_again_stays_closed(again: str) -> None:
    world = World(machine("a", 1))
    close(world, "a", until=500.0, reason="new disks")
    if again == "after it was lost":
        world.tell(NodeLost(world.now, "a"))
    fresh = machine("a2", 1).devices if again == "with other cards" else machine("a", 1).devices
    world.tell(NodeJoined(world.now, replace(machine("a", 1, memory_mib=128_000), devices=fresh)))
    world.submit(single("j"))
    assert world.running() == set()
    world.go_to(501.0)
    assert world.running() == {"j"}


def test_closing_a_node_again_replaces_the_first_closure() -> None:
    world = World(machine("a", 1))
    close(world, "a", until=5_000.0)
    close(world, "a", until=100.0)
    world.submit(single("j"))
    world.go_to(101.0)
    assert world.running() == {"j"}


def test_a_short_closure_within_a_planned_one_does_not_open_the_node() -> None:
    world = World(machine("a", 1))
    plan(world, "a", 100.0, 1_000.0)
    world.go_to(200.0)
    close(world, "a", until=300.0)
    world.submit(single("j"))
    world.go_to(400.0)
    assert world.running() == set()
    world.go_to(1_001.0)
    assert world.running() == {"j"}


def test_a_restored_scheduler_keeps_nodes_closed_and_what_is_planned() -> None:
    world = World(machine("a", 1), machine("b", 1))
    close(world, "a", until=500.0, reason="new disks", by="ada")
    plan(world, "b", 100.0, 400.0, reason="new cables")
    stored = json.loads(json.dumps(world.core.snapshot()))
    twin = Scheduler.restore(stored)
    assert twin.node_views() == world.core.node_views()
    assert twin.next_wakeup(0.0) == world.core.next_wakeup(0.0) == 100.0
    world.tell(JobSubmitted(world.now, single("j", time_limit_s=300.0)))
    twin.handle(world.log[-1])
    for instant in (0.0, 100.0, 399.0, 400.0):
        world.now = instant
        assert twin.decide(instant) == world.tick()
    assert [start.placements[0].node for start in world.of_kind(Start)] == ["b"]


def test_other_policies_leave_nodes_closed() -> None:
    world = World(machine("a", 1), machine("b", 1))
    close(world, "a", until=500.0)
    plan(world, "b", 100.0, 400.0)
    world.tell(PolicyChanged(world.now, "edf", "best-fit", preempt=False, reserve=True))
    world.submit(single("j", time_limit_s=300.0))
    assert world.running() == set()
    world.go_to(401.0)
    assert world.nodes_of("j") == ["b"]


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (NodeClosed(50.0, "z", Cordon(50.0)), NotFoundError),
        (NodeClosed(50.0, "a", Cordon(50.0, until=50.0)), InvalidInputError),
        (NodeClosed(50.0, "a", Cordon(90.0, until=80.0, planned=True)), InvalidInputError),
        (NodeClosed(50.0, "a", Cordon(90.0)), InvalidInputError),
        (NodeOpened(50.0, "z"), NotFoundError),
        (NodeOpened(50.0, "a"), ConflictError),
        (NodeOpened(50.0, "b"), ConflictError),
    ],
    ids=["unknown", "no time", "ends before it begins", "later and not planned", "unknown", "open", "planned only"],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(event: Any, error: type[Exception]) -> None:
    world = World(machine("a", 1), machine("b", 1))
    plan(world, "b", 100.0, 200.0)
    before = world.core.snapshot() | {"now": 0}
    with pytest.raises(error):
        world.core.handle(event)
    assert world.core.snapshot() | {"now": 0} == before


@pytest.mark.parametrize(
    ("cordon", "why"),
    [
        (Cordon(90.0, until=80.0, planned=True), "to be opened before it is closed; name an end behind the begin"),
        (Cordon(10.0, until=40.0, planned=True), "in a span that is over; name an end in the future"),
    ],
    ids=["ends before it begins", "is over"],
)
def test_a_span_that_makes_no_sense_is_refused_with_what_is_wrong_with_it(cordon: Cordon, why: str) -> None:
    world = World(machine("a", 1))
    world.go_to(50.0)
    with pytest.raises(InvalidInputError) as refused:
        world.core.handle(NodeClosed(50.0, "a", cordon))
    assert f"{refused.value.cause}; {refused.value.remedy}".endswith(why)


def test_what_is_planned_can_be_given_up() -> None:
    world = World(machine("a", 1))
    plan(world, "a", 100.0, 200.0)
    open_again(world, "a", planned=True)
    world.submit(single("j", time_limit_s=1_000.0))
    assert world.running() == {"j"}
    world.go_to(150.0)
    assert world.view("a").closure is None


# ---- emptying ---------------------------------------------------------------------------------------------------


def test_work_leaves_a_drained_node_with_notice_and_runs_again_elsewhere_at_no_charge() -> None:
    world = World(machine("a", 1))
    world.lingering = {"j"}
    job = single("j", minimum_run_s=1e6, preemption_budget=0, checkpoint=Checkpoint(grace_s=77.0))
    world.submit(job)
    world.tell(NodeJoined(world.now, machine("b", 1)))
    close(world, "a", reason="new disks", drain=True)
    (stop,) = world.of_kind(Stop)
    assert (stop.job, stop.cause, stop.grace_s, stop.for_job) == ("j", Cause.DRAINED, 77.0, "")
    assert world.view("a").jobs == ("j",)
    world.leave("j")
    assert world.nodes_of("j") == ["b"]
    record = world.core.jobs["j"]
    assert (record.preemptions, record.failures, record.attempt) == (0, 0, 2)
    assert world.view("a").jobs == ()


def test_work_that_may_not_be_ended_stays_on_a_drained_node_which_says_so() -> None:
    world = World(machine("a", 2))
    world.submit(single("stays", preemptible=False), single("leaves"))
    close(world, "a", drain=True)
    assert world.running() == {"stays"}
    seen = world.view("a")
    assert seen.draining
    assert seen.jobs == ("stays",)
    world.end("stays")
    assert world.view("a").jobs == ()


def test_draining_a_closed_node_empties_it() -> None:
    world = World(machine("a", 1))
    world.submit(single("j"))
    close(world, "a")
    close(world, "a", drain=True)
    assert world.state("j") is JobState.QUEUED


@pytest.mark.parametrize(
    "job",
    [
        elastic("g", (1, 2, 2), asks(1)),
        gang("g", 2, asks(1), gang_rule=GangRule.RESTART_TASK),
    ],
    ids=["elastic", "restarts its tasks"],
)
def test_a_gang_that_can_do_without_leaves_in_part_and_is_whole_again_elsewhere(job: Any) -> None:
    world = World(machine("a", 1), machine("b", 1))
    world.submit(job)
    close(world, "a", drain=True)
    (stop,) = world.of_kind(Stop)
    assert len(stop.tasks) == 1
    assert world.nodes_of("g") == ["b"]
    world.tell(NodeJoined(world.now, machine("c", 1)))
    world.settle()
    assert sorted(world.nodes_of("g")) == ["b", "c"]
    assert world.core.jobs["g"].attempt == 1


@pytest.mark.parametrize("card", ["", "a-0"])
def test_what_a_gang_has_beyond_a_minimum_that_stays_leaves_though_it_started_as_the_drain_began(
    card: str,
) -> None:
    world = World(machine("b", 1), machine("a", 1), queues=[queue("team", guarantee=1)])
    job = elastic("g", (1, 2, 2), asks(1), queue="team", preemptible=False, rest_preemptible=True)
    world.tell(JobSubmitted(world.now, job))
    (start,) = world.tick()
    world.tell(Confirmed(world.now, start.id))
    (growth,) = world.tick()
    drain = Cordon(world.now, drain=True)
    world.tell(CardClosed(world.now, "a", card, drain) if card else NodeClosed(world.now, "a", drain))
    assert world.tick() == []
    world.tell(Confirmed(world.now, growth.id))
    world.settle()
    (stop,) = world.of_kind(Stop)
    assert (stop.cause, len(stop.tasks)) == (Cause.DRAINED, 1)
    assert world.nodes_of("g") == ["b"]


def test_a_rigid_gang_leaves_as_a_whole() -> None:
    world = World(machine("a", 1), machine("b", 1))
    world.submit(gang("g", 2, asks(1)))
    close(world, "a", drain=True)
    assert world.nodes_of("g") == []
    assert world.of_kind(Stop)[0].tasks == ()


def test_suspended_work_leaves_a_drained_node_too() -> None:
    world = World(machine("a", 1))
    world.submit(single("j"))
    world.tell(SuspendRequested(world.now, "j"))
    world.settle()
    close(world, "a", drain=True)
    assert world.state("j") is JobState.QUEUED


def test_room_that_is_being_made_on_a_node_that_closes_is_not_waited_for() -> None:
    world = World(machine("a", 1))
    world.lingering = {"low"}
    world.submit(single("low", priority=Priority.LOW))
    world.submit(single("high", priority=Priority.HIGH))
    assert world.why("high").cause is Cause.ROOM_BEING_MADE
    close(world, "a", reason="smoke")
    assert world.why("high").cause is Cause.NO_ROOM
    world.tell(NodeJoined(world.now, machine("b", 1)))
    world.settle()
    assert world.nodes_of("high") == ["b"]


# ---- planned for later ------------------------------------------------------------------------------------------

SAVES = Checkpoint(CheckpointMode.SIGNAL)
BEFORE_A_WINDOW = [
    ("known to end before", single("j"), 99.0, True),
    ("known to run into it", single("j"), 101.0, False),
    ("known to run into it, saves itself when asked", single("j", checkpoint=SAVES), 101.0, True),
    ("saves itself but may not be ended", single("j", checkpoint=SAVES, preemptible=False), 101.0, False),
    ("its time limit ends before", single("j", time_limit_s=99.0, preemptible=False), None, True),
    ("may last beyond what is expected", single("j", time_limit_s=101.0, preemptible=False), 50.0, False),
    ("of unknown length", single("j"), None, True),
    ("of unknown length, may not be ended", single("j", preemptible=False), None, False),
]


@pytest.mark.parametrize(
    ("what", "job", "known", "starts"), BEFORE_A_WINDOW, ids=[row[0].replace(" ", "-") for row in BEFORE_A_WINDOW]
)
def test_what_starts_on_a_node_before_it_will_be_closed(what: str, job: Any, known: float | None, starts: bool) -> None:
    world = World(machine("a", 1))
    plan(world, "a", 100.0, 400.0)
    world.submit(job, lasting=known, known=True)
    assert (world.running() == {"j"}) is starts
    world.go_to(150.0)
    assert world.running() == set()
    world.go_to(401.0)
    starts_after = not starts or job.checkpoint is SAVES or known is None is job.time_limit_s
    assert world.running() == ({"j"} if starts_after else set())


def test_a_long_job_at_the_head_of_its_line_does_not_hold_up_short_ones_before_a_window() -> None:
    world = World(machine("a", 2))
    plan(world, "a", 100.0, 400.0)
    plan(world, "a", 1_000.0, 1_400.0)
    world.submit(single("long", 1, time_limit_s=900.0), single("short", 1, time_limit_s=50.0))
    assert world.running() == {"short"}


def test_jobs_of_one_line_start_before_the_windows_they_end_before() -> None:
    """Three nodes that close one after the other; the first of the line runs into all of them."""
    world = World(machine("a", 1), machine("b", 1), machine("c", 1))
    for name, begin in (("a", 100.0), ("b", 200.0), ("c", 300.0)):
        plan(world, name, begin, 1_000.0)
    jobs = [single(f"j{limit:.0f}", time_limit_s=limit) for limit in (500.0, 250.0, 150.0, 50.0)]
    world.submit(*jobs)
    assert {job.id: world.nodes_of(job.id) for job in jobs} == {"j500": [], "j250": ["c"], "j150": ["b"], "j50": ["a"]}


def test_growing_work_does_not_grow_into_a_window() -> None:
    world = World(machine("a", 1))
    world.submit(elastic("g", (1, 2, 2), asks(1), time_limit_s=500.0))
    world.tell(NodeJoined(world.now, machine("b", 1)))
    world.tell(NodeClosed(world.now, "b", Cordon(100.0, 200.0, drain=True, planned=True)))
    world.settle()
    assert world.nodes_of("g") == ["a"]
    world.go_to(201.0)
    assert sorted(world.nodes_of("g")) == ["a", "b"]


def test_a_window_empties_the_node_when_it_begins() -> None:
    world = World(machine("a", 2))
    world.submit(single("leaves"), single("stays", preemptible=False))
    plan(world, "a", 100.0, 400.0, reason="new disks")
    assert world.running() == {"leaves", "stays"}
    world.go_to(100.0)
    assert world.running() == {"stays"}
    assert [(stop.job, stop.cause) for stop in world.of_kind(Stop)] == [("leaves", Cause.DRAINED)]


# ---- why and when -----------------------------------------------------------------------------------------------


def test_a_job_that_waits_for_closed_nodes_is_told_which_why_and_until_when() -> None:
    world = World(machine("a", 4), machine("b", 4), machine("c", 1))
    close(world, "a", until=900.0, reason="new disks")
    close(world, "b", until=500.0, reason="new cables")
    world.submit(single("j", 4))
    reason = world.why("j")
    assert reason.cause is Cause.NODES_CLOSED
    assert reason.summary == "it would fit on b, which is closed (new cables)"
    assert (reason.opens_at, reason.blocked_by) == (500.0, "b")
    assert {word.value: count for word, count in reason.nodes} == {"closed": 2, "device-count": 1}
    assert reason.start is not None
    assert (reason.start.earliest_at, reason.start.latest_at) == (500.0, 500.0)


def test_a_gang_is_told_of_all_the_closed_nodes_it_needs() -> None:
    world = World(*(machine(f"n{number}", 1) for number in range(5)))
    for number in range(4):
        close(world, f"n{number}", until=100.0 * (number + 1) if number else None, reason="new disks")
    world.submit(gang("g", 4, asks(1)))
    assert world.why("g").summary == "it would fit on n1, n2 and n3, which are closed (new disks)"
    assert world.why("g").opens_at == 400.0
    world.tell(StopRequested(world.now, "g"))
    world.submit(gang("h", 5, asks(1)))
    assert world.why("h").summary == "it would fit on n1, n2, n3 and 1 more, which are closed (new disks)"
    assert world.why("h").opens_at is None


def test_a_job_that_closed_nodes_would_not_help_is_told_what_is_missing() -> None:
    world = World(machine("a", 4), machine("b", 4))
    world.submit(single("x", 4), single("y", 4))
    close(world, "a", until=500.0)
    world.submit(single("j", 4))
    reason = world.why("j")
    assert reason.cause is Cause.NO_ROOM
    assert dict(reason.nodes) == {"closed": 1, "device-compute": 1}


def test_a_job_that_would_run_into_a_window_is_told_so_and_starts_behind_it() -> None:
    world = World(machine("a", 4), machine("b", 4))
    plan(world, "a", 100.0, 400.0, reason="new disks")
    world.submit(single("x", 4), lasting=10_000.0, known=True)
    world.submit(single("j", 4), lasting=600.0, known=True)
    reason = world.why("j")
    assert reason.cause is Cause.NODES_CLOSED
    assert reason.summary == "it would fit on a, which closes too soon for it (new disks)"
    assert reason.opens_at == 400.0
    assert {word.value: count for word, count in reason.nodes} == {"closes-too-soon": 1, "device-compute": 1}
    assert reason.start is not None
    assert reason.start.earliest_at == 400.0
    world.go_to(401.0)
    assert world.core.jobs["j"].first_started_at == 400.0


def test_an_estimate_expects_work_to_leave_when_its_node_is_emptied() -> None:
    world = World(machine("a", 1))
    world.submit(single("x"), lasting=1_000.0, known=True)
    plan(world, "a", 100.0, 400.0)
    world.submit(single("j"))
    start = world.why("j").start
    assert start is not None
    assert start.earliest_at == 400.0


def test_a_reservation_counts_closed_nodes_from_when_they_open() -> None:
    """A gang waits for a closed node; what ends before it opens may use the other node meanwhile, the rest not."""
    world = World(machine("a", 1), machine("b", 1))
    close(world, "a", until=500.0)
    world.submit(gang("g", 2, asks(1)))
    kept = world.core._claims.reservations["default"]
    assert (kept.job, kept.at, len(kept.nodes)) == ("g", 500.0, 2)
    world.submit(single("long"), lasting=600.0, known=True)
    assert world.why("long").cause is Cause.RESERVED
    world.submit(single("short"), lasting=400.0, known=True)
    assert world.running() == {"short"}
    world.go_to(501.0)
    assert world.running() == {"g"}


def test_a_reservation_counts_a_node_before_its_window_only_for_what_ends_before() -> None:
    def reserved_at(length_s: float) -> float:
        world = World(machine("a", 1))
        world.submit(single("x"), lasting=100.0, known=True)
        plan(world, "a", 300.0, 700.0)
        world.submit(single("j"), lasting=length_s, known=True)
        return world.core._claims.reservations["default"].at

    assert reserved_at(150.0) == 100.0
    assert reserved_at(250.0) == 700.0
