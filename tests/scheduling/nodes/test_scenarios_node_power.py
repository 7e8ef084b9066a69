"""Nodes are switched off and on: what may start where, who wakes which node, and what is remembered of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from worlds import World, asks, gang, machine, single

from millpond.model.errors import ConflictError, MillpondError, NotFoundError
from millpond.model.events import (
    NodeClosed,
    NodeJoined,
    NodeLost,
    NodePowerChanged,
    PoolChanged,
    QueueChanged,
    ReservationMade,
    StopRequested,
)
from millpond.model.hardware.node_power import RETRY_S, NodePowerState
from millpond.model.hardware.nodes import Cordon, Pool
from millpond.model.reasons import Cause, Filter, StartEstimate
from millpond.model.resources import Amount
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.tenancy.tenants import Queue
from millpond.scheduling.scheduler import Scheduler

ON, DRAINING, OFF, BOOTING, FAILED = NodePowerState
SILENT = replace(machine("a", 2), schedulable=False, unschedulable_reason="not ready", is_silent=True)


def switch(world: World, node: str, *states: NodePowerState, ready_in_s: float | None = None, detail: str = "") -> None:
    for state in states:
        ready_at = None if ready_in_s is None else world.now + ready_in_s
        world.tell(NodePowerChanged(world.now, node, state, detail, ready_at))
    world.settle()


def gone(world: World, node: str) -> None:
    """The node was switched off, and its engine has lost it."""
    switch(world, node, DRAINING, OFF)
    world.tell(NodeLost(world.now, node))
    world.settle()


def test_a_node_that_is_off_takes_nothing_and_a_job_that_needs_it_says_so_until_it_joins() -> None:
    world = World(machine("a", 2), machine("b", 2))
    gone(world, "b")
    world.submit(single("one", 2))
    assert world.running() == {"one"}
    world.submit(single("two", 2))
    why = world.core.explain("two", world.now)
    assert (why.cause, dict(why.nodes)[Filter.CLOSED]) == (Cause.NODES_OFF, 1)
    assert Filter.UNSCHEDULABLE not in dict(why.nodes)
    assert world.core.power_overview().wanted == {"b": "two"}
    switch(world, "b", BOOTING, ready_in_s=230.0)
    reason = world.core.explain("two", world.now)
    assert (reason.summary, reason.blocked_by) == ("it waits for node b, which is booting, about 4 min", "b")
    assert reason.start == StartEstimate(world.now + 230.0, None, "what boots for it should have joined then")
    world.go_to(world.now + 1_000.0)
    late = world.core.explain("two", world.now).start
    assert late is not None
    assert late.unknown  # it should have joined by now
    assert world.running() == {"one"}  # it has not joined, whatever the clock says
    world.tell(NodeJoined(world.now, machine("b", 2)))
    world.settle()
    assert world.running() == {"one", "two"}
    assert world.view("b").power is None


def test_what_an_engine_says_of_a_node_that_goes_down_says_nothing_about_it_once_it_is_back() -> None:
    world = World(machine("a", 2), machine("b", 2))
    switch(world, "b", DRAINING, OFF)
    for half_down in (machine("b", 0), replace(machine("b", 0), schedulable=False, unschedulable_reason="not ready")):
        world.tell(NodeJoined(world.now, half_down))
    world.tell(NodeLost(world.now, "b"))
    world.submit(gang("wide", 2, asks(2)))
    assert world.core.power_overview().wanted == {"b": "wide"}
    assert len(world.view("b").node.devices) == 2


def test_what_an_engine_said_of_a_node_holds_if_it_could_not_be_switched_off_but_for_its_cordon() -> None:
    world = World(machine("a", 2), machine("b", 2))
    switch(world, "b", DRAINING)
    world.tell(NodeJoined(world.now, replace(machine("b", 1), schedulable=False, unschedulable_reason="cordoned")))
    switch(world, "b", ON, detail="no rights")
    assert (len(world.view("b").node.devices), world.view("b").node.schedulable) == (1, True)
    world.submit(gang("wide", 3, asks(1)))
    assert world.running() == {"wide"}


@pytest.mark.parametrize("states", [(DRAINING,), (DRAINING, OFF)])
def test_a_node_that_fell_silent_takes_nothing_though_its_switch_was_given_up(
    states: tuple[NodePowerState, ...],
) -> None:
    world = World(machine("a", 2))
    switch(world, "a", *states)
    world.tell(NodeJoined(world.now, SILENT))
    switch(world, "a", ON, detail="it was switched off and did not go down")
    world.submit(single("j"))
    assert world.running() == set()
    assert world.view("a").node.unschedulable_reason == "not ready"
    world.tell(NodeLost(world.now, "a"))
    assert world.core.power_overview().wanted == {"a": "j"}


def test_a_node_that_is_off_is_not_on_because_the_next_server_finds_it_listed_and_silent() -> None:
    world = World(machine("a", 2))
    gone(world, "a")
    world.submit(single("j"))
    for event in (NodeJoined(world.now, SILENT), NodeLost(world.now, "a")):
        world.tell(event)
        assert world.core.power_overview().wanted == {"a": "j"}
    switch(world, "a", BOOTING)
    world.tell(NodeJoined(world.now, SILENT))
    assert world.view("a").power is not None
    world.tell(NodeJoined(world.now, machine("a", 2)))
    world.settle()
    assert world.view("a").power is None


@pytest.mark.parametrize("states", [(DRAINING, ON), (DRAINING, OFF, ON)])
def test_a_node_that_goes_down_after_that_was_given_up_is_off_and_is_woken_as_others(
    states: tuple[NodePowerState, ...],
) -> None:
    world = World(machine("a", 2), machine("b", 2))
    switch(world, "b", *states, detail="connection closed by remote host")
    world.go_to(world.now + 600.0)
    world.tell(NodeLost(world.now, "b"))
    world.submit(gang("wide", 2, asks(2)))
    assert world.core.power_overview().wanted == {"b": "wide"}
    assert world.view("b").power is not None
    world.tell(NodeJoined(world.now, machine("b", 2)))
    world.settle()
    assert world.running() == {"wide"}


def test_a_node_that_is_lost_long_after_it_could_not_be_switched_off_is_lost_as_others() -> None:
    world = World(machine("a", 2), machine("b", 2))
    switch(world, "b", DRAINING, ON, detail="no rights")
    world.go_to(world.now + 900.0)
    world.tell(NodeLost(world.now, "b"))
    assert [each.node.name for each in world.core.node_views()] == ["a"]


@pytest.mark.parametrize("detail", ["", "it was switched on and did not join"])
def test_a_node_that_does_not_come_back_is_forgotten_until_it_joins_all_the_same(detail: str) -> None:
    world = World(machine("a", 2), machine("b", 4))
    gone(world, "b")
    switch(world, "b", BOOTING, FAILED, detail=detail)
    world.submit(single("one", 4))
    world.tell(NodeLost(world.now, "b", "ada"))
    world.settle()
    assert [each.node.name for each in world.core.node_views()] == ["a"]
    assert world.core.explain("one", world.now).cause is not Cause.NODES_OFF
    world.tell(NodeJoined(world.now, machine("b", 4)))
    world.settle()
    assert world.running() == {"one"}


def test_a_node_that_is_there_is_not_forgotten() -> None:
    world = World(machine("a", 2))
    for node in ("a", "nobody"):
        with pytest.raises(ConflictError, match="switched off and gone"):
            world.core.handle(NodeLost(world.now, node, "ada"))
    switch(world, "a", DRAINING, OFF)
    with pytest.raises(ConflictError):
        world.core.handle(NodeLost(world.now, "a", "ada"))
    assert world.view("a").power is not None


def test_a_gang_wakes_all_that_it_needs_and_no_more_and_jobs_count_on_no_node_twice() -> None:
    world = World(*(machine(name, 4) for name in "abcde"))
    for name in "bcde":
        gone(world, name)
    world.submit(gang("wide", 3, asks(4)))
    assert set(world.core.power_overview().wanted.values()) == {"wide"}
    assert len(world.core.power_overview().wanted) == 2  # the third of its nodes is on
    world.submit(single("next", 4))
    assert len(world.core.power_overview().wanted) == 3  # one more, whoever goes first


def test_a_job_counts_on_nodes_that_boot_before_others_and_on_those_that_failed_to_last() -> None:
    world = World(*(machine(name, 2) for name in "abcd"))
    world.submit(single("first", 2))
    for name in "bcd":
        gone(world, name)
    switch(world, "b", BOOTING, FAILED)
    world.submit(single("second", 2))
    assert world.core.power_overview().wanted == {"c": "second"}
    switch(world, "d", BOOTING)
    assert world.core.power_overview().wanted == {"d": "second"}
    assert world.core.explain("second", world.now).blocked_by == "d"
    for name in ("third", "fourth"):
        world.submit(single(name, 2))
    assert world.core.power_overview().wanted == {"d": "second", "c": "third", "b": "fourth"}


def test_what_a_limit_keeps_waiting_or_what_fits_on_open_nodes_wakes_nothing() -> None:
    world = World(machine("a", 2), machine("b", 2))
    world.tell(QueueChanged(0.0, Queue("default", limit=Amount(gpu_milli=2_000))))
    gone(world, "b")
    world.submit(single("one", 2))
    world.submit(single("two", 2))
    assert world.core.power_overview().wanted == {}


def test_a_node_that_an_operator_has_closed_is_not_woken_and_stays_closed_when_it_joins() -> None:
    world = World(machine("a", 2), machine("b", 2))
    gone(world, "b")
    world.tell(NodeClosed(world.now, "b", Cordon(world.now, reason="a fan is loud")))
    world.submit(single("one", 2))
    world.submit(single("two", 2))
    assert world.core.power_overview().wanted == {}
    world.tell(NodeJoined(world.now, machine("b", 2)))
    world.settle()
    assert world.running() == {"one"}


def test_a_node_that_closes_too_soon_for_a_job_is_not_woken_for_it_and_the_job_is_told_so() -> None:
    world = World(machine("a", 2), machine("b", 2))
    gone(world, "b")
    begin = world.now + 3_600.0
    world.tell(NodeClosed(world.now, "b", Cordon(begin, begin + 3_600.0, "new fans", planned=True)))
    world.submit(single("one", 2))
    world.submit(single("long", 2, time_limit_s=7_200.0, preemptible=False))
    assert world.core.power_overview().wanted == {}
    reason = world.core.explain("long", world.now)
    assert (reason.cause, reason.summary) == (
        Cause.NODES_CLOSED, "it would fit on b, which closes too soon for it (new fans)"
    )  # fmt: skip
    world.submit(single("short", 2, time_limit_s=600.0, preemptible=False))
    assert world.core.power_overview().wanted == {"b": "short"}
    world.tell(NodeJoined(world.now, machine("b", 2)))
    world.settle()
    assert world.running() == {"one", "short"}


def test_a_node_that_is_cordoned_and_off_says_both() -> None:
    world = World(machine("a", 2))
    gone(world, "a")
    world.tell(NodeClosed(world.now, "a", Cordon(world.now, world.now + 60.0, "a fan is loud")))
    assert world.view("a").closure == Cordon(world.now, world.now + 60.0, "a fan is loud; off to save energy")
    world.tell(NodeClosed(world.now, "a", Cordon(world.now)))
    closure = world.view("a").closure
    assert closure is not None
    assert closure.reason == "cordoned; off to save energy"


def test_a_description_that_comes_late_does_not_bring_a_node_back_that_goes_down() -> None:
    world = World(machine("a", 2))
    switch(world, "a", DRAINING, OFF)
    world.tell(NodeJoined(world.now, machine("a", 2, labels=(("zone", "z"),))))
    world.submit(single("j"))
    assert world.running() == set()
    switch(world, "a", ON, detail="it was switched off and did not go down")
    assert world.running() == {"j"}
    assert world.view("a").power is not None


def test_a_node_that_its_engine_saw_drained_as_it_went_down_is_woken_all_the_same() -> None:
    world = World(machine("a", 2))
    switch(world, "a", DRAINING)
    world.tell(NodeJoined(world.now, machine("a", 2, schedulable=False, unschedulable_reason="not ready")))
    switch(world, "a", OFF)
    world.tell(NodeLost(world.now, "a"))
    world.submit(single("j"))
    assert world.core.power_overview().wanted == {"a": "j"}


@pytest.mark.parametrize(
    ("before", "state", "error"),
    [
        ((), OFF, ConflictError),
        ((), BOOTING, ConflictError),
        ((DRAINING,), BOOTING, ConflictError),
        ((DRAINING, OFF), FAILED, ConflictError),
        ((DRAINING, OFF, BOOTING), OFF, ConflictError),
    ],
)
def test_a_step_that_does_not_follow_is_refused(
    before: tuple[NodePowerState, ...], state: NodePowerState, error: type[MillpondError]
) -> None:
    world = World(machine("a", 2))
    switch(world, "a", *before)
    with pytest.raises(error):
        world.core.handle(NodePowerChanged(world.now, "a", state))
    with pytest.raises(NotFoundError):
        world.core.handle(NodePowerChanged(world.now, "z", DRAINING))


def test_a_node_with_work_is_not_switched_off() -> None:
    world = World(machine("a", 2))
    world.submit(single("j"))
    with pytest.raises(ConflictError, match="has work"):
        world.core.handle(NodePowerChanged(world.now, "a", DRAINING))
    assert world.view("a").closure is None


def test_a_snapshot_keeps_what_is_off_and_a_replay_comes_to_the_same() -> None:
    world = World(machine("a", 2), machine("b", 2))
    gone(world, "b")
    switch(world, "b", BOOTING, FAILED, detail="no answer")
    world.submit(single("one", 2))
    world.submit(single("two", 2))
    plain = json.loads(json.dumps(world.core.snapshot()))
    again = Scheduler.restore(plain)
    assert again.snapshot() == world.core.snapshot()
    assert again.power_overview().wanted == world.core.power_overview().wanted == {"b": "two"}
    assert again.fork().power_overview().wanted == {"b": "two"}
    why = "it waits for node b, which is off after a failed boot, not tried again for about 15 min: no answer"
    assert again.explain("two", world.now).summary == why
    assert again.explain("two", world.now + RETRY_S).summary.endswith("which is off after a failed boot: no answer")


def test_a_job_waits_for_no_more_nodes_that_failed_to_boot_than_it_needs_beside_those_that_are_on() -> None:
    world = World(*(machine(name, 2) for name in "abcd"))
    for node in "bcd":
        gone(world, node)
        switch(world, node, BOOTING, FAILED, detail="no answer")
    world.submit(gang("two", 2, asks(2)), gang("three", 3, asks(2)))
    assert world.why("two").summary.startswith("it waits for node b, which is off")
    world.tell(StopRequested(world.now, "two"))
    assert world.why("three").summary.startswith("it waits for nodes b and c, which are off")


def reserved_of_two(*, off: bool) -> World:
    """Two cards of four are reserved; on two others is work that stays, and the reserved node may be off."""
    world = World(machine("a", 2), machine("b", 2), queues=(Queue("vision", guarantee=Amount(4_000)),))
    world.submit(single("stays", 2, queue="vision", preemptible=False))
    if off:
        gone(world, "b")
    world.tell(ReservationMade(world.now, AdvanceReservation("demo", "vision", 2, 2_000.0, 9_000.0)))
    world.submit(single("tied", 2, queue="vision", reservation="demo"))
    return world


def test_a_node_that_is_off_is_woken_before_a_reservation_on_it_begins() -> None:
    world = reserved_of_two(off=True)
    assert world.nodes_of("stays") == ["a"]
    assert world.core.power_overview().wanted == {}
    world.go_to(1_200.0)
    assert world.core.power_overview().wanted == {"b": "reservation demo"}
    switch(world, "b", BOOTING, ready_in_s=300.0)
    world.go_to(1_500.0)
    world.tell(NodeJoined(world.now, machine("b", 2)))
    world.go_to(2_000.0)
    assert world.running() == {"stays", "tied"}


@pytest.mark.parametrize("boot_s", [60.0, 1_500.0])
def test_a_node_is_woken_for_a_reservation_as_long_before_as_one_of_its_pool_may_boot(boot_s: float) -> None:
    world = reserved_of_two(off=True)
    world.tell(PoolChanged(world.now, Pool(longest_boot_s=boot_s)))
    world.go_to(2_000.0 - boot_s - 1.0)
    assert world.core.power_overview().wanted == {}
    world.go_to(2_000.0 - boot_s)
    assert world.core.power_overview().wanted == {"b": "reservation demo"}


def test_an_idle_node_stays_on_for_a_reservation_that_begins_soon() -> None:
    world = reserved_of_two(off=False)
    world.go_to(1_000.0)
    assert [each.is_empty for each in world.core.power_overview().nodes] == [False, True]
    world.go_to(1_200.0)
    assert [each.is_empty for each in world.core.power_overview().nodes] == [False, False]


@pytest.mark.parametrize("fails", [False, True])
def test_a_reservation_has_nodes_that_are_on_before_those_that_will_not_be_on_in_time(fails: bool) -> None:
    world = World(machine("a", 2), machine("b", 2), queues=(Queue("vision", guarantee=Amount(4_000)),))
    gone(world, "b")
    if fails:
        switch(world, "b", BOOTING, FAILED, detail="no answer")
    world.submit(single("other", 2, queue="vision"))
    begin = 3_000.0 if fails else 600.0
    world.tell(ReservationMade(world.now, AdvanceReservation("demo", "vision", 2, begin, 9_000.0)))
    world.submit(single("tied", 2, queue="vision", reservation="demo"))
    world.go_to(begin)
    assert (world.running(), world.nodes_of("tied")) == ({"tied"}, ["a"])


def test_a_burst_of_small_jobs_wakes_all_the_nodes_that_it_needs_at_once() -> None:
    """More jobs than nodes are searched for: most of them fit on what the first ones woke."""
    world = World(*(machine(name, 8) for name in map("n{:02}".format, range(15))))
    for number in range(15):
        gone(world, f"n{number:02}")
    for number in range(100):
        world.submit(single(f"j{number:03}", 1))
    assert len(world.core.power_overview().wanted) == 13
