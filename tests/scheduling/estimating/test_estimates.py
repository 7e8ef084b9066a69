"""When a waiting job should start: what an estimate knows, and that asking for it changes nothing."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

import numpy as np
import pytest
from worlds import CARD_MIB, World, asks, gang, machine, queue, single

from millpond.model.contents import Content
from millpond.model.events import (
    CardClosed,
    DurationPredicted,
    JobSubmitted,
    LimitChanged,
    NodeContents,
    QueueRemoved,
    ReservationMade,
    StopRequested,
)
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement, NodeSelection
from millpond.model.hardware.nodes import Cordon
from millpond.model.hardware.topology import Level
from millpond.model.reasons import StartEstimate
from millpond.model.resources import Amount
from millpond.model.states import JobState
from millpond.model.task_spacing import SpacingKind, SpacingRule
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.tenancy.tenants import Limit, Queue
from millpond.model.units import HOUR_S
from millpond.model.workloads import Checkpoint, CheckpointMode, Priority
from millpond.scheduling.estimating import estimate, pool_model
from millpond.scheduling.estimating.displacer import Displacer, Preemption
from millpond.scheduling.estimating.guaranteed_runs import GuaranteedRuns
from millpond.scheduling.estimating.held_nodes import HeldNodes, HeldOnNode
from millpond.scheduling.estimating.lengths import Length, drawn_of
from millpond.scheduling.estimating.newcomers import Newcomers
from millpond.scheduling.estimating.pool_model import PoolModeller, view_of
from millpond.scheduling.estimating.possible_jobs import Candidate, Counted, Demand, Guarantor, HeldRoom
from millpond.scheduling.estimating.rooms import Part, PartsInVain, Rooms
from millpond.scheduling.ordering.arrivals import REMEMBERED, ArrivalHistory
from millpond.scheduling.ordering.forecast_errors import ForecastErrors
from millpond.scheduling.ordering.queueing import new_record
from millpond.scheduling.ordering.survival import BINS
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.scheduling.state import State


def start_of(world: World, job: str) -> StartEstimate:
    start = world.core.explain(job, world.now).start
    assert start is not None
    return start


def forecast(world: World, job: str, expected_s: float, cautious_s: float) -> None:
    world.tell(DurationPredicted(world.now, job, expected_s, cautious_s))


def busy_world(settings: Settings | None = None) -> World:
    """Eight cards, on which short jobs have come and gone every minute for two hours."""
    world = World(machine("a", 4), machine("b", 4), settings=settings)
    for number in range(120):
        world.go_to(60.0 * number)
        world.submit(single(f"s{number}", 2), lasting=150.0, known=True)
    return world


# ---- what it knows ----------------------------------------------------------------------------------------------


def test_certain_lengths_and_nothing_to_come_give_one_instant() -> None:
    world = World(machine("n", 4), settings=Settings(ordering="fifo"))
    for number in range(3):
        world.submit(single(f"j{number}", 4), lasting=100.0 * (number + 1), known=True)
    start = start_of(world, "j2")
    assert (start.earliest_at, start.likely_at, start.latest_at) == (300.0, 300.0, 300.0)


def test_work_that_was_asked_to_end_leaves_its_room_within_its_grace() -> None:
    world = World(machine("a", 1))
    world.submit(single("runs", checkpoint=Checkpoint(grace_s=60.0)), lasting=9_000.0, known=True)
    world.submit(single("job"))
    assert start_of(world, "job").likely_at == 9_000.0
    world.lingering.add("runs")
    world.tell(StopRequested(world.now, "runs"))
    world.settle()
    start = start_of(world, "job")
    assert (start.likely_at, start.latest_at) == (world.now + 60.0, world.now + 60.0)


def test_an_unsure_forecast_gives_an_interval_around_it() -> None:
    world = World(machine("n", 4))
    world.submit(single("runs", 4), lasting=1000.0)
    forecast(world, "runs", 1000.0, 2000.0)
    world.submit(single("next", 4))
    start = start_of(world, "next")
    assert start.likely_at is not None
    assert start.latest_at is not None
    assert 200.0 < start.earliest_at < 900.0 < start.likely_at < 1100.0 < start.latest_at < 4000.0


def test_while_too_few_jobs_have_ended_work_lasts_to_its_time_limit_here_and_in_what_is_played() -> None:
    world = World(machine("n", 4))
    world.submit(single("runs", 4, time_limit_s=1_000.0))
    world.submit(single("next", 4))
    world.go_to(400.0)
    start = start_of(world, "next")
    assert (start.earliest_at, start.likely_at, start.latest_at) == (1_000.0, 1_000.0, 1_000.0)
    assert world.core.expected_lengths(world.now).left_s["runs"] == 600.0


def test_while_too_few_jobs_have_ended_work_of_which_nothing_is_known_leaves_no_room_that_is_foreseen() -> None:
    world = World(machine("a", 4), machine("b", 4))
    world.submit(single("limited", 4, time_limit_s=1_000.0))
    world.submit(single("unlimited", 4))
    world.submit(single("next", 4))
    world.submit(gang("large", 2, asks(4)))
    start = start_of(world, "next")
    assert (start.likely_at, start.basis.partition("), ")[0]) == (
        1_000.0,
        "2 running jobs (1 by forecast or time limit, the rest without a known end",
    )
    assert (
        start_of(world, "large").unknown == "what runs and what comes before it leave it no room that can be foreseen"
    )


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ((None, None), "2 running jobs (by history), 0 ahead in its pool"),
        ((5_000.0, None), "2 running jobs (1 by forecast or time limit, the rest by history), 0 ahead in its pool"),
        ((5_000.0, 5_000.0), "2 running jobs (by forecast or time limit), 0 ahead in its pool"),
    ],
)
def test_an_estimate_says_of_how_many_that_run_the_length_is_known(limits: tuple[float | None, ...], said: str) -> None:
    world = busy_world()
    world.go_to(8_000.0)
    for number, limit_s in enumerate(limits):
        world.submit(single(f"j{number}", 4, time_limit_s=limit_s))
    world.submit(single("next", 4))
    assert start_of(world, "next").basis.startswith(said)


def test_a_job_waits_for_its_queue_and_not_for_free_cards() -> None:
    world = World(machine("n", 8), queues=[queue("small", limit=2), queue("other")])
    world.submit(single("own", 2, queue="small"), lasting=500.0, known=True)
    world.submit(single("foreign", 2, queue="other"), lasting=50.0, known=True)
    world.submit(single("next", 2, queue="small"), lasting=10.0, known=True)
    world.submit(single("behind", 2, queue="small"), lasting=10.0, known=True)
    assert {start_of(world, job).likely_at for job in ("next", "behind")} == {500.0, 510.0}


def test_what_is_not_preemptible_waits_for_room_alone_where_work_that_may_leave_holds_its_guarantee() -> None:
    world = World(machine("n", 2), queues=[queue("a", guarantee=2)])
    world.submit(single("own", queue="a"), lasting=500.0, known=True)
    world.submit(single("short", queue="a"), lasting=50.0, known=True)
    world.submit(single("kept", queue="a", preemptible=False), lasting=10.0, known=True)
    assert start_of(world, "kept").likely_at == 50.0


def busy_zones(**lengths: float) -> World:
    """Nodes of two cards, of the zones that their names begin with; work fills them for so long, or they are idle."""
    nodes = (replace(machine(name, 2), labels=(("host", name), ("zone", name[0]))) for name in lengths)
    world = World(*nodes, settings=Settings(ordering="fair"))
    for name, length_s in lengths.items():
        only = ((NodeRequirement("host", NodeOperator.IN, (name,)),),)
        if length_s:
            world.submit(single(f"on-{name}", 2, only_on=only), lasting=length_s, known=True)
    return world


def test_a_gang_whose_tasks_must_lie_apart_starts_once_enough_nodes_have_room() -> None:
    world = busy_zones(a1=100.0, b1=500.0, c1=0.0)
    rule = SpacingRule(SpacingKind.APART, "host", ("worker",), ("worker",))
    world.submit(gang("apart", 2, asks(1), spacing=(rule,)), lasting=50.0, known=True)
    world.submit(single("behind", 2), lasting=1_000.0, known=True)
    assert [start_of(world, job).likely_at for job in ("apart", "behind")] == [100.0, 150.0]
    world.go_to(101.0)
    assert sorted(world.nodes_of("apart")) == ["a1", "c1"]
    world.go_to(151.0)
    assert world.state("behind") is JobState.RUNNING


def test_a_gang_whose_tasks_must_lie_together_starts_once_one_place_has_room_for_all() -> None:
    world = busy_zones(a1=100.0, a2=600.0, b1=300.0, b2=400.0)
    rule = SpacingRule(SpacingKind.TOGETHER, "zone", ("worker",))
    world.submit(gang("together", 2, asks(2), spacing=(rule,)), lasting=50.0, known=True)
    assert start_of(world, "together").likely_at == 400.0
    world.go_to(401.0)
    assert sorted(world.nodes_of("together")) == ["b1", "b2"]


@pytest.mark.parametrize(("level", "starts_at"), [(Level.CLUSTER, 300.0), (Level.RACK, 350.0), (Level.NODE, 600.0)])
def test_a_gang_that_requires_one_place_of_the_topology_starts_once_one_has_room(
    level: Level, starts_at: float
) -> None:
    names = ((f"n{number}", f"r{number % 2}") for number in range(4))
    nodes = (machine(name, 2, rack_name=rack, labels=(("host", name),)) for name, rack in names)
    world = World(*nodes, settings=Settings(ordering="fifo"))
    for number, lengths in enumerate([(250.0, 900.0), (300.0, 900.0), (350.0, 900.0), (400.0, 600.0)]):
        only = ((NodeRequirement("host", NodeOperator.IN, (f"n{number}",)),),)
        for length_s in lengths:
            world.submit(single(f"on-{number}-{length_s}", 1, only_on=only), lasting=length_s, known=True)
    world.submit(
        gang("g", 2, asks(1), together=level, together_required=level < Level.CLUSTER), lasting=50.0, known=True
    )
    assert start_of(world, "g").likely_at == starts_at
    world.go_to(starts_at - 1.0)
    assert world.state("g") is JobState.QUEUED
    world.go_to(starts_at + 1.0)
    assert world.state("g") is JobState.RUNNING


@pytest.mark.parametrize("kind", [SpacingKind.APART, SpacingKind.TOGETHER])
def test_lower_work_leaves_for_the_rest_of_a_gang_whose_tasks_must_lie_in_some_way(kind: SpacingKind) -> None:
    world = busy_zones(a1=5_000.0, a2=0.0, b1=0.0)
    only = ((NodeRequirement("host", NodeOperator.NOT_IN, ("a1",)),),)
    world.submit(gang("peer", 2, asks(2), only_on=only, priority=Priority.HIGH), lasting=300.0, known=True)
    label, others = ("host", ("worker",)) if kind is SpacingKind.APART else ("zone", ())
    rule, only = SpacingRule(kind, label, ("worker",), others), ((NodeRequirement("zone", NodeOperator.IN, ("a",)),),)
    high = gang("high", 2, asks(2), priority=Priority.HIGH, spacing=(rule,), only_on=only)
    world.submit(high, lasting=50.0, known=True)
    assert start_of(world, "high").likely_at == 300.0
    world.go_to(301.0)
    assert sorted(world.nodes_of("high")) == ["a1", "a2"]


@pytest.mark.parametrize("bound", ["limit", "guarantee"])
@pytest.mark.parametrize(
    "most", [Amount(8000, cpu_milli=4000), Amount(8000, memory_mib=9000), Amount(8000, card_mib=2 * CARD_MIB)]
)
def test_a_job_waits_for_what_bounds_its_queue_in_cpus_memory_and_memory_of_cards(bound: str, most: Amount) -> None:
    small = Queue("small", limit=most) if bound == "limit" else Queue("small", guarantee=most, borrows=False)
    world = World(machine("n", 8), queues=[small, queue("other")])
    wanted = asks(2, cpus=4, memory_mib=9000)
    for name, length_s in (("own", 500.0), ("next", 10.0), ("behind", 10.0)):
        world.submit(gang(name, 1, wanted, queue="small"), lasting=length_s, known=True)
    world.submit(single("foreign", 2, queue="other"), lasting=50.0, known=True)
    assert [start_of(world, job).likely_at for job in ("next", "behind")] == [500.0, 510.0]
    world.go_to(499.0)
    assert world.state("next") is JobState.QUEUED
    world.go_to(501.0)
    assert world.state("next") is JobState.RUNNING


@pytest.mark.parametrize("most", [Limit("ann", cpu_milli=4000), Limit("ann", card_mib=2 * CARD_MIB)])
def test_a_job_waits_for_what_its_user_may_have_of_cpus_and_memory_of_cards(most: Limit) -> None:
    world = World(machine("n", 8))
    world.tell(LimitChanged(0.0, most))
    world.submit(gang("own", 1, asks(2, cpus=4), user="ann"), lasting=500.0, known=True)
    world.submit(single("foreign", 2, user="bob"), lasting=50.0, known=True)
    world.submit(gang("next", 1, asks(2, cpus=4), user="ann"), lasting=10.0, known=True)
    assert start_of(world, "next").likely_at == 500.0


def test_of_two_alike_jobs_of_a_queue_that_one_waits_longer_whose_user_has_a_limit() -> None:
    world = World(machine("n", 4))
    world.tell(LimitChanged(0.0, Limit("ann", card_mib=2 * CARD_MIB)))
    for user, lasting in (("ann", 500.0), ("bob", 50.0)):
        world.submit(single(f"first-{user}", 2, user=user), lasting=lasting, known=True)
    for user in ("bob", "ann"):
        world.submit(single(f"next-{user}", 2, user=user), lasting=10.0, known=True)
    assert [start_of(world, f"next-{user}").likely_at for user in ("bob", "ann")] == [50.0, 500.0]


def test_a_job_waits_for_the_nodes_that_it_asks_for_by_their_labels() -> None:
    east, west = (machine(name, 4, labels=(("side", name),)) for name in ("east", "west"))
    world = World(east, west)
    only_west: NodeSelection = ((NodeRequirement("side", NodeOperator.IN, ("west",)),),)
    world.submit(replace(single("runs", 4), only_on=only_west), lasting=500.0, known=True)
    world.submit(single("elsewhere", 4), lasting=50.0, known=True)
    world.submit(replace(single("next", 4), only_on=only_west), lasting=20.0, known=True)
    world.submit(single("anywhere", 4), lasting=10.0, known=True)
    assert [start_of(world, job).likely_at for job in ("next", "anywhere")] == [500.0, 50.0]
    world.go_to(51.0)
    assert [world.state(job) for job in ("next", "anywhere")] == [JobState.QUEUED, JobState.RUNNING]
    world.go_to(501.0)
    assert world.state("next") is JobState.RUNNING


def test_nothing_is_said_of_nodes_too_few_to_be_among_those_that_stand_for_a_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_model, "MOST_NODES", 4)
    nodes = [machine(f"n{number}", 4, labels=(("side", "west" if number < 4 else "east"),)) for number in range(16)]
    world = World(*nodes)
    for number in range(16):
        world.submit(single(f"r{number}", 4), lasting=100.0, known=True)
    for side in ("east", "west"):
        selection: NodeSelection = ((NodeRequirement("side", NodeOperator.IN, (side,)),),)
        world.submit(replace(single(side, 4), only_on=selection), lasting=10.0, known=True)
    assert start_of(world, "east").likely_at == 100.0
    assert "too few of the nodes that it asks for" in start_of(world, "west").unknown


def test_jobs_to_come_count_against_limits_of_queues_of_which_none_runs_or_waits() -> None:
    world = World(machine("n", 4), queues=[queue("small", limit=2), queue("other")])
    for number in range(20):
        world.go_to(60.0 * number)
        world.submit(single(f"s{number}", 2, queue="small"), lasting=30.0, known=True)
    world.go_to(1_240.0)
    world.submit(single("x", 4, queue="other"), lasting=600.0, known=True)
    world.submit(single("next", 4, queue="other"), lasting=600.0, known=True)
    start = start_of(world, "next")
    assert start.likely_at is not None
    assert start.likely_at >= 1_840.0


@pytest.mark.parametrize("held_by", [(), ("a",), ("a", "b")])
def test_whoever_starts_first_holds_the_room_while_its_nodes_fetch_what_it_needs(held_by: Sequence[str]) -> None:
    model = Content("model:faces", 6_000)
    world = World(machine("a", 1), machine("b", 1), settings=Settings(ordering="fifo"))
    for node in ("a", "b"):
        world.tell(NodeContents(0.0, node, (model,) if node in held_by else (), 100))
        world.submit(single(f"on-{node}"), lasting=300.0, known=True)
    for job in ("first", "second"):
        world.submit(single(job, contents=(model,)), lasting=100.0, known=True)
    world.submit(single("last"), lasting=100.0, known=True)
    usual_s = {0: 60.0, 1: 30.0, 2: 0.0}[len(held_by)]
    assert start_of(world, "second").likely_at == 300.0
    assert start_of(world, "last").likely_at == 400.0 + usual_s


def test_a_job_that_fetches_what_it_needs_still_runs_for_its_whole_length_behind_that() -> None:
    world = World(machine("a", 1))
    world.tell(NodeContents(0.0, "a", (), 100))
    for job in (single("fetching", contents=(Content("model:faces", 6_000),)), single("last")):
        world.core.handle(JobSubmitted(0.0, job))
        world.core.handle(DurationPredicted(0.0, job.id, 100.0, 100.0))
    world.core.decide(0.0)
    assert world.core.explain("fetching", 0.0).summary.endswith("; what it needs takes 1m to fetch to a")
    assert start_of(world, "last").likely_at == 160.0


def test_room_is_kept_for_the_first_of_a_line_that_does_not_overtake() -> None:
    world = World(machine("n", 4), settings=Settings(ordering="edf"))
    world.submit(single("long", 2), lasting=1000.0, known=True)
    world.submit(single("short", 2), lasting=100.0, known=True)
    world.submit(single("wide", 4), lasting=10.0, known=True)
    world.submit(single("filler", 2), lasting=5000.0, known=True)
    assert world.state("filler").value == "queued"
    assert start_of(world, "wide").likely_at == 1000.0
    assert start_of(world, "filler").likely_at == 1010.0


def test_work_that_is_still_to_come_delays_who_comes_after_it_in_the_order() -> None:
    def likely(world: World) -> float:
        world.submit(single("x", 8), lasting=600.0, known=True)
        world.submit(single("long", 8), lasting=4_000.0, known=True)
        found = start_of(world, "long").likely_at
        assert found is not None
        return found - world.now

    quiet = World(machine("a", 8))
    busy = World(machine("a", 8))
    for number in range(200):
        busy.go_to(60.0 * number)
        busy.submit(single(f"s{number}", 6), lasting=45.0, known=True)
    assert likely(quiet) == 600.0
    assert likely(busy) > 1200.0


def test_a_job_that_will_displace_running_work_does_not_wait_for_its_end() -> None:
    world = World(machine("a", 4), machine("b", 4), settings=Settings(preempt=True))
    saves = Checkpoint(CheckpointMode.SIGNAL)
    world.submit(single("long", 4, checkpoint=saves), lasting=10_000.0, known=True)
    world.submit(single("short", 4, checkpoint=saves), lasting=3_000.0, known=True)
    world.go_to(60.0)
    world.submit(gang("wide", 2, asks(4)), lasting=2_500.0, known=True)
    start = start_of(world, "wide")
    world.go_to(3_500.0)
    assert world.core.jobs["wide"].started_at == start.likely_at == 3_000.0


@pytest.mark.parametrize("protects", ["job", "queue"])
def test_a_job_of_a_higher_class_waits_until_those_below_it_have_run_for_as_long_as_they_are_left_alone(
    protects: str,
) -> None:
    alone_s = 900.0
    world = World(machine("a", 4), queues=[Queue("q", minimum_run_s=alone_s if protects == "queue" else None)])
    minimum_run_s = alone_s if protects == "job" else 0.0
    for number in range(2):
        world.go_to(100.0 * number)
        low = single(f"low-{number}", 2, queue="q", priority=Priority.LOW, minimum_run_s=minimum_run_s)
        world.submit(low, lasting=10_000.0, known=True)
    for number in range(2):
        world.submit(single(f"high-{number}", 2, priority=Priority.HIGH), lasting=5_000.0, known=True)
    foreseen = [start_of(world, f"high-{number}").likely_at for number in range(2)]
    world.go_to(1_200.0)
    assert foreseen == [world.core.jobs[f"high-{number}"].started_at for number in range(2)] == [900.0, 1_000.0]


def test_what_is_borrowed_leaves_for_a_guarantee_once_it_may_and_no_more_of_it_than_that_covers() -> None:
    world = World(machine("a", 4), queues=[queue("team", guarantee=2), queue("guest", minimum_run_s=900.0)])
    world.submit(single("long", 2, queue="guest"), lasting=20_000.0, known=True)
    world.go_to(100.0)
    world.submit(single("late", 2, queue="guest"), lasting=10_000.0, known=True)
    for number in range(2):
        world.submit(single(f"own-{number}", 2, queue="team"), lasting=5_000.0, known=True)
    foreseen = [start_of(world, f"own-{number}").likely_at for number in range(2)]
    world.go_to(1_000.0)
    first_at = world.core.jobs["own-0"].started_at
    world.go_to(6_000.0)
    assert foreseen == [first_at, world.core.jobs["own-1"].started_at] == [900.0, 5_900.0]


def test_a_job_that_a_guarantee_will_cover_then_leaves_no_room_to_shorter_work() -> None:
    world = World(machine("a", 8), queues=[queue("team", guarantee=8), queue("guest")])
    for number in range(30):
        world.submit(single(f"short{number}", queue="guest"), lasting=60.0, known=True)
        world.go_to(world.now + 60.0)
    world.submit(single("own", 8, queue="team", preemptible=False), lasting=600.0, known=True)
    world.submit(single("next", 8, queue="team"), lasting=36_000.0, known=True)
    foreseen = start_of(world, "next").likely_at
    world.go_to(world.now + 600.0)
    assert foreseen == pytest.approx(world.core.jobs["next"].started_at)
    assert world.state("next") is JobState.RUNNING


def test_room_that_lower_work_leaves_for_a_job_is_not_left_to_shorter_work() -> None:
    world = World(machine("a", 8))
    world.submit(single("low", 8, priority=Priority.LOW, minimum_run_s=3_000.0), lasting=50_000.0, known=True)
    for number in range(30):
        world.submit(single(f"short{number}", priority=Priority.LOW), lasting=60.0, known=True)
        world.go_to(world.now + 60.0)
    world.submit(single("next", 8), lasting=36_000.0, known=True)
    foreseen = start_of(world, "next").likely_at
    world.go_to(3_100.0)
    assert foreseen == world.core.jobs["next"].started_at == 3_000.0


def test_lower_work_leaves_for_a_job_as_soon_as_others_have_the_room_that_it_leaves_to_shorter_work() -> None:
    world = World(machine("a", 4))
    world.submit(single("low", 2, priority=Priority.LOW), lasting=50_000.0, known=True)
    for number in range(30):
        world.submit(single(f"short{number}"), lasting=60.0, known=True)
        world.go_to(world.now + 60.0)
    world.submit(single("next", 2), lasting=36_000.0, known=True)
    start, asked_at = start_of(world, "next"), world.now
    assert world.state("next") is JobState.QUEUED
    assert start.likely_at is not None
    assert start.likely_at < asked_at + 300.0
    world.go_to(asked_at + 60.0)
    world.submit(single("short30"), lasting=60.0, known=True)
    assert world.state("next") is JobState.RUNNING


def test_a_guarantee_is_owed_to_what_took_its_place_back_before_higher_classes() -> None:
    world = World(machine("a", 8), queues=[queue("team", guarantee=4), queue("guest")])
    world.submit(single("guest", 8, queue="guest", priority=Priority.LOW), lasting=50_000.0, known=True)
    back = single("back", 4, queue="team", priority=Priority.LOW, minimum_run_s=1_000.0)
    world.submit(back, lasting=20_000.0, known=True)
    world.submit(single("borrows", 4, queue="team", minimum_run_s=3_000.0), lasting=20_000.0, known=True)
    world.go_to(100.0)
    world.submit(single("high", 4, queue="guest", priority=Priority.HIGH), lasting=500.0, known=True)
    foreseen = start_of(world, "high").likely_at
    world.go_to(3_100.0)
    assert foreseen == world.core.jobs["high"].started_at == 3_000.0


def test_whoever_a_guarantee_will_cover_then_starts_before_those_that_would_borrow() -> None:
    world = World(
        machine("a", 4), queues=[queue("team", guarantee=2), queue("guest")], settings=Settings(ordering="fifo")
    )
    world.submit(single("own", 2, queue="team"), lasting=500.0, known=True)
    world.submit(single("long", 2, queue="guest"), lasting=9_000.0, known=True)
    world.submit(single("first", 2, queue="guest"), lasting=3_000.0, known=True)
    world.submit(single("second", 2, queue="team"), lasting=4_000.0, known=True)
    foreseen = [start_of(world, job).likely_at for job in ("second", "first")]
    world.go_to(600.0)
    second_at = world.core.jobs["second"].started_at
    world.go_to(4_600.0)
    assert foreseen == [second_at, world.core.jobs["first"].started_at] == [500.0, 4_500.0]


def test_only_those_are_expected_to_leave_for_a_reservation_who_are_in_its_way() -> None:
    queues = [queue("team", guarantee=1), queue("own", guarantee=3), queue("guest", minimum_run_s=3_000.0)]
    world = World(machine("a", 4), queues=queues)
    for number in range(2):
        world.submit(single(f"g{number}", 2, queue="guest"), lasting=20_000.0, known=True)
    world.tell(ReservationMade(world.now, AdvanceReservation("demo", "team", 1, 1_000.0, 9_000.0)))
    world.settle()
    world.submit(single("x", 3, queue="own"), lasting=500.0, known=True)
    foreseen = start_of(world, "x").likely_at
    world.go_to(3_100.0)
    assert foreseen == world.core.jobs["x"].started_at == 3_000.0


def test_within_a_group_that_is_guaranteed_all_of_it_only_that_leaves_which_its_own_queue_is_not_guaranteed() -> None:
    members = [queue(name, parent="group", guarantee=2, minimum_run_s=900.0) for name in ("own", "other")]
    world = World(machine("a", 4), queues=[queue("group", guarantee=4), *members])
    for number in range(2):
        world.go_to(100.0 * number)
        world.submit(single(f"o{number}", 2, queue="other"), lasting=10_000.0, known=True)
    world.submit(single("x", 2, queue="own"), lasting=5_000.0, known=True)
    foreseen = start_of(world, "x").likely_at
    world.go_to(1_200.0)
    assert foreseen == world.core.jobs["x"].started_at == 1_000.0


def test_work_of_a_higher_class_that_is_to_come_takes_the_room_of_what_runs() -> None:
    def likely(priority: Priority) -> float:
        world = World(machine("a", 4), machine("b", 4), settings=Settings(ordering="fifo"))
        for number in range(48):
            world.go_to(3_600.0 * number)
            world.submit(single(f"s{number}", 4, priority=priority), lasting=3_000.0, known=True)
        world.submit(single("x", 4), lasting=6_000.0, known=True)
        world.submit(single("y", 4), lasting=6_000.0, known=True)
        world.submit(single("z", 4), lasting=6_000.0, known=True)
        found = start_of(world, "z").likely_at
        assert found is not None
        return found - world.now

    assert likely(Priority.HIGH) > likely(Priority.NORMAL) + 1_500.0


def test_what_has_to_leave_comes_back_by_what_its_user_has_had_as_those_do_that_wait() -> None:
    world = World(machine("a", 4), settings=Settings(preempt=True))
    for number in range(48):
        world.go_to(HOUR_S * number)
        high = single(f"s{number}", 4, user=f"u{number}", priority=Priority.HIGH)
        world.submit(high, lasting=600.0, known=True)
    world.go_to(world.now + 3_000.0)
    saves = Checkpoint(CheckpointMode.SIGNAL)
    world.submit(single("runs", 4, user="ann", checkpoint=saves), lasting=5_000.0, known=True)
    world.submit(single("waits", 4, user="bob", checkpoint=saves), lasting=8_000.0, known=True)
    likely_at = start_of(world, "waits").likely_at
    assert likely_at is not None
    assert likely_at > world.now + 5_000.0


@pytest.mark.long
def test_a_job_that_shorter_ones_overtake_starts_once_it_is_overdue() -> None:
    world = World(machine("a", 4), machine("b", 4))
    world.submit(gang("wide", 2, asks(4)), lasting=14_400.0, known=True)
    estimates, number = [], 0
    while number < 2 or world.core.jobs["next"].started_at is None:
        world.go_to(600.0 * number)
        world.submit(single(f"s{number}", 4), lasting=1_180.0, known=True)
        if number == 1:
            world.submit(gang("next", 2, asks(4)), lasting=14_400.0, known=True)
        if number % 30 == 29:
            estimates.append(start_of(world, "next"))
        number += 1
    started_at = world.core.jobs["next"].started_at
    assert started_at is not None
    assert len(estimates) > 3
    for start in estimates:
        assert start.latest_at is not None
        assert start.earliest_at <= started_at <= start.latest_at


def test_a_gang_waits_for_all_of_its_nodes() -> None:
    world = World(machine("a", 4), machine("b", 4))
    world.submit(single("x", 1), lasting=300.0, known=True)
    world.submit(single("y", 4), lasting=200.0, known=True)
    world.submit(gang("g", 2, asks(4)))
    assert start_of(world, "g").likely_at == 300.0


def test_the_part_of_a_long_line_that_is_looked_at_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(machine("n", 4), settings=Settings(ordering="fifo"))
    for number in range(60):
        world.submit(single(f"j{number}", 4), lasting=100.0, known=True)
    whole = start_of(world, "j59")
    monkeypatch.setattr(pool_model, "MOST_AHEAD", 20)
    part = start_of(world, "j59")
    assert whole.likely_at == 5900.0
    assert part.likely_at == pytest.approx(5900.0, rel=0.06)


def test_a_future_that_is_cut_off_goes_on_as_long_as_the_work_ahead_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(machine("n", 4), settings=Settings(ordering="fifo"))
    for number in range(60):
        world.submit(single(f"j{number}", 4), lasting=100.0 if number < 30 else 1_000.0, known=True)
    twin = world.core.fork()
    whole = start_of(world, "j59")
    monkeypatch.setattr(estimate, "MOST_STEPS", 20 * estimate.FUTURES)
    cut = twin.explain("j59", world.now).start
    assert whole.latest_at is not None
    assert cut is not None
    assert cut.latest_at is not None
    assert cut.likely_at == whole.likely_at == 32_000.0
    assert cut.earliest_at < 0.5 * whole.earliest_at
    assert cut.latest_at > 1.5 * whole.latest_at


@pytest.mark.parametrize("is_held", [False, True])
def test_nothing_is_foreseen_of_a_job_for_which_closed_cards_leave_no_node_large_enough(is_held: bool) -> None:
    """Whether work was on them, which ends; futures into which newcomers come are cut off without its start."""
    world = busy_world()
    if not is_held:
        world.go_to(world.now + 3_600.0)
    for node in ("a", "b"):
        world.tell(CardClosed(world.now, node, f"{node}-0", Cordon(world.now)))
    world.submit(single("whole", 4))
    start = start_of(world, "whole")
    assert start.unknown == "what runs and what comes before it leave it no room that can be foreseen"


def test_a_part_of_a_large_pool_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(*(machine(f"n{number}", 4) for number in range(16)), settings=Settings(ordering="fifo"))
    for number in range(96):
        world.submit(single(f"j{number}", 4), lasting=100.0 + number % 16, known=True)
    whole = start_of(world, "j95")
    monkeypatch.setattr(pool_model, "MOST_NODES", 4)
    part = start_of(world, "j95")
    assert whole.likely_at is not None
    assert part.likely_at == pytest.approx(whole.likely_at, rel=0.25)


# ---- asking ---------------------------------------------------------------------------------------------------------


def test_asking_changes_nothing_and_the_same_question_has_the_same_answer() -> None:
    world = busy_world()
    for number in range(10):
        world.submit(single(f"w{number}", 3))
    before = json.dumps(world.core.snapshot())
    answers = [start_of(world, f"w{number}") for number in range(10)]
    assert json.dumps(world.core.snapshot()) == before
    assert [start_of(world, f"w{number}") for number in range(10)] == answers
    assert len({answer.likely_at for answer in answers}) > 1


@pytest.mark.parametrize("ordering", ["default", "fifo", "tiresias"])
def test_a_restored_scheduler_gives_the_same_estimate(ordering: str) -> None:
    world = busy_world(Settings(ordering=ordering))
    for number in range(6):
        world.submit(single(f"w{number}", 3), lasting=300.0)
        forecast(world, f"w{number}", 200.0, 400.0)
    plain = json.loads(json.dumps(world.core.snapshot()))
    restored = Scheduler.restore(plain)
    assert restored.explain("w5", world.now).start == start_of(world, "w5")
    assert json.dumps(restored.snapshot()) == json.dumps(plain)


# ---- what it learns -------------------------------------------------------------------------------------------------


def test_forecasts_are_taken_at_their_word_until_jobs_have_ended() -> None:
    median_s, sigma = ForecastErrors().corrected(1000.0, 2000.0)
    assert median_s == 1000.0
    assert sigma == pytest.approx(math.log(2.0) / 1.2816, rel=1e-3)


def test_forecasts_that_are_always_twice_too_long_are_halved() -> None:
    errors = ForecastErrors()
    for number in range(400):
        errors.learn(100.0 + number, (100.0 + number) / 2)
    median_s, sigma = errors.corrected(600.0, 1200.0)
    assert median_s == pytest.approx(300.0, rel=0.05)
    assert sigma < 0.2


def test_many_jobs_of_one_length_say_nothing_of_much_longer_ones() -> None:
    errors = ForecastErrors()
    for number in range(600):
        error = math.exp(0.5 * math.sin(float(number)))
        errors.learn(4_000.0 * error, 4_000.0)
        if number % 10 == 0:
            errors.learn(60_000.0 * error, 60_000.0)
    assert errors.corrected(5_500.0, 11_000.0)[0] == pytest.approx(4_000.0, rel=0.15)
    assert errors.corrected(60_000.0, 120_000.0)[0] == pytest.approx(60_000.0, rel=0.2)


def test_lengths_that_are_drawn_at_once_are_those_drawn_one_by_one() -> None:
    chances = np.random.default_rng(1)
    hazards = [tuple(np.concatenate(([0.0], np.cumsum(chances.uniform(0.01, 0.9, BINS)))).tolist()) for _ in range(2)]
    services = [0.0, 40.0, 90.0, 5_000.0, 2e6]
    lengths = [Length(math.inf), Length(30.0, extra_s=5.0), Length(90.0, limit_s=60.0)]
    lengths += [Length(service_s=service, hazard=hazard, extra_s=3.0) for service in services for hazard in hazards]
    lengths += [Length(-1.0, 1_000.0, 0.7, service, 0.02, hazards[0], 1.0, 9e4) for service in services]
    levels, stretches = chances.uniform(0.0, 1.0, (4, len(lengths))), [0.5, 1.0, 1.3, 2.0]
    levels[0, :] = 0.999
    one_by_one = [
        [length.drawn_s(level, stretch) for length, level in zip(lengths, row, strict=True)]
        for row, stretch in zip(levels.tolist(), stretches, strict=True)
    ]
    assert drawn_of(lengths, levels, stretches) == pytest.approx(np.array(one_by_one), rel=1e-9, abs=1e-6)
    assert drawn_of([], np.zeros((4, 0)), stretches).shape == (4, 0)


def remembering(*counts: int) -> World:
    """A world in which so many jobs have come in each hour, all of which ended at once."""
    world = World(machine("n", 4))
    for hour, count in enumerate(counts):
        for number in range(count):
            world.go_to(HOUR_S * (hour + number / count))
            world.submit(single(f"{hour}-{number}"), lasting=1.0, known=True)
    world.go_to(HOUR_S * len(counts))
    return world


def newcomers_of(world: World) -> Newcomers:
    state, placer = world.core._state, world.core._placer
    world.submit(gang("asked", 2, asks(4)))
    asked = world.core.jobs["asked"]
    return Newcomers(state, PoolModeller(state, placer, view_of(state, placer, asked)), "default")


def coming(world: World, until_s: float) -> list[tuple[float, Candidate]]:
    """Who comes in a future of a world before an instant."""
    return list(takewhile(lambda each: each[0] < until_s, newcomers_of(world).stream(np.random.default_rng(1), 0.5)))


def came_by_hour(world: World, hours: int, futures: int = 200) -> np.ndarray:
    """(futures, hours) how many jobs come in the futures of a world."""
    newcomers = newcomers_of(world)
    found = np.zeros((futures, hours))
    for future in range(futures):
        for at, _ in newcomers.stream(np.random.default_rng(future), (future + 0.5) / futures):
            if at >= hours * HOUR_S:
                break
            found[future, int(at // HOUR_S)] += 1
    return found


def test_most_is_expected_at_the_hour_of_the_day_at_which_most_came() -> None:
    day = [2] * 9 + [60] + [2] * 14
    came = came_by_hour(remembering(*day, *day, *day), 24).mean(axis=0)
    assert came[8:11].sum() > 3 * came[14:17].sum()


@pytest.mark.long
def test_a_burst_is_expected_to_last_as_long_as_bursts_did() -> None:
    burst = [80, 80, 80, *[4] * 9]
    came = came_by_hour(remembering(*burst * 3, 80), 8).mean(axis=0)
    assert came[0] > 40.0
    assert came[7] < 25.0


def test_the_rest_of_an_hour_brings_more_than_came_in_its_first_minutes() -> None:
    world = remembering(0)
    for number in range(120):
        world.submit(single(f"s{number}", 1 + number % 2), lasting=1.0, known=True)
        world.go_to(world.now + 60.0)
    world.submit(single("first", 1), lasting=1.0, known=True)
    world.go_to(world.now + 60.0)
    assert {candidate.demand.total for _, candidate in coming(world, HOUR_S / 2)} >= {1_000, 2_000}


@pytest.mark.long
def test_in_quiet_hours_a_burst_may_come() -> None:
    came = came_by_hour(remembering(*[4, 4, 4, 4, 80, 80] * 4, 4, 4), 6).sum(axis=1)
    assert np.quantile(came, 0.1) < 60.0
    assert np.quantile(came, 0.9) > 100.0


def test_jobs_that_came_once_are_not_expected_to_come_for_days() -> None:
    world = World(machine("a", 4), machine("b", 4))
    for number in range(8):
        world.submit(single(f"s{number}", 2), lasting=1_800.0, known=True)
    world.submit(gang("wide", 2, asks(4)), lasting=HOUR_S, known=True)
    start = start_of(world, "wide")
    assert "the last 9 submissions for later ones" in start.basis
    assert start.likely_at is not None
    assert start.latest_at is not None
    assert start.likely_at < 3.0 * HOUR_S
    assert start.latest_at < 12.0 * HOUR_S


def test_what_came_for_a_short_time_is_over_soon_in_half_of_the_futures() -> None:
    came = came_by_hour(remembering(6, 6), 8)
    goes_on = (came > 0).mean(axis=0)
    assert goes_on[0] > 0.7
    assert goes_on[4] == pytest.approx(0.5, abs=0.1)
    assert came[came > 0].mean() == pytest.approx(6.0, abs=1.0)


def test_nothing_more_is_expected_of_a_queue_that_was_deleted() -> None:
    world = World(machine("n", 4), queues=[queue("short"), queue("kept")])
    world.submit(single("runs", 3, queue="kept"), lasting=HOUR_S, known=True)
    for number in range(20):
        world.submit(single(f"s{number}", queue="short"), lasting=1.0, known=True)
        world.go_to(world.now + 60.0)
    world.tell(QueueRemoved(world.now, "short"))
    world.submit(single("waits", 4, queue="kept"))
    assert start_of(world, "waits").unknown == ""
    restored = Scheduler.restore(json.loads(json.dumps(world.core.snapshot())))
    assert restored.explain("waits", world.now).start is not None


def test_what_is_remembered_of_submissions_is_bounded_and_covers_all_hours() -> None:
    history, state = ArrivalHistory(), State(Settings())
    for number in range(4 * REMEMBERED):
        at = HOUR_S * (number // 512 + number % 512 / 512)
        history.add(new_record(state, single(f"{number}"), number, at))
    assert [hour.count for hour in history.hours] == [512] * 8
    assert min(len(hour.records) for hour in history.hours) >= REMEMBERED // 32
    assert sum(len(hour.records) for hour in history.hours) <= REMEMBERED


# ---- who leaves -----------------------------------------------------------------------------------------------------


def of_class(priority: Priority, size: int) -> Candidate:
    demand = Demand(((1, 1000 * size, bytes([1, 1, 1])),), 1000 * size)
    return Candidate(size, demand, (1.0, -float(priority), 0.0), Length(60.0), 60.0, 60.0, may_leave=True)


def three_that_run(priority: Priority) -> Displacer:
    """Each on a node of its own, which it fills."""
    displacer = Displacer(Preemption(False, True, np.ones((16, 64)), 0.0, 0.0))
    for number in range(3):
        runs = of_class(priority, 4)
        entry = (runs.rank, number, 0.0, runs)
        displacer.add(number, HeldRoom(entry, [(number, 4000)], 60.0, -100.0 + number, Counted()))
    return displacer


def test_nobody_leaves_for_one_class_and_somebody_for_a_higher_one_that_asks_for_the_same() -> None:
    future = three_that_run(Priority.NORMAL)
    assert future.leaving_for(of_class(Priority.NORMAL, 4), [0, 0, 0], (), 0.0, ()) == []
    assert len(future.leaving_for(of_class(Priority.HIGH, 4), [0, 0, 0], (), 0.0, ())) == 1


def test_futures_that_begin_alike_have_others_leave_independently_of_each_other() -> None:
    begin, high = three_that_run(Priority.LOW), of_class(Priority.HIGH, 4)
    for _ in range(2):
        future = begin.fork(())
        for leaves in (2, 1, 0):  # the youngest has lost least
            assert [each.number for each in future.leaving_for(high, [0, 0, 0], (), 0.0, ())] == [leaves]
            future.remove(leaves)
        future.add(3, HeldRoom((high.rank, 3, 0.0, high), [(2, 4000)], 60.0, 0.0, Counted()))
        assert future.leaving_for(high, [0, 0, 0], (), 0.0, ()) == []
    assert [each.number for each in begin.leaving_for(high, [0, 0, 0], (), 0.0, ())] == [2]


def least_harm(held: Sequence[HeldOnNode], harm: Sequence[float], missing: int) -> float:
    """Of those leaving a node, the last first, until so much is free."""
    done = 0.0
    for each in reversed(held):
        if missing <= 0:
            break
        if harm[each.number] < math.inf:
            done, missing = done + harm[each.number], missing - each.amount
    return done if missing <= 0 else math.inf


@pytest.mark.parametrize("seed", range(20))
def test_room_on_a_node_costs_no_less_than_its_bound_and_no_node_is_left_out_that_may_have_any(seed: int) -> None:
    draws, nodes = random.Random(seed), HeldNodes()
    begun = {number: (draws.uniform(-60.0, 0.0), [(draws.randrange(8), draws.randint(1, 8))]) for number in range(40)}
    for number, (begun_s, taken) in begun.items():
        nodes.add(number, begun_s, taken)
    for number in draws.sample(range(40), 10):
        nodes.remove(number, *begun.pop(number))
    harm = [draws.uniform(1.0, 9.0) if each in begun and draws.random() < 0.6 else math.inf for each in range(40)]
    free = [draws.randrange(4) for _ in range(8)]
    bounds, count = nodes.bounds(np.array(harm), 8, free)
    assert bounds == sorted(bounds)
    assert count == sum(any(harm[each.number] < math.inf for each in held) for held in nodes.on_node.values())
    costs = {node: least_harm(held, harm, 8 - free[node]) for node, held in nodes.on_node.items()}
    assert all(bound <= costs[node] * (1.0 + 1e-12) for bound, _, node in bounds)
    assert {node for _, _, node in bounds} == {node for node, cost in costs.items() if cost < math.inf}


@pytest.mark.parametrize("seed", range(20))
def test_a_guarantee_is_owed_to_the_same_runs_however_they_came_and_went(seed: int) -> None:
    draws, spare, running = random.Random(seed), [20], dict[int, HeldRoom]()
    watched = GuaranteedRuns()
    for number in range(60):
        if running and draws.random() < 0.4:
            gone = draws.choice(list(running))
            watched.remove(gone, run := running.pop(gone))
            spare[0] += dict(run.counted.guarantors[0].charges).get(0, 0)
        charge = draws.choice((0, 1, 2, 5))
        runs = replace(of_class(draws.choice((Priority.NORMAL, Priority.HIGH)), 1), may_leave=draws.random() < 0.7)
        guarantor = Guarantor(0, ((0, charge),) if charge else ())
        begun_s = draws.choice((float(number), -float(number)))
        running[number] = HeldRoom((runs.rank, number, 0.0, runs), [], 60.0, begun_s, Counted((), (guarantor,)))
        watched.add(number, running[number])
        spare[0] -= charge
        numbers, anew = np.array(list(running), dtype=np.int64), GuaranteedRuns()
        for each, run in running.items():
            anew.add(each, run)
        assert watched.owed_beside((), numbers, spare).tolist() == anew.owed_beside((), numbers, spare).tolist()
        assert not watched.owed_beside((0,), numbers, spare).any()


# ---- rooms ----------------------------------------------------------------------------------------------------------


def test_the_tightest_node_is_taken_and_given_back() -> None:
    rooms, first_two, every = Rooms([4000, 2000, 8000], 1000), bytes([1, 1, 0]), bytes([1, 1, 1])
    assert rooms.take([(1, 2000, first_two)], ()) == [(1, 2000)]
    assert rooms.take([(2, 2000, first_two)], ()) == [(0, 2000), (0, 2000)]
    assert rooms.take([(1, 1000, first_two)], ()) is None
    assert rooms.take([(1, 8000, every)], {2}) is None
    rooms.give([(0, 2000)])
    assert rooms.take([(1, 1500, first_two)], ()) == [(0, 1500)]


def test_what_finds_no_whole_place_takes_nothing() -> None:
    rooms = Rooms([4000, 3000], 1000)
    assert rooms.take([(2, 4000, bytes([1, 1]))], ()) is None
    assert rooms.free == [4000, 3000]


def test_the_nodes_that_first_have_room_are_found_with_the_instant() -> None:
    rooms, every = Rooms([0, 1000, 0], 1000), bytes([1, 1, 1])
    ends = [(5.0, [(0, 2000)]), (7.0, [(2, 4000)]), (9.0, [(1, 3000)])]
    assert rooms.nodes_of([(2, 4000, every)], ends) == (9.0, {1, 2})
    assert rooms.nodes_of([(3, 4000, every)], ends) is None


@pytest.mark.parametrize("seed", range(20))
def test_what_is_said_to_find_no_room_still_finds_none(seed: int) -> None:
    chance = random.Random(seed)
    rooms = Rooms([chance.randrange(9) for _ in range(8)], 2)
    avoided = {1, 2}
    asked: list[tuple[Part, ...]] = [
        tuple((chance.randrange(1, 4), amount, bytes(chance.choices([0, 1], k=8))) for amount in amounts)
        for amounts in [(8,), (6,), (3,), (1,), (0,), (4, 2), (5, 1)]
    ]
    in_vain, in_vain_beside = PartsInVain(rooms), PartsInVain(rooms)
    said, held = 0, []
    for _ in range(400):
        parts = chance.choice(asked)
        for known, kept in ((in_vain, ()), (in_vain_beside, avoided)):
            is_in_vain, taken = known.has(parts, kept), rooms.take(parts, kept)
            assert not (is_in_vain and taken)
            said += is_in_vain
            if taken is None:
                known.add(parts)
            else:
                held.append(taken)
        while held and chance.random() < 0.6:
            rooms.give(held.pop(chance.randrange(len(held))))
    assert said > 20


@pytest.mark.sources
@pytest.mark.parametrize("settings", [None, Settings(ordering="fifo"), Settings(reserve=False), Settings(preempt=True)])
def test_starts_are_those_found_by_looking_for_all_rooms_anew(
    settings: Settings | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, chance = World(*(machine(f"n{number}", 4) for number in range(6)), settings=settings), random.Random(7)
    for number in range(90):
        world.go_to(20.0 * number)
        job = gang(f"j{number}", 2 - bool(number % 5), asks(chance.randrange(1, 5)))
        world.submit(job, lasting=chance.uniform(200.0, 3_000.0), known=number % 3 > 0)
    waiting = [record.id for record in world.core.jobs.values() if record.state is JobState.QUEUED]
    starts = [start_of(world, job) for job in waiting]
    assert len(waiting) > 20
    monkeypatch.setattr(PartsInVain, "has", lambda *_: False)
    world.go_to(world.now)
    world.core.decide(world.now)
    assert [start_of(world, job) for job in waiting] == starts
