"""Limits of queues, groups and users beside reservations: what is agreed, who leaves for it, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from worlds import World, asks, elastic, gang, machine, queue, single

from millpond.model.decisions import Stop
from millpond.model.errors import ConflictError
from millpond.model.events import LimitChanged, QueueChanged, ReservationMade, ResumeRequested, SuspendRequested
from millpond.model.hardware.nodes import Pool
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.model.tenancy.cells import CellCount
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.tenancy.tenants import Limit
from millpond.model.windows import Window
from millpond.model.workloads import Checkpoint, Suspendable
from millpond.scheduling.settings import Settings

BEGIN, UNTIL = 1_000.0, 2_000.0
GROUP_OF_FOUR = Limit("", "vision", gpu_milli=4_000)


def team(limit: Limit | None = None, *, pool: Pool | None = None, **fields: Any) -> World:
    """Two machines of four cards and a queue that is guaranteed all of them, whose group has a limit."""
    queues = (queue("vision", guarantee=8, **fields),)
    machines = (machine(f"n{number}", 4, swap_mib=500_000, remaps=True) for number in range(2))
    world = World(*machines, queues=queues, pools=() if pool is None else (pool,))
    if limit is not None:
        world.tell(LimitChanged(0.0, limit))
    return world


def reserve(world: World, cards: int, *, name: str = "demo", of: str = "vision") -> None:
    world.tell(ReservationMade(world.now, AdvanceReservation(name, of, cards, BEGIN, UNTIL)))
    world.settle()


def fill(world: World, count: int, **fields: Any) -> None:
    world.submit(*(single(f"other{number}", queue="vision", **fields) for number in range(count)))


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        (GROUP_OF_FOUR, "the group of queue vision may have 4 cards, of which 3 are reserved then"),
        (Limit("", "vision", jobs=1), "queue vision runs at most 1 job at once, and other reserv"),
        (Limit("", "vision", card_mib=64_000), "the group of queue vision may have 62.5 GiB of card memory"),
    ],
)
def test_no_more_is_agreed_upon_than_the_group_of_a_queue_may_have(limit: Limit, why: str) -> None:
    world = team(limit)
    reserve(world, 3)
    with pytest.raises(ConflictError, match=why):
        reserve(world, 2, name="more")


def test_work_that_stays_is_counted_in_the_limits_of_its_group_and_of_its_queue() -> None:
    world = team(GROUP_OF_FOUR)
    fill(world, 2, preemptible=False)
    with pytest.raises(ConflictError, match="of which 2 are reserved then, or held by work that cannot be asked"):
        reserve(world, 3)
    reserve(world, 2)
    lab = World(machine("n", 8), queues=(queue("lab", guarantee=8), queue("vision", parent="lab", limit=4)))
    fill(lab, 2, preemptible=False)
    with pytest.raises(ConflictError, match="queue vision may have 4 cards, of which 2 are"):
        reserve(lab, 3)


def test_nobody_leaves_for_a_reservation_of_a_queue_that_may_hold_nothing_any_more() -> None:
    world = team()
    world.tell(QueueChanged(0.0, queue("vision", guarantee=4, borrows=False)))
    world.tell(QueueChanged(0.0, queue("guest")))
    reserve(world, 2)
    world.submit(*(single(f"guest{number}", queue="guest") for number in range(6)))
    world.go_to(BEGIN)
    assert len(world.running()) == 6
    world.tell(QueueChanged(world.now, queue("vision", borrows=False)))
    world.settle()
    assert len(world.running()) == 6
    assert world.of_kind(Stop) == []


def test_a_limit_by_which_a_reservation_would_no_longer_fit_is_refused() -> None:
    world = team(GROUP_OF_FOUR)
    reserve(world, 4)
    with pytest.raises(ConflictError, match="reservation 'demo' of 4 cards would no longer fit"):
        world.core.require_reserved(replace(GROUP_OF_FOUR, gpu_milli=3_000))
    world.core.require_reserved(Limit("ann", gpu_milli=1_000))


@pytest.mark.parametrize(
    ("limit", "others", "leaving"), [(GROUP_OF_FOUR, 4, 2), (Limit("", "vision", jobs=2), 2, 1)], ids=["cards", "jobs"]
)
def test_other_work_of_the_group_leaves_what_its_limit_has_to_give(limit: Limit, others: int, leaving: int) -> None:
    world = team(limit)
    fill(world, others)
    reserve(world, 2)
    world.submit(gang("job", 2, asks(1), queue="vision", reservation="demo"))
    world.go_to(BEGIN)
    assert world.state("job") is JobState.RUNNING
    assert len(world.of_kind(Stop)) == leaving


def test_other_work_of_the_group_leaves_a_job_that_its_queue_may_run() -> None:
    world = team(running_jobs=1)
    fill(world, 1)
    reserve(world, 2)
    world.submit(gang("job", 2, asks(1), queue="vision", reservation="demo"))
    world.go_to(BEGIN)
    assert world.running() == {"job"}


@pytest.mark.parametrize("limit", [GROUP_OF_FOUR, None], ids=["of its group", "of its queue"])
def test_suspended_work_does_not_take_back_what_is_reserved_of_a_limit(limit: Limit | None) -> None:
    world = team(limit, pool=Pool(suspends=True, turn_s=0.0))
    if limit is None:
        world.tell(QueueChanged(0.0, queue("vision", guarantee=4, limit=4)))
    fill(world, 1, suspendable=Suspendable.SWAP, checkpoint=Checkpoint(grace_s=300.0))
    world.tell(SuspendRequested(world.now, "other0", True))
    world.settle()
    reserve(world, 4)
    world.go_to(BEGIN)
    world.tell(ResumeRequested(world.now, "other0"))
    world.settle()
    assert world.state("other0") is JobState.SUSPENDED
    world.submit(gang("job", 4, asks(1), queue="vision", reservation="demo"))
    assert world.state("job") is JobState.RUNNING
    world.end("job")
    world.go_to(UNTIL)
    assert world.state("other0") is JobState.RUNNING


def test_work_that_is_swapped_out_is_not_ended_for_a_limit_of_which_it_holds_nothing() -> None:
    world = team(GROUP_OF_FOUR, pool=Pool(suspends=True, turn_s=0.0))
    fill(world, 4, suspendable=Suspendable.SWAP)
    world.tell(SuspendRequested(world.now, "other3", True))
    world.settle()
    reserve(world, 2)
    world.go_to(BEGIN)
    assert {stop.job for stop in world.of_kind(Stop)} == {"other2"}


@pytest.mark.parametrize(
    ("limit", "cause", "why"),
    [
        (
            Limit("", "vision", jobs=1), Cause.QUEUE_LIMIT,
            "queue vision runs 1 job with 1 GPU and 1 CPU, and may have at most 1 running job",
        ),
        (
            Limit("ann", jobs=1), Cause.USER_LIMIT,
            "user ann runs 1 job with 1 GPU and 1 CPU, and may have at most 1 running job",
        ),
    ],
    ids=["group", "user"],
)  # fmt: skip
def test_work_that_a_limit_keeps_off_the_cards_of_its_reservation_says_so(limit: Limit, cause: Cause, why: str) -> None:
    world = team(limit)
    reserve(world, 2)
    world.submit(*(single(name, queue="vision", reservation="demo", user="ann") for name in ("first", "second")))
    world.go_to(BEGIN)
    assert world.running() == {"first"}
    reason = world.why("second")
    assert (reason.cause, reason.summary) == (cause, why)


def test_the_reason_of_others_says_that_what_is_reserved_counts() -> None:
    world = team(GROUP_OF_FOUR)
    reserve(world, 3)
    world.go_to(BEGIN)
    world.submit(gang("wide", 2, asks(2), queue="vision"))
    assert world.why("wide").summary == (
        "queue vision has 1 job (with what is reserved) with 3 GPUs and 0 CPUs, and may have at most 4 GPUs"
    )


def test_a_reservation_to_come_counts_in_the_reason_of_those_alone_whom_it_keeps_out() -> None:
    world = World(machine("n0", 4), queues=(queue("vision", guarantee=2, limit=2),))
    reserve(world, 2)
    world.submit(single("stays", queue="vision", preemptible=False))
    asks_for = "of at most 2 GPUs{}; the job asks for 1 GPU"
    assert world.why("stays").summary == f"queue vision holds 2 GPUs {asks_for.format(' (with what is reserved)')}"
    world.submit(single("short", 2, queue="vision", time_limit_s=100.0))
    assert world.running() == {"short"}
    assert world.why("stays").summary == f"queue vision holds 2 GPUs {asks_for.format('')}"


@pytest.mark.parametrize("leaves_at", [50.0, BEGIN])
def test_a_place_that_was_claimed_before_a_reservation_was_agreed_leaves_it_the_limit(leaves_at: float) -> None:
    others, licence = queue("speech"), (("licence", 1),)
    world = World(
        machine("n", 4), machine("m", 4, extras=licence), queues=(queue("vision", guarantee=4, limit=4), others)
    )
    world.submit(*(single(f"other{number}", queue="speech") for number in range(8)))
    world.lingering = {f"other{number}" for number in range(8)}
    world.submit(gang("stays", 1, asks(2, extras=licence), queue="vision", preemptible=False))
    assert len(world.stopped) == 2
    reserve(world, 3)
    world.submit(*(single(f"demo{number}", queue="vision", reservation="demo") for number in range(3)))
    world.go_to(leaves_at)
    for job in world.stopped:
        world.leave(job)
    world.lingering.clear()
    world.go_to(BEGIN + 1.0)
    assert {"demo0", "demo1", "demo2"} <= world.running()
    assert world.state("stays") is JobState.QUEUED


@pytest.mark.parametrize("swap", [False, True])
def test_a_gang_whose_minimum_alone_was_counted_is_not_suspended_with_all_that_it_has(swap: bool) -> None:
    machines = machine("n", 4, swap_mib=500_000, remaps=True)
    world = World(machines, queues=(queue("vision", guarantee=4),), pools=(Pool(suspends=True),))
    world.submit(elastic("gang", (2, 4, 4), asks(1), queue="vision", preemptible=False, rest_preemptible=True))
    reserve(world, 2)
    world.submit(*(single(f"demo{number}", queue="vision", reservation="demo") for number in range(2)))
    with pytest.raises(ConflictError, match="would keep all of its cards while it is suspended"):
        world.tell(SuspendRequested(world.now, "gang", swap))
    world.go_to(BEGIN)
    assert world.running() == {"gang", "demo0", "demo1"}
    world.tell(SuspendRequested(world.now, "gang", swap))  # it has the minimum alone


@pytest.mark.parametrize("suspendable", list(Suspendable))
def test_such_a_gang_ends_as_its_window_closes_where_a_reservation_needs_the_rest(suspendable: Suspendable) -> None:
    machines, opens, closes = machine("n", 4, swap_mib=500_000, remaps=True), 86_400.0, BEGIN - 400.0
    pools = (Pool(suspends=True, memory_factor_milli=2_000),)
    world = World(machines, queues=(queue("vision", guarantee=4),), pools=pools)
    beyond = elastic("gang", (2, 4, 4), asks(1), queue="vision", preemptible=False, rest_preemptible=True)
    world.submit(replace(beyond, windows=(Window(0, 10),), suspendable=suspendable))
    reserve(world, 2)
    world.submit(*(single(f"demo{number}", queue="vision", reservation="demo") for number in range(2)))
    world.go_to(closes)
    assert [(each.job, each.cause) for each in world.of_kind(Stop)] == [("gang", Cause.WINDOW_CLOSED)]
    world.go_to(BEGIN)
    assert world.running() == {"demo0", "demo1"}
    world.go_to(opens)
    assert world.running() == {"demo0", "demo1", "gang"}


def test_an_elastic_gang_starts_with_as_many_tasks_as_a_later_reservation_leaves_it() -> None:
    world = World(machine("n", 4), queues=(queue("vision", guarantee=3, limit=3),))
    reserve(world, 2)
    world.submit(gang("rigid", 2, asks(1), queue="vision", preemptible=False))
    assert world.state("rigid") is JobState.QUEUED
    world.submit(elastic("gang", (1, 3, 3), asks(1), queue="vision", preemptible=False))
    assert len(world.nodes_of("gang")) == 1
    world.submit(*(single(f"demo{number}", queue="vision", reservation="demo") for number in range(2)))
    world.go_to(BEGIN)
    assert world.running() == {"gang", "demo0", "demo1"}


def in_order(guarantee: int) -> World:
    """A machine of eight cards, of which a queue is guaranteed some, and nobody overtakes."""
    queues = [queue("owner", guarantee=guarantee), queue("other")]
    return World(machine("n", 8), queues=queues, settings=Settings(ordering="fifo"))


def test_nobody_waits_behind_work_that_a_reservation_keeps_out_of_its_guarantee() -> None:
    world = in_order(guarantee=4)
    world.submit(single("runs", 4, queue="other"), lasting=400.0, known=True)
    world.tell(ReservationMade(world.now, AdvanceReservation("show", "owner", 2, begin=50.0, until=1_000.0)))
    world.submit(single("stays", 3, queue="owner", preemptible=False), lasting=100.0, known=True)
    world.submit(single("wide", 7, queue="other"), lasting=10.0, known=True)
    assert world.core.cause("stays", world.now).cause is Cause.GUARANTEE_OF_OTHERS
    assert world.core.cause("wide", world.now).cause is Cause.NO_ROOM
    world.submit(single("small", 1, queue="other"), lasting=10.0, known=True)
    assert world.core.cause("small", world.now).blocked_by == "wide"


def test_work_that_a_reservation_to_come_keeps_out_is_where_the_cycle_finds_it_in_the_order() -> None:
    world = in_order(guarantee=4)
    world.submit(single("runs", 4, queue="other"), lasting=400.0, known=True)
    world.submit(single("wide", 7, queue="other"), lasting=10.0, known=True)
    world.tell(ReservationMade(world.now, AdvanceReservation("show", "owner", 2, begin=50.0, until=1_000.0)))
    world.submit(single("stays", 3, queue="owner", preemptible=False), lasting=100.0, known=True)
    reason = world.core.explain("stays", world.now)
    assert (reason.cause, reason.position) == (Cause.GUARANTEE_OF_OTHERS, 1)


def test_work_for_which_nothing_of_its_reservation_is_left_waits_behind_the_first() -> None:
    world = in_order(guarantee=2)
    world.tell(ReservationMade(world.now, AdvanceReservation("show", "owner", 2, begin=0.0, until=1_000.0)))
    world.settle()
    world.submit(single("shown", 2, queue="owner"), lasting=500.0, known=True)
    world.submit(single("runs", 4, queue="owner"), lasting=400.0, known=True)
    world.submit(single("wide", 4, queue="owner"), lasting=10.0, known=True)
    world.submit(single("last", 1, queue="owner"), lasting=10.0, known=True)
    assert world.state("last") is JobState.QUEUED
    assert world.core.cause("last", world.now).blocked_by == "wide"


@pytest.mark.parametrize("cells", [(), (CellCount("node", 1),)])
def test_work_that_leaves_for_a_reservation_of_its_queue_takes_back_nothing_that_this_counts_on(
    cells: tuple[CellCount, ...],
) -> None:
    owner, lab = queue("owner", guarantee=8, cells=cells), queue("lab", guarantee=4)
    world = World(machine("n0", 8), machine("n1", 8), queues=[owner, lab, queue("guest")])
    world.submit(single("own", 8, queue="owner"), single("labs", 4, queue="lab"), single("guests", 4, queue="guest"))
    world.tell(ReservationMade(world.now, AdvanceReservation("show", "owner", 8, BEGIN, UNTIL)))
    world.go_to(BEGIN - 1.0)
    assert world.running() == {"labs", "guests"}
    world.go_to(BEGIN + 1.0)
    assert world.running() == {"own", "labs", "guests"}
    world.submit(single("more", 4, queue="owner"))
    assert world.running() == {"own", "labs", "guests"}
