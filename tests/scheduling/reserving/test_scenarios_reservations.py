"""Reservations and backfill (EASY): room for the first that is blocked, use of it until then, and node masks."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import World, asks, gang, machine, single

from millpond.model.decisions import Start
from millpond.model.events import StopRequested
from millpond.model.hardware.nodes import Pool, SharingPolicy
from millpond.model.hardware.topology import Level
from millpond.model.reasons import Cause
from millpond.model.resources import TaskRequest
from millpond.model.states import JobState
from millpond.model.task_spacing import SpacingKind, SpacingRule
from millpond.model.workloads import Job
from millpond.scheduling.cycle.reservations import SWITCHING
from millpond.scheduling.ordering.queueing import new_record
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings

BACKFILLING = ("edf", "fair")
"""Orderings in which a job that does not fit stays ahead of those that came later."""


def crowded(ordering: str, **settings: bool) -> World:
    """Three of four cards are taken until 100, and a job of four cards waits."""
    world = World(machine("n", 4), settings=Settings(ordering=ordering, **settings))
    world.submit(single("first", 3), lasting=100, known=True)
    world.go_to(1)
    world.submit(single("big", 4), lasting=50, known=True)
    return world


@pytest.mark.parametrize("ordering", BACKFILLING)
def test_a_job_that_ends_in_time_uses_the_room_kept_for_the_first_in_line(ordering: str) -> None:
    world = crowded(ordering)
    world.submit(single("short", 1), lasting=60, known=True)
    assert world.state("short") is JobState.RUNNING
    assert world.of_kind(Start, "short")[0].cause is Cause.BACKFILLED
    world.go_to(100)
    assert world.running() == {"big"}


@pytest.mark.parametrize("ordering", BACKFILLING)
def test_a_job_that_would_end_too_late_waits_although_there_is_room(ordering: str) -> None:
    world = crowded(ordering)
    world.submit(single("long", 1), lasting=200, known=True)
    why = world.why("long")
    assert (why.cause, why.blocked_by) == (Cause.RESERVED, "big")
    world.go_to(100)
    assert world.running() == {"big"}
    world.go_to(150)
    assert world.running() == {"long"}


def test_a_job_of_unknown_length_does_not_use_room_that_is_kept() -> None:
    world = crowded("edf")
    world.submit(single("unknown", 1))
    assert world.why("unknown").cause is Cause.RESERVED


def test_a_time_limit_is_as_good_as_a_forecast_for_filling_gaps() -> None:
    world = crowded("edf")
    world.submit(single("limited", 1, time_limit_s=90))
    assert world.state("limited") is JobState.RUNNING


def test_a_stricter_first_in_first_out_lets_nobody_pass() -> None:
    world = crowded("fifo")
    world.submit(single("short", 1), lasting=10, known=True)
    assert world.state("short") is JobState.QUEUED
    world.go_to(150)
    assert world.running() == {"short"}


@pytest.mark.parametrize("ordering", BACKFILLING)
def test_an_endless_stream_of_small_jobs_does_not_delay_the_first_in_line_beyond_its_reservation(ordering: str) -> None:
    world = World(machine("n", 4), settings=Settings(ordering=ordering))
    world.submit(*(single(f"s0{i}") for i in range(4)), lasting=40, known=True)
    world.go_to(1)
    world.submit(single("big", 4), lasting=50, known=True)
    for step in range(1, 20):
        world.go_to(step * 10.0)
        world.submit(single(f"s{step}"), lasting=40, known=True)
    assert world.core.jobs["big"].first_started_at == 40.0


def test_ageing_brings_a_long_job_to_the_head_of_an_endless_stream_of_short_ones() -> None:
    world = World(machine("n", 2), settings=Settings(ordering="default"))
    world.submit(single("s"), lasting=10, known=True)
    world.submit(single("big", 2), lasting=50, known=True)
    while world.core.jobs["big"].first_started_at is None and world.now < 20_000:
        world.submit(single(f"s{world.now}"), lasting=40, known=True)
        world.go_to(world.now + 20)
    assert 50 < world.now < 10_000


def test_without_reservations_the_stream_starves_it() -> None:
    world = World(machine("n", 4), settings=Settings(ordering="edf", reserve=False))
    for step in range(20):
        world.submit(single(f"s{step}"), lasting=40, known=True)
        if step == 3:
            world.submit(single("big", 4))
        world.go_to(world.now + 10)
    assert world.core.jobs["big"].first_started_at is None


def test_a_reservation_keeps_only_the_nodes_it_needs() -> None:
    world = World(machine("n0", 4), machine("n1", 2), settings=Settings(ordering="edf"))
    world.submit(single("first", 3), lasting=100, known=True)
    world.submit(single("big", 4))
    world.submit(single("free", 2))
    assert world.nodes_of("free") == ["n1"]


def test_a_reservation_whose_job_was_withdrawn_keeps_nobody_out() -> None:
    world = crowded("edf")
    world.submit(single("long", 1), lasting=500, known=True)
    assert world.state("long") is JobState.QUEUED
    world.tell(StopRequested(world.now, "big"))
    world.settle()
    assert world.state("long") is JobState.RUNNING


# ---- beside the job for which room is kept ----------------------------------------------------------------------


def short_of_memory() -> World:
    """Nothing but host memory is taken until 100, and a job that wants most of it is first in line."""
    world = World(machine("n", 8), settings=Settings(ordering="edf"))
    world.submit(gang("hog", 1, asks(0, memory_mib=200_000)), lasting=100, known=True)
    world.submit(gang("head", 1, asks(1, memory_mib=220_000), deadline_s=1.0), lasting=50, known=True)
    return world


def test_cards_do_not_idle_for_a_job_that_waits_for_host_memory() -> None:
    world = short_of_memory()
    world.submit(gang("long", 1, asks(7, memory_mib=30_000)), lasting=5_000, known=True)
    assert world.state("long") is JobState.RUNNING
    world.go_to(100)
    assert world.running() == {"head", "long"}


@pytest.mark.parametrize("request_", [asks(7, memory_mib=50_000), asks(8, memory_mib=1_000)])
def test_what_the_first_in_line_will_need_is_taken_by_nobody(request_: TaskRequest) -> None:
    world = short_of_memory()
    world.submit(gang("long", 1, request_), lasting=5_000, known=True)
    assert world.why("long").cause is Cause.RESERVED
    world.go_to(100)
    assert "head" in world.running()


def test_long_jobs_take_the_cards_of_a_reserved_node_that_are_left_over_and_no_more() -> None:
    world = World(machine("n", 8), settings=Settings(ordering="edf"))
    world.submit(single("first", 5), lasting=100, known=True)
    world.submit(single("head", 6, deadline_s=1.0), lasting=50, known=True)
    world.submit(*(single(f"long{number}") for number in range(3)), lasting=5_000, known=True)
    assert world.running() == {"first", "long0", "long1"}
    world.go_to(100)
    assert world.running() == {"head", "long0", "long1"}


def test_a_gang_takes_what_is_left_over_on_the_nodes_of_another_one() -> None:
    world = World(machine("a", 4), machine("b", 4), settings=Settings(ordering="edf"))
    world.submit(single("fill a", 3), lasting=100, known=True)
    world.submit(single("fill b", 3), lasting=200, known=True)
    world.submit(gang("head", 2, asks(3), deadline_s=1.0), lasting=50, known=True)
    world.submit(gang("narrow", 2, asks(1)), lasting=5_000, known=True)
    assert world.running() == {"fill a", "fill b", "narrow"}
    world.go_to(200)
    assert world.running() == {"head", "narrow"}


amounts = st.builds(
    asks,
    st.sampled_from((0, 0.5, 1, 2, 4)),
    cpus=st.sampled_from((1, 30)),
    memory_mib=st.sampled_from((1_000, 100_000, 200_000)),
)
arrivals = st.lists(st.tuples(st.integers(0, 400), amounts, st.integers(1, 3), st.integers(1, 900)), max_size=25)


@pytest.mark.long
@given(arrivals)
@settings(max_examples=60, deadline=None)
def test_whoever_has_a_reservation_and_exact_lengths_never_sees_it_put_off(
    submissions: list[tuple[int, TaskRequest, int, int]],
) -> None:
    world = World(
        machine("a", 4, pool="p"), machine("b", 4, pool="p"),
        pools=[Pool("p", SharingPolicy.SLICED)], settings=Settings(ordering="edf"),
    )  # fmt: skip
    promised: dict[str, float] = {}
    for number, (at, request, tasks, lasting) in enumerate(sorted(submissions, key=lambda each: each[0])):
        world.go_to(float(at))
        world.submit(gang(f"j{number}", tasks, request, pool="p"), lasting=lasting, known=True)
        for kept in world.core._claims.reservations.values():
            assert kept.at <= promised.get(kept.job, kept.at)
            promised[kept.job] = kept.at


SHARES = [
    pytest.param(asks(0.25, extras=[("rdma", 1)]), id="an extra resource"),
    pytest.param(asks(0.25, card_mib=8_000), id="device memory"),
    pytest.param(asks(0.25, limit=0.5), id="the limit of compute"),
    pytest.param(asks(0, card_mib=8_000), id="device memory alone"),
]


@pytest.mark.parametrize("request_", SHARES)
def test_a_reservation_counts_everything_that_the_tasks_of_a_gang_share(request_: TaskRequest) -> None:
    world = World(
        machine("n", 1, pool="sliced", extras=(("rdma", 2),)),
        pools=[Pool("sliced", SharingPolicy.SLICED)],
        settings=Settings(ordering="edf"),
    )
    for id_, lasting in (("first", 100), ("second", 1_000)):
        world.submit(gang(id_, 1, request_, pool="sliced"), lasting=lasting, known=True)
    world.submit(gang("pair", 2, request_, pool="sliced", deadline_s=1.0))
    world.go_to(110)
    assert world.running() == {"second"}
    world.submit(gang("too long", 1, request_, pool="sliced"), lasting=2_000, known=True)
    assert world.why("too long").cause is Cause.RESERVED, "there is room for one of the pair, and the other comes later"
    world.submit(gang("in time", 1, request_, pool="sliced"), lasting=500, known=True)
    assert world.running() == {"second", "in time"}
    world.go_to(1_000)
    assert world.running() == {"pair"}


def test_the_reservation_of_a_gang_that_must_share_a_rack_lies_in_one_rack() -> None:
    nodes = [machine(name, 2, rack_name=rack) for name, rack in (("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r2"))]
    world = World(*nodes, settings=Settings(ordering="edf"))
    for number, lasting in enumerate((100, 1_000, 200, 300)):
        world.submit(single(f"fill{number}", 2), lasting=lasting, known=True)
    by_end = [world.nodes_of(f"fill{number}")[0] for number in range(4)]
    assert by_end == ["a", "b", "c", "d"]
    together = gang("together", 2, asks(2), together=Level.RACK, together_required=True, deadline_s=1.0)
    world.submit(together)
    world.go_to(110)
    world.submit(single("long", 2), lasting=5_000, known=True)
    assert world.nodes_of("long") == ["a"], "the other rack is free sooner, and that is the one that is kept"
    world.go_to(310)
    assert world.nodes_of("together") == ["c", "d"]


def test_whoever_is_kept_out_is_told_for_whom_in_its_own_pool() -> None:
    world = World(
        machine("a", 2), machine("b", 2, pool="other"), pools=[Pool("other")], settings=Settings(ordering="edf")
    )
    for pool in ("default", "other"):
        world.submit(single(f"short {pool}", pool=pool), lasting=50, known=True)
        world.submit(single(f"big {pool}", 2, pool=pool, deadline_s=1.0))
        world.submit(single(f"small {pool}", pool=pool))
    for pool in ("default", "other"):
        reason = world.why(f"small {pool}")
        assert (reason.cause, reason.blocked_by) == (Cause.RESERVED, f"big {pool}")


# ---- masks, through the placer that the cycle uses --------------------------------------------------------------


def places(core: Scheduler, job: Job, **keeping_out: np.ndarray) -> list[str] | None:
    """On which nodes the placer would put a job; nothing is kept."""
    state = core._state
    record = new_record(state, job, 0, 0.0)
    mark = state.journal.begin()
    placed = core._placer.place(record, **keeping_out)
    state.journal.rollback(mark)
    return None if placed is None else [state.cluster.node_name(holding.node) for _, holding in placed]


def test_a_node_mask_keeps_a_job_off_nodes_with_room() -> None:
    world = World(machine("n0", 4), machine("n1", 4))
    assert places(world.core, single("j", 4), mask=np.array([0, 1], dtype=np.uint8)) == ["n1"]
    assert places(world.core, single("j", 4), mask=np.array([0, 0], dtype=np.uint8)) is None


@pytest.mark.parametrize("seed", range(20))
def test_a_job_of_one_task_is_kept_the_node_on_which_there_is_room_first(seed: int) -> None:
    draws = random.Random(seed)
    world = World(*(machine(f"n{number}", 4) for number in range(6)), settings=Settings(ordering="edf"))
    for number in range(14):
        lasting, known = draws.choice((50, 90, 90, 200, 700)), draws.random() < 0.8
        world.submit(single(f"j{number}", draws.choice((0.5, 1, 2, 3))), lasting=lasting, known=known)
        world.go_to(world.now + draws.choice((0, 10)))
    size = draws.choice((2, 3, 4))
    # Where all tasks must lie together, all nodes are looked at.
    on_all = reserved_for(world, single("last", size, together=Level.NODE, together_required=True))
    assert reserved_for(world, single("last", size)) == on_all


@pytest.mark.parametrize("known", [False, True])
def test_a_kept_node_with_one_job_left_is_exchanged_only_if_others_are_surely_empty_sooner(known: bool) -> None:
    world, draws = World(machine("a", 4), machine("b", 4)), random.Random(1)
    for number in range(100):
        world.submit(single(f"past-{number}"), lasting=draws.lognormvariate(5.7, 1.0))
        world.go_to(world.now + 400)
    world.go_to(world.now + 50_000)
    world.submit(single("last", 1), lasting=20_000, known=known)
    world.submit(single("beside", 3))
    world.go_to(world.now + 500)
    world.submit(*(single(f"other-{number}") for number in range(4)), lasting=5_000, known=known)
    assert (world.nodes_of("last"), world.nodes_of("other-0"), world.nodes_of("other-3")) == (["a"], ["b"], ["b"])
    world.end("beside")
    for _ in range(20):
        found = reserved_for(world, single("wide", 4), kept=(0,))
        assert found is not None
        assert found[0] == ((1,) if known else (0,))
        world.go_to(world.now + 100)


def reserved_for(world: World, job: Job, kept: tuple[int, ...] = ()) -> tuple[tuple[int, ...], float] | None:
    """Nodes and instant that would be kept for a job that waits alone."""
    record = new_record(world.core._state, job, 1_000, world.now)
    found = world.core._cycle.reserver.reserve(record, kept)
    return None if found is None else (found.nodes, found.at)


def test_room_is_kept_where_the_rules_of_a_job_of_one_task_let_it_go() -> None:
    rule = SpacingRule(SpacingKind.EVEN, "host", ("worker",), ("worker",), counted=(("near", 1),), empty=1)
    nodes = (machine(name, 4, labels=(("host", name),)) for name in ("near", "far"))
    world = World(*nodes, settings=Settings(ordering="edf"))
    world.submit(single("soon", 4), lasting=100, known=True)
    world.submit(single("late", 3), lasting=200, known=True)
    assert world.nodes_of("soon") == ["near"]
    world.submit(single("big", 4, spacing=(rule,)), lasting=50, known=True)
    world.submit(single("long", 1), lasting=1000, known=True)
    assert world.why("long").blocked_by == "big"
    world.go_to(200)
    assert world.nodes_of("big") == ["far"]


@pytest.mark.parametrize("seed", range(20))
def test_nodes_that_are_kept_are_exchanged_as_if_the_instant_of_each_node_were_known(seed: int) -> None:
    draw = random.Random(seed)
    world = World(*(machine(f"n{number}", 4) for number in range(12)))
    for number in range(40):
        world.submit(
            single(f"s{number}", draw.choice((1, 1, 2, 3))), lasting=draw.choice((50, 90, 400, 2000)), known=True
        )
    world.submit(single("big", 4))
    record, reserver = world.core.jobs["big"], world.core._cycle.reserver
    kept = draw.sample(range(12), draw.randint(1, 3))
    ((_, by_node),) = reserver._times(record, kept=kept, each=True)
    by_node = by_node[:, 0]
    others = np.array([number not in kept for number in range(12)])
    by_node[others] += (SWITCHING - 1.0) * (by_node[others] - world.now)
    found = reserver.reserve(record, kept)
    assert (found.nodes, found.at) == ((int(by_node.argmin()),), by_node.min())
