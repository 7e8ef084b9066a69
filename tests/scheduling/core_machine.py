"""A state machine that plays people, engine and hardware at random, and checks every promise of the core as it goes.

It keeps its own book of which tasks exist (``_alive``): a task that is started twice, forgotten or left behind shows at
once. Twins (restored from a snapshot through JSON, forked, or run on compiled kernels) get the same events and have to
take the same decisions. A follower redoes the log instead, and has to stand where the others do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from explanation_oracle import changed_job
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from redone import essential, redo
from scripts import CONTENTS, Setting, jobs, policies, worlds
from worlds import machine

from ledgers import check_everything
from millpond.model import events
from millpond.model.contents import Content
from millpond.model.decisions import Decision, Migrate, Placement, Prefetch, Resume, Start, Stop, Suspend, SuspendMode
from millpond.model.energy import RateMeasure
from millpond.model.errors import InconsistentStateError, MillpondError
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.node_power import NodePowerState
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement
from millpond.model.hardware.nodes import Cordon, Node
from millpond.model.reasons import Cause, Remedy
from millpond.model.states import JobState, Outcome, TaskState
from millpond.model.task_spacing import SpacingKind, SpacingRule
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.tenancy.tenants import Limit
from millpond.model.windows import is_open, opens_at
from millpond.model.workloads import GangRule, Job, Priority
from millpond.scheduling.elastic.gang_sizes import is_enough
from millpond.scheduling.nodes.topology_groups import required_groups
from millpond.scheduling.placement.kernels import fastest
from millpond.scheduling.records import JobRecord
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.scheduling.state import ACTIVE
from millpond.scheduling.tenancy.queue_rank import QueueRank

T = TypeVar("T")
PICK = st.integers(0, 255)
STEPS = st.sampled_from((0.0, 1.0, 60.0, 400.0, 5_000.0))
MOST_CYCLES = 200
QUOTAS = (Cause.QUEUE_LIMIT, Cause.USER_LIMIT, Cause.GUARANTEE_OF_OTHERS, Cause.IMPOSSIBLE, Cause.LENDING_OVER)
HOURS_COME_AGAIN_S = 2 * 86_400.0


def pick(items: Sequence[T], number: int) -> T:
    """One of the items, by any number."""
    return items[number % len(items)]


class CoreMachine(RuleBasedStateMachine):
    """One scheduler, its engine and its users."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.log: list[events.Event] = []
        self.decided: list[Decision] = []
        self.core = Scheduler()
        self.setting: Setting | None = None
        self.twins: list[Scheduler] = []
        self.follower = Scheduler()
        """It never decides: it redoes the log."""
        self._turn: list[events.Event] = []
        self.submitted: list[str] = []
        self.nodes: dict[str, Node] = {}
        self.lost: dict[str, Node] = {}
        self.cordons: dict[str, list[Cordon]] = {}
        self._emptied: set[str] = set()
        self._closed_cards: set[str] = set()
        self._alive: dict[tuple[str, int], dict[int, Placement]] = {}
        self._asked: list[Decision] = []
        self._ended: dict[str, JobState] = {}
        self._came_from: dict[str, Placement] = {}
        self._kept: set[str] = set()

    # ---- telling and deciding -----------------------------------------------------------------------------------

    def tell(self, event: events.Event) -> bool:
        """Everybody hears of an event; False if it was refused, by all alike and without a trace."""
        self.log.append(event)
        self._turn.append(event)
        before = self.core.snapshot() if isinstance(event, _MAY_BE_REFUSED) else None
        refusal = _refusal(self.core, event)
        if refusal is not None:
            assert before is not None, f"{event} was refused: {refusal}"
            after = self.core.snapshot()
            assert _timeless(after) == _timeless(before), "a refused event left a trace"
        for twin in self.twins:
            assert _refusal(twin, event) == refusal
        return refusal is None

    def decide(self) -> list[Decision]:
        """One cycle of everybody."""
        self.log.append(events.Tick(self.now))
        decisions = self.core.decide(self.now)
        for twin in self.twins:
            found = twin.decide(self.now)
            assert found == decisions, f"a twin decides otherwise: {found} instead of {decisions}"
        redo(self.follower, self._turn, self.now, decisions, self.core.changed_claims())
        assert essential(self.follower) == essential(self.core), "a redo of the log leads elsewhere"
        self._turn.clear()
        self.decided += decisions
        for decision in decisions:
            self._take_on(decision)
        if self.core.holds:
            assert not any(isinstance(decision, Start) for decision in decisions), "starts are held"
        return decisions

    def _take_on(self, decision: Decision) -> None:
        """The engine's book, and what must hold of every single decision."""
        if isinstance(decision, Prefetch):
            self._take_on_fetch(decision)
            return
        record = self.core.jobs[decision.job]
        run = self._alive.setdefault((decision.job, decision.attempt), {})
        self._asked.append(decision)
        match decision:
            case Start():
                self._check_start(decision, record.job, run)
                run.update({placement.task: placement for placement in decision.placements})
            case Migrate(placement=placed) | Resume(placement=Placement() as placed):
                self._check_move(record, placed, run)
            case Stop(tasks=tasks) if any(record.tasks[task].kept_until is not None for task in tasks):
                assert len(tasks) == 1
                assert decision.grace_s == 0.0
            case Stop(cause=Cause.PREEMPTED | Cause.RECLAIMED):
                assert record.job.preemptible
                assert record.preemptions < record.job.preemption_budget
                ran = record.attained_s - record.attained_before_s
                if record.started_at is not None:
                    ran = max(ran, self.now - record.started_at)
                assert ran >= record.job.minimum_run_s
            case Suspend(cause=Cause.PREEMPTED | Cause.RECLAIMED, mode=mode):
                assert record.job.preemptible
                assert record.preemptions < record.job.preemption_budget
                assert record.attained_s - record.attained_before_s >= record.job.minimum_run_s
                assert record.job.may_swap if mode is SuspendMode.SWAP else record.job.may_freeze
                assert self.core._state.cluster.pools[record.job.pool].suspends
            case Stop(cause=Cause.DRAINED):
                places = [run[task].node for task in decision.tasks or run]
                assert record.job.preemptible or (record.job.rest_preemptible and decision.tasks)
                assert not places or not self._emptied.isdisjoint(places), "none of its tasks was on such a node"
            case Stop(cause=Cause.SHRUNK, for_job=successor) if successor:
                left = [task for task in record.tasks if task.state in (TaskState.STARTING, TaskState.RUNNING)]
                assert is_enough(record.job, left), "a gang gives up more than it can do without"
                assert record.job.preemptible or record.job.rest_preemptible

    def _take_on_fetch(self, fetch: Prefetch) -> None:
        """One at a time on a node that is open, for a job that waits; ended for one that does not."""
        others = [each for each in self._asked if isinstance(each, Prefetch) and each.node == fetch.node]
        if fetch.contents:
            waited_for = set(self.core._state.pending)
            assert not any(each.id in waited_for for each in others), "a node fetches for two jobs"
            assert self.core.jobs[fetch.job].state is JobState.QUEUED
            assert self.nodes[fetch.node].schedulable
        for each in others:
            self._asked.remove(each)
        self._asked.append(fetch)

    def _check_move(self, record: JobRecord, placed: Placement, run: dict[int, Placement]) -> None:
        """One task of one, on its node, onto cards of the same kind that its engine can bring memory back on."""
        before = run[placed.task]
        assert len(record.tasks) == 1
        assert placed.node == before.node
        devices = {device.uuid: device for device in self.nodes[placed.node].devices}
        if _devices(placed) != _devices(before):
            kinds = {(device.model, device.remaps) for uuid in _devices(placed) for device in (devices[uuid],)}
            assert kinds == {(devices[grant.device].model, True) for grant in before.grants if grant.device in devices}
        self._came_from[record.id] = before
        run[placed.task] = placed

    def _return(self, decision: Decision) -> None:
        """The engine's book, when it has refused to move a task."""
        run = self._alive.get((decision.job, decision.attempt), {})
        match decision:
            case Migrate(placement=placed) | Resume(placement=Placement() as placed) if placed.task in run:
                run[placed.task] = self._came_from[decision.job]

    def _check_start(self, start: Start, job: Job, run: dict[int, Placement]) -> None:
        assert not job.windows or is_open(job.windows, self.now), "it starts out of its hours"
        numbers = [placement.task for placement in start.placements]
        assert len(set(numbers)) == len(numbers)
        assert not set(numbers) & set(run), "a task is started twice"
        assert start.joins == bool(run)
        tasks = self.core.jobs[job.id].tasks
        for index, role in enumerate(job.roles):
            mine = [placement for placement in start.placements if tasks[placement.task].role_index == index]
            if not start.joins:
                assert role.minimum <= len(mine) <= role.desired, "a gang starts together or not at all"
            for placement in mine:
                node = self.nodes[placement.node]
                assert node.schedulable
                assert not self._covering(node.name), "it starts on a closed node"
                self._check_it_is_out_in_time(job, node.name)
                assert node.pool == job.pool
                models = {d.uuid: d for d in node.devices}
                assert len({grant.device for grant in placement.grants}) == role.request.devices
                for grant in placement.grants:
                    device = models[grant.device]
                    assert device.health is DeviceHealth.OK
                    assert device.card not in self._closed_cards, "it starts on a closed card"
                    assert not role.request.models or device.model in role.request.models
                    piece = role.request.slice
                    assert (grant.compute_milli, grant.limit_milli) == (piece.compute_milli, piece.limit_milli)
        if job.together_required:
            self._check_together([*start.placements, *run.values()], job)

    def _covering(self, node: str) -> list[Cordon]:
        return [each for each in self.cordons.get(node, ()) if each.covers(self.now)]

    def _check_it_is_out_in_time(self, job: Job, node: str) -> None:
        """Work that cannot be asked to leave starts on a node only if its time limit ends before the node closes."""
        record = self.core.jobs[job.id]
        if job.preemptible or self._replans() or record.cautious_s is not None:
            return
        for each in self.cordons.get(node, ()):
            if each.begin > self.now:
                assert job.time_limit_s is not None
                assert self.now + job.time_limit_s - record.service_s(self.now) <= each.begin + 1e-6

    def _check_together(self, placements: Sequence[Placement], job: Job) -> None:
        places = {self.nodes[placement.node] for placement in placements}
        if job.together.name == "NODE":
            assert len(places) == 1
        if job.together.name == "RACK":
            assert len({(node.zone_name, node.rack_name) for node in places}) == 1
        assert len({node.zone_name for node in places}) == 1

    # ---- the beginning ------------------------------------------------------------------------------------------

    @initialize(setting=worlds())
    def begin(self, setting: Setting) -> None:
        self.setting = setting
        self.core, self.follower = Scheduler(setting.settings), Scheduler(setting.settings)
        for pool in setting.pools:
            self.tell(events.PoolChanged(0.0, pool))
        for each in setting.queues:
            self.tell(events.QueueChanged(0.0, each))
        for node in setting.nodes:
            self.nodes[node.name] = node
            self.tell(events.NodeJoined(0.0, node))

    # ---- people -------------------------------------------------------------------------------------------------

    @rule(data=st.data(), count=st.integers(1, 3), known=st.sampled_from((0.0, 0.0, 30.0, 3_000.0)))
    def submit(self, data: Any, count: int, known: float) -> None:
        for _ in range(count):
            job = data.draw(jobs(f"j{len(self.submitted)}"))
            self.tell(events.JobSubmitted(self.now, job))
            self.submitted.append(job.id)
            if known:
                self.tell(events.DurationPredicted(self.now, job.id, known, known * 1.5))

    @precondition(lambda self: self.submitted)
    @rule(number=PICK, known=st.sampled_from((10.0, 1_000.0)))
    def predict(self, number: int, known: float) -> None:
        job = pick(self.submitted, number)
        self.tell(events.DurationPredicted(self.now, job, known, known))

    @rule(data=st.data(), ago=st.sampled_from((0.0, 1_800.0)))
    def predict_rates(self, data: Any, ago: float) -> None:
        values = data.draw(st.lists(st.sampled_from((None, -1.0, 1.0, 2.0, 5.0)), max_size=4))
        self.tell(events.EnergyRatePredicted(self.now, RateMeasure.PRICE, self.now - ago, tuple(values)))

    @precondition(lambda self: self._alive)
    @rule(number=PICK, known=st.sampled_from((10.0, 100.0)), per_s=st.sampled_from((None, 0.0, 1.0, 1.2, 3.0)))
    def measure(self, number: int, known: float, per_s: float | None) -> None:
        job, attempt = pick(sorted(self._alive), number)
        run = self._alive[job, attempt].values()
        held = sum(grant.compute_milli for placement in run for grant in placement.grants)
        cap_w = self.core.jobs[job].cap_w
        speed = per_s and per_s * known
        self.tell(events.ProgressMeasured(self.now, job, attempt, speed, held, power_w=known, cap_w=cap_w))

    @precondition(lambda self: self.submitted)
    @rule(number=PICK)
    def stop(self, number: int) -> None:
        self.tell(events.StopRequested(self.now, pick(self.submitted, number)))

    @precondition(lambda self: self._alive)
    @rule(number=PICK, swap=st.booleans())
    def suspend(self, number: int, swap: bool) -> None:
        self.tell(events.SuspendRequested(self.now, pick(list(self._alive), number)[0], swap))

    @precondition(lambda self: self._halted())
    @rule(number=PICK)
    def resume(self, number: int) -> None:
        self.tell(events.ResumeRequested(self.now, pick(self._halted(), number)))

    @precondition(lambda self: self._alive)
    @rule(number=PICK)
    def requeue(self, number: int) -> None:
        self.tell(events.RequeueRequested(self.now, pick(list(self._alive), number)[0]))

    @precondition(lambda self: self.submitted)
    @rule(number=PICK, priority=st.sampled_from(Priority))
    def change_priority(self, number: int, priority: Priority) -> None:
        self.tell(events.PriorityChanged(self.now, pick(self.submitted, number), priority))

    @precondition(lambda self: self.submitted)
    @rule(number=PICK, nodes=st.sampled_from((0, 1, 2)), apart=st.booleans())
    def choose_nodes(self, number: int, nodes: int, apart: bool) -> None:
        """Those with one of some labels, which none has, or any; its tasks lie apart by it, or not."""
        label = f"l{nodes}"
        only_on = ((NodeRequirement(label, NodeOperator.DOES_NOT_EXIST),),) if nodes else ()
        rule = SpacingRule(SpacingKind.APART, label, ("worker",), ("worker",))
        self.tell(events.NodeChoiceChanged(self.now, pick(self.submitted, number), only_on, (rule,) if apart else ()))

    def _halted(self) -> list[str]:
        """Jobs that are suspended, and those that lost their run while people kept them so."""
        return [*self.core._state.suspended, *(each.id for each in self.core.jobs.values() if each.is_parked)]

    @precondition(lambda self: self._alive)
    @rule(number=PICK, node=PICK, card=st.sampled_from((None, 0, 1)), restart=st.booleans())
    def migrate(self, number: int, node: int, card: int | None, restart: bool) -> None:
        """To some card, some node, or wherever there is room."""
        name = pick(["", *self.nodes], node)
        to = () if not name else (name if card is None else f"{name}/{card}",)
        self.tell(events.MigrateRequested(self.now, pick(list(self._alive), number)[0], to, restart))

    @precondition(lambda self: self.submitted)
    @rule(number=PICK, desired=st.integers(0, 5), which=PICK, swap=st.booleans())
    def resize(self, number: int, desired: int, which: int, swap: bool) -> None:
        job = self.core.jobs[pick(self.submitted, number)].job
        self.tell(events.DesiredCountChanged(self.now, job.id, pick(job.roles, which).name, desired, swap=swap))

    @rule(chosen=policies(), seldom=st.integers(0, 3))
    def change_policy(self, chosen: Settings, seldom: int) -> None:
        if not seldom:
            change = (chosen.ordering, chosen.placement, chosen.preempt, chosen.reserve)
            self.tell(events.PolicyChanged(self.now, *change))

    @rule(which=PICK, of=PICK, cards=st.integers(1, 6), ahead=st.sampled_from((0.0, 50.0, 500.0, 90_000.0)), last=STEPS)
    def reserve(self, which: int, of: int, cards: int, ahead: float, last: float) -> None:
        """Cards for a queue, within its guarantee or not; some of that is refused."""
        assert self.setting is not None
        leaves = [each.name for each in self.setting.queues if self.core.takes_jobs(each.name)] or ["default"]
        wanted = AdvanceReservation(
            f"r{which % 3}", pick(leaves, of), cards, self.now + ahead, self.now + ahead + last + 100.0,
            pool=pick(sorted({node.pool for node in self.nodes.values()}), of), beyond_guarantee=bool(which % 2),
            whole_nodes=cards > 4,
        )  # fmt: skip
        self.tell(events.ReservationMade(self.now, wanted))

    @rule(which=PICK)
    def give_up_reservation(self, which: int) -> None:
        self.tell(events.ReservationCancelled(self.now, f"r{which % 3}"))

    @precondition(lambda self: self.core.reservations())
    @rule(data=st.data(), which=PICK)
    def submit_to_reservation(self, data: Any, which: int) -> None:
        """A job that starts on reserved cards alone; it may be refused."""
        wanted = pick(self.core.reservations(), which).reservation
        job = data.draw(jobs(f"j{len(self.submitted)}"))
        job = replace(job, queue=wanted.queue, pool=wanted.pool, reservation=wanted.name)
        if self.tell(events.JobSubmitted(self.now, job)):
            self.submitted.append(job.id)

    @rule(number=PICK, most=st.sampled_from((None, 0, 1, 3)), seldom=st.integers(0, 3))
    def change_limit(self, number: int, most: int | None, seldom: int) -> None:
        if not seldom and self.submitted:
            job = self.core.jobs[pick(self.submitted, number)].job
            cards = None if most is None else 1_000 * most
            user, queue = (job.user, "") if number % 2 and job.user else ("", job.queue)
            self.tell(events.LimitChanged(self.now, Limit(user, queue, most, cards)))

    @rule(number=PICK, seldom=st.integers(0, 3))
    def remove_queue(self, number: int, seldom: int) -> None:
        """Where nothing uses it, and then it is defined again; else that is refused."""
        if not seldom:
            tree = self.core._state.queues
            queue = tree.by_name[pick(list(tree.by_name), number)].queue
            if self.tell(events.QueueRemoved(self.now, queue.name)):
                self.decide()
                self.tell(events.QueueChanged(self.now, queue))

    @rule(number=PICK, ordering=st.sampled_from(("", "edf", "fifo", "service=default")), seldom=st.integers(0, 3))
    def change_ordering(self, number: int, ordering: str, seldom: int) -> None:
        if not seldom:
            queue = pick(self.core.queues(), number)
            self.tell(events.QueueChanged(self.now, replace(queue, ordering=ordering)))

    # ---- the engine ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self._asked)
    @rule(number=PICK)
    def confirm(self, number: int) -> None:
        decision = self._asked.pop(number % len(self._asked))
        self.tell(events.Confirmed(self.now, decision.id))

    @precondition(lambda self: self._asked)
    @rule(number=PICK, fault=st.booleans())
    def refuse_start(self, number: int, fault: bool) -> None:
        starts = [decision for decision in self._asked if isinstance(decision, Start)]
        if starts:
            start = pick(starts, number)
            self._asked.remove(start)
            for placement in start.placements:
                self._alive.get((start.job, start.attempt), {}).pop(placement.task, None)
            self.tell(events.Refused(self.now, start.id, "no", fault))

    @precondition(lambda self: self._asked)
    @rule(number=PICK)
    def refuse_suspension(self, number: int) -> None:
        """The engine cannot take work off its devices, or cannot put it back."""
        asked = [decision for decision in self._asked if isinstance(decision, (Suspend, Resume, Migrate, Prefetch))]
        if asked:
            decision = pick(asked, number)
            self._asked.remove(decision)
            self._return(decision)
            self.tell(events.Refused(self.now, decision.id, "no"))

    @precondition(lambda self: self._alive)
    @rule(number=PICK, task=PICK, outcome=st.sampled_from(Outcome), everything=st.booleans())
    def end(self, number: int, task: int, outcome: Outcome, everything: bool) -> None:
        job, attempt = pick(list(self._alive), number)
        run = self._alive[job, attempt]
        which = events.ALL_TASKS if everything else pick(list(run), task)
        if everything:
            run.clear()
        else:
            del run[which]
        self.tell(events.Ended(self.now, job, attempt, outcome, which, exit_code=0))

    @precondition(lambda self: self._alive)
    @rule(number=PICK, task=PICK, outcome=st.sampled_from((Outcome.USER_ERROR, Outcome.OUT_OF_MEMORY)))
    def keep(self, number: int, task: int, outcome: Outcome) -> None:
        """A program fails, and its place is kept: if the core leaves it so, its job has failed for good."""
        job, attempt = pick(list(self._alive), number)
        which = pick(list(self._alive[job, attempt]), task)
        self.tell(events.Kept(self.now, job, attempt, which, outcome, self.now + 100.0, 3))
        record = self.core.jobs[job]
        assert record.kept is None or record.job.keep_s
        if record.kept is not None and record.kept.number == which:
            self._kept.add(job)

    @precondition(lambda self: self._alive)
    @rule(number=PICK)
    def end_what_was_stopped(self, number: int) -> None:
        stopping = [key for key in self._alive if self.core.jobs[key[0]].state is JobState.STOPPING]
        if stopping:
            job, attempt = pick(stopping, number)
            tasks = self.core.jobs[job].tasks
            for task in list(self._alive[job, attempt]):
                if tasks[task].state is TaskState.STOPPING:
                    del self._alive[job, attempt][task]
                    self.tell(events.Ended(self.now, job, attempt, Outcome.STOPPED, task, service_s=1.0))

    @precondition(lambda self: self.decided)
    @rule(number=PICK)
    def answer_late(self, number: int) -> None:
        """What is said about an earlier run changes nothing."""
        old = pick(self.decided, number)
        if old.attempt < self.core.jobs[old.job].attempt:
            before = self.core.snapshot()
            self.tell(events.Ended(self.now, old.job, old.attempt, Outcome.USER_ERROR, exit_code=1))
            assert _timeless(self.core.snapshot()) == _timeless(before)

    # ---- the hardware -------------------------------------------------------------------------------------------

    @rule(number=PICK, change=st.sampled_from(("lose", "find", "cordon", "other cards", "fewer cards")))
    def change_node(self, number: int, change: str) -> None:
        """A node is lost, comes back, is closed or opened, or comes back with other cards or only some of the old."""
        if change == "find" and self.lost:
            self._join(self.lost.pop(pick(list(self.lost), number)))
        name = pick(list(self.nodes), number)
        node = self.nodes[name]
        if change == "lose" and len(self.nodes) > 1:
            self.lost[name] = self.nodes.pop(name)
            self._drop(lambda placement: placement.node == name)
            self.tell(events.NodeLost(self.now, name))
        elif change == "cordon":
            self._join(replace(node, schedulable=not node.schedulable))
        elif change.endswith("cards") and node.devices:
            kept = node.devices[: len(node.devices) // 2]
            fresh = machine(f"{name}v{len(self.log)}", len(node.devices)).devices
            devices = fresh if change == "other cards" else kept
            there = {device.uuid for device in devices}
            self._drop(lambda placement: placement.node == name and not _devices(placement) <= there)
            self._join(replace(node, devices=devices))

    @rule(number=PICK, lasting=st.sampled_from((None, 60.0, 2_000.0)), drain=st.booleans())
    def close_node(self, number: int, lasting: float | None, drain: bool) -> None:
        until = None if lasting is None else self.now + lasting
        self._close(pick(list(self.nodes), number), Cordon(self.now, until, "r", drain))

    @rule(number=PICK, ahead=st.sampled_from((30.0, 500.0)), lasting=st.sampled_from((60.0, 2_000.0)))
    def plan_closing(self, number: int, ahead: float, lasting: float) -> None:
        begin = self.now + ahead
        self._close(pick(list(self.nodes), number), Cordon(begin, begin + lasting, "r", drain=True, planned=True))

    @precondition(lambda self: self.submitted)
    @rule(held=st.booleans(), cause=st.sampled_from((Cause.DISK_FULL, Cause.NOT_ISOLATED)))
    def hold_starts(self, held: bool, cause: Cause) -> None:
        """Something is wrong with the whole place, or no longer is."""
        trouble = events.SchedulingPaused(self.now, cause, "no") if held else events.SchedulingResumed(self.now, cause)
        assert self.tell(trouble)

    @rule(seconds=st.floats(0.5, 5_000.0))
    def set_clock_forward(self, seconds: float) -> None:
        """Nothing that runs has run any longer for it."""
        ran = {record.id: record.service_s(self.now) for record in self.core.jobs.values()}
        self.now += seconds
        self.tell(events.ClockJumped(self.now, seconds))
        for record in self.core.jobs.values():
            assert record.service_s(self.now) == pytest.approx(ran[record.id])

    @rule(number=PICK, states=st.lists(st.sampled_from(NodePowerState), min_size=1, max_size=3))
    def switch(self, number: int, states: list[NodePowerState]) -> None:
        """A node's power changes; most of such steps follow from nothing and are refused."""
        for state in states:
            self.tell(events.NodePowerChanged(self.now, pick(list(self.nodes), number), state))

    @rule(number=PICK, planned=st.booleans())
    def open_node(self, number: int, planned: bool) -> None:
        self._open(pick(list(self.nodes), number), planned)

    def _close(self, node: str, closure: Cordon) -> None:
        others = self.cordons.setdefault(node, [])
        key = (closure.planned, closure.begin if closure.planned else None)
        others[:] = [each for each in others if (each.planned, each.begin if each.planned else None) != key]
        others.append(closure)
        if closure.drain:
            self._emptied.add(node)
        assert self.tell(events.NodeClosed(self.now, node, closure))

    def _open(self, node: str, planned: bool) -> None:
        there = self.cordons.get(node, [])
        there[:] = [] if planned else [each for each in there if each not in self._covering(node)]
        self.tell(events.NodeOpened(self.now, node, planned))

    @rule(number=PICK, which=PICK, drain=st.booleans())
    def close_card(self, number: int, which: int, drain: bool) -> None:
        node = pick(list(self.nodes.values()), number)
        if node.devices:
            card = node.devices[which % len(node.devices)].card
            if self.tell(events.CardClosed(self.now, node.name, card, Cordon(self.now, drain=drain))):
                self._closed_cards.add(card)
                if drain:
                    self._emptied.add(node.name)

    @rule(number=PICK, which=PICK)
    def open_card(self, number: int, which: int) -> None:
        node = pick(list(self.nodes.values()), number)
        if node.devices:
            card = node.devices[which % len(node.devices)].card
            self.tell(events.CardOpened(self.now, node.name, card))
            self._closed_cards.discard(card)

    @rule(number=PICK, which=PICK, health=st.sampled_from((*DeviceHealth, DeviceHealth.OK)))
    def change_health(self, number: int, which: int, health: DeviceHealth) -> None:
        node = pick(list(self.nodes.values()), number)
        load, held = number * 7 % 1_001, number * 5 % 1_001
        cards = [events.CardLoad(device.uuid, load, held) for device in node.devices[which % 3 :]]
        self.tell(events.LoadSampled(self.now, node.name, load, tuple(cards)))
        contents = tuple(Content(name, 100 * number) for name in CONTENTS[number % 3 :])
        self.tell(events.NodeContents(self.now, node.name, contents, 10 * which))
        if node.devices:
            index = which % len(node.devices)
            changed = replace(node.devices[index], health=health)
            self.nodes[node.name] = replace(node, devices=(*node.devices[:index], changed, *node.devices[index + 1 :]))
            self.tell(events.DeviceHealthChanged(self.now, node.name, changed.uuid, health))

    def _join(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.tell(events.NodeJoined(self.now, node))

    def _drop(self, gone: Any) -> None:
        for run in self._alive.values():
            for task in [task for task, placement in run.items() if gone(placement)]:
                del run[task]

    # ---- time and twins -----------------------------------------------------------------------------------------

    @rule(step=STEPS)
    def tick(self, step: float) -> None:
        self.now += step
        self.decide()
        assert all(self.core.cause(job, self.now).summary for job in self.submitted)
        self._check_nobody_is_passed_over()

    @rule(step=STEPS)
    def tick_and_confirm(self, step: float) -> None:
        self.tick(step)
        for decision in self._asked:
            self.tell(events.Confirmed(self.now, decision.id))
        self._asked.clear()

    @rule(kind=st.sampled_from(("restored", "forked", "compiled")))
    def beget_twin(self, kind: str) -> None:
        twin = self.core.fork()
        if kind == "restored":
            twin = Scheduler.restore(json.loads(json.dumps(self.core.snapshot())))
        elif kind == "compiled":
            twin.use_kernels(fastest())
        assert json.dumps(twin.snapshot()) == json.dumps(self.core.snapshot())
        self.twins = [*self.twins[-1:], twin]

    # ---- what must hold -----------------------------------------------------------------------------------------

    @invariant()
    def state_is_sound(self) -> None:
        check_everything(self.core)
        for each in self.core._state.queues.by_name.values():
            limit = each.queue.limit
            assert limit is None or each.gpu_milli <= limit.gpu_milli, f"queue {each.queue.name} is beyond its limit"

    @invariant()
    def jobs_are_found_by_their_nodes(self) -> None:
        """As a look at all tasks finds them."""
        tasks = [(record.id, task) for record in self.core.jobs.values() for task in record.tasks]
        for name in (*self.nodes, *self.lost):
            placed = {job for job, task in tasks if task.placement is not None and task.placement.node == name}
            assert self.core.jobs_on(name) == placed
        for name, index in self.core._state.cluster.node_index.items():
            held = [(job, each) for job, task in tasks for each in (task.holding, task.vacating) if each is not None]
            holds = {job for job, each in held if each.node == index}
            assert holds <= self.core.jobs_on(name)

    @invariant()
    def room_is_kept_where_a_job_may_lie(self) -> None:
        """What is claimed or reserved lies in the job's pool, and together where its tasks must lie together."""
        claims = self.core._claims
        for id_, claim in claims.by_job.items():
            assert claim.victims
            self._check_kept(id_, claim.nodes)
        for pool, kept in claims.reservations.items():
            assert self.core.jobs[kept.job].job.pool == pool
            self._check_kept(kept.job, kept.nodes)

    def _check_kept(self, job: str, nodes: Sequence[int]) -> None:
        spec, cluster = self.core.jobs[job].job, self.core._state.cluster
        there = [cluster.nodes[node] for node in nodes]
        assert all(node is None or node.pool == spec.pool for node in there)
        groups = required_groups(cluster, spec)
        if groups is not None:
            assert len({int(groups[node]) for node in nodes}) == 1, f"{job} would be torn apart"

    @invariant()
    def nobody_is_held_back_longer_than_allowed(self) -> None:
        for record in self.core.jobs.values():
            if record.held_until:
                job = record.job
                could = opens_at(job.windows, record.submitted_at) if job.windows else record.submitted_at
                assert record.held_until <= could + job.flexible_s
                assert not record.line
                assert record.attempt == 0

    @invariant()
    def only_work_that_allows_it_has_a_cap_and_one_within_the_range_of_its_cards(self) -> None:
        for record in self.core.jobs.values():
            if record.cap_w:
                assert record.job.max_slowdown
                assert not record.elastic
                assert 100.0 <= record.cap_w < 260.0

    @invariant()
    def gangs_that_run_are_as_large_as_they_must_be(self) -> None:
        """Whoever runs has the least number of tasks of each role, unless its rule lets it do without some.

        Tasks count that are there, that have done their work, or that somebody ended for good behind our back.
        """
        for record in self.core._state.running.values():
            if record.kept is None and record.state is JobState.RUNNING and record.job.gang_rule is GangRule.ALL:
                done = (TaskState.SUCCEEDED, TaskState.CANCELLED)
                tasks = [task for task in record.tasks if task.state in ACTIVE or task.state in done]
                assert is_enough(record.job, [task for task in tasks if not task.surplus]), f"{record.id} is too small"

    @invariant()
    def engine_and_core_agree_on_what_exists(self) -> None:
        self._alive = {key: run for key, run in self._alive.items() if run}
        said = {
            (record.id, record.attempt): {task.number for task in record.tasks if task.state in ACTIVE}
            for record in self.core._state.running.values()
        }
        assert said == {key: set(run) for key, run in self._alive.items()}

    @invariant()
    def every_job_ends_at_most_once(self) -> None:
        for job in self.submitted:
            state = self.core.jobs[job].state
            assert self._ended.get(job, state) is state, f"{job} came back to life"
            if state.ended:
                self._ended[job] = state
            assert job not in self._kept or not state.ended or state is JobState.FAILED, f"{job} had failed"
            assert job not in self._kept or state is not JobState.QUEUED, f"{job} had failed, and runs again"

    def _check_nobody_is_passed_over(self) -> None:
        """Nobody who fits waits unless the reason names reservation, quota, room being made, or trouble."""
        for record in self._waiting_by_their_own_fault()[:4]:
            reason = self.core.explain(record.id, self.now)
            assert self.core.cause(record.id, self.now).summary == reason.summary
            if reason.cause in (Cause.NO_ROOM, Cause.NOT_CONSIDERED):
                assert not self._fits(record), f"{record.id} fits and waits: {reason.summary}"
            if reason.remedy is not None and reason.remedy.field and reason.cause is not Cause.IMPOSSIBLE:
                self._check_remedy(record, reason.remedy)

    def _check_remedy(self, record: JobRecord, remedy: Remedy) -> None:
        """The changed job, handed in instead of the one that waits, starts at once."""
        fork = self.core.fork()
        changed = replace(changed_job(record.job, remedy), id="changed")
        fork.handle(events.StopRequested(self.now, record.id))
        fork.handle(events.JobSubmitted(self.now, changed))
        if record.expected_s is not None and record.cautious_s is not None:
            fork.handle(events.DurationPredicted(self.now, "changed", record.expected_s, record.cautious_s))
        assert fork.check(changed) is None, f"the remedy asks for what is impossible: {remedy.change}"
        started = [decision.job for decision in fork.decide(self.now) if isinstance(decision, Start)]
        assert "changed" in started, f"the remedy does not help {record.id}: {remedy.change}; instead {started}"

    def _waiting_by_their_own_fault(self) -> list[JobRecord]:
        """Those that wait, and not because an ordering lets the first of their pool or group, or nobody, pass."""
        state = self.core._state
        if self._replans():
            return []
        first: dict[object, JobRecord] = {}
        for record in state.waiting.ranked(QueueRank(state).place_of):
            if state.ordering.strict:
                first.setdefault(record.job.pool, record)
            else:
                first.setdefault(record.group if state.orderings.of(record.group).strict else record.id, record)
        return list(first.values())

    def _replans(self) -> bool:
        """Whether a published preemptive ordering is in force; those count cards and leave room unused."""
        return self.core._state.ordering.replans and self.core.settings.preempt

    def _fits(self, record: JobRecord) -> bool:
        """Tried on a fork, so that nothing here can change by it."""
        fork = self.core.fork()
        fork._state.journal.begin()
        return fork._placer.place(fork.jobs[record.id]) is not None

    # ---- the end ------------------------------------------------------------------------------------------------

    @rule()
    def let_everything_end(self) -> None:
        """All that runs ends well; then nobody who could run is left, and a replay of the log decides the same."""
        for view in self.core.node_views():
            if view.power is not None and view.power.state is not NodePowerState.ON and view.node.name in self.nodes:
                self.tell(events.NodeLost(self.now, view.node.name))
                self.tell(events.NodeJoined(self.now, self.nodes[view.node.name]))
        for name, node in self.nodes.items():
            self._open(name, planned=True)
            for card in sorted(self._closed_cards & {device.card for device in node.devices}):
                self.tell(events.CardOpened(self.now, name, card))
                self._closed_cards.discard(card)
        for cause in self.core.holds:
            self.tell(events.SchedulingResumed(self.now, cause))
        for each in self.core.reservations():
            self.tell(events.ReservationCancelled(self.now, each.reservation.name))
        self._drain()
        for record in self._waiting_by_their_own_fault():
            reason = self.core.explain(record.id, self.now)
            assert reason.cause in QUOTAS or (reason.cause is Cause.NO_ROOM and not self._fits(record)), (
                f"{record.id} is left behind on an empty cluster: {reason}"
            )
            assert dict(reason.numbers).get("held_milli", 0) == 0, (
                f"the queue of {record.id} is empty and counts as used"
            )
        self._replay()

    def _drain(self) -> None:
        busy_at = self.now
        for _ in range(MOST_CYCLES):
            wake = self.core.next_wakeup(self.now)
            self.now = self.now + 100.0 if self._alive or wake is None else wake
            decisions = self.decide()
            for decision in self._asked:
                self.tell(events.Confirmed(self.now, decision.id))
            self._asked.clear()
            self.engine_and_core_agree_on_what_exists()
            busy_at = self.now if decisions or self._alive else busy_at
            at_rest = self.core.next_wakeup(self.now) is None or self.now > busy_at + HOURS_COME_AGAIN_S
            if at_rest and not decisions and not self._alive:
                return
            for job in self._halted():
                self.tell(events.ResumeRequested(self.now, job))
            for (job, attempt), run in self._alive.items():
                stopping = self.core.jobs[job].state is JobState.STOPPING
                outcome = Outcome.STOPPED if stopping else Outcome.SUCCESS
                for task in run:
                    self.tell(events.Ended(self.now, job, attempt, outcome, task, exit_code=0))
                run.clear()
        raise AssertionError("it never comes to rest")

    def _replay(self) -> None:
        assert self.setting is not None
        again = Scheduler(self.setting.settings)
        decided: list[Decision] = []
        for event in self.log:
            if isinstance(event, events.Tick):
                decided += again.decide(event.at)
            else:
                _refusal(again, event)
        assert decided == self.decided


def _devices(placement: Placement) -> set[str]:
    return {grant.device for grant in placement.grants}


_MAY_BE_REFUSED = (
    events.SuspendRequested,
    events.ResumeRequested,
    events.RequeueRequested,
    events.PriorityChanged,
    events.NodeChoiceChanged,
    events.MigrateRequested,
    events.DesiredCountChanged,
    events.NodeClosed,
    events.NodeOpened,
    events.NodePowerChanged,
    events.CardOpened,
    events.QueueRemoved,
    events.ReservationMade,
    events.ReservationCancelled,
    events.JobSubmitted,
)


def _refusal(core: Scheduler, event: events.Event) -> str | None:
    """What the scheduler says against an event; defects are let through."""
    try:
        core.handle(event)
    except InconsistentStateError:
        raise
    except MillpondError as error:
        return str(error)
    return None


def _timeless(snapshot: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in snapshot.items() if name != "now"}
