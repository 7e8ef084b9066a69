"""When running gangs grow: after those that wait and go before them, before their equals."""

from __future__ import annotations

from worlds import World, asks, elastic, machine, queue, single

from ledgers import check_everything
from millpond.model.decisions import Stop
from millpond.model.events import DesiredCountChanged
from millpond.model.hardware.nodes import Pool
from millpond.model.workloads import Priority
from millpond.scheduling.settings import Settings

UNRESERVED = Settings("edf", reserve=False)
"""Nothing is reserved for those that wait."""


def crowd(world: World, *, priority: Priority = Priority.NORMAL, **fields: str) -> None:
    """Of four cards a job has three until 50, and an elastic gang that would like three has one."""
    world.submit(single("x", 3, minimum_run_s=10_000.0), lasting=50)
    world.submit(elastic("e", (1, 3, 3), asks(1), minimum_run_s=10_000.0, priority=priority, **fields))
    assert len(world.nodes_of("e")) == 1


def test_a_waiting_job_of_a_higher_class_takes_the_room_before_a_gang_grows_into_it() -> None:
    world = World(machine("n", 4), settings=UNRESERVED)
    crowd(world, priority=Priority.LOW)
    world.submit(single("urgent", 3), lasting=100)
    world.go_to(50)
    assert world.running() == {"e", "urgent"}
    assert len(world.nodes_of("e")) == 1
    world.go_to(150)
    assert len(world.nodes_of("e")) == 3


def test_a_gang_takes_what_a_waiting_job_of_a_higher_class_leaves_over() -> None:
    world = World(machine("n", 4), settings=UNRESERVED)
    crowd(world, priority=Priority.LOW)
    world.submit(single("urgent", 2))
    world.go_to(50)
    assert world.running() == {"e", "urgent"}
    assert len(world.nodes_of("e")) == 2


def test_a_waiting_job_within_its_guarantee_goes_before_the_growth_of_a_gang_that_borrows() -> None:
    world = World(machine("n", 4), queues=[queue("team", guarantee=3), queue("other")], settings=UNRESERVED)
    crowd(world, queue="other")
    world.submit(single("entitled", 3, queue="team"))
    world.go_to(50)
    assert world.running() == {"e", "entitled"}


def test_a_stream_of_its_equals_does_not_keep_a_gang_from_growing() -> None:
    world = World(machine("n", 4), settings=UNRESERVED)
    crowd(world)
    for step in range(5):
        world.submit(single(f"s{step}"), lasting=30, known=True)
        world.go_to(world.now + 12)
    assert len(world.nodes_of("e")) == 3


def test_a_gang_grows_although_nobody_who_waits_can_start() -> None:
    world = World(machine("n", 4), settings=UNRESERVED)
    crowd(world, priority=Priority.LOW)
    world.submit(single("blocked", 4))
    world.go_to(50)
    assert len(world.nodes_of("e")) == 3


def test_behind_a_blocked_head_that_nobody_may_overtake_no_gang_grows() -> None:
    world = World(machine("n", 4), machine("m", 4, pool="other"), pools=[Pool("other")], settings=Settings("fifo"))
    crowd(world, priority=Priority.LOW)
    world.submit(elastic("free", (1, 2, 2), asks(2), pool="other"))
    world.submit(single("blocked", 4))
    world.go_to(50)
    assert len(world.nodes_of("e")) == 1
    assert len(world.nodes_of("free")) == 2


def test_a_gang_grows_in_the_cycle_in_which_others_are_asked_to_leave() -> None:
    world = World(machine("n", 4), machine("m", 2, pool="other"), pools=[Pool("other")])
    crowd(world)
    world.submit(single("low", 2, pool="other", priority=Priority.LOW))
    world.go_to(49)
    world.lingering = {"low"}
    world.submit(single("urgent", 2, pool="other", priority=Priority.HIGH))
    world.go_to(51)
    assert [stop.job for stop in world.of_kind(Stop)] == ["low"]
    assert len(world.nodes_of("e")) == 3
    world.leave("low")
    assert world.running() == {"e", "urgent"}
    check_everything(world.core)


def test_room_that_is_kept_for_a_job_is_kept_from_the_growth_of_a_lower_class() -> None:
    for priority, size in ((Priority.LOW, 2), (Priority.NORMAL, 3)):
        world = World(machine("n", 4), settings=Settings("edf"))
        world.submit(single("x", 1, preemptible=False), lasting=50, known=True)
        world.submit(single("y", 1, preemptible=False), lasting=100, known=True)
        world.submit(elastic("e", (1, 2, 3), asks(1), preemptible=False, priority=priority))
        world.submit(single("kept", 2, deadline_s=1.0, preemptible=False))
        world.tell(DesiredCountChanged(world.now, "e", "worker", 3))
        world.go_to(60)
        assert len(world.nodes_of("e")) == size
