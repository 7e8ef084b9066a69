"""The same jobs, played once: on a copy of a live scheduler, or from a recorded past.

On a copy the running work goes on, and everything that waits starts and ends; nothing new is submitted. Jobs run as
long as estimates expect. From the past all jobs come when they came and run as long as they ran, with the forecasts of
then, on a cluster that is configured like the live one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from millpond.forecasting.durations import Forecast
from millpond.model.codec import from_plain, to_plain
from millpond.model.decisions import Decision
from millpond.model.events import (
    DurationPredicted,
    Event,
    JobSubmitted,
    NodeClosed,
    NodeJoined,
    PolicyChanged,
    QueueChanged,
    StopRequested,
)
from millpond.model.hardware.nodes import Node
from millpond.model.states import JobState
from millpond.model.workloads import Job
from millpond.scheduling.copies.snapshots import settings_of
from millpond.scheduling.placement.kernels import fastest
from millpond.scheduling.records import BY_REQUEST
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.scheduling.suspension.suspension import BY_REST
from millpond.simulation.clusters import capacity_milli
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import LiveWorld, Simulation, World
from millpond.simulation.trace import TraceJob, Workload
from millpond.simulation.world.costs import Costs
from millpond.simulation.world.present_runs import present_runs

NEVER: Final = math.inf

WORTH_COMPILING: Final = 400
"""Nodes and jobs together from which on compiled kernels are worth the second that they take to load."""

GoesOn = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class PlayedJob:
    """What became of a job.

    Attributes:
        since: from when its waits count: its submission, or the beginning of the play if that was later.
        ran: it ran when the play began.
        started_at: its first start since then; None where there was none.
        ended_at: None where it did not end.
        waited_s: time since ``since`` in which it held no cards, up to its end or to that of the play.
    """

    job: Job
    since: float
    ran: bool
    started_at: float | None
    ended_at: float | None
    waited_s: float
    preemptions: int


@dataclass(frozen=True, slots=True)
class Played:
    """One play.

    Attributes:
        until: what happens from then on is not known.
        cut: the play was broken off there.
        held: (start, end, milli) of every stretch in which a job held cards.
        guessed: the jobs of which nothing is known of how long they run.
    """

    begin_at: float
    until: float
    cut: bool
    capacity_milli: int
    jobs: dict[str, PlayedJob]
    held: tuple[tuple[float, float, float], ...] = field(repr=False)
    guessed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job of the past, as it is played again.

    Attributes:
        forecast: what was predicted of its length.
        counts: it was submitted in the days that are judged and has ended; others only hold cards, or wait.
    """

    entry: TraceJob
    forecast: Forecast | None
    counts: bool


class LiveCopy:
    """A copy of a live scheduler, which goes on as often as it is asked to.

    Args:
        snapshot: of that scheduler.
        begin_at: its present.

    Attributes:
        undivided: jobs that wait for a card to be divided. Nothing divides cards here, so they are left out, and block
            nobody.
    """

    def __init__(self, snapshot: dict[str, Any], begin_at: float) -> None:
        nodes = _nodes(snapshot)
        self._base, self._nodes, self.undivided = Scheduler.restore(snapshot), _undivided(nodes), frozenset[str]()
        if self._nodes != nodes:
            original, plain = self._base, [to_plain(node) for node in self._nodes]
            self._base = Scheduler.restore({**snapshot, "nodes": plain})
            self.undivided = _need_division(original, self._base)
        if len(snapshot["nodes"]) + len(snapshot["jobs"]) >= WORTH_COMPILING:
            self._base.use_kernels(fastest())
        pending: list[Decision] = [from_plain(item) for item in snapshot["pending"]]
        self._pending = sorted(pending, key=lambda decision: decision.id)
        self._begin_at = begin_at

    def play(self, changes: tuple[Event, ...], until: float, goes_on: GoesOn | None = None) -> Played:
        """Go on with these changes up to an instant.

        Jobs that are suspended on request, and services at rest, are left out: they wait for a person, or for requests.

        Args:
            goes_on: as for ``Simulation.run``.

        Raises:
            InvalidInputError, NotFoundError, ConflictError: the scheduler refuses a change.
        """
        begin_at, scheduler = self._begin_at, self._base.fork()
        nodes = _changed_nodes(self._nodes, changes)
        costs = _costs(scheduler.settings)
        world = LiveWorld(
            nodes, Workload((), "live jobs"), "exact", costs, until=until, begin_at=begin_at, changes=changes
        )
        simulation = Simulation(world, scheduler)
        engine = simulation.engine
        engine.now = begin_at
        guessed = _enter_jobs(simulation, scheduler, changes, begin_at)
        live = [record for record in scheduler.jobs.values() if not record.state.ended]
        for job in self.undivided - {change.job for change in changes if isinstance(change, StopRequested)}:
            scheduler.handle(StopRequested(begin_at, job))
        for run in present_runs(live, self._pending, begin_at):
            engine.adopt(run)
        engine.apply(self._pending)
        ran = {record.id for record in live if record.started_at is not None}
        asleep = {record.id for record in live if record.suspended_by in (BY_REQUEST, BY_REST)} | self.undivided
        simulation.run(goes_on=goes_on)
        submitted = {name: begin_at for name in engine.works if name not in asleep}
        played = _played(simulation, submitted, ran)
        return replace(played, guessed=guessed & played.jobs.keys())


