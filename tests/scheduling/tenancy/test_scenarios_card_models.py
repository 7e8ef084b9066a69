"""Limits of cards of one model: whom they keep waiting, what goes on other cards, and what is counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import World, asks, elastic, gang, machine, queue, restarted, single

from ledgers import check_everything
from millpond.model.decisions import Stop
from millpond.model.errors import ConflictError
from millpond.model.events import MigrateRequested, QueueChanged, SuspendRequested
from millpond.model.hardware.nodes import Node, Pool
from millpond.model.reasons import Cause, Filter
from millpond.model.resources import Amount
from millpond.model.states import JobState
from millpond.model.tenancy.tenants import Queue

UNBOUNDED = 2**50
OLD, NEW = machine("old", 4, model="V100"), machine("new", 4, model="H100")


def bounded(name: str, gpus: float | None = None, /, *, parent: str = "root", **models: float) -> Queue:
    """A queue with a limit of cards of some models."""
    most = UNBOUNDED if gpus is None else round(gpus * 1000)
    limit = Amount(most, UNBOUNDED, UNBOUNDED, tuple(sorted((each, round(n * 1000)) for each, n in models.items())))
    return Queue(name, parent, limit=limit)


def world_of(*queues: Queue, nodes: tuple[Node, ...] = (OLD, NEW), pools: tuple[Pool, ...] = ()) -> World:
    return World(*nodes, queues=queues, pools=pools)


def test_a_queue_holds_no_more_cards_of_a_model_than_its_limit_and_goes_on_others() -> None:
    world = world_of(bounded("lab", H100=1))
    world.submit(*(single(f"j{number}", queue="lab") for number in range(6)))
    assert world.tasks_by_node() == {"old": 4, "new": 1}
    reason = world.why("j5")
    assert reason.cause is Cause.NO_ROOM
    assert "it asks for 1 GPU; 0 GPUs are free for it, and no node has room" in reason.summary
    assert "queue lab holds 1 GPU of model H100, of at most 1 GPU" in reason.summary
    assert dict(reason.nodes) == {Filter.DEVICE_COMPUTE: 1, Filter.MODEL_LIMIT: 1}
    check_everything(world.core)


def test_a_job_that_takes_that_model_alone_waits_and_hears_the_figure() -> None:
    world = world_of(bounded("lab", H100=1))
    world.submit(*(gang(f"j{number}", 1, asks(1, models=["H100"]), queue="lab") for number in range(2)))
    assert world.running() == {"j0"}
    reason = world.why("j1")
    assert (reason.cause, reason.blocked_by) == (Cause.QUEUE_LIMIT, "lab")
    assert reason.summary == "queue lab holds 1 GPU of model H100, of at most 1 GPU; the job asks for 1 GPU"
    world.end("j0")
    assert world.running() == {"j1"}


def test_the_limit_of_a_group_counts_what_all_its_queues_hold_and_others_are_not_kept_out() -> None:
    world = world_of(bounded("house", H100=2), queue("lab", parent="house"), queue("den", parent="house"), queue("all"))
    one = asks(1, models=["H100"])
    for name in ("lab", "den", "all"):
        world.submit(gang(f"{name}1", 1, one, queue=name), gang(f"{name}2", 1, one, queue=name))
    assert world.running() == {"lab1", "lab2", "all1", "all2"}
    assert "queue house holds 2 GPUs of model H100" in world.why("den1").summary


def test_a_gang_is_judged_as_a_whole_on_each_model_and_lies_on_those_that_are_left() -> None:
    world = world_of(bounded("lab", H100=2))
    world.submit(gang("wide", 3, asks(1), queue="lab"))
    assert world.tasks_by_node() == {"old": 3}
    world.submit(gang("narrow", 2, asks(1), queue="lab"))
    assert world.running() == {"wide", "narrow"}
    assert world.tasks_by_node()["new"] <= 2
    check_everything(world.core)


def test_a_growing_gang_takes_no_more_of_a_model_than_is_left() -> None:
    world = world_of(bounded("lab", H100=2))
    world.submit(elastic("e", (1, 8, 8), asks(1), queue="lab"))
    assert world.tasks_by_node()["new"] <= 2
    for _ in range(3):
        world.go_to(world.now + 60.0)
        assert world.tasks_by_node()["new"] <= 2
        check_everything(world.core)


def test_a_gang_starts_smaller_on_a_model_that_its_limit_keeps_more_of_it_from() -> None:
    world = world_of(bounded("lab", H100=1), queue("all"))
    world.submit(single("taken", 4, queue="all"))
    (taken,) = world.nodes_of("taken")
    assert taken == "old"
    world.submit(elastic("e", (1, 3, 3), asks(1), queue="lab"))
    assert world.tasks_by_node() == {"old": 1, "new": 1}
    check_everything(world.core)
    world.end("taken")
    assert world.tasks_by_node() == {"old": 2, "new": 1}


def test_roles_without_a_model_in_common_count_each_for_its_own() -> None:
    world = world_of(bounded("lab", H100=1, V100=1))
    job = gang("two", 1, asks(1, models=["H100"]), queue="lab")
    job = replace(job, roles=(*job.roles, replace(job.roles[0], request=asks(1, models=["V100"]), name="b")))
    world.submit(job)
    assert world.running() == {"two"}
    world.submit(single("more", queue="lab"))
    assert world.why("more").cause is Cause.QUEUE_LIMIT
    assert world.why("more").summary == (
        "queue lab holds 1 GPU of model H100, of at most 1 GPU; queue lab holds 1 GPU of model V100, of at most 1 GPU; "
        "the job asks for 1 GPU"
    )


def test_a_job_that_asks_for_more_than_every_limit_ever_leaves_is_refused() -> None:
    world = world_of(bounded("lab", H100=2, V100=0))
    refusal = world.core.check(single("big", 4, queue="lab"))
    assert refusal is not None
    assert "queue 'lab' never holds more than 2 GPUs of H100" in refusal.summary
    assert refusal.remedy is not None
    assert (refusal.remedy.field, refusal.remedy.value) == ("gpus", "2")
    assert world.core.check(gang("none", 1, asks(1, models=["V100"]), queue="lab")) is not None
    assert world.core.check(single("fits", 2, queue="lab")) is None


def test_a_limit_below_what_is_held_ends_nothing_and_counting_begins_with_what_runs() -> None:
    world = world_of(queue("lab"))
    one = asks(1, models=["H100"])
    world.submit(*(gang(f"j{number}", 1, one, queue="lab") for number in range(3)))
    world.tell(QueueChanged(world.now, bounded("lab", H100=1)))
    world.submit(gang("late", 1, one, queue="lab"))
    assert world.running() == {"j0", "j1", "j2"}
    assert world.of_kind(Stop) == []
    assert "holds 3 GPUs of model H100, of at most 1 GPU" in world.why("late").summary
    for number in range(3):
        world.end(f"j{number}")
    assert world.running() == {"late"}
    world.tell(QueueChanged(world.now, queue("lab")))
    world.end("late")
    world.tell(QueueChanged(world.now, bounded("lab", H100=1)))
    check_everything(world.core)


def test_a_queue_takes_back_the_cards_of_a_group_limit_on_which_it_has_a_guarantee() -> None:
    world = world_of(bounded("house", H100=2), queue("lab", parent="house", guarantee=1), queue("den", parent="house"))
    one = asks(1, models=["H100"])
    world.submit(gang("d1", 1, one, queue="den"), gang("d2", 1, one, queue="den"), single("v", queue="den"))
    world.go_to(10.0)
    world.submit(gang("l1", 1, one, queue="lab"))
    stopped = {stop.job for stop in world.of_kind(Stop)}
    assert len(stopped) == 1
    assert stopped < {"d1", "d2"}
    assert "l1" in world.running()


def test_swapped_work_counts_for_no_card_and_needs_the_limit_again() -> None:
    pool = Pool("default", suspends=True)
    nodes = (machine("new", 2, model="H100", swap_mib=200_000),)
    world = world_of(bounded("lab", H100=1), nodes=nodes, pools=(pool,))
    world.submit(single("first", queue="lab"))
    world.tell(SuspendRequested(world.now, "first"))
    world.settle()
    world.submit(single("second", queue="lab"))
    check_everything(world.core)
    held = world.core._state.queues.by_name["lab"].models
    assert held["H100"] <= 1000
    assert world.state("second") in (JobState.RUNNING, JobState.QUEUED)


def test_a_job_is_not_moved_onto_cards_of_which_its_queue_may_have_no_more() -> None:
    world = world_of(bounded("lab", H100=0))
    world.submit(single("job", queue="lab"))
    assert world.tasks_by_node() == {"old": 1}
    with pytest.raises(ConflictError):
        world.tell(MigrateRequested(world.now, "job", ("new",), restart=True))
    assert world.tasks_by_node() == {"old": 1}


def test_counts_are_the_same_in_a_restored_scheduler_and_in_a_fork() -> None:
    world = world_of(bounded("lab", H100=1))
    world.submit(*(single(f"j{number}", queue="lab") for number in range(6)))
    restored = restarted(world.core)
    for core in (restored, world.core.fork()):
        check_everything(core)
        assert core.explain("j5", world.now).summary == world.why("j5").summary


SMALL = machine("small", 2, model="V100")


def test_a_limit_is_named_that_keeps_a_job_from_the_only_machines_that_are_large_enough() -> None:
    world = world_of(bounded("lab", H100=4), nodes=(SMALL, machine("large", 8, model="H100")))
    world.submit(gang("first", 1, asks(2, models=["H100"]), queue="lab"), single("wide", 4, queue="lab"))
    assert world.running() == {"first"}
    reason = world.why("wide")
    assert (reason.cause, reason.blocked_by) == (Cause.QUEUE_LIMIT, "lab")
    assert "queue lab holds 2 GPUs of model H100, of at most 4 GPUs; the job asks for 4 GPUs" in reason.summary
    assert "cards of V100 alone could never take it" in reason.summary
    world.end("first")
    assert world.running() == {"wide"}


def test_a_job_is_refused_that_fits_on_no_machine_of_the_models_that_limits_leave_it() -> None:
    world = world_of(bounded("lab", H100=3), nodes=(SMALL, machine("large", 8, model="H100")))
    refusal = world.core.check(single("wide", 4, queue="lab"))
    assert refusal is not None
    assert "queue 'lab' never holds more than 3 GPUs of H100" in refusal.summary
    assert "of V100 alone: a task asks for 4 GPUs of V100; the largest node has 2" in refusal.summary
    assert world.core.check(single("fits", 3, queue="lab")) is None
    assert world.core.check(gang("apart", 2, asks(1), queue="lab")) is None
