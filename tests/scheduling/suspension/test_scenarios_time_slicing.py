"""Work of one size takes turns on full cards; with the gandiva placement nodes keep to one size of job."""

from __future__ import annotations

from typing import Any

import pytest
from worlds import CARD_MIB, World, asks, gang, machine, queue, single

from ledgers import check_everything
from millpond.model.decisions import Resume, Start, Suspend, SuspendMode
from millpond.model.hardware.nodes import Node, Pool, SharingPolicy
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.model.workloads import Priority, Suspendable
from millpond.scheduling.settings import Settings
from millpond.scheduling.suspension.time_slicing import MOST_SWITCHING

QUANTUM_S = Pool().turn_s
SWAPPING = machine("n", 1, swap_mib=2 * CARD_MIB)


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


def test_a_third_job_gets_turns_like_the_two_before_it() -> None:
    world = plain(machine("n", 1, swap_mib=8 * CARD_MIB))
    world.submit(single("a"), single("b"), single("c"))
    world.go_to(30 * QUANTUM_S)
    served = [world.core.jobs[job].service_s(world.now) for job in "abc"]
    assert max(served) - min(served) <= QUANTUM_S
    assert sum(served) == 30 * QUANTUM_S
    check_everything(world.core)


@pytest.mark.parametrize("remaps", [True, False])
def test_one_that_waits_for_its_turn_goes_on_with_another_card_that_comes_free(*, remaps: bool) -> None:
    world = plain(machine("n", 2, swap_mib=8 * CARD_MIB, remaps=remaps))
    world.submit(single("a"), single("b"), single("c"))
    world.go_to(1.5 * QUANTUM_S)
    (waits,) = {"a", "b", "c"} - world.running()
    alone = next(job for job in world.running() if job != world.of_kind(Suspend)[0].for_job)
    world.end(alone)
    assert world.running() == ({"a", "b", "c"} - {alone} if remaps else {"a", "b", "c"} - {alone, waits})
    if remaps:
        assert [(each.job, each.cause) for each in world.of_kind(Resume)] == [(waits, Cause.TURN_TAKEN)]
    check_everything(world.core)
    suspended = len(world.of_kind(Suspend))
    world.go_to(9 * QUANTUM_S)
    assert (len(world.of_kind(Suspend)) == suspended) is remaps


def test_one_that_its_engine_cannot_bring_to_another_card_takes_turns_again() -> None:
    world = plain(machine("n", 2, swap_mib=8 * CARD_MIB, remaps=True))
    world.submit(single("a"), single("b"), single("c"))
    world.go_to(1.5 * QUANTUM_S)
    (waits,) = {"a", "b", "c"} - world.running()
    world.clinging = {waits}
    world.end(next(job for job in world.running() if job != world.of_kind(Suspend)[0].for_job))
    assert world.state(waits) is JobState.SUSPENDED
    world.go_to(1.9 * QUANTUM_S)
    assert world.running() == {"c"}
    world.go_to(2 * QUANTUM_S)
    assert world.running() == {waits, "c"}  # it has its own card again, and the other job goes on with the free one
    assert [resume.job for resume in world.of_kind(Resume)] == [waits, waits, "c"]
    check_everything(world.core)


def test_a_newcomer_lines_up_behind_those_that_have_waited_longer_for_a_turn() -> None:
    world = plain(machine("n", 1, swap_mib=8 * CARD_MIB))
    world.submit(single("a"), single("b"))
    world.go_to(1.5 * QUANTUM_S)
    world.submit(single("c"))
    world.go_to(2 * QUANTUM_S)
    assert world.running() == {"a"}
    world.go_to(3 * QUANTUM_S)
    assert world.running() == {"c"}


def test_a_newcomer_need_not_wait_for_one_that_its_queue_keeps_from_its_turn() -> None:
    machines = (machine("n", 1, swap_mib=8 * CARD_MIB), machine("m", 1, model="V100"))
    world = World(*machines, pools=(Pool(suspends=True),), queues=(queue("mine", limit=1), queue("other")))
    on_n = asks(1, models=["A100"])
    world.submit(gang("a", 1, on_n, queue="mine"), gang("b", 1, on_n, queue="other"))
    world.go_to(QUANTUM_S)
    assert world.running() == {"b"}
    world.submit(single("full", queue="mine"))
    assert world.running() == {"b", "full"}
    world.submit(gang("c", 1, on_n, queue="other"))
    world.go_to(2 * QUANTUM_S)
    assert world.running() == {"c", "full"}


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
    world = gandiva(machine("n", 1, swap_mib=2 * CARD_MIB - 1))
    world.submit(single("a"))
    world.submit(single("b"))
    world.go_to(5 * QUANTUM_S)
    assert world.running() == {"a"}
    assert f"sets {2 * CARD_MIB - 1} MiB aside (swap_memory)" in world.why("b").summary


def test_a_job_that_gets_no_turn_is_told_why_its_equal_could_not_leave() -> None:
    world = gandiva(SWAPPING)
    world.clinging.add("a")
    world.submit(single("a"), single("b"))
    assert "no turn" not in world.why("b").summary
    world.go_to(QUANTUM_S + 1)
    assert world.running() == {"a"}
    assert "no turn comes free, as what runs there could not leave: it cannot be moved" in world.why("b").summary


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


# ---- with any placement -------------------------------------------------------------------------------------------


def plain(*nodes: Node, **fields: Any) -> World:
    """A pool that suspends, with the default placement and ordering."""
    return World(*nodes, pools=(Pool(suspends=True, **fields),))


