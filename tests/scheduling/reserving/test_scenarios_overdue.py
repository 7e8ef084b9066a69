"""Jobs that keep being overtaken: in time they go first in their class, get room, and keep it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from worlds import World, asks, gang, machine, queue, single

from millpond.model.events import DurationPredicted, Event
from millpond.model.states import JobState
from millpond.model.task_spacing import SpacingKind, SpacingRule
from millpond.model.tenancy.cells import CellCount
from millpond.model.workloads import Checkpoint, CheckpointMode, Job, Priority
from millpond.scheduling.cycle.overdue import COST_PART, CROWDING, NEXT_LOOK, SMALL_CROWDING, bound_s
from millpond.scheduling.ordering.backlog import SMALL_WORK_S
from millpond.scheduling.ordering.queueing import FIRST_LOOK_S
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.scheduling.tenancy.queue_rank import MOST_LAG_S
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.kernel import Simulation
from millpond.simulation.kernel import World as SimulatedWorld
from millpond.simulation.trace import TraceJob, Workload, gang_roles

SMALL_S, STEP_S = 400, 150
"""A small job of one card comes so often and lasts so long: two thirds of the four cards of ``stream`` are busy."""


BOUNDING = ("default", "fair", "edf")
"""Orderings that bound waits."""


def stream(world: World, until: float, *, known: bool = True) -> None:
    """Small jobs come, one after another."""
    while world.now < until:
        world.submit(single(f"small-{world.now}", priority=Priority.NORMAL), lasting=SMALL_S, known=known)
        world.go_to(world.now + STEP_S)


def started_at(world: World, job: str) -> float:
    at = world.core.jobs[job].first_started_at
    return float("inf") if at is None else at


def crowded(settings: Settings, big: Job, *, known: bool = True) -> World:
    """Small jobs keep a node of four cards busy, and a job of four cards and 2,000 s comes."""
    world = World(machine("n", 4), settings=settings)
    stream(world, 1_200)
    world.submit(big, lasting=2_000, known=known)
    stream(world, 12_000)
    return world


@pytest.mark.parametrize("ordering", BOUNDING)
@pytest.mark.parametrize("preempt", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_a_wide_job_starts_beside_an_endless_stream_of_small_ones(ordering: str, preempt: bool, known: bool) -> None:
    world = crowded(Settings(ordering=ordering, preempt=preempt), single("big", 4), known=known)
    assert started_at(world, "big") < 1_200 + 2_000 + 4 * SMALL_S


@pytest.mark.parametrize("ordering", BOUNDING)
def test_a_wide_job_starts_although_no_length_at_all_is_known(ordering: str) -> None:
    world = World(machine("n", 4), settings=Settings(ordering=ordering))
    stream(world, 1_200, known=False)
    world.submit(single("big", 4), lasting=2_000)
    stream(world, 20_000, known=False)
    assert started_at(world, "big") < 1_200 + 4 * 2_000


@pytest.mark.parametrize("ordering", ["fair", "edf"])
def test_first_come_is_first_served_although_a_later_job_is_overdue_sooner(ordering: str) -> None:
    world = World(machine("n", 4), settings=Settings(ordering=ordering))
    world.submit(single("running", 4), lasting=9_000, known=True)
    world.submit(single("long", 4), lasting=8_000, known=True)
    world.submit(single("short"), lasting=100, known=True)
    world.go_to(9_000)
    assert [job for job in ("long", "short") if world.core.jobs[job].overdue] == ["short"]
    assert started_at(world, "long") == 9_000


def test_between_overdue_jobs_it_counts_what_their_users_have_had() -> None:
    world = World(machine("n", 1), settings=Settings())
    world.submit(single("holder", user="ann"), lasting=300_000)
    world.tell(DurationPredicted(world.now, "holder", 10_000, 20_000))  # it outlives that
    for job, user in (("her", "ann"), ("his", "bob")):
        world.go_to(world.now + 3_600)
        world.submit(single(job, user=user), lasting=60, known=True)
    world.go_to(299_000)
    assert all(world.core.jobs[job].overdue for job in ("her", "his"))
    world.go_to(300_001)
    assert world.running() == {"his"}
    assert MOST_LAG_S > 3_600  # one that had come so much sooner would have gone first


def test_without_reservations_the_stream_starves_a_wide_job() -> None:
    world = crowded(Settings(reserve=False), single("big", 4))
    assert world.state("big") is JobState.QUEUED


def test_what_waited_for_too_long_is_not_displaced_by_its_equals_again() -> None:
    world = crowded(Settings(preempt=True), single("big", 4))
    assert world.core.jobs["big"].preemptions == 0
    assert world.core.jobs["big"].state is JobState.SUCCEEDED


@pytest.mark.parametrize(("length_s", "latest"), [(1_500, 3_600), (2_500, 12_001)])
def test_a_job_that_is_small_beside_its_pool_displaces_its_equals_once_it_is_overdue(
    length_s: float, latest: float
) -> None:
    world = World(machine("n", 4), settings=Settings(preempt=True))
    saving = Checkpoint(CheckpointMode.SIGNAL)
    world.submit(*(single(f"running-{number}", checkpoint=saving) for number in range(4)), lasting=12_000, known=True)
    world.go_to(2_000)
    world.submit(single("wide", 4), lasting=length_s, known=True)
    while world.now < 13_000:
        world.go_to(world.now + 300)
        world.tick()
    assert latest - 1_000 < started_at(world, "wide") < latest


def test_a_small_job_waits_many_times_a_backlog_that_is_far_more_than_its_own_length() -> None:
    little, much = (bound_s(3_600.0, 900.0, backlog_s, 10.0, crowds=True) for backlog_s in (1_800.0, 36_000.0))
    assert little < 1.1 * (3_600.0 + 1_800.0)
    assert much > 6 * 36_000.0


def test_a_higher_class_goes_before_a_job_that_waited_for_too_long() -> None:
    world = World(machine("n", 4), settings=Settings())
    stream(world, 1_200)
    world.submit(single("big", 4), lasting=2_000, known=True)
    while world.core.jobs["big"].first_started_at is None and not world.core.jobs["big"].overdue:
        stream(world, world.now + STEP_S)
    world.submit(single("urgent", 4, priority=Priority.HIGH), lasting=100, known=True)
    stream(world, 12_000)
    assert started_at(world, "urgent") < started_at(world, "big") < float("inf")


def test_a_job_that_wants_the_cards_of_one_node_gets_them_although_others_use_them_too() -> None:
    world = World(machine("n", 4), machine("rare", 4, model="H100"), settings=Settings())
    for number in range(90):
        world.submit(single(f"small-{number}", 1), lasting=500, known=True)
        if number == 10:
            world.submit(gang("big", 1, asks(4, models=["H100"])), lasting=2_000, known=True)
        world.go_to(world.now + 90)
    assert started_at(world, "big") < 10 * 90 + 2_000 + 4 * 500


def test_a_job_that_asks_for_more_than_there_is_never_goes_first() -> None:
    world = World(machine("n", 4), settings=Settings())
    stream(world, 1_200)
    world.submit(gang("big", 2, asks(4)), lasting=2_000, known=True)
    stream(world, 12_000)
    waiting = [job for job in world.core.jobs.values() if job.state is JobState.QUEUED]
    assert [job.id for job in waiting] == ["big"]
    assert not world.core.jobs["big"].overdue


class Watched:
    """A scheduler, and the largest backlog beside one job while that waited."""

    def __init__(self, settings: Settings, job: str, cards: int, lengths: dict[str, float]) -> None:
        self.core = Scheduler(settings)
        self.backlog_s, self.waiting = 0.0, 0
        self.next_wakeup, self.forget = self.core.next_wakeup, self.core.forget
        self._job, self._cards, self._lengths = job, cards, lengths

    def handle(self, event: Event) -> None:
        self.core.handle(event)

    def decide(self, now: float) -> list[object]:
        record = self.core.jobs.get(self._job)
        if record is not None and record.state is JobState.QUEUED:
            waiting = [job for job in self.core.jobs.values() if job.state is JobState.QUEUED and job is not record]
            work = sum(job.gpu_milli / 1000 * self._lengths[job.id] for job in waiting)
            self.backlog_s = max(self.backlog_s, work / self._cards)
            self.waiting = max(self.waiting, len(waiting))
        return self.core.decide(now)


@pytest.mark.long
@pytest.mark.parametrize(("ordering", "preempt"), [("default", False), ("default", True), ("fair", False)])
@pytest.mark.parametrize("seed", range(4))
def test_no_job_waits_longer_than_the_law_allows(seed: int, ordering: str, preempt: bool) -> None:
    """The law of ``cycle.overdue``; draining takes no longer than what runs when the promise and the drain begin."""
    draws = random.Random(seed)
    nodes, per_node, load = draws.choice([2, 4]), 4, draws.uniform(0.3, 0.7)
    cards = nodes * per_node
    longest_s, entries, at = draws.uniform(600, 3_600), [], 0.0
    while at < 40 * longest_s:
        size, length_s = draws.choice([1, 1, 2]), draws.uniform(0.1, 1.0) * longest_s
        entries.append(TraceJob(Job("small", gang_roles(size, per_node)), at, length_s))
        at += draws.expovariate(load * cards / (1.33 * 0.55 * longest_s))
    wide, wide_s = draws.choice([cards // 2, cards]), draws.uniform(1.0, 4.0) * longest_s
    entries.append(TraceJob(Job("wide", gang_roles(wide, per_node), name="wide"), 5 * longest_s, wide_s))
    entries.sort(key=lambda entry: entry.submit_at)
    jobs = tuple(replace(each, job=replace(each.job, id=f"job-{i}")) for i, each in enumerate(entries))
    watched_id = next(entry.job.id for entry in jobs if entry.job.name == "wide")
    lengths = {entry.job.id: entry.duration_s for entry in jobs}
    watched = Watched(Settings(ordering=ordering, preempt=preempt), watched_id, cards, lengths)
    world = SimulatedWorld(uniform_cluster(f"{nodes}x{per_node}"), Workload(jobs, "law"), durations="exact")
    simulation = Simulation(world, watched)
    simulation.run()
    work = simulation.engine.works[watched_id]
    is_small = wide_s * wide / cards <= SMALL_WORK_S
    crowding = (1 + (watched.backlog_s / wide_s) ** 2) ** (SMALL_CROWDING if is_small else CROWDING) if preempt else 1
    cost_s = 0 if preempt and is_small else COST_PART * watched.waiting * wide_s * wide / cards
    law_s = wide_s + watched.backlog_s * crowding + cost_s
    promised_s = (1 + NEXT_LOOK) * law_s + FIRST_LOOK_S + (0 if is_small and ordering == "default" else longest_s)
    assert work.first_start_at - 5 * longest_s <= promised_s + 2 * longest_s


@pytest.mark.parametrize(
    ("cell", "tasks", "cards", "spacing"),
    [
        (CellCount("switch", 2), 1, 4, ()),
        (CellCount("node", 1), 2, 0.5, (SpacingRule(SpacingKind.APART, "host", ("worker",), ("worker",)),)),
        (CellCount("node", 1), 2, 1, (SpacingRule(SpacingKind.APART, "host", ("worker",), ("worker",)),)),
    ],
)
def test_no_room_is_kept_for_a_job_that_fits_in_no_cells_of_its_queue_where_all_cards_are_owed_as_cells(
    cell: CellCount, tasks: int, cards: float, spacing: tuple[SpacingRule, ...]
) -> None:
    teams = (queue(name, guarantee=4, cells=(cell,)) for name in ("vision", "speech"))
    nodes = (machine(name, 4, labels=(("host", name),)) for name in ("n0", "n1"))
    world = World(*nodes, queues=(*teams, queue("guest")))
    world.submit(*(single(name, 4, queue="guest") for name in ("first", "second")))
    world.submit(gang("stays", tasks, asks(cards), queue="vision", preemptible=False, spacing=spacing))
    world.go_to(100_000.0)
    world.submit(gang("wide", 3, asks(2), queue="guest"))
    world.end("first")
    world.end("second")
    assert world.running() == {"wide"}
