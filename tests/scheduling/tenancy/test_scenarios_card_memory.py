"""Limits and guarantees of card memory: slices count for what they take, whole cards for all that they have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import World, asks, elastic, gang, machine, queue, single

from ledgers import check_everything
from millpond.model.decisions import Stop
from millpond.model.errors import ConflictError
from millpond.model.events import LimitChanged, MigrateRequested, QueueChanged, SuspendRequested
from millpond.model.hardware.nodes import Pool
from millpond.model.reasons import Cause
from millpond.model.resources import Amount, SliceRequest, TaskRequest
from millpond.model.tenancy.tenants import Limit, Queue
from millpond.model.workloads import Job, Priority, Role
from millpond.scheduling.scheduler import Scheduler

UNBOUNDED = 2**50
GIB = 1024
CARD_MIB = 16 * GIB
NODE = machine("n0", 4, card_mib=CARD_MIB)
SMALL = machine("small", 4, model="T4", card_mib=CARD_MIB)
LARGE = machine("large", 4, model="H100", card_mib=4 * CARD_MIB)
"""Cards of 16 GiB, and of 64 GiB."""


def by_memory(id_: str, mib: int, compute_milli: int = 0, **fields: object) -> Job:
    """A slice by memory."""
    part = SliceRequest(compute_milli, mib, max(compute_milli, 100))
    return Job(id_, (Role.rigid(TaskRequest(1000, 1024, 1, part), 1),), **fields)  # type: ignore[arg-type]


def limited(name: str, mib: int, /, *, parent: str = "root", **fields: object) -> Queue:
    """A queue with a limit of card memory alone."""
    return Queue(name, parent, limit=Amount(UNBOUNDED, UNBOUNDED, UNBOUNDED, card_mib=mib), **fields)  # type: ignore[arg-type]


def guaranteed(name: str, mib: int, gpus: float = 0, /, **fields: object) -> Queue:
    """A queue that is guaranteed card memory, and so many cards within it."""
    return Queue(name, guarantee=Amount(round(gpus * 1000), card_mib=mib), **fields)  # type: ignore[arg-type]


def held_mib(world: World, name: str) -> int:
    return next(each.work.held.card_mib for each in world.core.queue_statuses() if each.queue.name == name)


def test_a_queue_holds_no_more_card_memory_than_its_limit_in_slices_and_whole_cards() -> None:
    world = World(NODE, queues=(limited("lab", 20 * GIB),))
    world.submit(by_memory("slice", 3 * GIB, queue="lab"), by_memory("part", 1 * GIB, 500, queue="lab"))
    world.submit(single("whole", queue="lab"))
    assert world.running() == {"slice", "part", "whole"}
    assert held_mib(world, "lab") == 4 * GIB + CARD_MIB
    world.submit(by_memory("more", GIB, queue="lab"))
    assert world.running() == {"slice", "part", "whole"}
    reason = world.why("more")
    assert (reason.cause, reason.blocked_by) == (Cause.QUEUE_LIMIT, "lab")
    held = "queue lab holds 20 GiB of card memory of at most 20 GiB"
    assert reason.summary == f"{held}; the job asks for 1 GiB of card memory"
    world.end("part")
    assert "more" in world.running()
    check_everything(world.core)


def test_half_a_card_counts_for_half_of_its_memory() -> None:
    world = World(NODE, queues=(limited("lab", CARD_MIB),))
    world.submit(*(single(f"j{number}", 0.5, queue="lab") for number in range(3)))
    assert world.running() == {"j0", "j1"}
    reason = world.why("j2")
    assert reason.cause is Cause.QUEUE_LIMIT
    assert "queue lab holds 16 GiB of card memory, of at most 16 GiB" in reason.summary
    assert reason.summary.endswith("the job asks for 0.5 GPUs with 8 GiB of card memory")


def test_a_job_of_several_models_goes_where_its_queue_has_memory_left_for_it() -> None:
    world = World(SMALL, LARGE, queues=(limited("lab", 2 * CARD_MIB),))
    world.submit(single("a", queue="lab"), single("b", queue="lab"), single("c", queue="lab"))
    assert world.running() == {"a", "b"}
    assert world.nodes_of("a") == world.nodes_of("b") == ["small"]
    refusal = world.core.check(gang("wide", 1, asks(1, models=["H100"]), queue="lab"))
    assert refusal is not None
    assert "asks for 64 GiB of card memory; queue 'lab' never holds more than 32 GiB of card memory" in refusal.summary
    check_everything(world.core)


def test_the_limit_of_a_group_counts_what_all_its_queues_hold() -> None:
    world = World(NODE, queues=(limited("house", 8 * GIB), Queue("lab", "house"), Queue("den", "house"), queue("all")))
    world.submit(*(by_memory(f"{name}1", 6 * GIB, queue=name) for name in ("lab", "den", "all")))
    assert world.running() == {"lab1", "all1"}
    assert "queue house holds 6 GiB of card memory" in world.why("den1").summary


def test_a_guarantee_of_card_memory_takes_back_slices_that_others_borrowed() -> None:
    world = World(machine("n0", 1, card_mib=CARD_MIB), queues=(guaranteed("lab", 8 * GIB), queue("den")))
    world.submit(*(by_memory(f"d{number}", 4 * GIB, queue="den") for number in range(4)))
    world.submit(by_memory("mine", 8 * GIB, queue="lab"))
    assert "mine" in world.running()
    assert {stop.cause for stop in world.of_kind(Stop)} == {Cause.RECLAIMED}
    assert len(world.of_kind(Stop)) == 2
    world.submit(by_memory("beyond", 4 * GIB, queue="lab"))
    assert "beyond" not in world.running(), "the guarantee is used up, and its equals do not leave"
    check_everything(world.core)


def test_whole_cards_are_within_a_guarantee_as_far_as_it_has_memory_for_them() -> None:
    queues = guaranteed("lab", 2 * CARD_MIB, 4), queue("den")
    world = World(NODE, queues=queues)
    world.submit(*(single(f"d{number}", queue="den") for number in range(4)))
    world.submit(*(single(f"l{number}", queue="lab") for number in range(3)))
    assert world.running() == {"l0", "l1", *(f"d{number}" for number in range(4) if f"d{number}" in world.running())}
    assert len(world.running()) == 4


def test_a_guarantee_reclaims_cards_of_that_model_alone_that_it_has_memory_for() -> None:
    queues = guaranteed("lab", CARD_MIB, 1), queue("den")
    world = World(SMALL, LARGE, queues=queues)
    world.submit(*(single(f"d{number}", queue="den") for number in range(8)))
    world.submit(single("mine", queue="lab"))
    assert world.nodes_of("mine") == ["small"]


def test_work_that_cannot_leave_borrows_no_card_memory() -> None:
    world = World(NODE, queues=(guaranteed("lab", 8 * GIB), guaranteed("den", 8 * GIB)))
    world.submit(by_memory("one", 8 * GIB, queue="lab", preemptible=False))
    world.submit(by_memory("two", GIB, queue="lab", preemptible=False))
    assert world.running() == {"one"}
    assert world.why("two").cause is Cause.GUARANTEE_OF_OTHERS


def test_a_queue_that_may_not_borrow_stays_within_its_card_memory() -> None:
    world = World(NODE, queues=(guaranteed("lab", 8 * GIB, borrows=False),))
    world.submit(by_memory("one", 6 * GIB, queue="lab"), by_memory("two", 4 * GIB, queue="lab"))
    assert world.running() == {"one"}
    assert "4 GiB of card memory more would exceed its guarantee" in world.why("two").summary


def test_a_user_holds_no_more_card_memory_than_their_limit_in_all_queues() -> None:
    world = World(NODE, queues=(queue("lab"), queue("den")))
    world.submit(single("before", queue="lab", user="ann"))
    world.tell(LimitChanged(world.now, Limit("ann", card_mib=24 * GIB)))
    world.submit(single("half", 0.5, queue="den", user="ann"), single("third", 0.5, queue="lab", user="ann"))
    world.submit(single("other", queue="lab", user="bob"))
    assert world.running() == {"before", "half", "other"}
    reason = world.why("third")
    assert reason.cause is Cause.USER_LIMIT
    assert "1.5 GPUs, 2 CPUs and 24 GiB of card memory, and may have at most 24 GiB of card memory" in reason.summary
    refusal = world.core.check(single("wide", 2, queue="lab", user="ann"))
    assert refusal is not None
    assert "user 'ann' never holds more than 24 GiB of card memory" in refusal.summary
    world.tell(LimitChanged(world.now, Limit("ann")))
    world.settle()
    assert "third" in world.running()
    check_everything(world.core)


@pytest.mark.parametrize("swap", [False, True])
def test_frozen_work_counts_for_its_card_memory_and_swapped_work_does_not(swap: bool) -> None:
    node = machine("n0", 4, card_mib=CARD_MIB, swap_mib=10 * CARD_MIB)
    world = World(node, queues=(limited("lab", CARD_MIB),), pools=(Pool(suspends=True),))
    world.submit(single("one", queue="lab"), single("two", queue="lab"))
    world.tell(SuspendRequested(world.now, "one", swap=swap))
    world.settle()
    assert held_mib(world, "lab") == CARD_MIB
    assert ("two" in world.running()) is swap
    check_everything(world.core)


def test_a_gang_starts_as_large_as_its_card_memory_lets_it() -> None:
    world = World(NODE, queues=(limited("lab", 3 * CARD_MIB),))
    world.submit(elastic("e", (1, 4, 4), asks(1), queue="lab"))
    assert len(world.nodes_of("e")) == 3


def test_a_higher_class_takes_the_card_memory_of_a_limit_from_a_lower_one() -> None:
    world = World(NODE, queues=(limited("lab", CARD_MIB),))
    world.submit(single("low", queue="lab", priority=Priority.LOW))
    world.submit(single("high", queue="lab", priority=Priority.HIGH))
    assert world.running() == {"low"}
    world.end("low")
    assert world.running() == {"high"}


def test_a_move_to_a_larger_card_than_is_left_is_refused() -> None:
    world = World(
        replace(SMALL, devices=SMALL.devices[:1]), replace(LARGE, devices=LARGE.devices[:1]),
        queues=(limited("lab", 2 * CARD_MIB),),
    )  # fmt: skip
    world.submit(single("one", queue="lab"))
    with pytest.raises(ConflictError, match="may hold 32 GiB of card memory"):
        world.tell(MigrateRequested(world.now, "one", ("large/0",), restart=True))


def test_a_limit_below_what_is_held_ends_nothing_and_lets_nothing_more_start() -> None:
    world = World(NODE, queues=(queue("lab"),))
    world.submit(single("a", queue="lab"), single("b", queue="lab"))
    world.tell(QueueChanged(world.now, limited("lab", CARD_MIB)))
    world.submit(single("c", queue="lab"))
    assert world.running() == {"a", "b"}
    assert held_mib(world, "lab") == 2 * CARD_MIB
    world.tell(QueueChanged(world.now, queue("lab")))
    world.settle()
    assert "c" in world.running()
    check_everything(world.core)


def test_copies_count_the_same_card_memory() -> None:
    world = World(NODE, queues=(limited("lab", 3 * CARD_MIB), guaranteed("den", 8 * GIB)))
    world.tell(LimitChanged(world.now, Limit("ann", card_mib=24 * GIB)))
    world.submit(single("a", 0.5, queue="lab", user="ann"), by_memory("b", GIB, queue="den", user="ann"))
    for twin in (Scheduler.restore(world.core.snapshot()), world.core.fork()):
        assert twin.snapshot() == world.core.snapshot()
        check_everything(twin)
        states = [(each.queue.name, each.work.held) for each in twin.queue_statuses()]
        assert states == [(each.queue.name, each.work.held) for each in world.core.queue_statuses()]
