"""The gandiva placement: nodes keep to one size of job, and work of one size takes turns on its cards."""

from __future__ import annotations

from worlds import World, asks, gang, machine, single

from millpond.model.decisions import Resume, Start, Suspend, SuspendMode
from millpond.model.nodes import Node, Pool
from millpond.model.reasons import Cause
from millpond.model.workloads import JobState, Priority
from millpond.scheduling.settings import Settings
from millpond.scheduling.turns import QUANTUM_S

SWAPPING = machine("n", 1, swap_mib=16_000)


def gandiva(*nodes: Node, suspends: bool = True) -> World:
    """A pool that is placed by affinity and, if it ``suspends``, shared in turns."""
    return World(*nodes, settings=Settings(placement="gandiva", reserve=False), pools=(Pool(suspends=suspends),))


def test_jobs_of_one_size_gather_on_nodes_of_that_size() -> None:
    world = gandiva(machine("n0", 4), machine("n1", 4))
    world.submit(single("one"))
    world.submit(single("two", 2))
    world.submit(single("one-more"))
    world.submit(single("two-more", 2))
    assert world.nodes_of("one") == world.nodes_of("one-more")
    assert world.nodes_of("two") == world.nodes_of("two-more")
    assert world.nodes_of("one") != world.nodes_of("two")


def test_a_node_of_another_size_is_used_before_anybody_waits() -> None:
    world = gandiva(machine("n0", 4), suspends=False)
    world.submit(single("one"))
    world.submit(single("two", 2))
    assert world.running() == {"one", "two"}


def test_a_node_that_has_become_empty_is_for_the_size_that_comes_next() -> None:
    world = gandiva(machine("n0", 4), machine("n1", 4))
    world.submit(single("one"))
    world.submit(single("two", 2))
    left = world.nodes_of("one")
    world.end("one")
    world.submit(single("three", 3))
    assert world.nodes_of("three") == left


def test_two_jobs_take_turns_of_one_quantum_on_one_card() -> None:
    world = gandiva(SWAPPING)
    world.submit(single("a"))
    world.submit(single("b"))
    world.go_to(QUANTUM_S - 1)
    assert world.running() == {"a"}
    world.go_to(QUANTUM_S)
    assert world.running() == {"b"}
    (suspend,) = world.of_kind(Suspend)
    assert (suspend.job, suspend.mode, suspend.cause, suspend.for_job) == ("a", SuspendMode.SWAP, Cause.TURN_TAKEN, "b")
    assert world.of_kind(Start, "b")[0].cause is Cause.TURN_TAKEN
    world.go_to(2 * QUANTUM_S)
    assert world.running() == {"a"}
    assert [resume.job for resume in world.of_kind(Resume)] == ["a"]
    world.go_to(3 * QUANTUM_S)
    assert world.running() == {"b"}
    assert world.core.jobs["a"].attempt == world.core.jobs["b"].attempt == 1


def test_turns_give_both_the_same_service() -> None:
    world = gandiva(SWAPPING)
    world.submit(single("a"))
    world.submit(single("b"))
    world.go_to(20 * QUANTUM_S)
    a, b = (world.core.jobs[job].service_s(world.now) for job in "ab")
    assert abs(a - b) <= QUANTUM_S
    assert a + b == 20 * QUANTUM_S


def test_a_suspended_job_takes_the_card_at_once_when_the_other_ends() -> None:
    world = gandiva(SWAPPING)
    world.submit(single("a"))
    world.submit(single("b"))
    world.go_to(QUANTUM_S + 10)
    world.end("b")
    assert world.running() == {"a"}


def test_cards_are_not_shared_in_turns_where_the_pool_forbids_it() -> None:
    world = gandiva(SWAPPING, suspends=False)
    world.submit(single("a"))
    world.submit(single("b"))
    world.go_to(5 * QUANTUM_S)
    assert world.running() == {"a"}
    assert world.state("b") is JobState.QUEUED


def test_cards_are_not_shared_in_turns_without_host_memory_to_swap_to() -> None:
    world = gandiva(machine("n", 1, swap_mib=15_999))
    world.submit(single("a"))
    world.submit(single("b"))
    world.go_to(5 * QUANTUM_S)
    assert world.running() == {"a"}


def test_only_work_of_the_same_size_shares_cards_in_turns() -> None:
    world = gandiva(machine("n", 2, swap_mib=64_000))
    world.submit(single("a", 2))
    world.submit(single("small", 1))
    world.submit(gang("pair", 2, asks(1)))
    world.go_to(5 * QUANTUM_S)
    assert world.running() == {"a"}
    assert not world.of_kind(Suspend)


def test_a_lower_class_gets_no_turn_on_the_card_of_a_higher_one() -> None:
    world = gandiva(SWAPPING)
    world.submit(single("a", priority=Priority.HIGH))
    world.submit(single("b", priority=Priority.NORMAL))
    world.go_to(5 * QUANTUM_S)
    assert world.running() == {"a"}
