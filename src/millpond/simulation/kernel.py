"""The simulator: one loop that moves a virtual clock from event to event and asks the scheduler what to do.

The scheduler does not know this world from a live one. What differs is who answers (``SimulatedEngine``) and where
the time comes from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from millpond.forecasting.durations import DurationPredictor, Forecast
from millpond.model.decisions import Decision
from millpond.model.energy import EnergyRates
from millpond.model.errors import InvalidInputError
from millpond.model.events import (
    Confirmed,
    DurationPredicted,
    Ended,
    Event,
    JobSubmitted,
    LimitChanged,
    NodeJoined,
    PoolChanged,
    QueueChanged,
    StopRequested,
    Tick,
)
from millpond.model.hardware.node_power import PowerSavingRule
from millpond.model.hardware.nodes import Node, Pool
from millpond.model.states import Outcome
from millpond.model.tenancy.tenants import Limit, Queue
from millpond.model.workloads import Checkpoint, CheckpointMode, Job
from millpond.scheduling.scheduler import Scheduler
from millpond.simulation.trace import Workload, anonymous
from millpond.simulation.world.costs import Costs
from millpond.simulation.world.engine import SimulatedEngine
from millpond.simulation.world.node_caches import CacheSize, NodeCaches
from millpond.simulation.world.node_power import SimulatedNodePower
from millpond.simulation.world.power_curves import PowerCurve
from millpond.simulation.world.present_runs import NEVER
from millpond.simulation.world.simulated_rates import PublishedRates, SimulatedRates
from millpond.simulation.world.speeds import JobSpeed, SpeedTable
from millpond.simulation.world.work import Work

KNOWLEDGE = ("none", "predicted", "exact")
LEAST_STEP_S = 0.001
IDLE_WAKEUPS = 1000
PROGRESS_EVERY = 64


class ReplayObserver(Protocol):
    """Who follows what happens and what is decided, such as a meter of energy."""

    def happened(self, event: Event) -> None:
        """The next event of the log."""

    def decided(self, at: float, decisions: Sequence[Decision]) -> None:
        """What the cycle behind these events came to."""


class SchedulerInterface(Protocol):
    """What the simulator needs of a scheduler."""

    def handle(self, event: Event) -> None:
        """Take note of an event."""

    def decide(self, now: float) -> list[Decision]:
        """Run one cycle."""

    def next_wakeup(self, now: float) -> float | None:
        """An instant at which a cycle is worth running although no event arrives."""

    def forget(self, job_id: str) -> None:
        """Drop an ended job."""


@dataclass(frozen=True, slots=True)
class World:
    """What a replay rests on, beside the scheduler.

    Attributes:
        durations: what the policy learns about durations, one of ``KNOWLEDGE``. With ``none`` it sees nothing
            of a job but when it came and how many cards it asks for.
        suspends: work may be asked to leave its cards without ending, in the default pool.
        consolidates: work is moved so that whole nodes come free, in the default pool.
        packs: jobs share the cards of others where that pays, in the default pool; by their names, which the policy
            sees for that with any ``durations``.
        pools, queues, limits: as configured; without pools there is one, as the workload needs it, and a queue for
            each name that jobs use.
        forecasts: what was predicted of jobs, by id, with ``predicted``; None: what has ended by then predicts it.
        until: nothing is simulated from this instant on; jobs that have not ended then never do.
        rates: what cards draw, and what energy costs and emits.
        published: what jobs that may start later hear of the rates; None: nothing.
        machine_w: what each machine draws besides its cards.
        power: by pool, when its nodes are switched off and on; those of others never are.
        curves: how fast jobs, by their names in the workload, are at power caps, and what their cards draw; measured
            too. Jobs keep their names and slow-downs with ``durations`` that are known alone.
        speeds: how fast jobs, by their names in the workload, are on which cards. The policy learns what it measures.
        cache: of each node, for what jobs need; None: that is everywhere. Not with ``durations`` none.
    """

    nodes: tuple[Node, ...]
    workload: Workload
    durations: str = "none"
    costs: Costs = Costs()
    suspends: bool = False
    pools: tuple[Pool, ...] = ()
    queues: tuple[Queue, ...] = ()
    limits: tuple[Limit, ...] = ()
    until: float = NEVER
    rates: EnergyRates = EnergyRates()
    published: PublishedRates | None = None
    machine_w: float = 0.0
    power: Mapping[str, PowerSavingRule] = field(default_factory=dict)
    curves: Mapping[str, PowerCurve] = field(default_factory=dict)
    speeds: SpeedTable | None = None
    consolidates: bool = False
    packs: bool = False
    forecasts: Mapping[str, Forecast] | None = None
    cache: CacheSize | None = None

    def __post_init__(self) -> None:
        if self.durations not in KNOWLEDGE:
            raise InvalidInputError(f"unknown durations {self.durations!r}", f"choose one of {', '.join(KNOWLEDGE)}")

    def opening(self) -> list[Event]:
        """The events that define the cluster and the queues."""
        at = self.start_at
        own = replace(self.workload.pool(), suspends=self.suspends, consolidates=self.consolidates, packs=self.packs)
        pools = self.pools or (own,)
        queues = self.queues or (() if self.durations == "none" else self.workload.queues())
        return [
            *(PoolChanged(at, pool) for pool in pools),
            *(QueueChanged(at, queue) for queue in queues),
            *(LimitChanged(at, limit) for limit in self.limits),
            *(NodeJoined(at, node) for node in self.nodes),
        ]

    def truths(self) -> list[JobSpeed | None]:
        """How fast each job is, in the order of the workload; empty where that is the same everywhere."""
        table = self.speeds
        if table is None:
            return []
        return [
            JobSpeed.of(table, job.name, sum(role.desired * role.request.devices for role in job.roles))
            for job in (entry.job for entry in self.workload.jobs)
        ]

    def curves_of_jobs(self) -> list[PowerCurve | None]:
        """That of each job, in the order of the workload; empty where none has one."""
        return [self.curves.get(entry.job.name) for entry in self.workload.jobs] if self.curves else []

    @property
    def start_at(self) -> float:
        """The first submission."""
        return self.workload.jobs[0].submit_at

    @property
    def first_cycle_at(self) -> float:
        """When a cycle runs although nothing has happened; ``NEVER`` where the first submission has the first."""
        return NEVER


@dataclass(frozen=True, slots=True)
class LiveWorld(World):
    """A world that goes on from a scheduler which has its nodes, queues and jobs already.

    Attributes:
        begin_at: the present of that scheduler.
        changes: what happens to it then.
    """

    begin_at: float = 0.0
    changes: tuple[Event, ...] = ()

    def opening(self) -> list[Event]:
        """What is changed."""
        return list(self.changes)

    @property
    def start_at(self) -> float:
        """The present."""
        return self.begin_at

    @property
    def first_cycle_at(self) -> float:
        """At once."""
        return self.begin_at


class Simulation:
    """One replay of a world by one scheduler, which must be fresh.

    Args:
        record: keep every event that the scheduler saw, ticks included, in ``log``.
        observer: follows the log.

    Attributes:
        works: what became of each job, in order of submission.
        cut_at: the instant at which it was broken off; ``NEVER`` where it came to its end.
        forecasts: what was predicted for each job, by its index (with durations ``predicted`` only).
        caches: what nodes hold of what jobs need, where that matters.
    """

    def __init__(
        self,
        world: World,
        scheduler: SchedulerInterface,
        *,
        record: bool = False,
        observer: ReplayObserver | None = None,
    ) -> None:
        entries = world.workload.jobs
        self.world = world
        self.cycles = 0
        self.cut_at = NEVER
        self.log: list[Event] = []
        self.forecasts: dict[int, Forecast] = {}
        self._scheduler = scheduler
        self._record = record
        self._observer = observer
        self._handle = self._log_and_handle if record or observer is not None else scheduler.handle
        saves = world.costs.lost_work_s < NEVER and not world.pools
        checkpoint = Checkpoint(CheckpointMode.SIGNAL) if saves else Checkpoint()
        self._jobs: list[Job]
        if world.durations == "none":
            self._jobs = anonymous(entries, checkpoint, keeps_names=world.packs)
        else:
            self._jobs = [replace(entry.job, checkpoint=checkpoint) if saves else entry.job for entry in entries]
        lengths = (entry.duration_s for entry in entries)
        jobs = zip(self._jobs, lengths, strict=True)
        names = [node.name for node in world.nodes]
        self.caches = None if world.cache is None else NodeCaches(world.cache, names)
        self.engine = SimulatedEngine(
            world.nodes, jobs, world.costs, world.truths(), world.curves_of_jobs(), self.caches
        )
        learns = world.durations == "predicted" and world.forecasts is None
        self._predictor = DurationPredictor() if learns else None
        self._known = (world.forecasts or {}) if world.durations == "predicted" else {}
        self._exact = world.durations == "exact"
        self._ended = 0
        stops = (entry.stop_at for entry in entries)
        self._stops = sorted((at, index) for index, at in enumerate(stops) if at < NEVER)
        self._stopped = 0
        self._power = self._node_power(scheduler)
        self._rates = None
        if world.published is not None:
            self._rates = SimulatedRates(world.published, world.rates, self._handle, world.start_at)

    def _node_power(self, scheduler: SchedulerInterface) -> SimulatedNodePower | None:
        """What switches nodes; it asks more of a scheduler than others do."""
        world = self.world
        if not world.power:
            return None
        assert isinstance(scheduler, Scheduler), "nodes are switched by what the scheduler says of them"
        return SimulatedNodePower(world.nodes, world.power, scheduler.power_overview, self._handle, world.start_at)

    @property
    def works(self) -> list[Work]:
        """What the engine noted about each job, in order of submission."""
        return list(self.engine.works.values())

    def run(self, progress: Callable[[int], None] | None = None, goes_on: Callable[[], bool] | None = None) -> None:
        """Play the whole workload.

        Args:
            progress: called now and then with the number of jobs that have ended.
            goes_on: asked before each instant; what it answers no to is not played, nor is what comes later.
        """
        self._open()
        arrivals = [entry.submit_at for entry in self.world.workload.jobs]
        arrived, total, engine = 0, len(arrivals), self.engine
        wake, decided_at = self.world.first_cycle_at, -NEVER
        idle_wakeups = reported = 0
        while True:
            next_arrival = arrivals[arrived] if arrived < total else NEVER
            next_answer = engine.next_at()
            due = min(next_arrival, next_answer, self._next_stop(), wake, self._next_rates())
            now = min(due, self._next_switch())
            if now == NEVER or now >= self.world.until or idle_wakeups > IDLE_WAKEUPS:
                break
            if goes_on is not None and not goes_on():
                self.cut_at = now
                break
            engine.now = now
            # As on a server every instant at which anything happens has a cycle, the end of a start among them.
            changed = due <= now and now > decided_at
            if next_answer <= now:
                changed = self._take_answers() or changed
            if self._rates is not None:
                self._rates.tell(now)
            while arrived < total and arrivals[arrived] <= now:
                self._submit(arrived, now)
                arrived += 1
            self._stop_due(now)
            if self._power is not None:
                changed = self._power.let_join(now) or changed
            if changed:
                decided_at = now
                stuck = not self._decide(now) and arrived == total and engine.next_at() == NEVER
                idle_wakeups = idle_wakeups + 1 if stuck else 0
            # While there are answers to this very instant it comes again, and its last turn says when to wake.
            if due <= now or changed:
                wake = self._next_wakeup(now) if engine.next_at() > now else NEVER
            if self._power is not None and engine.next_at() > now:
                self._power.look(now)
            if progress is not None and self._ended >= reported + PROGRESS_EVERY:
                reported = self._ended
                progress(reported)
        if min(self.world.until, self.cut_at) < NEVER:
            engine.now = min(self.world.until, self.cut_at)
        engine.close()

    def _open(self) -> None:
        for event in self.world.opening():
            self._handle(event)
        if self.caches is not None:
            for node in self.world.nodes:
                self._handle(self.caches.report(node.name, self.world.start_at))

    def _decide(self, now: float) -> bool:
        """Play one cycle; whether anything was decided."""
        self.cycles += 1
        if self._record:
            self.log.append(Tick(now))
        decisions = self._scheduler.decide(now)
        if self._observer is not None:
            self._observer.decided(now, decisions)
        self.engine.apply(decisions)
        return bool(decisions)

    def _next_wakeup(self, now: float) -> float:
        """The scheduler's next wakeup, but never the present instant again: the clock has to move on."""
        wake = self._scheduler.next_wakeup(now)
        return NEVER if wake is None else max(wake, now + LEAST_STEP_S)

    def _next_switch(self) -> float:
        """When nodes are looked at next; ``NEVER`` once all work is over, and with it the play."""
        return NEVER if self._power is None or self._is_over else self._power.next_at()

    def _next_rates(self) -> float:
        """The same of when rates are told next."""
        return NEVER if self._rates is None or self._is_over else self._rates.next_at

    @property
    def _is_over(self) -> bool:
        return self._ended >= len(self._jobs) and self.world.until == NEVER

    def _log_and_handle(self, event: Event) -> None:
        if self._record:
            self.log.append(event)
        self._scheduler.handle(event)
        if self._observer is not None:
            self._observer.happened(event)

    def _submit(self, index: int, now: float) -> None:
        job = self._jobs[index]
        self._handle(JobSubmitted(now, job))
        if self._exact:
            length = self.world.workload.jobs[index].duration_s
            self._handle(DurationPredicted(now, job.id, length, length))
        else:
            forecast = self._known.get(job.id) if self._predictor is None else self._predictor.predict(job)
            if forecast is not None:
                self.forecasts[index] = forecast
                self._handle(DurationPredicted(now, job.id, forecast.expected_s, forecast.cautious_s))

    def _next_stop(self) -> float:
        return self._stops[self._stopped][0] if self._stopped < len(self._stops) else NEVER

    def _stop_due(self, now: float) -> None:
        """Users stop their jobs that have not ended by themselves."""
        while self._next_stop() <= now:
            job = self._jobs[self._stops[self._stopped][1]].id
            self._stopped += 1
            work = self.engine.works[job]
            if math.isnan(work.ended_at):
                self._handle(StopRequested(now, job))
                if not work.placements:
                    self._forget(job)

    def _forget(self, job: str) -> None:
        self._ended += 1
        self._scheduler.forget(job)

    def _take_answers(self) -> bool:
        """Hand the engine's answers on; whether any calls for a second cycle of this instant.

        That a start which takes no time was done does not: the cycle that decided it has seen its outcome.
        """
        changed = False
        departures = self.engine.departures
        for event in self.engine.events():
            self._handle(event)
            if type(event) is not Confirmed:
                changed = True
                if type(event) is Ended and event.outcome is Outcome.SUCCESS:
                    self._finish(event)
                elif type(event) is Ended and not math.isnan(self.engine.works[event.job].ended_at):
                    self._forget(event.job)
            elif event.decision in departures:
                changed = True
        return changed

    def _finish(self, event: Ended) -> None:
        self._forget(event.job)
        if self._predictor is not None:
            index = self.engine.works[event.job].index
            entry = self.world.workload.jobs[index]
            self._predictor.observe(entry.job, entry.duration_s)
