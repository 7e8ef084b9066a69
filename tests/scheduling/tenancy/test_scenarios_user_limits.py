"""What users and groups may hold at once: kept by the core, told as the reason, and the same after a restart."""

from __future__ import annotations

import json

import pytest
from worlds import World, asks, elastic, gang, machine, queue, single

from millpond.model.decisions import Stop
from millpond.model.events import DesiredCountChanged, LimitChanged
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.model.tenancy.tenants import Limit
from millpond.model.workloads import Job, Priority
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings


def limited(limit: Limit, *, cards: int = 8, **options: object) -> World:
    """One machine, and a limit that holds from the beginning."""
    world = World(machine("n", cards), **options)  # type: ignore[arg-type]
    world.tell(LimitChanged(0.0, limit))
    return world


def of(user: str, *ids: str, gpus: float = 1, **fields: object) -> list[Job]:
    """Jobs of one user."""
    return [single(id_, gpus, user=user, **fields) for id_ in ids]


def test_a_user_runs_as_many_jobs_as_the_limit_says_and_others_go_past() -> None:
    world = limited(Limit("ada", jobs=2))
    world.submit(*of("ada", "a1", "a2", "a3"), *of("eve", "e1", "e2", "e3"))
    assert world.running() == {"a1", "a2", "e1", "e2", "e3"}
    reason = world.why("a3")
    assert reason.cause is Cause.USER_LIMIT
    assert reason.summary == "user ada runs 2 jobs with 2 GPUs and 2 CPUs, and may have at most 2 running jobs"
    assert dict(reason.numbers)["running_jobs"] == 2
    world.end("a1")
    assert world.running() == {"a2", "a3", "e1", "e2", "e3"}


def test_cards_of_a_user_are_counted_over_all_queues() -> None:
    world = limited(Limit("ada", gpu_milli=3_000), queues=(queue("q"), queue("r")))
    world.submit(*of("ada", "a", gpus=2, queue="q"), *of("ada", "b", gpus=2, queue="r"), *of("ada", "c", queue="r"))
    assert world.running() == {"a", "c"}
    assert world.why("b").cause is Cause.USER_LIMIT


def test_cpus_of_a_user_are_counted() -> None:
    world = limited(Limit("ada", cpu_milli=5_000))
    world.submit(*(gang(name, 1, asks(0, cpus=3), user="ada") for name in ("a", "b")))
    assert world.running() == {"a"}


def test_a_group_is_limited_by_its_queue_whoever_submits() -> None:
    world = limited(Limit(queue="q", jobs=2), queues=(queue("q"), queue("r")))
    world.submit(*of("ada", "a1", queue="q"), *of("eve", "e1", "e2", queue="q"), *of("eve", "e3", queue="r"))
    assert world.running() == {"a1", "e1", "e3"}
    reason = world.why("e2")
    assert (reason.cause, reason.blocked_by) == (Cause.QUEUE_LIMIT, "q")


def test_a_limit_counts_what_ran_before_it_was_set_and_ends_nothing() -> None:
    world = World(machine("n", 8))
    world.submit(*of("ada", "a1", "a2", "a3"))
    world.tell(LimitChanged(world.now, Limit("ada", jobs=2)))
    world.submit(*of("ada", "a4"))
    assert world.running() == {"a1", "a2", "a3"}
    assert world.of_kind(Stop) == []
    world.end("a1")
    assert world.running() == {"a2", "a3"}
    world.end("a2")
    assert world.running() == {"a3", "a4"}


def test_a_limit_that_is_lifted_lets_the_next_cycle_start_what_waited() -> None:
    world = limited(Limit("ada", jobs=1))
    world.submit(*of("ada", "a1", "a2"))
    assert world.running() == {"a1"}
    world.tell(LimitChanged(world.now, Limit("ada")))
    world.settle()
    assert world.running() == {"a1", "a2"}


