"""Walks that go on after plans: whoever has left by then changes the ranks and the limits of those behind.

Whether the lines are looked at one by one or by their table, those come next whose turn it is by the ranks of then, and
those that were not admitted, or found no room, when their turn came, have no other in that walk.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from worlds import World, machine, queue, single

from millpond.model.decisions import Decision
from millpond.model.events import DurationPredicted, JobSubmitted
from millpond.model.states import JobState
from millpond.model.workloads import Checkpoint, CheckpointMode, Priority
from millpond.scheduling.cycle import admission_cycle, line_heads
from millpond.scheduling.cycle.admission_cycle import AdmissionCycle, AdmissionVerdict, CycleOutcome
from millpond.scheduling.cycle.line_heads import TableHeads
from millpond.scheduling.ordering import waiting_lines
from millpond.scheduling.ordering.base import Ordering
from millpond.scheduling.ordering.default import Default
from millpond.scheduling.reclaiming import preemption_budget
from millpond.scheduling.reclaiming.attempts import Rule
from millpond.scheduling.reclaiming.plans import Planner
from millpond.scheduling.reclaiming.searching import Plan
from millpond.scheduling.records import JobRecord
from millpond.scheduling.settings import Settings
from seeds import few_then_many

pytestmark = pytest.mark.sources

ONE_BY_ONE, BY_TABLE = 1_000_000, -1
"""What ``FEW`` may be."""


@pytest.fixture(autouse=True)
def _look_as_far_as_there_is_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no line that has no prospects use up what others are allowed to look further, nor plans cost too much."""
    monkeypatch.setattr(admission_cycle, "LINE_DEPTH", 1_000_000)
    monkeypatch.setattr(line_heads, "CHUNK", 4)
    monkeypatch.setattr(preemption_budget, "PREEMPTION_BUDGET", 1.0)


def decisions_of(seed: int, machines: int, **bounds: int) -> list[Decision]:
    """Full machines of four cards, and then twice short work of queues with these bounds that displaces the long."""
    draws = random.Random(seed)
    world = World(
        *(machine(f"n{number}", 4) for number in range(machines)),
        settings=Settings(ordering="default", preempt=True),
        queues=[queue(name, **bounds) for name in ("red", "blue", "green")],
    )

    def submit(id_: str, *lengths: float) -> None:
        name, gpus = draws.choice(("red", "blue", "green")), draws.choice((0.25, 0.5, 1, 2))
        job = single(id_, gpus, queue=name, user=f"u{draws.randrange(3)}", checkpoint=Checkpoint(CheckpointMode.SIGNAL))
        world.tell(JobSubmitted(world.now, job))
        world.tell(DurationPredicted(world.now, id_, length := draws.choice(lengths), 2.0 * length))

    for number in range(6 * machines):
        submit(f"long{number}", 1e5, 1e6)
    for batch in range(2):
        world.go_to(world.now + 20_000.0)
        for number in range(4 * machines):
            submit(f"short{batch}-{number}", 20.0, 50.0, 200.0)
        world.go_to(world.now + 1.0)
    return list(world.decisions)


