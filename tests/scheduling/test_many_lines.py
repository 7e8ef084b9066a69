"""Cycles over very many waiting lines leave out those without prospects, and decide as if they looked at each."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from bursts import FEW, OTHERS, settings_of, world_of
from worlds import World, asks, elastic, gang, machine, queue, single

from millpond.model.decisions import Decision, Stop
from millpond.model.events import (
    DurationPredicted,
    JobSubmitted,
    LimitChanged,
    NodeClosed,
    PoolChanged,
    ProgressMeasured,
)
from millpond.model.hardware.nodes import Cordon, Pool
from millpond.model.reasons import Cause
from millpond.model.tenancy.tenants import Limit
from millpond.model.workloads import Checkpoint, CheckpointMode, Job, Kind, Priority
from millpond.scheduling.cycle import admission_cycle, line_heads, overdue
from millpond.scheduling.cycle.admission_cycle import AdmissionCycle, AdmissionVerdict, CycleOutcome
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.prospects import Prospects
from millpond.scheduling.cycle.waiting_requests import WaitingRequests
from millpond.scheduling.ordering import waiting_lines
from millpond.scheduling.placement.arrays import BoolArray, Int64Array, NodeMask
from millpond.scheduling.reclaiming import preemption_budget
from millpond.scheduling.reclaiming.attempts import Rule
from millpond.scheduling.reclaiming.displacement_bounds import DisplacementBounds
from millpond.scheduling.reclaiming.plans import Planner
from millpond.scheduling.reclaiming.searching import Plan, VictimSearch
from millpond.scheduling.reclaiming.vain_searches import VainSearches
from millpond.scheduling.records import JobRecord
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.scheduling.tenancy.queue_rank import QueueRank
from millpond.simulation.kernel import Simulation
from seeds import few_then_many

pytestmark = pytest.mark.sources

NEVER_MANY, ALWAYS_MANY = 1_000_000, -1
CHUNK = 4
"""So many lines are sorted at a time."""


@pytest.fixture(autouse=True)
def _look_as_far_as_there_is_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no line that has no prospects use up what others are allowed to look further."""
    monkeypatch.setattr(admission_cycle, "LINE_DEPTH", 1_000_000)
    monkeypatch.setattr(line_heads, "CHUNK", CHUNK)


