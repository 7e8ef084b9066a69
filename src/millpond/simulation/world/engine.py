"""An engine that only pretends: it answers decisions on a virtual clock, after the costs it was given.

It turns the work that each job has left into the instant of its end. A preemption or a failure adds work. A shared card
and missing tasks slow it down.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable, Sequence

from millpond.model.decisions import (
    CapPower,
    Decision,
    Migrate,
    Placement,
    Prefetch,
    Resume,
    Start,
    Stop,
    Suspend,
    SuspendMode,
)
from millpond.model.engine import Inventory, Observed
from millpond.model.events import Confirmed, Ended, Event, Refused
from millpond.model.hardware.nodes import Node
from millpond.model.reasons import Cause
from millpond.model.states import Outcome
from millpond.model.workloads import CheckpointMode, Job, Kind
from millpond.simulation.world.costs import Costs
from millpond.simulation.world.node_caches import NodeCaches
from millpond.simulation.world.power_curves import PowerCurve
from millpond.simulation.world.present_runs import NEVER, PresentRun
from millpond.simulation.world.speeds import JobSpeed
from millpond.simulation.world.work import Work

# Answers of one instant come in this order: ends first, for they make room.
_END, _FAIL, _STOPPED, _LEFT, _CONFIRM, _MEASURE = range(6)
MEASURED_AFTER_S = 30.0
"""So long after a job has another speed that is measured, as a server does (``server.jobs.progress``)."""
CAP_MEASURED_AFTER_S = 70.0
"""The same where a job's speed depends on power caps: one is in force by then, and steps were counted for a minute."""
MEASURED_AGAIN_S = 600.0
"""So often the speed of a job that may have a power cap is measured again."""
LEAST_CHANGE = 0.1
"""A speed that differs by less from the one measured last is not measured again."""
_FINAL_STOPS = frozenset({Cause.STOP_REQUESTED, Cause.TIME_LIMIT})