def test_an_elastic_job_grows_no_further_than_its_users_limit() -> None:
    world = limited(Limit("ada", gpu_milli=3_000))
    world.submit(*of("ada", "a", gpus=2))
    world.submit(elastic("e", (1, 1, 4), asks(1), user="ada"))
    assert world.running() == {"a", "e"}
    world.tell(DesiredCountChanged(world.now, "e", "worker", 4))
    world.settle()
    assert sum(task.holding is not None for task in world.core.jobs["e"].tasks) == 1
    world.end("a")
    assert sum(task.holding is not None for task in world.core.jobs["e"].tasks) <= 3


@pytest.mark.parametrize(
    ("limit", "cause"),
    [
        (Limit("ada", gpu_milli=1_000), "the job asks for 2 GPUs; user 'ada' never holds more than 1 GPU"),
        (
            Limit(queue="default", cpu_milli=500),
            "the job asks for 1 CPU; queue 'default' never holds more than 0.5 CPUs",
        ),
        (Limit("ada", jobs=0), "user 'ada' may run no jobs"),
    ],
)
def test_what_a_limit_never_admits_is_impossible_with_a_remedy(limit: Limit, cause: str) -> None:
    world = limited(limit)
    reason = world.core.check(single("j", 2, user="ada"))
    assert reason is not None
    assert (reason.cause, reason.summary) == (Cause.IMPOSSIBLE, cause)
    assert reason.remedy is not None


def test_nobody_leaves_for_a_job_that_its_users_limit_keeps_out() -> None:
    world = limited(Limit("ada", jobs=1), cards=2)
    world.submit(*of("ada", "a1"), *of("eve", "e1"))
    world.submit(*of("ada", "urgent", priority=Priority.CRITICAL))
    assert world.running() == {"a1", "e1"}
    assert world.of_kind(Stop) == []


@pytest.mark.parametrize("ordering", ["default", "srtf", "tiresias", "fifo"])
def test_every_ordering_keeps_limits(ordering: str) -> None:
    world = limited(Limit("ada", jobs=2), settings=Settings(ordering=ordering))
    world.submit(*of("ada", "a1", "a2", "a3"), lasting=50.0, known=True)
    assert len(world.running()) == 2


def test_a_restored_scheduler_keeps_limits_and_what_counts_against_them() -> None:
    world = limited(Limit("ada", jobs=2, gpu_milli=4_000))
    world.submit(*of("ada", "a1", gpus=3))
    plain = world.core.snapshot()
    world.core = Scheduler.restore(json.loads(json.dumps(plain)))
    assert world.core.snapshot() == plain
    assert world.core.limit_of("ada", "") == Limit("ada", jobs=2, gpu_milli=4_000)
    world.submit(*of("ada", "a2", gpus=2))
    assert world.running() == {"a1"}


def test_a_guaranteed_queue_takes_nothing_back_for_a_job_that_its_users_limit_keeps_out() -> None:
    queues = (
        queue("top", limit=2),
        queue("mine", guarantee=1, parent="top"),
        queue("theirs", parent="top"),
    )
    world = limited(Limit("ada", jobs=1), queues=queues)
    world.submit(*of("ada", "a1"))
    world.submit(*of("eve", "e1", "e2", queue="theirs"))
    world.submit(*of("ada", "a2", queue="mine"))
    assert world.running() == {"a1", "e1", "e2"}
    assert world.of_kind(Stop) == []
    assert world.why("a2").cause in (Cause.USER_LIMIT, Cause.QUEUE_LIMIT)


def test_a_job_whose_place_is_being_made_counts_against_its_users_limit() -> None:
    world = limited(Limit("ada", jobs=1), cards=2)
    world.submit(*of("eve", "e1", "e2"))
    world.lingering |= {"e1", "e2"}
    world.submit(*of("ada", "h1", "h2", priority=Priority.HIGH))
    assert len(world.of_kind(Stop)) == 1
    for job in ("e1", "e2"):
        if world.state(job) is JobState.STOPPING:
            world.leave(job)
    assert len(world.running() & {"h1", "h2"}) == 1
