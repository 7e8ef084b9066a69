"""A copy of a live scheduler goes on as the original does, and a change makes the difference that it should."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from millpond.forecasting.durations import Forecast
from millpond.model.events import (
    Event,
    JobSubmitted,
    NodeClosed,
    NodeJoined,
    PolicyChanged,
    QueueChanged,
    StopRequested,
    SuspendRequested,
)
from millpond.model.hardware.card_layouts import CardLayout, DivisibleCard
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Cordon, Node
from millpond.model.resources import Amount, TaskRequest
from millpond.model.tenancy.tenants import Queue
from millpond.model.workloads import Job, Role
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import PreemptionCost, Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.synthetic import SyntheticOptions, synthesise
from millpond.simulation.trace import TraceJob, Workload, gang_roles
from millpond.simulation.what_if.answers import WhatIfQuery, answer_live, answer_past
from millpond.simulation.what_if.plays import NEVER, LiveCopy, PastJob
from millpond.simulation.world.costs import Costs
from millpond.specs.api.reports.what_if import WhatIfInfo
from seeds import few_then_many

FREE = PreemptionCost(0.0, 0.0)
CLUSTER = uniform_cluster("4x8")


def crowd(seed: int) -> Workload:
    return synthesise(SyntheticOptions(jobs=150, load=4.0), 32, 8, seed)


NEEDS_HALF = Job("half", (Role.rigid(TaskRequest(devices=1, models=("GPU-MIG-half",)), 1),))


def divisible_cluster() -> tuple[Node, ...]:
    """A cluster whose cards could be divided into halves."""
    half = Device("h", 0, "nvidia", "GPU-MIG-half", 8_000)
    layouts = (CardLayout(("half", "half"), (half,)),)
    return tuple(
        replace(node, divisible=tuple(DivisibleCard(card.uuid, layouts) for card in node.devices)) for node in CLUSTER
    )


def world_of(workload: Workload, settings: Settings, until: float = NEVER) -> World:
    costs = Costs(preemption=settings.preemption_cost, loses_unsaved=True)
    return World(CLUSTER, workload, "exact", costs, until=until)


def past_job(entry: TraceJob) -> PastJob:
    return PastJob(entry, None, counts=True)


def halfway(workload: Workload, settings: Settings, at: float) -> dict[str, Any]:
    """A snapshot of a scheduler in the midst of its work."""
    scheduler = Scheduler(settings)
    Simulation(world_of(workload, settings, at), scheduler).run()
    return json.loads(json.dumps(scheduler.snapshot()))


@pytest.mark.parametrize(
    "settings",
    few_then_many(
        [Settings()],
        [Settings(preempt=True, preemption_cost=FREE), Settings("srtf", preempt=True, preemption_cost=FREE)],
    ),
)
@pytest.mark.parametrize("seed", few_then_many([1], [2]))
def test_a_copy_starts_and_ends_every_job_when_the_original_does(settings: Settings, seed: int) -> None:
    workload = crowd(seed)
    at = workload.jobs[-1].submit_at + 1.0
    whole = Simulation(world_of(workload, settings), Scheduler(settings))
    whole.run()
    played = LiveCopy(halfway(workload, settings, at), at).play((), NEVER)
    waiting = [job for job in played.jobs.values() if not job.ran]
    assert len(waiting) > 5
    for name, job in played.jobs.items():
        original = whole.engine.works[name]
        assert job.ended_at == pytest.approx(original.ended_at)
        if not job.ran and original.first_start_at >= at:
            assert job.started_at == pytest.approx(original.first_start_at)


def unbounded() -> Any:
    return lambda: True


def bounded(cycles: int) -> Any:
    def bound() -> Any:
        left = iter(range(cycles))
        return lambda: next(left, None) is not None

    return bound


def line(*jobs: tuple[str, float, int]) -> Workload:
    """Jobs of (name, duration_s, gpus), submitted at 0."""
    entries = [TraceJob(Job(name, gang_roles(gpus, 8), user=name[0]), 0.0, s) for name, s, gpus in jobs]
    return Workload(tuple(entries), "test")


BUSY = line(("a1", 1000, 8), ("a2", 1000, 8), ("a3", 1000, 8), ("a4", 1000, 8), ("b1", 2000, 8), ("c1", 2000, 8))
"""Four nodes are full until 1000; two jobs wait, and would start then."""


def asked(*changes: Event, until: float = 86_400.0, bound: Any = unbounded) -> WhatIfInfo:
    snapshot = halfway(BUSY, Settings(), 100.0)
    return answer_live(snapshot, WhatIfQuery(changes, ("a change",), bound), 100.0, until)


def test_a_node_more_starts_who_waits_and_says_by_how_much_sooner() -> None:
    new = replace(uniform_cluster("1x8")[0], name="new")
    new = replace(new, devices=tuple(replace(card, uuid=f"new-{card.uuid}") for card in new.devices))
    answer = asked(NodeJoined(100.0, new))
    assert (answer.before.gpus, answer.after.gpus) == (32, 40)
    (job,) = answer.jobs
    assert (job.effect, job.job, job.start_before, job.start_after) == ("earlier", "b1", 1000, 100)
    assert [(share.name, share.earlier, share.later) for share in answer.users] == [("b", 1, 0)]
    assert (answer.before.mean_wait_s, answer.after.mean_wait_s) == (300.0, 150.0)
    assert (answer.before.utilisation_percent, answer.after.utilisation_percent) == pytest.approx(
        (52.777778, 42.222222)
    )


def test_a_drained_node_costs_its_job_the_run_and_shows_it_as_a_loss() -> None:
    node = CLUSTER[0].name
    answer = asked(NodeClosed(100.0, node, Cordon(100.0, drain=True)))
    loser = answer.jobs[0]
    assert (loser.effect, loser.ran, loser.preemptions_after) == ("later", True, 1), answer
    assert answer.after.gpus == 24
    assert answer.after.preemptions == 1


def test_who_is_ended_more_often_and_starts_anew_at_once_is_named_as_a_loss() -> None:
    workload = line(("a1", 1000, 8), ("a2", 1000, 8))
    snapshot = halfway(workload, Settings(preemption_cost=FREE), 100.0)
    placement = Scheduler.restore(snapshot).jobs["a1"].tasks[0].placement
    assert placement is not None
    change = NodeClosed(100.0, placement.node, Cordon(100.0, drain=True))
    answer = answer_live(snapshot, WhatIfQuery((change,), ("without it",), unbounded), 100.0, 86_400.0)
    (loser,) = answer.jobs
    assert (loser.effect, loser.preemptions_before, loser.preemptions_after) == ("later", 0, 1)
    assert loser.wait_after_s - loser.wait_before_s < 1


def test_a_cancelled_job_is_no_part_of_the_comparison_and_leaves_its_room() -> None:
    answer = asked(StopRequested(100.0, "a1"))
    assert answer.compared == 5
    assert [(job.job, job.start_after) for job in answer.jobs] == [("b1", 100)]


def test_of_the_jobs_whose_lengths_are_guesses_those_that_are_compared_are_counted() -> None:
    scheduler = Scheduler.restore(halfway(BUSY, Settings(), 100.0))
    for name in ("x", "y"):
        scheduler.handle(JobSubmitted(100.0, Job(name, gang_roles(8, 8), user=name)))
    snapshot = json.loads(json.dumps(scheduler.snapshot()))
    answer = answer_live(snapshot, WhatIfQuery((StopRequested(100.0, "x"),), ("",), unbounded), 100.0, 86_400.0)
    assert answer.caveats[-1].startswith("of 1 of 7 jobs nothing is known")


def test_a_job_that_was_suspended_on_request_is_no_part_of_the_comparison_as_it_waits_for_its_owner() -> None:
    scheduler = Scheduler.restore(halfway(BUSY, Settings(), 100.0))
    scheduler.handle(SuspendRequested(100.0, "a1"))
    snapshot = json.loads(json.dumps(scheduler.snapshot()))
    answer = answer_live(snapshot, WhatIfQuery((StopRequested(100.0, "a2"),), ("",), unbounded), 100.0, 86_400.0)
    assert answer.compared == 4
    assert (answer.before.not_started, answer.before.longest_wait_s) == (0, 900.0), "b1 takes its cards, c1 waits"
    assert [(job.job, job.start_before, job.start_after) for job in answer.jobs] == [("c1", 1000, 100)]


def test_a_submitted_job_is_shown_with_its_start() -> None:
    job = Job("d1", gang_roles(8, 8), user="d")
    answer = asked(JobSubmitted(100.0, job))
    new = answer.jobs[0]
    assert (new.effect, new.job, new.start_before) == ("new", "d1", None)
    assert new.start_after == 1000.0
    assert answer.compared == 6


def test_a_limit_keeps_jobs_waiting_and_names_who_never_starts() -> None:
    queue = Queue("default", limit=Amount(8_000, 2**50, 2**50))
    (job,) = asked(QueueChanged(100.0, queue)).jobs
    assert (job.job, job.start_before, job.start_after) == ("c1", 1000, 3000)
    answer = asked(QueueChanged(100.0, queue), until=2500.0)
    assert (answer.jobs[0].start_after, answer.after.not_started) == (None, 1)


def test_without_a_difference_nobody_is_named() -> None:
    answer = asked(QueueChanged(100.0, Queue("default", weight=2.0)))
    assert not answer.jobs
    assert not answer.queues
    assert answer.before == answer.after


def test_both_plays_end_where_the_work_was_too_much() -> None:
    answer = asked(StopRequested(100.0, "a1"), bound=bounded(2))
    assert answer.cut
    assert answer.until < 86_400
    assert not math.isinf(answer.until)
    assert answer.before.not_started >= answer.after.not_started


def test_the_past_is_played_with_what_the_cluster_is_like_now() -> None:
    snapshot = halfway(BUSY, Settings(), 2.0)
    question = WhatIfQuery((StopRequested(0.0, "a1"),), ("without a1",), unbounded)
    past = [*map(past_job, BUSY.jobs), past_job(TraceJob(Job("z", gang_roles(64, 64)), 5.0, 10.0, "z"))]
    answer = answer_past(snapshot, past, 0.0, question, {"never ran": 3})
    assert answer.left_out == {"never ran": 3, "could never run on the present cluster": 1}
    assert answer.compared == 5
    assert [(job.job, job.start_before, job.start_after) for job in answer.jobs] == [("b1", 1000, 0)]
    assert "users would have acted otherwise" in answer.caveats[-1]


def test_a_job_of_the_past_that_cards_were_divided_for_does_not_block_all_behind_it() -> None:
    scheduler = Scheduler(Settings())
    for node in divisible_cluster():
        scheduler.handle(NodeJoined(0.0, node))
    past = [
        past_job(TraceJob(NEEDS_HALF, 0.0, 10.0, "half")),
        past_job(TraceJob(Job("z", gang_roles(1, 1)), 5.0, 9.0, "z")),
    ]
    question = WhatIfQuery((PolicyChanged(0.0, "fifo", "default", preempt=False, reserve=True),), ("fifo",), unbounded)
    answer = answer_past(json.loads(json.dumps(scheduler.snapshot())), past, 0.0, question, {})
    assert answer.left_out == {"could never run on the present cluster": 1}
    assert (answer.compared, answer.before.not_started, answer.after.not_started) == (1, 0, 0)


@pytest.mark.parametrize("cancelled", [(), (StopRequested(0.0, "half"),)])
def test_a_job_that_waits_for_a_card_to_be_divided_does_not_block_all_behind_it(cancelled: tuple[Event, ...]) -> None:
    scheduler = Scheduler(Settings())
    for node in divisible_cluster():
        scheduler.handle(NodeJoined(0.0, node))
    for job in (NEEDS_HALF, Job("z", gang_roles(1, 1))):
        scheduler.handle(JobSubmitted(0.0, job))
    changes = (PolicyChanged(0.0, "fifo", "default", preempt=False, reserve=True), *cancelled)
    question = WhatIfQuery(changes, ("fifo",), unbounded)
    answer = answer_live(json.loads(json.dumps(scheduler.snapshot())), question, 0.0, 86_400.0)
    assert (answer.compared, answer.before.not_started, answer.after.not_started) == (1, 0, 0)
    assert answer.left_out == {"wait for a card to be divided, which is not played": 1}


def test_the_past_is_played_with_the_forecasts_of_then() -> None:
    """Sixteen cards: of two jobs that wait for all of them the one goes first that was expected to be shorter."""
    snapshot = halfway(BUSY, Settings("sjf"), 2.0)
    entries = [
        TraceJob(Job(name, gang_roles(32, 8)), at, 100.0, name) for name, at in (("a", 0.0), ("b", 1.0), ("c", 2.0))
    ]
    question = WhatIfQuery((QueueChanged(0.0, Queue("default", weight=2.0)),), ("a weight",), unbounded)

    def mean_wait_s(*expected_s: float) -> float:
        guesses = [Forecast(each, each) for each in expected_s]
        past = [
            PastJob(entry, guess, counts=entry.job.id != "b") for entry, guess in zip(entries, guesses, strict=True)
        ]
        return answer_past(snapshot, past, 0.0, question, {}).before.mean_wait_s

    assert mean_wait_s(100.0, 50.0, 90.0) == pytest.approx((0.0 + 198.0) / 2)
    assert mean_wait_s(100.0, 90.0, 50.0) == pytest.approx((0.0 + 98.0) / 2)


def test_what_held_cards_when_a_span_of_the_past_began_is_played_and_not_compared() -> None:
    snapshot = halfway(BUSY, Settings(), 2.0)
    before = PastJob(TraceJob(Job("before", gang_roles(32, 8)), 0.0, 300.0, "before"), None, counts=False)
    past = [before, past_job(TraceJob(Job("in", gang_roles(32, 8)), 200.0, 50.0, "in"))]
    question = WhatIfQuery((QueueChanged(0.0, Queue("default", weight=2.0)),), ("a weight",), unbounded)
    answer = answer_past(snapshot, past, 200.0, question, {})
    assert (answer.begin_at, answer.compared, answer.before.mean_wait_s) == (200.0, 1, 100.0)
    assert answer.before.utilisation_percent == pytest.approx(100 * 150 / 3600)