class Recorder(Scheduler):
    """A scheduler that remembers what it decided."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.decisions: list[Decision] = []

    def decide(self, now: float) -> list[Decision]:
        decisions = super().decide(now)
        self.decisions += decisions
        return decisions


@pytest.mark.parametrize("kind", few_then_many(FEW, OTHERS))
def test_bursts_of_all_kinds_are_decided_alike(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def decided(few: int) -> list[Decision]:
        monkeypatch.setattr(waiting_lines, "FEW", few)
        scheduler = Recorder(settings_of(kind))
        Simulation(world_of(kind, seed=5, jobs=50), scheduler).run()
        return scheduler.decisions

    one_by_one = decided(NEVER_MANY)
    assert decided(ALWAYS_MANY) == one_by_one
    assert len(one_by_one) >= 50


@pytest.mark.parametrize("few", [NEVER_MANY, ALWAYS_MANY])
def test_nobody_passes_the_first_of_a_queue_that_lets_nobody_pass_though_it_has_no_prospects(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_lines, "FEW", few)
    queues = (queue("lab", ordering="fifo"), queue("guest"))
    world = World(machine("n0", 4), machine("n1", 4), queues=queues, settings=Settings(reserve=False))
    world.submit(single("three", 3, priority=Priority.CRITICAL), single("four", 4, priority=Priority.CRITICAL))
    world.submit(single("first", 4, queue="guest", priority=Priority.HIGH))
    world.submit(single("wide", 2, queue="lab"), single("narrow", queue="lab"), single("other", queue="guest"))
    assert world.running() == {"three", "four", "other"}
    world.end("other")
    assert world.running() == {"three", "four"}
    assert world.core.explain("narrow", world.now).blocked_by == "wide"


def tenants(seed: int, *, displacing: bool) -> World:
    """Machines, some of which close, for queues with guarantees and limits, and users with limits."""
    draws, of_orderings = random.Random(seed), random.Random(-seed)
    policy = Settings(
        ordering=draws.choice(("default", "default", "fair", "fifo", "edf")),
        preempt=draws.random() < 0.4,
    )
    if displacing:
        policy = replace(policy, ordering="default", preempt=True)
    policy = replace(policy, ordering=policy.ordering + of_orderings.choice(("", "", ",dev=fifo", ",dev=edf")))
    queues = (
        queue("team", guarantee=draws.choice((0, 0, 4)), limit=draws.choice((None, 9))),
        queue("red", parent="team", limit=draws.choice((None, 3)), borrows=draws.random() < 0.7),
        queue("blue", parent="team", guarantee=draws.choice((0, 2))),
        queue(
            "guest",
            limit=draws.choice((None, 2)),
            ordering=of_orderings.choice(("", "", "edf", "fifo", "default,dev=ssf")),
        ),
    )
    models = ("A100", "V100")
    world = World(
        *(machine(f"n{number}", draws.choice((2, 4, 8)), model=draws.choice(models)) for number in range(3)),
        settings=policy,
        queues=queues,
    )
    if draws.random() < 0.5:
        world.tell(LimitChanged(0.0, Limit("ada", "", jobs=draws.choice((None, 2)), gpu_milli=3000)))
    if draws.random() < 0.5:
        world.tell(NodeClosed(0.0, "n0", Cordon(500.0, 900.0, planned=True)))
    return world


def job_of(draws: random.Random, id_: str) -> Job:
    fields = {
        "queue": draws.choice(("red", "blue", "guest", "default")),
        "user": draws.choice(("ada", "bob", "")),
        "priority": draws.choice((Priority.LOW, Priority.NORMAL, Priority.NORMAL, Priority.HIGH)),
        "time_limit_s": draws.choice((None, None, 700.0)),
    }
    others = random.Random(id_)
    fields["kind"] = others.choice((Kind.TRAIN, Kind.TRAIN, Kind.DEV))
    fields["deadline_s"] = others.choice((None, None, 5_000.0, 50_000.0))
    models = draws.choice(((), (), ("V100",)))
    match draws.choice(("single", "single", "single", "gang", "elastic")):
        case "single":
            return gang(id_, 1, asks(draws.choice((0, 0.25, 0.5, 1, 1, 2, 4)), models=models), **fields)
        case "gang":
            return gang(id_, draws.choice((2, 3)), asks(draws.choice((1, 2)), models=models), **fields)
        case _:
            return elastic(id_, (1, 2, 3), asks(1, models=models), **fields)


def decisions_of(seed: int, *, displacing: bool = False, measured: bool = False) -> list[Decision]:
    world, draws = tenants(seed, displacing=displacing), random.Random(seed + 1)
    if measured:
        world.tell(PoolChanged(0.0, Pool(measured_growth=True)))
        world.submit(*(elastic(f"gang-{number}", (1, 4, 4), asks(1)) for number in range(3)), lasting=2_000.0)
    for batch in range(4):
        for number in range(draws.choice((1, 6, 12))):
            job, length = job_of(draws, f"j{batch}-{number}"), draws.choice((20.0, 200.0, 2000.0))
            if draws.random() < 0.6:
                world.tell(JobSubmitted(world.now, job))
                world.tell(DurationPredicted(world.now, job.id, length, length * draws.choice((1.0, 2.0, 5.0))))
            else:
                world.submit(job, lasting=length)
        are_told_alike(world)
        if measured:
            measure(world, random.Random(seed + batch))
        world.go_to(world.now + draws.choice((1.0, 100.0, 400.0)))
        are_told_alike(world)
        for job in sorted(world.running())[: draws.choice((0, 3))]:
            world.end(job)
    return list(world.decisions)


def measure(world: World, draws: random.Random) -> None:
    """Each gang that runs is measured at the size that it has."""
    for job in sorted(world.running()):
        record = world.core.jobs[job]
        cards = len(world.nodes_of(job))
        if record.elastic:
            speed = cards ** draws.choice((0.3, 1.0))
            world.tell(ProgressMeasured(world.now, job, record.attempt, speed, 1_000 * cards))


def are_told_alike(world: World) -> None:
    """What the table says of all lines is what is said of the first of each."""
    state = world.core._state
    table, standing, now = state.waiting.table, QueueRank(state), state.now
    firsts = [state.waiting.lines[key][0][2] for key in table.keys]
    assert sorted(first.sequence for first in firsts) == sorted(line[0][1] for line in state.waiting.lines.values())
    places = list(zip(*(column.tolist() for column in standing.places(table)), strict=True))
    assert places == [(*rank, arrival) for rank, arrival in map(standing.place_of, firsts)]
    assert (now + state.ordering.time_left.cautious_of(table)).tolist() == pytest.approx(
        [state.ordering.time_left.cautious_end(first, now) for first in firsts]
    )
    assert state.held_lines()[0].tolist() == [state.holds_back(first) for first in firsts]
    if waiting_lines.FEW == ALWAYS_MANY:  # of two worlds that are compared, nobody asks in the other
        before = json.dumps(state.ordering.snapshot())
        for first in firsts[-1:]:
            world.core.explain(first.id, now)
        assert json.dumps(state.ordering.snapshot()) == before, "what is asked leaves no trace"


@pytest.mark.long
def test_jobs_that_are_overdue_have_the_same_rank_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []

    def overdue_at_once(self: overdue.Overdue, record: JobRecord, own_s: float) -> float:
        looked_at.append(record.id)
        return 0.0

    monkeypatch.setattr(overdue.Overdue, "_bound_s", overdue_at_once)
    monkeypatch.setattr(waiting_lines, "FEW", ALWAYS_MANY)
    for seed in range(6):
        decisions_of(seed)  # compares ranks all the time
    assert looked_at


@pytest.mark.parametrize("seeds", few_then_many([range(1)], [range(1, 16)], [range(16, 40)]), ids=str)
def test_queues_with_guarantees_and_limits_are_served_alike(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    def decided(few: int) -> list[list[Decision]]:
        monkeypatch.setattr(waiting_lines, "FEW", few)
        return [decisions_of(seed) for seed in seeds]

    one_by_one = decided(NEVER_MANY)
    assert decided(ALWAYS_MANY) == one_by_one
    assert sum(map(len, one_by_one)) > 10 * len(seeds)


@pytest.mark.parametrize("seeds", few_then_many([range(1)], [range(1, 16)], [range(16, 40)]), ids=str)
def test_growth_that_was_measured_is_given_back_alike(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    def decided(few: int) -> list[list[Decision]]:
        monkeypatch.setattr(waiting_lines, "FEW", few)
        return [decisions_of(seed, measured=True) for seed in seeds]

    one_by_one = decided(NEVER_MANY)
    assert decided(ALWAYS_MANY) == one_by_one
    given = [each for world in one_by_one for each in world if isinstance(each, Stop) and each.cause is Cause.SHRUNK]
    assert given


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs whose turns come in walks over many lines."""

    def counted(self: AdmissionCycle, record: JobRecord, outcome: CycleOutcome) -> AdmissionVerdict:
        found.append(record.id)
        return consider(self, record, outcome)

    found: list[str] = []
    consider = AdmissionCycle._consider
    monkeypatch.setattr(waiting_lines, "FEW", ALWAYS_MANY)
    monkeypatch.setattr(AdmissionCycle, "_consider", counted)
    return found