@pytest.mark.parametrize(
    ("bounds", "machines", "seeds"),
    few_then_many(
        [({}, 3, [0]), ({"limit": 3}, 2, [15]), ({"guarantee": 2}, 2, [10])],
        [
            ({}, 4, range(1, 6)),
            *(({"limit": 3}, 2, range(5)), ({"limit": 7}, 4, range(5))),
            *(({"guarantee": 4}, 3, range(5)), ({"limit": 5, "guarantee": 3}, 3, range(5))),
        ],
        [
            *(({"limit": 3}, 2, range(5, 15)), ({"limit": 7}, 4, range(5, 12))),
            *(({"guarantee": 4}, 3, range(5, 12)), ({"limit": 5, "guarantee": 3}, 3, range(5, 12))),
        ],
    ),
    ids=str,
)
def test_all_that_wait_have_their_turns_as_if_each_line_was_looked_at(
    bounds: dict[str, int], machines: int, seeds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = 0

    def counted(self: AdmissionCycle, plan: Plan, outcome: CycleOutcome) -> AdmissionVerdict:
        nonlocal followed
        followed += plan.by_ordering and bool(outcome.plans)
        return keep(self, plan, outcome)

    def decided(few: int) -> list[list[Decision]]:
        monkeypatch.setattr(waiting_lines, "FEW", few)
        return [decisions_of(seed, machines, **bounds) for seed in seeds]

    keep = AdmissionCycle._keep
    monkeypatch.setattr(AdmissionCycle, "_keep", counted)
    assert decided(BY_TABLE) == decided(ONE_BY_ONE)
    assert followed > len(seeds)


@pytest.mark.parametrize("seeds", few_then_many([], [range(1, 4)], [range(4, 20)]), ids=str)
@pytest.mark.parametrize("budget", [1e-4, 3e-4])
def test_nobody_is_looked_at_for_whom_more_would_leave_than_the_budget_pays_for(
    budget: float, seeds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_vain = 0

    def counted(self: Planner, record: JobRecord, rule: Rule) -> Plan | None:
        nonlocal in_vain
        plan = find(self, record, rule)
        in_vain += plan is None and self._search.found_room
        return plan

    def decided(few: int) -> tuple[list[list[Decision]], int]:
        nonlocal in_vain
        in_vain = 0
        monkeypatch.setattr(waiting_lines, "FEW", few)
        return [decisions_of(seed, 3) for seed in seeds], in_vain

    find = Planner._find
    monkeypatch.setattr(Planner, "_find", counted)
    monkeypatch.setattr(preemption_budget, "PREEMPTION_BUDGET", budget)
    (by_table, looked_at), (one_by_one, _) = decided(BY_TABLE), decided(ONE_BY_ONE)
    assert by_table == one_by_one
    monkeypatch.setattr(Default, "costs", Ordering.costs)
    assert looked_at < decided(BY_TABLE)[1]


@pytest.mark.parametrize(
    ("bounds", "machines", "seeds"),
    few_then_many(
        [({"guarantee": 2}, 2, [10])],
        [({}, 3, range(6)), ({"guarantee": 4}, 3, range(6)), ({"limit": 5, "guarantee": 3}, 3, range(6))],
        [({"guarantee": 4}, 3, range(6, 20)), ({"limit": 5, "guarantee": 3}, 3, range(6, 20))],
    ),
    ids=str,
)
def test_lines_stand_after_a_plan_where_they_would_if_all_were_ranked_again(
    bounds: dict[str, int], machines: int, seeds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = fallen = 0

    def checked(self: TableHeads) -> None:
        nonlocal compared, fallen
        before = self._places[0].copy()
        line_up(self)
        rows = np.flatnonzero(~self._had_turn)
        if not len(rows):
            return
        anew = self._standing.places(self._table.only(rows))
        assert [column[rows].tolist() for column in self._places] == [column.tolist() for column in anew]
        compared += 1
        fallen += bool((self._places[0] < before).any())

    line_up = TableHeads._line_up_again
    monkeypatch.setattr(TableHeads, "_line_up_again", checked)
    monkeypatch.setattr(waiting_lines, "FEW", BY_TABLE)
    for seed in seeds:
        decisions_of(seed, machines, **bounds)
    assert compared > len(seeds)
    assert fallen or not bounds.get("guarantee")


@pytest.mark.parametrize("few", [ONE_BY_ONE, BY_TABLE])
def test_a_job_that_its_guarantee_covers_once_another_has_left_goes_next(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_lines, "FEW", few)
    world = World(
        machine("n0", 4),
        settings=Settings(ordering="default", preempt=True),
        queues=[queue("red", guarantee=3), queue("blue")],
    )
    world.submit(single("wide", 4, queue="red", checkpoint=Checkpoint(CheckpointMode.SIGNAL)), lasting=1e6, known=True)
    world.go_to(20_000.0)
    for name, gpus, length in (("first", 1, 10.0), ("beyond", 3, 20.0), ("covered", 2, 200.0)):
        world.tell(JobSubmitted(world.now, single(name, gpus, queue="red")))
        world.tell(DurationPredicted(world.now, name, length, length))
    world.settle()
    assert world.running() == {"first", "covered"}


def test_background_work_may_be_the_only_work_of_a_table_that_could_displace_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting_lines, "FEW", BY_TABLE)
    world = World(machine("n0", 2), settings=Settings(ordering="default", preempt=True))
    able = {"priority": Priority.BACKGROUND, "checkpoint": Checkpoint(CheckpointMode.SIGNAL)}
    world.submit(single("long", 1, **able), lasting=1e6, known=True)
    world.submit(single("own", 1, preemptible=False), lasting=1e6, known=True)
    world.go_to(20_000.0)
    world.submit(single("short", 1, **able), lasting=20.0, known=True)
    world.submit(single("wide", 2), lasting=1e6, known=True)
    assert world.core.jobs["short"].state is JobState.QUEUED
