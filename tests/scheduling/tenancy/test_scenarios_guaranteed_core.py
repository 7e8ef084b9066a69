"""Jobs with a guaranteed core and a preemptible rest: only tasks beyond the minimum are borrowed and taken back."""

from __future__ import annotations

import pytest
from worlds import World, asks, elastic, machine, queue, single

from ledgers import check_everything
from millpond.model.decisions import Stop
from millpond.model.errors import InvalidInputError
from millpond.model.events import NodeClosed
from millpond.model.hardware.nodes import Cordon, Pool
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.model.windows import Window
from millpond.model.workloads import Job, Priority
from millpond.scheduling.scheduler import Scheduler

HALVES = (queue("red", guarantee=4), queue("blue", guarantee=4))
EIGHT = (machine("n", 8),)


def core(id_: str, least: int, most: int, **fields: object) -> Job:
    """A gang whose minimum is not preemptible."""
    return elastic(id_, (least, most, most), asks(1), preemptible=False, rest_preemptible=True, **fields)


def tasks_of(world: World, job: str) -> int:
    """How many of its tasks hold something."""
    return sum(task.holding is not None for task in world.core.jobs[job].tasks)


def test_it_starts_within_its_guarantee_and_grows_into_what_others_leave_idle() -> None:
    world = World(*EIGHT, queues=HALVES)
    world.submit(core("gang", 2, 8, queue="red"))
    assert tasks_of(world, "gang") == 8
    check_everything(world.core)


def test_work_that_is_not_preemptible_as_a_whole_does_not_grow_beyond_the_guarantee() -> None:
    world = World(*EIGHT, queues=HALVES)
    world.submit(elastic("gang", (2, 8, 8), asks(1), preemptible=False, queue="red"))
    assert tasks_of(world, "gang") == 4


def test_its_minimum_waits_for_a_guarantee() -> None:
    world = World(*EIGHT, queues=HALVES)
    world.submit(single("own", 3, queue="red", preemptible=False))
    world.submit(core("gang", 2, 8, queue="red"))
    assert world.state("gang") is JobState.QUEUED
    assert world.why("gang").cause is Cause.GUARANTEE_OF_OTHERS
    world.end("own")
    assert tasks_of(world, "gang") == 8


def test_what_it_has_borrowed_keeps_no_work_that_stays_off_the_guarantee_of_its_queue() -> None:
    world = World(machine("n", 12), queues=HALVES)
    world.submit(core("gang", 2, 8, queue="red"))
    world.submit(single("stays", queue="red", preemptible=False), core("other", 1, 2, queue="red"))
    assert (world.running(), tasks_of(world, "gang"), tasks_of(world, "other")) == ({"gang", "stays", "other"}, 8, 2)
    world.submit(single("beyond", queue="red", preemptible=False))
    assert world.why("beyond").cause is Cause.GUARANTEE_OF_OTHERS, "red keeps all four that it is guaranteed"
    world.submit(single("owner", 4, queue="blue"))
    assert world.running() == {"gang", "stays", "other", "owner"}, "what is beyond the minimum of the gangs left"
    check_everything(world.core)


def test_an_owner_takes_back_what_it_has_borrowed_and_no_more() -> None:
    world = World(*EIGHT, queues=HALVES)
    world.submit(core("gang", 2, 8, queue="red"))
    world.submit(single("owner", 3, queue="blue"))
    (stop,) = world.of_kind(Stop)
    assert (stop.job, stop.cause, len(stop.tasks)) == ("gang", Cause.SHRUNK, 3)
    assert world.running() == {"gang", "owner"}
    world.submit(single("more", 1, queue="blue"), single("beyond", 1, queue="blue"))
    assert (tasks_of(world, "gang"), world.state("beyond")) == (4, JobState.QUEUED)
    world.end("owner")
    assert tasks_of(world, "gang") == 6


def test_a_higher_class_takes_the_rest_and_never_the_minimum() -> None:
    world = World(*EIGHT)
    world.submit(core("gang", 2, 8))
    world.submit(*(single(f"h{number}", 2, priority=Priority.HIGH) for number in range(4)))
    assert tasks_of(world, "gang") == 2
    assert len(world.running()) == 4
    assert {stop.cause for stop in world.of_kind(Stop)} == {Cause.SHRUNK}


def test_the_rest_keeps_its_minimum_run_time() -> None:
    world = World(*EIGHT, queues=HALVES)
    world.submit(core("gang", 2, 8, queue="red", minimum_run_s=100.0))
    world.submit(single("owner", 4, queue="blue"))
    assert world.running() == {"gang"}
    world.go_to(101.0)
    assert world.running() == {"gang", "owner"}


def test_only_tasks_beyond_the_minimum_leave_a_drained_node() -> None:
    world = World(machine("n0", 4), machine("n1", 4))
    world.submit(core("gang", 5, 8))
    world.tell(NodeClosed(world.now, "n0", Cordon(world.now, None, "repair", drain=True)))
    world.settle()
    assert sorted(world.nodes_of("gang")) == ["n0", "n1", "n1", "n1", "n1"]


@pytest.mark.parametrize("preemptible", [True, False])
def test_when_a_pool_lends_no_longer_a_gang_gives_up_what_is_borrowed_and_goes_on(preemptible: bool) -> None:
    pool = Pool(lending=(Window(0, 60),))
    world = World(*EIGHT, queues=HALVES, pools=(pool,))
    world.submit(
        elastic("gang", (2, 8, 8), asks(1), queue="red", preemptible=preemptible, rest_preemptible=not preemptible)
    )
    world.go_to(1_800.0)
    assert tasks_of(world, "gang") == 8
    world.go_to(3_601.0)
    assert tasks_of(world, "gang") == 4
    assert world.core.jobs["gang"].attempt == 1
    check_everything(world.core)


def test_a_gang_that_borrows_its_minimum_too_leaves_as_a_whole_at_that_hour() -> None:
    pool = Pool(lending=(Window(0, 60),))
    world = World(*EIGHT, queues=HALVES, pools=(pool,))
    world.submit(elastic("gang", (5, 8, 8), asks(1), queue="red"))
    world.go_to(3_601.0)
    assert world.state("gang") is JobState.QUEUED


def test_it_goes_through_a_snapshot() -> None:
    world = World(*EIGHT, queues=HALVES)
    world.submit(core("gang", 2, 8, queue="red"))
    twin = Scheduler.restore(world.core.snapshot())
    assert twin.jobs["gang"].job.rest_preemptible
    check_everything(twin)


def test_a_job_is_preemptible_as_a_whole_or_beyond_its_minimum() -> None:
    with pytest.raises(InvalidInputError, match="as a whole"):
        elastic("gang", (1, 2, 2), asks(1), rest_preemptible=True)


def test_what_it_has_borrowed_counts_for_its_queue_until_it_is_taken_back() -> None:
    world = World(*EIGHT, queues=HALVES)
    world.submit(core("gang", 2, 8, queue="red"))
    world.submit(single("equal", 1, queue="red"))
    assert (world.running(), tasks_of(world, "gang")) == ({"gang"}, 8)
