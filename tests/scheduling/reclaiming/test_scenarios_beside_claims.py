"""Claims keep what their jobs will take, of each resource and each card; others use the rest while victims leave."""

from __future__ import annotations

import random

import pytest
from worlds import World, asks, gang, machine

from millpond.model.hardware.nodes import Pool, SharingPolicy
from millpond.model.reasons import Cause
from millpond.model.resources import TaskRequest
from millpond.model.states import JobState
from millpond.model.workloads import Priority
from millpond.scheduling.settings import Settings


def waiting_for_memory() -> World:
    """A job that wants one card and most of the host memory waits until another has saved what it computed."""
    world = World(machine("n", 8))
    world.lingering.add("hog")
    world.submit(gang("hog", 1, asks(0, memory_mib=200_000), priority=Priority.LOW))
    world.submit(gang("head", 1, asks(1, memory_mib=220_000), priority=Priority.HIGH))
    assert (world.state("hog"), world.state("head")) == (JobState.STOPPING, JobState.QUEUED)
    return world


def test_cards_do_not_idle_while_host_memory_is_given_up_for_a_claim() -> None:
    world = waiting_for_memory()
    world.submit(gang("beside", 1, asks(7, memory_mib=30_000)))
    assert world.state("beside") is JobState.RUNNING
    world.leave("hog")
    assert {"head", "beside"} <= world.running()


@pytest.mark.parametrize("request_", [asks(7, memory_mib=50_000), asks(8, memory_mib=1_000)])
def test_what_is_claimed_is_taken_by_nobody(request_: TaskRequest) -> None:
    world = waiting_for_memory()
    world.submit(gang("in the way", 1, request_))
    why = world.why("in the way")
    assert (why.cause, why.blocked_by) == (Cause.RESERVED, "head")
    world.leave("hog")
    assert "head" in world.running()


def test_a_gang_starts_beside_claims_on_several_machines() -> None:
    world = World(machine("a", 4), machine("b", 4))
    world.lingering |= {"hog0", "hog1"}
    world.submit(*(gang(f"hog{number}", 1, asks(1, memory_mib=200_000), priority=Priority.LOW) for number in range(2)))
    world.submit(gang("head", 2, asks(1, memory_mib=220_000), priority=Priority.HIGH))
    world.submit(gang("beside", 2, asks(2, memory_mib=30_000)))
    assert world.running() == {"beside"}
    world.leave("hog0")
    world.leave("hog1")
    assert {"head", "beside"} <= world.running()


@pytest.mark.parametrize("request_", [asks(0), asks(2)], ids=["no cards", "the free cards"])
def test_what_is_free_is_used_while_more_cards_than_that_are_given_up_for_a_claim(request_: TaskRequest) -> None:
    world = World(machine("n", 8))
    world.lingering.add("low")
    world.submit(gang("low", 1, asks(5), priority=Priority.LOW))
    world.submit(gang("high", 1, asks(5), priority=Priority.HIGH))
    world.submit(gang("beside", 1, request_))
    assert (world.state("low"), world.state("beside")) == (JobState.STOPPING, JobState.RUNNING)
    world.leave("low")
    assert world.running() == {"high", "beside"}


def test_what_is_in_the_way_of_neither_starts_where_one_has_a_claim_and_another_the_reservation() -> None:
    world = World(machine("n", 2), settings=Settings(ordering="fair"))
    world.lingering.add("low")
    world.submit(gang("low", 1, asks(1), user="ann", priority=Priority.LOW))
    world.submit(gang("long", 1, asks(1), user="ann", preemptible=False), lasting=100.0, known=True)
    world.submit(gang("high", 1, asks(1), user="bob"))
    world.submit(gang("head", 1, asks(1), user="bob"))
    assert (*world.core._claims.by_job, *(kept.job for kept in world.core._claims.reservations.values())) == (
        "high",
        "head",
    )
    world.submit(gang("beside", 1, asks(0), user="cid"))
    assert world.state("beside") is JobState.RUNNING


def test_nobody_is_put_where_one_claim_needs_what_is_given_up_for_another() -> None:
    world = World(machine("n", 8))
    world.lingering |= {"first", "second"}
    world.submit(gang("first", 1, asks(1, memory_mib=100_000), priority=Priority.LOW))
    world.submit(gang("second", 1, asks(1, memory_mib=100_000), priority=Priority.LOW))
    world.submit(gang("one", 1, asks(1, memory_mib=140_000), priority=Priority.HIGH))
    world.submit(gang("beside", 1, asks(1, memory_mib=30_000)))
    asked = world.stopped[0]
    assert world.state("beside") is JobState.QUEUED, "one will need all that is free"
    world.leave(asked)
    assert world.state("one") is JobState.RUNNING


def test_whoever_has_a_claim_starts_once_all_that_leave_for_it_have_left() -> None:
    beside = sum(started_beside(random.Random(seed)) for seed in (7, 21))
    assert beside


def started_beside(draws: random.Random) -> int:
    """How many jobs start on claimed machines, in a world in which each who has a claim gets its place."""
    world = World(*(machine(name, 8, pool="p") for name in "ab"), pools=[Pool("p", SharingPolicy.SLICED)])
    beside = 0
    for number in range(60):
        world.now += 1.0
        claims = dict(world.core._claims.by_job)
        claimed = {world.core._state.cluster.node_name(node) for claim in claims.values() for node in claim.nodes}
        ran = world.running()
        if draws.random() < 0.6:
            priority = draws.choice((Priority.LOW, Priority.NORMAL, Priority.HIGH))
            memory_mib = draws.choice((1_000, 30_000) if priority is Priority.NORMAL else (90_000, 120_000))
            request = asks(draws.choice((0.5, 1, 2)), cpus=draws.choice((1, 10)), memory_mib=memory_mib)
            world.lingering.add(f"j{number}")
            world.submit(gang(f"j{number}", draws.choice((1, 1, 2)), request, pool="p", priority=priority))
        elif world.stopped:
            world.leave(draws.choice(world.stopped))
        elif ran:
            world.end(draws.choice(sorted(ran)))
        for job, claim in claims.items():
            has_its_place = world.state(job) in (JobState.RUNNING, JobState.SUCCEEDED)
            assert has_its_place or any(world.core._claims.present(claim)), f"{job} found its place taken"
        new = world.running() - ran - set(claims)
        beside += sum(not claimed.isdisjoint(world.nodes_of(job)) for job in new)
    return beside