def test_equals_take_turns_with_any_placement() -> None:
    world = plain(SWAPPING)
    world.submit(single("a"))
    world.submit(single("b"))
    world.go_to(QUANTUM_S - 1)
    assert world.running() == {"a"}
    world.go_to(20 * QUANTUM_S)
    a, b = (world.core.jobs[job].service_s(world.now) for job in "ab")
    assert a + b == 20 * QUANTUM_S
    assert abs(a - b) <= QUANTUM_S
    check_everything(world.core)


def test_a_pool_says_how_long_a_turn_lasts_and_whether_there_are_any() -> None:
    for turn_s, begins_at in ((10.0, 10.0), (0.0, None)):
        world = plain(SWAPPING, turn_s=turn_s)
        world.submit(single("a"))
        world.submit(single("b"))
        world.go_to(300)
        assert world.core.jobs["b"].first_started_at == begins_at


def test_newcomers_share_the_cards_on_which_the_fewest_go_round() -> None:
    world = plain(machine("n", 2, swap_mib=8 * CARD_MIB))
    world.submit(single("a"), single("b"), single("c"))
    world.go_to(QUANTUM_S)
    world.submit(single("d"))
    world.go_to(2 * QUANTUM_S - 1)
    places = {job: tuple(world.core.jobs[job].tasks[0].holding.devices) for job in "abcd"}
    assert len(set(places.values())) == 2
    assert all(list(places.values()).count(place) == 2 for place in places.values())


def test_slices_by_memory_alone_take_turns_too() -> None:
    world = plain(SWAPPING)
    for job in "ab":
        world.submit(gang(job, 1, asks(0, card_mib=CARD_MIB - 1, limit=0.5)))
    world.go_to(QUANTUM_S)
    assert world.running() == {"b"}


def test_whoever_must_not_be_suspended_takes_no_turns() -> None:
    for fields in ({"suspendable": Suspendable.NEVER}, {"preemptible": False}):
        world = plain(SWAPPING)
        world.submit(single("a", **fields))
        world.submit(single("b"))
        world.go_to(5 * QUANTUM_S)
        assert world.running() == {"a"}


def test_switching_costs_at_most_a_small_part_of_the_time() -> None:
    world = plain(SWAPPING)
    world.slow = {"a", "b"}
    took = 6.0
    world.submit(single("a"), single("b"))
    for _ in range(6):
        suspends = len(world.of_kind(Suspend))
        while len(world.of_kind(Suspend)) == suspends:
            wake = world.core.next_wakeup(world.now)
            assert wake is not None
            world.go_to(wake)
        leaver = world.of_kind(Suspend)[-1].job
        begun = world.now
        world.go_to(world.now + took)
        world.leave_devices(leaver)
        world.slow.add(leaver)
    lengths = [world.core.jobs[job].leave_s / MOST_SWITCHING for job in "ab"]
    assert lengths == [took / MOST_SWITCHING] * 2
    assert begun > 4 * took / MOST_SWITCHING


def test_a_turn_that_the_engine_refuses_leaves_everybody_where_they_are() -> None:
    world = plain(SWAPPING)
    world.clinging = {"a"}
    world.submit(single("a"), single("b"))
    world.go_to(5 * QUANTUM_S)
    assert world.running() == {"a"}
    assert world.state("b") is JobState.QUEUED
    assert len(world.of_kind(Suspend)) == 1
    world.end("a")
    assert world.running() == {"b"}


def test_a_higher_class_on_the_card_gives_no_turn_to_a_lower_one() -> None:
    world = plain(machine("n", 1, swap_mib=3 * CARD_MIB))
    world.submit(single("a"), single("b"))
    world.go_to(QUANTUM_S)
    world.submit(single("high", priority=Priority.HIGH))
    world.go_to(10 * QUANTUM_S)
    assert world.running() == {"high"}
    world.end("high")
    world.go_to(20 * QUANTUM_S)
    assert len(world.of_kind(Suspend, "a")) > 2
    check_everything(world.core)


def test_the_memory_factor_bounds_how_many_go_round() -> None:
    world = plain(machine("n", 1, swap_mib=8 * CARD_MIB), memory_factor_milli=2_000)
    world.submit(single("a"), single("b"), single("c"))
    world.go_to(10 * QUANTUM_S)
    assert world.core.jobs["c"].first_started_at is None
    assert world.core.jobs["b"].first_started_at == QUANTUM_S


def test_a_turn_that_ended_while_nobody_looked_is_still_worth_a_cycle() -> None:
    world = plain(SWAPPING)
    world.submit(single("a"), single("b"))
    late = QUANTUM_S + 0.01
    assert world.core.next_wakeup(world.now) == QUANTUM_S
    assert world.core.next_wakeup(late) == late
    world.now = late
    world.settle()
    assert world.running() == {"b"}


def test_of_several_that_share_a_card_only_as_many_leave_as_the_next_one_needs() -> None:
    shared = {"sharing": SharingPolicy.OVERCOMMITTED, "limit_factor_milli": 2_000}
    world = plain(machine("n", 1, swap_mib=8 * CARD_MIB), **shared)
    for job in "abc":
        world.submit(gang(job, 1, asks(0.3, limit=0.8, card_mib=4_000)))
    world.go_to(QUANTUM_S)
    for turn in range(2, 10):
        world.go_to(turn * QUANTUM_S)
        assert len(world.running()) == 2
    assert len(world.of_kind(Suspend)) <= 2 * 9
    served = [world.core.jobs[job].service_s(world.now) for job in "abc"]
    assert max(served) - min(served) <= 2 * QUANTUM_S
    check_everything(world.core)