def past_world(snapshot: dict[str, Any], past: Sequence[PastJob], changes: tuple[Event, ...]) -> World:
    """The world in which recorded jobs come again: nodes, pools, queues and limits of a live scheduler, changed.

    Args:
        past: by the instant at which they come.
        changes: of queues and nodes.
    """
    queues = {queue.name: queue for queue in map(from_plain, snapshot["queues"])}
    queues.update({change.queue.name: change.queue for change in changes if isinstance(change, QueueChanged)})
    return World(
        _undivided(_changed_nodes(_nodes(snapshot), changes)),
        Workload(tuple(each.entry for each in past), "the recorded past"),
        "predicted",
        _costs(settings_of(snapshot)),
        pools=tuple(map(from_plain, snapshot["pools"])),
        queues=tuple(queues.values()),
        limits=tuple(map(from_plain, snapshot["limits"])),
        forecasts={each.entry.job.id: each.forecast for each in past if each.forecast is not None},
    )


def replay_past(world: World, settings: Settings, goes_on: GoesOn | None) -> Played:
    """Play recorded jobs."""
    compiling = len(world.nodes) + len(world.workload.jobs) >= WORTH_COMPILING
    scheduler = make_scheduler(settings) if compiling else Scheduler(settings)
    simulation = Simulation(world, scheduler)
    simulation.run(goes_on=goes_on)
    submitted = {entry.job.id: entry.submit_at for entry in world.workload.jobs}
    return _played(simulation, submitted, set())


def changed_settings(settings: Settings, changes: tuple[Event, ...]) -> Settings:
    """The settings after changes of policies."""
    for change in changes:
        if isinstance(change, PolicyChanged):
            settings = replace(
                settings,
                ordering=change.ordering,
                placement=change.placement,
                preempt=change.preempt,
                reserve=change.reserve,
            )
    return settings


def _costs(settings: Settings) -> Costs:
    """What a live cluster charges, as its policy expects it."""
    return Costs(preemption=settings.preemption_cost, loses_unsaved=True)


def _nodes(snapshot: dict[str, Any]) -> tuple[Node, ...]:
    return tuple(map(from_plain, snapshot["nodes"]))


def _need_division(original: Scheduler, undivided: Scheduler) -> frozenset[str]:
    """The jobs that wait, and could never start with the cards as they are divided now."""
    waiting = [record for record in undivided.jobs.values() if record.state is JobState.QUEUED]
    return frozenset(
        record.id for record in waiting if undivided.check(record.job) and original.check(record.job) is None
    )


def _undivided(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Nothing divides their cards: a job that needs that can never run there, instead of blocking those behind it."""
    return tuple([replace(node, divisible=()) for node in nodes])


def _changed_nodes(nodes: tuple[Node, ...], changes: tuple[Event, ...]) -> tuple[Node, ...]:
    gone = {change.node for change in changes if isinstance(change, NodeClosed)}
    joined = [change.node for change in changes if isinstance(change, NodeJoined)]
    return (*(node for node in nodes if node.name not in gone), *joined)


def _enter_jobs(simulation: Simulation, scheduler: Scheduler, changes: tuple[Event, ...], now: float) -> frozenset[str]:
    """Let the engine know of every job, the submitted ones too, and how long it goes on.

    Returns:
        those of which nothing is known.
    """
    probe = scheduler.fork()
    for change in changes:
        if isinstance(change, JobSubmitted | DurationPredicted):
            probe.handle(change)
    expected = probe.expected_lengths(now)
    for job, left_s in expected.left_s.items():
        simulation.engine.enter(probe.jobs[job].job, left_s)
    return expected.guessed


def _played(simulation: Simulation, submitted: dict[str, float], ran: set[str]) -> Played:
    engine, world = simulation.engine, simulation.world
    cut = simulation.cut_at < NEVER
    until = engine.now
    ends = [work.ended_at for work in engine.works.values()]
    if world.until == NEVER and not cut and not any(map(math.isnan, ends)):
        until = max(ends, default=until)  # later there were only instants at which nothing happened
    jobs = {}
    for name, work in engine.works.items():
        if submitted.get(name, NEVER) > until:
            continue
        ended_at = None if math.isnan(work.ended_at) else work.ended_at
        since = submitted[name]
        jobs[name] = PlayedJob(
            job=work.job,
            since=since,
            ran=name in ran,
            started_at=None if math.isnan(work.first_start_at) else work.first_start_at,
            ended_at=ended_at,
            waited_s=max((until if ended_at is None else ended_at) - since - work.held_s, 0.0),
            preemptions=work.preemptions,
        )
    held = []
    works = simulation.works
    for index, begin, end, placements, _ in engine.runs:
        job = works[index].job
        held.append((begin, end, job.gpu_milli * len(placements) / job.task_count))
    return Played(world.start_at, until, cut, capacity_milli(world.nodes), jobs, tuple(held))
