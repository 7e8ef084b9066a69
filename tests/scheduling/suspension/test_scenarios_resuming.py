"""Services that rest on host memory, and suspended work that is wanted back on cards that others use meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from worlds import CARD_MIB, World, machine, single

from ledgers import check_everything
from millpond.model.decisions import Resume, Start, Stop, Suspend, SuspendMode
from millpond.model.errors import ConflictError
from millpond.model.events import DesiredCountChanged, Ended, NodeJoined, Refused, ResumeRequested, SuspendRequested
from millpond.model.hardware.nodes import Pool
from millpond.model.reasons import Cause
from millpond.model.sharing import ShareClass
from millpond.model.states import JobState, Outcome
from millpond.model.workloads import Job, Kind, Priority, Suspendable
from millpond.scheduling.elastic import growth


def place(**fields: Any) -> World:
    fields = {"suspends": True, "turn_s": 0.0, **fields}
    return World(machine("n", 1, swap_mib=2 * CARD_MIB), pools=(Pool(**fields),))


def service(**fields: Any) -> Job:
    return single("s", kind=Kind.SERVICE, share_class=ShareClass.ONLINE, **fields)


def backfill(**fields: Any) -> Job:
    return single("b", share_class=ShareClass.BACKFILL, **fields)


def wish(world: World, replicas: int, *, swap: bool = True) -> None:
    world.tell(DesiredCountChanged(world.now, "s", "worker", replicas, "it is quiet", swap))
    world.settle()


def test_a_quiet_service_gives_its_card_to_backfill_and_takes_it_back_with_the_first_request() -> None:
    world = place()
    world.submit(service())
    world.submit(backfill())
    assert world.running() == {"s"}
    wish(world, 0)
    assert [(each.job, each.mode, each.cause) for each in world.of_kind(Suspend)] == [
        ("s", SuspendMode.SWAP, Cause.SCALED_TO_ZERO)
    ]
    assert world.running() == {"b"}
    assert world.why("s").cause is Cause.SCALED_TO_ZERO
    world.go_to(1_000_000)
    assert world.state("s") is JobState.SUSPENDED
    wish(world, 1)
    assert world.running() == {"s"}
    assert world.state("b") is JobState.SUSPENDED
    assert (world.core.jobs["s"].attempt, world.core.jobs["b"].attempt) == (1, 1)
    assert not world.of_kind(Stop)
    check_everything(world.core)
    wish(world, 0)
    assert world.running() == {"b"}


def test_nobody_takes_the_place_of_a_service_that_is_coming_back() -> None:
    world = place()
    world.submit(service())
    wish(world, 0)
    world.submit(backfill())
    world.slow = {"b"}
    wish(world, 1)
    world.submit(single("x"))
    twin = world.core.fork()
    assert world.running() == set()
    world.leave_devices("b")
    assert world.running() == {"s"}
    assert "s" in twin._claims.by_job


def test_a_service_that_cannot_be_swapped_ends_and_starts_anew() -> None:
    for clinging, fields in ((set(), {"suspendable": Suspendable.NEVER}), ({"s"}, {})):
        world = place()
        world.clinging = clinging
        world.submit(service(**fields))
        wish(world, 0)
        assert [stop.cause for stop in world.of_kind(Stop)] == [Cause.SCALED_TO_ZERO]
        assert world.state("s") is JobState.QUEUED
        wish(world, 1)
        assert world.core.jobs["s"].attempt == 2


def test_a_service_that_does_not_come_back_starts_anew() -> None:
    world = place()
    world.submit(service())
    wish(world, 0)
    world.tell(DesiredCountChanged(world.now, "s", "worker", 1))
    (resume,) = world.tick()
    assert isinstance(resume, Resume)
    world.tell(Refused(world.now, resume.id, "its memory is gone"))
    world.settle()
    assert world.running() == {"s"}
    assert len(world.of_kind(Start, "s")) == 2


def test_people_do_not_wake_a_service_that_nobody_wants() -> None:
    world = place()
    world.submit(service())
    wish(world, 0)
    for event in (ResumeRequested(world.now, "s"), SuspendRequested(world.now, "s")):
        with pytest.raises(ConflictError):
            world.tell(event)


@pytest.mark.parametrize(
    ("other", "leaves"),
    [
        (single("b", priority=Priority.LOW), True),
        (single("b", share_class=ShareClass.BACKFILL), True),
        (single("b"), False),
        (single("b", share_class=ShareClass.BACKFILL, preemptible=False), False),
        (single("b", share_class=ShareClass.BACKFILL, priority=Priority.HIGH), False),
    ],
)
def test_suspended_work_takes_its_cards_back_from_those_that_rank_below_it(other: Job, leaves: bool) -> None:
    world = place()
    world.submit(single("a"))
    world.tell(SuspendRequested(world.now, "a", swap=True))
    world.settle()
    world.submit(other)
    assert world.running() == {"b"}
    world.tell(ResumeRequested(world.now, "a"))
    world.settle()
    assert world.running() == ({"a"} if leaves else {"b"})
    check_everything(world.core)


def crowd(monkeypatch: pytest.MonkeyPatch, most: int) -> World:
    """Six jobs that left their cards for a gang, which has just ended, and one that has waited since they left."""
    monkeypatch.setattr(growth, "RESUMED_PER_CYCLE", most)
    world = World(machine("n", 6, swap_mib=12 * CARD_MIB), pools=(Pool(suspends=True, turn_s=0.0),))
    world.submit(*(single(f"j{number}", suspendable=Suspendable.SWAP) for number in range(6)))
    world.submit(single("gang", 6, priority=Priority.HIGH))
    world.submit(single("waits"))
    assert world.running() == {"gang"}
    world.tell(Ended(world.now, "gang", 1, Outcome.SUCCESS))
    return world


def test_a_cycle_lets_a_bounded_number_of_jobs_go_on_and_the_next_follows_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = crowd(monkeypatch, 4)
    assert [each.job for each in world.tick()] == ["j0", "j1", "j2", "j3"]
    twin = World()
    twin.core = world.core.restore(world.core.snapshot())
    for each in (world, twin):
        assert each.core.next_wakeup(world.now) == world.now
        assert [decision.job for decision in each.core.decide(world.now)] == ["j4", "j5"]
        assert each.core.next_wakeup(world.now) != world.now


def test_with_a_bound_the_same_jobs_go_on_as_without(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded, whole = crowd(monkeypatch, 1), crowd(monkeypatch, 1000)
    for world in (bounded, whole):
        world.settle()
        assert world.running() == {f"j{number}" for number in range(6)}


def test_host_memory_that_is_short_on_one_node_keeps_no_job_of_another_on_its_cards() -> None:
    nodes = [machine(name, 1, swap_mib=2 * CARD_MIB) for name in "ab"]
    world = World(*nodes, pools=(Pool(suspends=True, turn_s=0.0),))
    world.submit(single("x", suspendable=Suspendable.SWAP), single("y", suspendable=Suspendable.SWAP))
    first, second = sorted("xy", key=world.nodes_of)
    world.slow = {first}
    world.tell(SuspendRequested(world.now, first, swap=True))
    world.tell(NodeJoined(world.now, replace(nodes[0], swap_mib=0)))
    world.tell(SuspendRequested(world.now, second, swap=True))
    world.settle()
    assert world.state(second) is JobState.SUSPENDED