class SimulatedEngine:
    """Implements ``model.engine.Engine`` on a clock that its owner moves by setting ``now``.

    Args:
        jobs: every job that may be started, with its duration in seconds.
        truths: how fast each of them is on which cards, as far as that is known; measured like the steps of real jobs.
        curves: the same at power caps.
        caches: what nodes hold of what jobs need; None: jobs start at once everywhere. Tasks that join a run, and work
            that goes on elsewhere as it is, fetch nothing.

    Attributes:
        departures: ids of the decisions by which jobs left their cards without ending: room for others.
        runs: (job index, start, end, placements, work done in seconds at full speed) of every stretch in which a job
            held cards.
    """

    def __init__(
        self,
        nodes: tuple[Node, ...],
        jobs: Iterable[tuple[Job, float]],
        costs: Costs,
        truths: Sequence[JobSpeed | None] = (),
        curves: Sequence[PowerCurve | None] = (),
        caches: NodeCaches | None = None,
    ) -> None:
        self.now = 0.0
        self.works = {job.id: Work(index, job, duration) for index, (job, duration) in enumerate(jobs)}
        for work, truth in zip(self.works.values(), truths, strict=False):
            work.truth = truth
        for work, curve in zip(self.works.values(), curves, strict=False):
            work.curve = curve
        self._model_of = {device.uuid: device.model for node in nodes for device in node.devices} if truths else {}
        self.runs: list[tuple[int, float, float, tuple[Placement, ...], float]] = []
        self.departures: set[int] = set()
        self._nodes = nodes
        self._caches = caches
        self._costs = costs
        self._agenda: list[tuple[float, int, int, Work, int, int]] = []
        self._answers: list[Event] = []
        self._sequence = 0
        self._last_decision = -1
        self._shares = costs.sharing_speed < 1 or bool(truths)
        self._users_of: dict[str, set[Work]] = {}

    def enter(self, job: Job, duration_s: float) -> None:
        """One more job that may be started, or that runs."""
        self.works[job.id] = Work(len(self.works), job, duration_s)

    def adopt(self, present: PresentRun) -> None:
        """Take over a run that began before the simulation, as it is at ``now``; its job is among ``works``.

        Decisions that a real engine has not answered yet are applied afterwards.
        """
        work = self.works[present.job]
        work.attempt = present.attempt
        work.placements = present.placements
        work.overhead_s = present.overhead_s
        work.run_service_s = present.service_s
        work.first_start_at = self.now  # from here on it is one that ran before
        work.swapped_mib = present.swapped_mib
        work.version += 1
        if not present.is_suspended:
            work.held_since = self.now
            self._begin(work, self.now)
        if present.ends_at < NEVER:
            work.version += 1
            work.is_over = present.is_over
            self._plan(max(present.ends_at, self.now), _STOPPED, work)
        self._answers.extend(
            Ended(self.now, present.job, present.attempt, Outcome.STOPPED, task=task) for task in present.leaving
        )

    def next_at(self) -> float:
        """The instant of the next event, ``NEVER`` if none is to come."""
        if self._answers:
            return self.now
        agenda = self._agenda
        while agenda and agenda[0][4] != agenda[0][3].version:
            heapq.heappop(agenda)
        return agenda[0][0] if agenda else NEVER

    def events(self) -> list[Event]:
        """Everything due by ``now``, oldest first."""
        found, self._answers = self._answers, []
        agenda, now = self._agenda, self.now
        while agenda and agenda[0][0] <= now:
            at, kind, _, work, version, decision = heapq.heappop(agenda)
            if version != work.version:
                continue
            if kind == _END:
                self._release(work, at)
                work.ended_at = at
                found.append(Ended(at, work.job.id, work.attempt, Outcome.SUCCESS, exit_code=0))
            elif kind == _FAIL:
                found.append(self._failed(work, at))
            elif kind == _CONFIRM:
                self._begin(work, at)
                found.append(Confirmed(at, decision))
            elif kind == _LEFT:
                found.append(self._left(work, at, decision))
            elif kind == _MEASURE:
                found.append(work.measure(at))
                if work.curve is not None and work.job.max_slowdown:
                    self._plan(at + MEASURED_AGAIN_S, _MEASURE, work)
            else:
                found.append(self._stopped(work, at))
        return found

    def apply(self, decisions: Sequence[Decision]) -> None:
        """Answer decisions, now or after their cost. A decision that was taken on before is passed over."""
        for decision in decisions:
            if decision.id <= self._last_decision:
                continue
            self._last_decision = decision.id
            work = self.works[decision.job]
            match decision:
                case Start():
                    self._start(work, decision)
                case Stop():
                    self._stop(work, decision)
                case Suspend():
                    self._suspend(work, decision)
                case Resume():
                    self._resume(work, decision)
                case Migrate():
                    self._migrate(work, decision)
                case CapPower():
                    self._cap(work, decision)
                case Prefetch():
                    self._prefetch(decision)

    def close(self) -> None:
        """Nothing is simulated beyond ``now``: stretches in which cards are held end in the record."""
        for work in self.works.values():
            self._close_run(work, self.now)

    def inventory(self) -> Inventory:
        """All nodes, and all tasks that hold something."""
        tasks = tuple(
            Observed(work.job.id, work.attempt, placement.task, placement.node)
            for work in self.works.values()
            for placement in work.placements
        )
        return Inventory(self._nodes, tasks)

    def _plan(self, at: float, kind: int, work: Work, decision: int = 0) -> None:
        self._sequence += 1
        heapq.heappush(self._agenda, (at, kind, self._sequence, work, work.version, decision))

    def _start(self, work: Work, decision: Start) -> None:
        if decision.joins:
            self._resize(work, (*work.placements, *decision.placements))
            self._answers.append(Confirmed(self.now, decision.id))
            return
        ran_before = work.first_start_at == work.first_start_at
        delay = self._costs.start_s + (self._costs.restore_s if ran_before else 0.0)
        if not ran_before:
            work.first_start_at = self.now
        work.attempt = decision.attempt
        work.placements = decision.placements
        work.held_since = self.now
        work.run_service_s = 0.0
        work.fails_after_s = self._failure_of(work)
        work.started = False
        work.measured, work.cap_w = math.nan, 0.0
        work.version += 1
        delay += self._fetch(work)
        self._begin_after(delay, work, decision)

    def _begin_after(self, delay_s: float, work: Work, decision: Start | Resume) -> None:
        if delay_s:
            self._plan(self.now + delay_s, _CONFIRM, work, decision.id)
        else:
            self._begin(work, self.now)
            self._answers.append(Confirmed(self.now, decision.id))

    def _fetch(self, work: Work) -> float:
        """Seconds until all nodes of a run that starts have what it needs."""
        if self._caches is None or not work.job.contents:
            return 0.0
        work.caching = tuple(dict.fromkeys(placement.node for placement in work.placements))
        ready_at, changed = self._caches.begin(work.job.contents, work.caching, self.now)
        self._answers += [self._caches.report(node, self.now) for node in changed]
        return ready_at - self.now

    def _prefetch(self, decision: Prefetch) -> None:
        """A node begins to fetch, if there is room beside what running work uses; nothing ends what it has begun."""
        is_begun = self._caches is not None and self._caches.prefetch(decision.contents, decision.node, self.now)
        if not is_begun:
            self._answers.append(Refused(self.now, decision.id, "there is no room beside what running work uses"))
            return
        assert self._caches is not None
        self._answers += [self._caches.report(decision.node, self.now), Confirmed(self.now, decision.id)]

    def _begin(self, work: Work, at: float) -> None:
        """Work starts, or goes on after a suspension."""
        work.started = True
        work.since = at
        if self._shares:
            for other in self._join_cards(work):
                other.measured = math.nan  # of before: a server measures it anew beside another
                self._retime(other)
        work.rate = self._rate(work)
        self._plan_end(work, at)

    def _plan_end(self, work: Work, at: float) -> None:
        if work.is_measured and not abs(work.rate - work.measured) <= LEAST_CHANGE * work.measured:
            after_s = MEASURED_AFTER_S if work.curve is None else CAP_MEASURED_AFTER_S
            self._plan(at + after_s, _MEASURE, work)
        if work.fails_after_s < work.remaining_s:
            self._plan(at + work.fails_after_s / work.rate, _FAIL, work)
        else:
            self._plan(at + work.remaining_s / work.rate, _END, work)

    def _failure_of(self, work: Work) -> float:
        """The work after which a run that begins now fails, ``NEVER`` where it does not."""
        if not self._costs.failing or work.job.kind is not Kind.TRAIN:
            return NEVER
        draws = random.Random(f"{self._costs.failures_seed}/{work.index}/{work.attempt}")
        return draws.random() * work.remaining_s if draws.random() < self._costs.failing else NEVER

    def _failed(self, work: Work, at: float) -> Ended:
        """A run failed: what it did since its last checkpoint is done again."""
        work.advance(at)
        lost_s = self._lost_s(work)
        work.failures += 1
        work.booked_s -= lost_s
        work.remaining_s += lost_s
        service_s = work.run_service_s - lost_s
        self._release(work, at)
        return Ended(at, work.job.id, work.attempt, Outcome.USER_ERROR, exit_code=1, service_s=service_s)

    def _stop(self, work: Work, decision: Stop) -> None:
        leaving = set(decision.tasks)
        staying = tuple(placement for placement in work.placements if leaving and placement.task not in leaving)
        self._answers.append(Confirmed(self.now, decision.id))
        if staying:
            self._answers.extend(
                Ended(self.now, decision.job, decision.attempt, Outcome.STOPPED, task=task) for task in decision.tasks
            )
            self._resize(work, staying)
            return
        if work.started:
            work.advance(self.now)
        work.rate = 0.0
        work.version += 1
        if decision.cause in _FINAL_STOPS:
            work.is_over = True
        elif work.started:
            self._charge_preemption(work)
        grace_s = min(decision.grace_s, self._costs.grace_s)
        if grace_s:
            self._plan(self.now + grace_s, _STOPPED, work)
        else:
            self._answers.append(self._stopped(work, self.now))

    def _charge_preemption(self, work: Work) -> None:
        lost_s = self._lost_s(work)
        cost_s = self._costs.preemption.of(work.job.gpu_milli)
        work.preemptions += 1
        work.lost_s += lost_s
        work.booked_s -= lost_s
        work.run_service_s -= lost_s
        work.overhead_s += cost_s
        work.remaining_s += lost_s + cost_s

    def _lost_s(self, work: Work) -> float:
        """The work of this run that is done again after an end that is no success."""
        unsaved = self._costs.loses_unsaved and work.job.checkpoint.mode is CheckpointMode.NONE
        return work.run_service_s if unsaved else min(work.run_service_s, self._costs.lost_work_s)

    def _stopped(self, work: Work, at: float) -> Ended:
        self._release(work, at)
        if work.is_over:
            work.ended_at = at
        return Ended(at, work.job.id, work.attempt, Outcome.STOPPED, service_s=work.run_service_s)

    def _suspend(self, work: Work, decision: Suspend) -> None:
        work.advance(self.now)
        work.rate = work.cap_w = 0.0
        work.version += 1
        work.suspensions += 1
        memory = sum(grant.memory_mib for placement in work.placements for grant in placement.grants)
        work.swapped_mib = memory if decision.mode is SuspendMode.SWAP else 0
        delay = self._costs.switching_s(work.swapped_mib)
        work.switching_s += delay
        if delay:
            self._plan(self.now + delay, _LEFT, work, decision.id)
        else:
            self._answers.append(self._left(work, self.now, decision.id))

    def _left(self, work: Work, at: float, decision: int) -> Confirmed:
        """A job has left its cards without ending."""
        self._close_run(work, at)
        if self._shares:
            for other in self._leave_cards(work):
                self._retime(other)
        self.departures.add(decision)
        return Confirmed(at, decision)

    def _migrate(self, work: Work, decision: Migrate) -> None:
        """Its memory leaves and comes back, and meanwhile nothing is done."""
        touched = self._leave_cards(work) if self._shares else set()
        work.advance(self.now)
        work.rate = work.cap_w = 0.0
        work.version += 1
        self._close_run(work, self.now)
        work.placements, work.held_since = (decision.placement,), self.now
        for other in touched:
            self._retime(other)
        memory = sum(grant.memory_mib for grant in decision.placement.grants)
        self._plan(self.now + 2 * self._costs.switching_s(memory), _CONFIRM, work, decision.id)

    def _resume(self, work: Work, decision: Resume) -> None:
        work.version += 1
        if decision.placement is not None:
            work.placements = (decision.placement,)
        work.held_since = min(work.held_since, self.now)
        delay = self._costs.restore_s + self._costs.switching_s(work.swapped_mib)
        work.swapped_mib = 0
        work.switching_s += delay
        self._begin_after(delay, work, decision)

    def _cap(self, work: Work, decision: CapPower) -> None:
        """Its cards draw so much at the most from now on."""
        work.cap_w, work.measured = decision.cap_w, math.nan
        self._retime(work)
        self._answers.append(Confirmed(self.now, decision.id))

    def _resize(self, work: Work, placements: tuple[Placement, ...]) -> None:
        """Tasks joined or left: the work goes on, faster or slower."""
        touched = self._leave_cards(work) if self._shares else set()
        self._close_run(work, self.now)
        work.placements, work.measured = placements, math.nan
        work.held_since = self.now
        if self._shares:
            touched |= self._join_cards(work)
        for other in (work, *touched):
            self._retime(other)
        if work.truth is not None and work.truth.resize_s and work.started:
            cost = work.truth.resize_s * work.rate
            work.overhead_s += cost
            work.remaining_s += cost
            self._retime(work)

    def _retime(self, work: Work) -> None:
        """The speed of a job may have changed: book what it did and plan its end anew."""
        if work.started and work.rate:
            work.advance(self.now)
            work.rate = self._rate(work)
            work.version += 1
            self._plan_end(work, self.now)

    def _rate(self, work: Work) -> float:
        rate = self._uncapped_rate(work)
        return rate if work.curve is None else rate * work.curve.speed(work.cap_w)

    def _uncapped_rate(self, work: Work) -> float:
        if work.truth is not None:
            return self._true_rate(work, work.truth)
        rate = len(work.placements) / work.task_count
        if self._shares and work.job.kind is Kind.TRAIN and any(len(self._users_of[card]) > 1 for card in work.cards):
            rate *= self._costs.sharing_speed
        return rate

    def _true_rate(self, work: Work, truth: JobSpeed) -> float:
        cards = work.cards
        models = {self._model_of[card] for card in cards}
        is_spread = len({placement.node for placement in work.placements}) > 1
        others = {other for card in cards for other in self._users_of[card]} - {work}
        pair = [other.truth.job for other in others if other.truth is not None and other.cards == cards]
        beside = pair[0] if len(pair) == len(others) == 1 else None
        rate = truth.rate(len(cards), models, is_spread=is_spread, beside=beside)
        return rate if beside is not None or not others else rate * self._costs.sharing_speed

    def _release(self, work: Work, at: float) -> None:
        """The job holds nothing any more."""
        if self._caches is not None and work.caching:
            self._caches.end(work.job.contents, work.caching)
            work.caching = ()
        self._close_run(work, at)
        work.started = False
        work.rate = 0.0
        work.version += 1
        touched = self._leave_cards(work) if self._shares else ()
        work.placements = ()
        for other in touched:
            self._retime(other)

    def _close_run(self, work: Work, at: float) -> None:
        if work.rate:
            work.advance(at)
        if at > work.held_since:
            self.runs.append((work.index, work.held_since, at, work.placements, work.booked_s))
            work.booked_s = 0.0
            work.held_s += at - work.held_since
        work.held_since = NEVER

    def _join_cards(self, work: Work) -> set[Work]:
        """Enter the job as a user of its cards; returns the others on them."""
        touched: set[Work] = set()
        for card in work.cards:
            users = self._users_of.setdefault(card, set())
            touched |= users
            users.add(work)
        return touched - {work}

    def _leave_cards(self, work: Work) -> set[Work]:
        """The reverse of ``_join_cards``."""
        touched: set[Work] = set()
        for card in work.cards:
            users = self._users_of.get(card, set())
            users.discard(work)
            touched |= users
        return touched
