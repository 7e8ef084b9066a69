"""Running work is moved so that whole nodes come free: for a job that waits, and to empty nodes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import World, asks, gang, machine, queue, restarted, single

from ledgers import check_everything
from millpond.model.contents import Content
from millpond.model.decisions import Decision, Prefetch, Start, Stop
from millpond.model.events import (
    DurationPredicted,
    JobSubmitted,
    NodeClosed,
    NodeContents,
    NodeOpened,
    PoolChanged,
    StopRequested,
)
from millpond.model.hardware.nodes import Cordon, Pool
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.model.workloads import Checkpoint, CheckpointMode, Job, Kind, Priority
from millpond.scheduling.migration.consolidation import MOST_MOVED
from millpond.scheduling.migration.move_bounds import HORIZON_S, MOST_MOVING, PAY_BACK
from millpond.scheduling.migration.recent_moves import COOL_DOWN_S
from millpond.scheduling.records import JobRecord
from millpond.scheduling.settings import PreemptionCost

GATHERS = Pool(consolidates=True)
SAVES: dict[str, Any] = {"checkpoint": Checkpoint(CheckpointMode.SIGNAL)}
COST_S = PreemptionCost().small_s
LONG_S = 20_000.0
CARDS = 4


def world(nodes: int = 4, cards: int = 4, **fields: Any) -> World:
    return World(*(machine(f"n{number}", cards) for number in range(nodes)), **fields)


def scatter(here: World, *small: Job, cards: int = 4, lasting: float | None = None) -> None:
    """One job on each node, whose other cards are free.

    Args:
        lasting: how long they run, which the scheduler is told; else all that it knows are jobs that ran for hours.
    """
    for number, job in enumerate(small):
        here.submit(single(f"big{number}", cards - job.gpu_milli // 1000))
        here.submit(job, lasting=lasting, known=lasting is not None)
    if lasting is None:
        here.go_to(LONG_S)
    for number in range(len(small)):
        here.end(f"big{number}")
    assert len({here.nodes_of(job.id)[0] for job in small}) == len(small)


def small_jobs(count: int, cards: int = 1, **fields: Any) -> list[Job]:
    return [single(f"s{number}", cards, **{**SAVES, **fields}) for number in range(count)]


def gather(here: World, *jobs: Job) -> None:
    """Jobs come, if any, and from now on work is moved."""
    for job in jobs:
        here.tell(JobSubmitted(here.now, job))
    here.tell(PoolChanged(here.now, GATHERS))
    here.settle()


def moves(here: World, for_job: str | None = None) -> list[Stop]:
    stops = [stop for stop in here.of_kind(Stop) if stop.cause is Cause.CONSOLIDATED]
    return [stop for stop in stops if for_job in (None, stop.for_job)]


# ---- for a job that waits ---------------------------------------------------------------------------------------


def test_what_a_job_needs_is_fetched_to_the_node_that_it_moves_to_while_it_leaves() -> None:
    here = world(2)
    scatter(here, *small_jobs(2, contents=(Content("image:trainer", 6_000),)))
    for node in ("n0", "n1"):
        here.tell(NodeContents(here.now, node, (), 100))
    here.lingering |= {"s0", "s1"}
    gather(here, single("big", 4))
    (stop,) = moves(here)
    (fetch,) = here.of_kind(Prefetch)
    assert (fetch.job, fetch.attempt, [fetch.node]) == (stop.job, 2, here.nodes_of("s0" if stop.job == "s1" else "s1"))
    here.leave(stop.job)
    assert (here.nodes_of(stop.job), here.state("big")) == ([fetch.node], JobState.RUNNING)
    assert here.of_kind(Prefetch) == [fetch]


def test_who_leaves_for_one_job_is_not_moved_for_another_in_the_same_cycle() -> None:
    here = World(machine("a", 8), machine("b", 2), queues=(queue("one"), queue("two")))
    here.submit(single("fixed", 4, queue="two", preemptible=False), lasting=LONG_S, known=True)
    here.submit(single("filler", 2))
    here.submit(single("low", 2, queue="one", priority=Priority.LOW, **SAVES), lasting=LONG_S, known=True)
    here.end("filler")
    gather(here, single("high", 3, queue="two", priority=Priority.HIGH), single("wide", 3, queue="two"))
    assert (here.nodes_of("high"), here.nodes_of("low"), here.state("wide")) == (["a"], ["b"], JobState.QUEUED)


def test_a_job_of_a_whole_node_starts_because_small_ones_are_gathered() -> None:
    here = world()
    scatter(here, *small_jobs(4))
    gather(here, single("big", 4))
    assert here.running() == {"big", "s0", "s1", "s2", "s3"}
    (move,) = moves(here, "big")
    assert here.nodes_of(move.job) != here.nodes_of("big")
    start = here.of_kind(Start, "big")[0]
    assert start.cause is Cause.CONSOLIDATED
    assert here.core.jobs[move.job].preemptions == 0
    assert "restart-migrated" in here.why(move.job).summary
    check_everything(here.core)


def test_sixteen_cards_and_four_jobs_as_in_gandiva() -> None:
    """Jobs that share servers with others come to lie side by side as soon as those have left, one move at a time."""
    here = world()
    scatter(here, *(single(f"J{number}", 2, **SAVES) for number in range(4)))
    gather(here)
    here.go_to(here.now + 120.0)
    nodes = [here.nodes_of(f"J{number}")[0] for number in range(4)]
    assert len(set(nodes)) == 2
    assert len(moves(here)) == 2
    here.submit(gang("whole", 2, asks(4)))
    assert here.running() == {"whole", "J0", "J1", "J2", "J3"}
    check_everything(here.core)


def test_a_gang_over_two_nodes_gets_both() -> None:
    here = world()
    scatter(here, *small_jobs(4))
    gather(here, gang("g", 2, asks(4)))
    assert here.state("g") is JobState.RUNNING
    assert len(moves(here, "g")) == 2
    check_everything(here.core)


def test_nothing_is_moved_where_the_pool_does_not_say_so() -> None:
    here = world()
    scatter(here, *small_jobs(4))
    here.submit(single("big", 4))
    here.go_to(2 * LONG_S)
    assert not moves(here)
    assert here.state("big") is JobState.QUEUED


@pytest.mark.parametrize(
    "fields",
    [
        {"checkpoint": Checkpoint()},
        {"checkpoint": Checkpoint(CheckpointMode.TRANSPARENT)},
        {"preemptible": False},
        {"minimum_run_s": 100_000.0},
        {"kind": Kind.DEV},
        {"kind": Kind.SERVICE},
    ],
    ids=str,
)
def test_work_that_would_lose_by_it_or_is_protected_stays(fields: dict[str, Any]) -> None:
    here = world()
    scatter(here, *small_jobs(4, **fields))
    gather(here, single("big", 4))
    here.go_to(2 * LONG_S)
    assert not moves(here)
    assert here.state("big") is JobState.QUEUED


def test_nothing_is_moved_for_a_job_that_would_start_soon_anyway() -> None:
    paid_back_s = COST_S + PAY_BACK * COST_S / 4
    for lasting, moved in ((paid_back_s - 1, 0), (paid_back_s + 1, 1)):
        here = world()
        scatter(here, *small_jobs(4), lasting=lasting)
        gather(here, single("big", 4))
        assert len(moves(here, "big")) == moved


def test_the_first_node_that_comes_free_by_itself_is_what_moves_are_held_against() -> None:
    here = world(3)
    scatter(here, *small_jobs(3), lasting=COST_S + PAY_BACK * COST_S / 4 - 1)
    for job in ("s1", "s2"):
        here.tell(DurationPredicted(here.now, job, LONG_S, LONG_S))
    gather(here, single("big", 4))
    assert not moves(here, "big")


def test_what_a_move_takes_is_learnt_and_the_next_has_to_bring_more() -> None:
    here = world()
    scatter(here, *small_jobs(4))
    here.lingering |= {"s0", "s1", "s2", "s3"}
    gather(here, single("big", 4))
    (first,) = moves(here)
    assert here.why("big").summary == "1 job is being moved to other nodes, and the room is claimed for it"
    assert f"being restart-migrated from {here.nodes_of(first.job)[0]}/" in here.why(first.job).summary
    here.go_to(here.now + 0.75 * HORIZON_S)
    here.leave(first.job)
    assert here.state("big") is JobState.RUNNING
    assert here.core.snapshot()["recent_moves"]["away_s"] == 0.75 * HORIZON_S
    here.submit(single("next", 4))
    here.go_to(here.now + 2 * COOL_DOWN_S)
    assert moves(here) == [first]


def test_a_job_that_has_moved_rests() -> None:
    here = world(2)
    scatter(here, *small_jobs(2))
    gather(here, single("big", 4))
    (first,) = moves(here)
    began = here.now
    here.submit(single("x", 3))
    here.end("big")
    here.submit(single("y", 1))
    here.end("x")
    other = "s1" if first.job == "s0" else "s0"
    here.end(other)
    assert here.nodes_of("y") != here.nodes_of(first.job)
    here.submit(single("wide", 4))
    here.go_to(began + COOL_DOWN_S - 1)
    assert len(moves(here)) == 1
    here.go_to(began + COOL_DOWN_S)
    assert [move.job for move in moves(here)] == [first.job] * 2
    assert here.state("wide") is JobState.RUNNING


def lingering_plan() -> World:
    """A gang waits for two jobs to move, of which the first takes long to leave."""
    here = world()
    scatter(here, *small_jobs(4))
    here.lingering |= {"s0", "s1", "s2", "s3"}
    gather(here, gang("g", 2, asks(4)))
    return here


def test_in_a_small_pool_one_job_moves_at_a_time() -> None:
    here = lingering_plan()
    (first,) = moves(here)
    here.go_to(here.now + 30.0)
    assert moves(here) == [first]
    here.leave(first.job)
    _, second = moves(here)
    assert here.why("g").cause is Cause.ROOM_BEING_MADE
    here.leave(second.job)
    assert here.state("g") is JobState.RUNNING
    check_everything(here.core)


def test_room_is_kept_for_the_job_while_others_move() -> None:
    here = lingering_plan()
    here.submit(single("late", 4))
    assert here.state("late") is JobState.QUEUED
    for _ in range(2):
        here.leave(moves(here)[-1].job)
    assert here.running() >= {"g"}


def test_where_the_job_is_stopped_those_not_asked_yet_stay() -> None:
    here = lingering_plan()
    (first,) = moves(here)
    here.lingering.clear()
    here.tell(StopRequested(here.now, "g"))
    here.settle()
    here.leave(first.job)
    assert moves(here, "g") == [first]
    assert here.running() == {"s0", "s1", "s2", "s3"}
    check_everything(here.core)


def test_one_that_finds_no_other_place_any_more_stays_and_the_job_waits_on() -> None:
    here = lingering_plan()
    (first,) = moves(here)
    for node in ("n2", "n3"):
        here.tell(NodeClosed(here.now, node, Cordon(here.now)))
    here.leave(first.job)
    assert moves(here) == [first]
    assert here.running() == {"s0", "s1", "s2", "s3"} - {first.job}
    here.lingering.clear()
    for node in ("n2", "n3"):
        here.tell(NodeOpened(here.now, node))
    here.settle()
    assert here.running() >= {"s0", "s1", "s2", "s3"}
    check_everything(here.core)


def test_a_server_that_comes_back_in_mid_move_goes_on() -> None:
    here = lingering_plan()
    (first,) = moves(here)
    here.core = restarted(here.core)
    here.leave(first.job)
    here.leave(moves(here)[-1].job)
    assert here.state("g") is JobState.RUNNING
    check_everything(here.core)


def test_the_guarantee_of_a_queue_comes_first() -> None:
    queues = [queue("own", guarantee=4), queue("other")]
    here = world(2, queues=queues)
    scatter(here, *small_jobs(2, queue="other"))
    gather(here, single("big", 4, queue="own"))
    assert here.state("big") is JobState.RUNNING
    assert [stop.cause for stop in here.of_kind(Stop)] == [Cause.RECLAIMED]


# ---- to empty nodes ---------------------------------------------------------------------------------------------


def test_while_nobody_waits_lightly_used_nodes_are_emptied() -> None:
    here = world()
    scatter(here, *small_jobs(4))
    gather(here)
    here.go_to(here.now + 300.0)
    assert len({here.nodes_of(f"s{number}")[0] for number in range(4)}) == 1
    assert len(moves(here)) == 3
    assert {move.for_job for move in moves(here)} == {""}


def test_a_node_of_which_more_than_half_is_used_stays() -> None:
    here = world(2, 8)
    scatter(here, *small_jobs(2, 5), cards=8)
    here.submit(single("one", 3))
    gather(here)
    here.go_to(here.now + 300.0)
    assert not moves(here)


def test_a_node_is_not_emptied_that_others_on_it_cannot_leave() -> None:
    here = world(2)
    scatter(here, *small_jobs(2))
    here.submit(single("fixed", 1, preemptible=False))
    beside = next(job for job in ("s0", "s1") if here.nodes_of(job) == here.nodes_of("fixed"))
    gather(here)
    here.go_to(here.now + 300.0)
    assert beside not in {move.job for move in moves(here)}


def test_a_node_is_not_emptied_whose_work_soon_ends() -> None:
    paid_back_s = COST_S + PAY_BACK * COST_S / 4
    for lasting, moved in ((paid_back_s - 1, 0), (paid_back_s + 1, 1)):
        here = world(2)
        scatter(here, *small_jobs(2), lasting=lasting)
        gather(here)
        assert len(moves(here)) == moved


def test_while_a_job_waits_no_node_is_emptied() -> None:
    here = world()
    scatter(here, *small_jobs(4))
    here.tell(JobSubmitted(here.now, single("huge", 4, priority=2)))
    here.submit(*(single(f"x{number}", 3) for number in range(4)))
    gather(here)
    here.go_to(here.now + 300.0)
    assert not moves(here)


# ---- whatever happens -------------------------------------------------------------------------------------------


class Watched(World):
    """A world that holds every move against its bounds, by what it knows itself."""

    def __init__(self, nodes: int) -> None:
        super().__init__(*(machine(f"n{number}", CARDS) for number in range(nodes)), pools=(GATHERS,))
        self.cards = nodes * CARDS
        self.ends: dict[str, float] = {}
        self.moved_at: dict[str, float] = {}

    def tick(self) -> list[Decision]:
        jobs = self.core.jobs
        left = {job: self.ends[job] - record.service_s(self.now) for job, record in jobs.items()}
        decisions = super().tick()
        stops = [each for each in decisions if isinstance(each, Stop) and each.cause is Cause.CONSOLIDATED]
        for stop in stops:
            assert jobs[stop.job].job.checkpoint.mode is CheckpointMode.SIGNAL
            assert self.moved_at.get(stop.job, -COOL_DOWN_S) + COOL_DOWN_S <= self.now
            self.moved_at[stop.job] = self.now
        if not stops:
            return decisions
        self.check_few_move()
        cost_s = COST_S + self.core.snapshot()["recent_moves"]["away_s"]
        emptying = [stop.job for stop in stops if not stop.for_job]
        if emptying:
            self.check_paid_back(emptying, left, cost_s)
        for big in {stop.for_job for stop in stops} - {""}:
            moved = [stop.job for stop in moves(self) if stop.for_job == big]
            assert len(moved) <= MOST_MOVED
            assert cards_of(jobs, [big]) * HORIZON_S >= PAY_BACK * cost_s * cards_of(jobs, moved)
        return decisions

    def check_few_move(self) -> None:
        jobs = self.core.jobs
        away = [job for job in self.moved_at if jobs[job].migration and jobs[job].state is not JobState.RUNNING]
        away = [job for job in away if not jobs[job].state.ended]
        assert len(away) == 1 or cards_of(jobs, away) <= MOST_MOVING * self.cards

    def check_paid_back(self, moved: list[str], left: dict[str, float], cost_s: float) -> None:
        """All jobs of one node move to nodes that have work, which goes on for long enough."""
        (source,) = {self.nodes_of(job)[0] for job in moved}
        claims = {job: nodes for job, nodes in self.targets().items() if job in moved}
        saved_s = max(left[job] for job in moved)
        for target in {node for nodes in claims.values() for node in nodes}:
            assert target != source
            staying = [job for job in self.core.jobs if job not in moved and target in self.nodes_of(job)]
            saved_s = min(saved_s, max(left[job] for job in staying))
        gain = (min(saved_s, HORIZON_S) - cost_s) * CARDS
        assert gain >= PAY_BACK * cost_s * cards_of(self.core.jobs, moved) - 1e-6
        on_source = {job for job in self.core.jobs if source in self.nodes_of(job)}
        assert on_source == set(moved)

    def targets(self) -> dict[str, set[str]]:
        """Which places are kept for whom."""
        return {job: {place[1] for place in places} for job, places, *_ in self.core.snapshot()["claims"]}


def cards_of(jobs: Mapping[str, JobRecord], names: Iterable[str]) -> float:
    return sum(jobs[job].gpu_milli for job in names) / 1_000


def random_jobs(draws: random.Random) -> Iterator[tuple[float, int, float]]:
    """Seconds after the job before, cards, length: small ones that last, what lies between them for a while, gangs."""
    for _ in range(30):
        cards, minutes = draws.choice(
            ((1, 240), (1, 120), (2, 180), (3, 5), (3, 15), (2, 10), (2, 20), (4, 10), (8, 20))
        )
        yield draws.choice((0.0, 60.0, 240.0)), cards, 60.0 * draws.uniform(0.5, 1.0) * minutes


def test_every_move_is_paid_back_and_few_happen_at_once_and_seldom_to_one_job() -> None:
    seen: Counter[str] = Counter()
    for seed in range(5):
        draws = random.Random(seed)
        here = Watched(draws.randint(3, 6))
        for number, (after, cards, lasting) in enumerate(random_jobs(draws)):
            name = f"j{number}"
            here.ends[name] = lasting
            if seed % 2:
                here.lingering.add(name)
            tasks, each = (2, 4) if cards == 8 else (1, cards)
            here.submit(gang(name, tasks, asks(each), **SAVES), lasting=lasting, known=True)
            here.go_to(here.now + after)
            for job in here.stopped[:1]:
                here.leave(job)
            check_everything(here.core)
        seen += Counter("for a job" if move.for_job else "to empty a node" for move in moves(here))
    assert min(seen["for a job"], seen["to empty a node"]) >= 3, seen


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from((1, 1, 2, 3)), min_size=2, max_size=8))
def test_while_nothing_else_happens_moves_end_and_no_further_node_is_used(sizes: list[int]) -> None:
    here = world(len(sizes))
    scatter(here, *(single(f"s{number}", size, **SAVES) for number, size in enumerate(sizes)))
    gather(here)
    used = len(sizes)
    for _ in range(6):
        here.go_to(here.now + COOL_DOWN_S)
        now_used = len({here.nodes_of(f"s{number}")[0] for number in range(len(sizes))})
        assert now_used <= used
        used = now_used
    before = moves(here)
    here.go_to(here.now + 10 * COOL_DOWN_S)
    assert moves(here) == before
    assert len(before) <= 2 * len(sizes)