def test_once_the_last_room_is_taken_one_job_is_looked_at_in_vain_and_not_one_of_each_line(
    looked_at: list[str],
) -> None:
    world = World(machine("a", 4), settings=Settings(reserve=False))
    world.submit(single("runs", 2, preemptible=False))
    world.tell(JobSubmitted(world.now, single("wide", 4, priority=Priority.HIGH)))
    for number in range(8):
        world.tell(JobSubmitted(world.now, gang(f"waits{number}", 1, asks(2, cpus=number + 1))))
    assert [each.job for each in world.core.decide(world.now)] == ["waits0"]
    assert looked_at[-3:] == ["wide", "waits0", "waits1"]


def test_once_the_last_room_is_taken_one_job_is_looked_at_in_vain_of_those_for_whom_others_could_have_left_beside_it(
    looked_at: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preemption_budget, "PREEMPTION_BUDGET", 1.0)
    world = World(machine("a", 4), settings=Settings(ordering="default", preempt=True))
    able = Checkpoint(CheckpointMode.SIGNAL)
    world.submit(single("leaves", 1, checkpoint=able), lasting=1e7, known=True)
    world.submit(single("stays", 1, preemptible=False), lasting=1e7, known=True)
    world.go_to(world.now + 20_000.0)
    world.tell(JobSubmitted(world.now, single("wide", 4, priority=Priority.HIGH)))
    for number in range(8):
        job = gang(f"waits{number}", 1, asks(2, cpus=number + 1))
        world.tell(JobSubmitted(world.now, job))
        world.tell(DurationPredicted(world.now, job.id, 100.0, 200.0))
    looked_at.clear()
    assert [each.job for each in world.core.decide(world.now)] == ["waits0"]
    assert looked_at == ["wide", "waits0", "waits1"]


