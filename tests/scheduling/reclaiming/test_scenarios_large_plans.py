"""A plan with more victims than one cycle asks goes on in the cycles that follow, and comes to the same in the end."""

from __future__ import annotations

import pytest
from worlds import CARD_MIB, World, asks, gang, machine, queue, single

from ledgers import check_everything
from millpond.model.decisions import Decision, Start, Stop, Suspend
from millpond.model.events import Confirmed, JobSubmitted, NodeLost, StopRequested, SuspendRequested
from millpond.model.hardware.nodes import Pool
from millpond.model.resources import TaskRequest
from millpond.model.states import JobState
from millpond.model.workloads import Priority, Suspendable
from millpond.scheduling.reclaiming import suspend_instead

JOBS = [f"j{number}" for number in range(6)]


def crowd(monkeypatch: pytest.MonkeyPatch, most: int, *, limit: float | None = None) -> World:
    """Six jobs on two nodes, all in the way of a gang; one node has host memory for two of its three.

    Behind the gang waits a job that uses no card, and could start on a third node.
    """
    monkeypatch.setattr(suspend_instead, "ASKED_PER_CYCLE", most)
    nodes = machine("n", 3, swap_mib=3 * CARD_MIB), machine("m", 3, swap_mib=2 * CARD_MIB), machine("k", 0)
    world = World(*nodes, pools=(Pool(suspends=True, turn_s=0.0),), queues=[queue("team", limit=limit)])
    world.submit(*(single(job, suspendable=Suspendable.SWAP, queue="team") for job in JOBS))
    assert world.running() == set(JOBS)
    high = gang("gang", 6, asks(), priority=Priority.HIGH, queue="team")
    for job in (high, gang("behind", 1, TaskRequest(1000, 1000), queue="team")):
        world.tell(JobSubmitted(world.now, job))
    return world


def decided(world: World) -> list[Decision]:
    return sorted(world.core.decide(world.now), key=lambda decision: decision.id)


def asked(decisions: list[Decision]) -> list[str]:
    assert all(isinstance(each, (Suspend, Stop)) and each.for_job == "gang" for each in decisions)
    return [each.job for each in decisions]


def test_its_victims_are_asked_in_cycles_that_follow_at_once_and_nothing_starts_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = crowd(monkeypatch, 4)
    assert not decided(world)
    twins = [World(), World()]
    twins[0].core, twins[1].core = world.core.restore(world.core.snapshot()), world.core.fork()
    for each in (world, *twins):
        assert each.core.next_wakeup(world.now) == world.now
        first, second = asked(decided(each)), asked(decided(each))
        assert (len(first), sorted(first + second)) == (4, JOBS)
        assert each.core.next_wakeup(world.now) == world.now
        assert [(type(decision), decision.job) for decision in decided(each)] == [(Start, "behind")]
        assert each.core.next_wakeup(world.now) != world.now
        check_everything(each.core)


@pytest.mark.parametrize("limit", [None, 12])
def test_with_a_bound_the_same_jobs_leave_in_the_same_way_as_without(
    monkeypatch: pytest.MonkeyPatch, limit: float | None
) -> None:
    outcomes = []
    for most in (6, 5, 2, 1):
        world = crowd(monkeypatch, most, limit=limit)
        world.settle()
        assert world.running() == {"gang", "behind"}
        check_everything(world.core)
        outcomes.append([
            sorted(each.job for each in world.of_kind(Suspend)), sorted(each.job for each in world.of_kind(Stop)),
            world.nodes_of("gang"), world.nodes_of("behind"), world.core.jobs["gang"].tasks[0].placement,
        ])  # fmt: skip
    assert outcomes.count(outcomes[0]) == len(outcomes)
    suspended, stopped = outcomes[0][:2]
    assert (len(suspended), len(stopped)) == (5, 1)


def test_the_others_are_not_asked_once_the_plan_has_come_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for event in (StopRequested(0.0, "gang"), NodeLost(0.0, "m")):
        world = crowd(monkeypatch, 2)
        assert not decided(world)
        left = asked(decided(world))
        stay = {job for job in JOBS if job not in left and world.nodes_of(job) == ["n"]}
        world.tell(event)
        world.settle()
        assert {each.job for each in world.of_kind(Suspend) + world.of_kind(Stop)}.isdisjoint(JOBS)
        assert world.state("behind") is JobState.RUNNING
        assert stay
        assert stay <= world.running()
        check_everything(world.core)


def test_one_that_has_left_by_itself_meanwhile_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    world = crowd(monkeypatch, 2)
    assert not decided(world)
    left = asked(decided(world))
    done, halted = [job for job in JOBS if job not in left][:2]
    world.tell(SuspendRequested(world.now, halted, swap=True))
    world.end(done)
    assert {done, halted, *left}.isdisjoint(each.job for each in world.of_kind(Stop))
    for decision in world.core.snapshot()["pending"]:
        world.tell(Confirmed(world.now, decision["id"]))
    world.settle()
    assert "gang" in world.running()
    assert world.core.jobs[halted].suspended_by
    check_everything(world.core)