def test_after_a_plan_it_is_found_for_those_that_come_next_whether_others_may_leave_and_then_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def counted(self: Prospects, rows: Int64Array, *, at_first_glance: bool = False) -> BoolArray:
        if not at_first_glance:
            asked.append(len(rows))
        return make_room(self, rows, at_first_glance=at_first_glance)

    make_room = Prospects.make_room
    monkeypatch.setattr(Prospects, "make_room", counted)
    monkeypatch.setattr(waiting_lines, "FEW", ALWAYS_MANY)
    monkeypatch.setattr(preemption_budget, "PREEMPTION_BUDGET", 1.0)
    world = World(machine("a", 4), settings=Settings(ordering="default", preempt=True))
    world.submit(single("stays", 1, preemptible=False), lasting=1e7, known=True)
    able = Checkpoint(CheckpointMode.SIGNAL)
    for number in range(3):
        world.submit(single(f"leaves{number}", 1, checkpoint=able), lasting=1e7, known=True)
    world.submit(gang("without_cards", 1, asks(0, card_mib=0), checkpoint=able), lasting=1e7, known=True)
    world.go_to(world.now + 20_000.0)
    world.tell(JobSubmitted(world.now, single("wide", 4, priority=Priority.HIGH)))
    for number in range(20):
        job = gang(f"waits{number}", 1, asks(1, cpus=number + 1))
        world.tell(JobSubmitted(world.now, job))
        world.tell(DurationPredicted(world.now, job.id, 100.0 + number, 200.0))
    assert {each.job for each in world.core.decide(world.now)} == {"leaves0", "leaves1", "leaves2"}
    assert asked == [20, CHUNK, CHUNK, CHUNK, 13]  # without_cards could still leave, but not make room


@pytest.mark.parametrize("few", [NEVER_MANY, ALWAYS_MANY])
@pytest.mark.parametrize("seeds", few_then_many([range(5, 6)], [range(6, 12)]), ids=str)
def test_no_plan_is_missed_where_none_is_looked_for(seeds: range, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_lines, "FEW", few)
    monkeypatch.setattr(preemption_budget, "PREEMPTION_BUDGET", 1.0)
    decided = [decisions_of(seed, displacing=True) for seed in seeds]
    monkeypatch.setattr(DisplacementBounds, "of_class", lambda *_: float("inf"))
    monkeypatch.setattr(DisplacementBounds, "of_queues", lambda _, records: np.full(len(records), np.inf))
    monkeypatch.setattr(DisplacementBounds, "of_requests", lambda _, asked: np.full(len(asked.above), np.inf))
    assert [decisions_of(seed, displacing=True) for seed in seeds] == decided
    displaced = [each for each in chain(*decided) if isinstance(each, Stop) and each.cause is Cause.PREEMPTED]
    assert len(displaced) > len(seeds)


def test_where_nobody_runs_no_plan_is_found_although_a_queue_is_guaranteed_cards() -> None:
    settings = Settings(ordering="default", preempt=True)
    world = World(machine("a", 1), settings=settings, queues=[queue("guaranteed", guarantee=1)])
    world.tell(JobSubmitted(world.now, gang("waits", 2, asks(1))))
    with in_a_walk(world) as (_, firsts, planner, claims):
        assert planner.by_ordering(firsts[0], claims.mask(firsts[0])) is None


@pytest.mark.parametrize("seeds", few_then_many([range(1)], [range(1, 10)], [range(10, 40)]), ids=str)
def test_no_line_is_left_out_that_could_displace_work(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one whose first a reservation keeps off nodes, once no line goes on for that."""
    monkeypatch.setattr(waiting_lines, "FEW", ALWAYS_MANY)
    monkeypatch.setattr(preemption_budget, "PREEMPTION_BUDGET", 1.0)
    left_out, kept_off, could = 0, 0, 0
    for seed in seeds:
        world, draws = crowded(seed), random.Random(seed)
        for _ in range(4):
            world.end(draws.choice(sorted(world.running())))
            world.go_to(world.now + draws.choice((1.0, 3000.0)))
            with in_a_walk(world) as (prospects, firsts, planner, claims):
                kept_off += int(prospects.is_kept_off().sum())
                holders = {kept.job for kept in claims.reservations.values()}  # who have had their turns
                for first, makes_room in zip(firsts, prospects.make_room(np.arange(len(firsts))).tolist(), strict=True):
                    if first.id in holders:
                        continue
                    plan = planner.by_ordering(first, claims.mask(first))
                    assert plan is None or makes_room, first.id
                    left_out += not makes_room
                    could += plan is not None
                    if plan is not None:
                        break  # what could leave is not what it was
    assert left_out > 5 * len(seeds)
    assert kept_off
    assert could or len(seeds) < 20


@pytest.mark.parametrize(
    ("bound", "seeds"),
    few_then_many(
        [],
        [("limit", range(4)), ("", range(4)), ("guarantee", range(4))],
        [(bound, range(4, 20)) for bound in ("limit", "", "guarantee")],
    ),
    ids=str,
)
def test_what_was_searched_for_in_vain_is_not_searched_for_again(
    seeds: range, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all that may leave costs more than displacing equals may cost at the time, whatever bounds the queues."""
    monkeypatch.setattr(waiting_lines, "FEW", ALWAYS_MANY)
    monkeypatch.setattr(preemption_budget, "PREEMPTION_BUDGET", 0.02)
    searches = [0]

    def counted(self: VictimSearch, record: JobRecord, rule: Rule) -> Plan | None:
        searches[-1] += 1
        return find(self, record, rule)

    def decided() -> list[list[Decision]]:
        found = []
        for seed in seeds:
            world, draws = crowded(seed, **{bound: 12} if bound else {}), random.Random(seed)
            for _ in range(6):
                world.end(draws.choice(sorted(world.running())))
                world.go_to(world.now + draws.choice((1.0, 3000.0)))
            found.append(list(world.decisions))
        return found

    find = VictimSearch.find
    monkeypatch.setattr(VictimSearch, "find", counted)
    remembering = decided()
    searches.append(0)
    monkeypatch.setattr(VainSearches, "asked", lambda *_: None)
    assert decided() == remembering
    assert searches[0] < searches[1]
    assert any(isinstance(each, Stop) for each in chain(*remembering))


@pytest.mark.parametrize("seeds", few_then_many([range(2)], [range(2, 12)]), ids=str)
def test_for_whom_nothing_is_looked_for_as_others_found_no_room_there_is_no_plan(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_lines, "FEW", ALWAYS_MANY)
    monkeypatch.setattr(preemption_budget, "PREEMPTION_BUDGET", 1.0)
    spared, found = 0, 0

    def checked(self: Planner, record: JobRecord, mask: NodeMask | None) -> Plan | None:
        nonlocal spared, found
        vain = self._vain
        vain.look()
        is_spared = vain.has_no_room(record, vain.reached(record, vain.asked(record, mask)))
        plan = by_ordering(self, record, mask)
        spared, found = spared + is_spared, found + (plan is not None)
        if plan is None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(VainSearches, "asked", lambda *_: None)
                assert by_ordering(self, record, mask) is None, record.id
        return plan

    by_ordering = Planner.by_ordering
    monkeypatch.setattr(Planner, "by_ordering", checked)
    for seed in seeds:
        partly_borrowed(seed)
    assert spared > 10 * len(seeds)
    assert found >= len(seeds)


def partly_borrowed(seed: int) -> World:
    """Slices of cards, held in part on a guarantee, and many users who wait for slices or for whole cards."""
    draws = random.Random(seed)
    world = World(
        *(machine(f"n{number}", 4) for number in range(2)),
        settings=Settings(ordering="default", preempt=True),
        queues=[queue("owner", guarantee=draws.choice((3, 5, 7))), queue("guest"), queue("other")],
    )
    able = Checkpoint(CheckpointMode.SIGNAL)
    for number in range(16):
        length = draws.choice((1e5, 1e6))
        job = single(f"long{number}", 0.5, queue=draws.choice(("owner", "owner", "guest")), checkpoint=able)
        world.submit(job, lasting=length, known=True)
    world.go_to(world.now + 20_000.0)
    for number in range(24):
        name, gpus = draws.choice(("owner", "guest", "other")), draws.choice((0.5, 1, 1))
        job = single(f"short{number}", gpus, queue=name, user=f"u{number}", checkpoint=able)
        world.tell(JobSubmitted(world.now, job))
        world.tell(DurationPredicted(world.now, job.id, length := draws.choice((20.0, 200.0, 2_000.0)), 2.0 * length))
    for _ in range(4):
        world.end(draws.choice(sorted(world.running())))
        world.go_to(world.now + draws.choice((1.0, 3000.0)))
    return world


def crowded(seed: int, *, limit: int | None = None, guarantee: int = 0) -> World:
    """Full machines, queues of equal weight with much more work, and one large job that has waited too long.

    Args:
        limit, guarantee: cards of each of the queues; at most so many are guaranteed as there are.
    """
    draws = random.Random(seed)
    world = World(
        *(machine(f"n{number}", draws.choice((2, 4, 8))) for number in range(4)),
        settings=Settings(ordering="default", preempt=True),
        queues=[
            queue("red", limit=limit, guarantee=min(guarantee, 3)),
            queue("blue", limit=limit, guarantee=min(guarantee, 1)),
            queue("green", limit=limit),
        ],
    )
    for number in range(60):
        name, gpus = draws.choice(("red", "blue", "green")), draws.choice((0.25, 0.5, 1, 1, 2, 4))
        length = draws.choice((20.0, 200.0, 2000.0, 20_000.0))
        world.tell(JobSubmitted(world.now, single(f"{name}{number}", gpus, queue=name, user=f"u{number % 4}")))
        world.tell(DurationPredicted(world.now, f"{name}{number}", length, 2.0 * length))
        if draws.random() < 0.3:
            world.go_to(world.now + draws.choice((1.0, 3000.0)))
    return world


@contextmanager
def in_a_walk(world: World) -> Iterator[tuple[Prospects, list[JobRecord], Planner, Claims]]:
    """The prospects of the first of each line, when the walk has come to all who have a reservation."""
    core, state = world.core, world.core._state
    room_maker, claims, standing = core._cycle.admission._room_maker, core._claims, QueueRank(state)
    mark = state.journal.begin()
    core._placer.refresh()
    claims.begin_walk()
    claims.bind_all(list(claims.reservations))
    core._cycle.planner.begin(standing)
    displaced_at, claims.displaced_at = claims.displaced_at, -1.0
    room_maker.begin_walk()
    prospects = Prospects(state, core._placer, claims, standing, WaitingRequests(state, core._placer))
    prospects.look(room_maker.departures, is_short=True)
    yield prospects, [state.waiting.lines[key][0][2] for key in state.waiting.table.keys], core._cycle.planner, claims
    claims.displaced_at = displaced_at
    claims.end_walk()
    state.journal.rollback(mark)
