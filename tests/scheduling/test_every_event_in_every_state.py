"""Every event thrown at a job in every state it can be in, late, doubled and senseless ones too.

After each the books agree, the core and an engine that keeps count of its own agree on which tasks exist, and played on
honestly from there the job comes to an end: nothing is left behind that nobody would ever end. In every state, possible
or not any more, a job has a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from worlds import asks, elastic, gang, machine, single

from ledgers import check_everything
from millpond.model import events
from millpond.model.contents import Content
from millpond.model.decisions import Decision, Placement, Start
from millpond.model.energy import RateMeasure
from millpond.model.errors import ConflictError, InvalidInputError, NotFoundError
from millpond.model.hardware.card_layouts import LayoutChangeState
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.node_power import NodePowerState
from millpond.model.hardware.nodes import DEFAULT_POOL, Cordon, Node, Pool
from millpond.model.reasons import Cause
from millpond.model.states import JobState, Outcome, TaskState
from millpond.model.task_spacing import SpacingKind, SpacingRule
from millpond.model.windows import Window
from millpond.model.workloads import GangRule, Job, Kind, Priority, Suspendable
from millpond.scheduling.records import JobRecord
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.scheduling.state import ACTIVE
from seeds import few_then_many

NODES = (machine("a", 2, remaps=True, swap_mib=64_000), machine("b", 1, remaps=True, swap_mib=64_000))
HOURS = (Window(0, 30), Window(60, 90))
JOBS = {
    "single": single("j", retries=1),
    "windowed": single("j", windows=HOURS, suspendable=Suspendable.SWAP),
    "gang": gang("j", 2, asks(1), retries=1, time_limit_s=10_000),
    **{f"elastic {rule.value}": elastic("j", (1, 2, 3), asks(1), gang_rule=rule, retries=1) for rule in GangRule},
    "elastic service": elastic(
        "j",
        (1, 2, 3),
        asks(1),
        gang_rule=GangRule.RESTART_TASK,
        retries=1,
        kind=Kind.SERVICE,
        suspendable=Suspendable.SWAP,
    ),
}
JOBS = {name: replace(job, keep_s=100.0) for name, job in JOBS.items()}
OUTCOMES = (Outcome.SUCCESS, Outcome.USER_ERROR, Outcome.NODE_LOST, Outcome.STOPPED, Outcome.TIME_LIMIT)
MOST_ROUNDS = 40


class Bench:
    """A core with one job on it, and an engine that answers only when it is asked to."""

    def __init__(self, job: Job) -> None:
        self.core = Scheduler(Settings(ordering="edf", placement="best-fit"))
        self.now = 0.0
        self.nodes = {node.name: node for node in NODES}
        self.decisions: list[Decision] = []
        self.alive: dict[tuple[str, int, int], Placement] = {}
        for node in NODES:
            self.tell(events.NodeJoined(0.0, node))
        self.tell(events.JobSubmitted(0.0, job))

    @property
    def job(self) -> JobRecord:
        return self.core.jobs["j"]

    def tell(self, event: events.Event) -> None:
        """The core hears of something, which is how it is; what contradicts its state is refused."""
        pending = self.core._state.pending
        match event:
            case events.Refused(decision=number) if isinstance(start := pending.get(number), Start):
                for placed in start.placements:
                    self.alive.pop((start.job, start.attempt, placed.task), None)
            case events.Ended():
                for key in list(self.alive):
                    if key[:2] == (event.job, event.attempt) and event.task in (events.ALL_TASKS, key[2]):
                        del self.alive[key]
            case events.NodeLost(node=name):
                self._lose(lambda placed: placed.node == name)
            case events.NodeJoined(node=node):
                self.nodes[node.name] = node
                there = {device.uuid for device in node.devices}
                self._lose(lambda placed: placed.node == node.name and placed.grants[0].device not in there)
        try:
            self.core.handle(event)
        except (ConflictError, InvalidInputError, NotFoundError):
            return  # nothing has changed

    def _lose(self, gone: Callable[[Placement], bool]) -> None:
        self.alive = {key: placed for key, placed in self.alive.items() if not gone(placed)}

    def tick(self, step: float = 0.0) -> list[Decision]:
        """One cycle; the engine begins what it is told to begin."""
        self.now += step
        decided = self.core.decide(self.now)
        self.decisions += decided
        for decision in decided:
            if isinstance(decision, Start):
                self.alive |= {(decision.job, decision.attempt, placed.task): placed for placed in decision.placements}
        return decided

    def confirm(self) -> None:
        """The engine confirms everything that is open."""
        for number in list(self.core._state.pending):
            self.tell(events.Confirmed(self.now, number))

    def check(self) -> None:
        """The books agree, and core and engine agree on which tasks exist."""
        check_everything(self.core)
        believed = {
            (record.id, record.attempt, task.number)
            for record in self.core.jobs.values()
            for task in record.tasks
            if task.state in ACTIVE
        }
        assert believed == set(self.alive)

    def play_on(self) -> None:
        """An honest engine from here on, with all machines there: everything comes to an end."""
        for node in NODES:
            if (power := self.core._state.cordons.power.get(node.name)) is not None and power.is_closed:
                self.tell(events.NodeLost(self.now, node.name))
            self.tell(events.NodeJoined(self.now, node))
            self.tell(events.NodeOpened(self.now, node.name, planned=True))
            for device in node.devices:
                self.tell(events.CardOpened(self.now, node.name, device.card))
        for cause in self.core.holds:
            self.tell(events.SchedulingResumed(self.now, cause))
        for _ in range(MOST_ROUNDS):
            wake = self.core.next_wakeup(self.now)
            is_busy = self.alive and self.job.state is not JobState.SUSPENDED
            self.tick(1.0 if is_busy or wake is None else wake - self.now)
            self.confirm()
            self.check()
            if all(record.state.ended for record in self.core.jobs.values()):
                return
            for name in list(self.core._state.suspended):
                self.tell(events.ResumeRequested(self.now, name))
            for record in self.core.jobs.values():
                if record.is_parked:
                    self.tell(events.ResumeRequested(self.now, record.id))
                if record.scaled_to_zero:
                    self.tell(events.DesiredCountChanged(self.now, record.id, "worker", 1))
            for name, attempt, number in list(self.alive):
                state = self.core.jobs[name].tasks[number].state
                outcome = Outcome.STOPPED if state is TaskState.STOPPING else Outcome.SUCCESS
                if state in (TaskState.STOPPING, TaskState.RUNNING):
                    self.tell(events.Ended(self.now, name, attempt, outcome, number))
            self.check()
        raise AssertionError(f"it never ends: {[(r.id, r.state, r.tasks[0].state) for r in self.core.jobs.values()]}")


# ---- states -----------------------------------------------------------------------------------------------------


def waiting(bench: Bench) -> None:
    """Nothing has been decided yet."""


def starting(bench: Bench) -> None:
    """A start is decided and not confirmed."""
    bench.tick()


def running(bench: Bench) -> None:
    """It runs."""
    bench.tick()
    bench.confirm()
    bench.tick(5.0)


def paused(bench: Bench) -> None:
    """Its start was refused; it waits out a pause."""
    (start,) = bench.tick()
    bench.tell(events.Refused(bench.now, start.id, "no", True))


def suspending(bench: Bench) -> None:
    """It was told to leave its devices and has not confirmed it."""
    running(bench)
    bench.tell(events.SuspendRequested(bench.now, "j"))
    bench.tick()


def suspended(bench: Bench) -> None:
    """It has left its devices."""
    suspending(bench)
    bench.confirm()


def swapped(bench: Bench) -> None:
    """It has left its devices for host memory."""
    running(bench)
    bench.tell(events.SuspendRequested(bench.now, "j", swap=True))
    bench.tick()
    bench.confirm()


def resuming(bench: Bench) -> None:
    """It goes on and has not confirmed it."""
    suspended(bench)
    bench.tell(events.ResumeRequested(bench.now, "j"))
    bench.tick()


def migrating(bench: Bench) -> None:
    """It is moved to another card as it runs, or ended to start there if it has several tasks."""
    running(bench)
    bench.tell(events.MigrateRequested(bench.now, "j", restart=True))
    bench.tick()


def migrating_by_restart(bench: Bench) -> None:
    """It is ended to start on the other node."""
    running(bench)
    placement = bench.job.tasks[0].placement
    assert placement is not None
    other = "b" if placement.node == "a" else "a"
    bench.tell(events.MigrateRequested(bench.now, "j", (other,), restart=True))
    bench.tick()


def stopping(bench: Bench) -> None:
    """Somebody stops it."""
    running(bench)
    bench.tell(events.StopRequested(bench.now, "j"))
    bench.tick()


def stopping_before_it_ran(bench: Bench) -> None:
    """Somebody stops it before its start is confirmed."""
    starting(bench)
    bench.tell(events.StopRequested(bench.now, "j"))
    bench.tick()


def preempted(bench: Bench) -> None:
    """It has to leave for a higher class."""
    running(bench)
    bench.tell(events.JobSubmitted(bench.now, gang("high", 3, asks(1), priority=Priority.HIGH)))
    bench.tick()


def leaving_for_others(bench: Bench) -> None:
    """It is being swapped out for a higher class that takes all cards, where that can be done."""
    bench.tell(events.PoolChanged(bench.now, Pool(DEFAULT_POOL, suspends=True)))
    preempted(bench)


def left_for_others(bench: Bench) -> None:
    """The same, and the higher class runs."""
    leaving_for_others(bench)
    bench.confirm()
    bench.tick()
    bench.confirm()


def out_of_its_hours(bench: Bench) -> None:
    """Its window has closed: it was swapped, or ended and waits for it to open."""
    bench.tell(events.PoolChanged(bench.now, Pool(DEFAULT_POOL, suspends=True)))
    running(bench)
    bench.tick(HOURS[0].end_minute * 60.0)
    bench.confirm()


def drained(bench: Bench) -> None:
    """It has to leave one of its nodes, or its only one."""
    running(bench)
    bench.tell(events.NodeClosed(bench.now, "a", Cordon(bench.now, drain=True)))
    bench.tick()


def missing_one(bench: Bench) -> None:
    """It has lost its first task (a gang may go on without it) and there is no room for it."""
    running(bench)
    bench.tell(events.JobSubmitted(bench.now, single("filler", 1)))
    bench.tick()
    bench.confirm()
    placement = bench.job.tasks[0].placement
    assert placement is not None
    bench.tell(events.NodeLost(bench.now, placement.node))
    bench.tick()


def joining(bench: Bench) -> None:
    """A task is about to join it."""
    running(bench)
    bench.tell(events.DesiredCountChanged(bench.now, "j", "worker", 3))
    bench.tick()


def shrinking(bench: Bench) -> None:
    """A task that it no longer wants is about to end."""
    running(bench)
    bench.tell(events.DesiredCountChanged(bench.now, "j", "worker", 1))
    bench.tick()


def shrinking_and_growing(bench: Bench) -> None:
    """The same, and meanwhile it wants more tasks again."""
    shrinking(bench)
    bench.tell(events.DesiredCountChanged(bench.now, "j", "worker", 3))


def shrinking_before_it_ran(bench: Bench) -> None:
    """The same before its start is confirmed."""
    starting(bench)
    bench.tell(events.DesiredCountChanged(bench.now, "j", "worker", 1))
    bench.tick()


def shrinking_while_suspended(bench: Bench) -> None:
    """The same while it has left its devices."""
    suspended(bench)
    bench.tell(events.DesiredCountChanged(bench.now, "j", "worker", 1))
    bench.tick()


def going_to_rest(bench: Bench) -> None:
    """Nobody wants it for now, and its tasks are about to end."""
    running(bench)
    bench.tell(events.DesiredCountChanged(bench.now, "j", "worker", 0))
    bench.tick()


def scaled_to_zero(bench: Bench) -> None:
    """Nobody wants it for now, and its tasks have ended."""
    going_to_rest(bench)
    bench.tell(events.Ended(bench.now, "j", 1, Outcome.STOPPED))


def scaled_to_zero_swapped(bench: Bench) -> None:
    """Nobody wants it for now, and it has left its devices for host memory if it can."""
    bench.tell(events.PoolChanged(bench.now, Pool(DEFAULT_POOL, suspends=True)))
    running(bench)
    bench.tell(events.DesiredCountChanged(bench.now, "j", "worker", 0, swap=True))
    bench.tick()
    bench.confirm()


def coming_back(bench: Bench) -> None:
    """The same, and it is wanted again while others of a lower class use its cards."""
    scaled_to_zero_swapped(bench)
    low = (single(f"low{number}", 1, priority=Priority.LOW) for number in range(3))
    for job in low:
        bench.tell(events.JobSubmitted(bench.now, job))
    bench.tick()
    bench.confirm()
    bench.tell(events.DesiredCountChanged(bench.now, "j", "worker", 1))
    bench.tick()


def woken_early(bench: Bench) -> None:
    """It is wanted again before its tasks have ended."""
    going_to_rest(bench)
    bench.tell(events.DesiredCountChanged(bench.now, "j", "worker", 1))


def partly_done(bench: Bench) -> None:
    """Its first task has succeeded."""
    running(bench)
    bench.tell(events.Ended(bench.now, "j", 1, Outcome.SUCCESS, 0))


def second_run(bench: Bench) -> None:
    """It failed once and runs again, not confirmed."""
    running(bench)
    bench.tell(events.Ended(bench.now, "j", 1, Outcome.USER_ERROR))
    bench.tick()


def kept(bench: Bench) -> None:
    """Its first task has failed once more than it may, its place is kept, and its mates have been told to end."""
    second_run(bench)
    bench.confirm()
    bench.tell(events.Kept(bench.now, "j", bench.job.attempt, 0, Outcome.USER_ERROR, bench.now + 100.0, 3))
    bench.tick()


def kept_alone(bench: Bench) -> None:
    """The same, and its mates have ended."""
    kept(bench)
    for task in bench.job.tasks[1:]:
        bench.tell(events.Ended(bench.now, "j", bench.job.attempt, Outcome.STOPPED, task.number))


def ended(bench: Bench) -> None:
    """It has succeeded."""
    running(bench)
    bench.tell(events.Ended(bench.now, "j", 1, Outcome.SUCCESS))


STATES = (
    waiting, starting, running, paused, suspending, suspended, swapped, resuming, migrating,
    migrating_by_restart, stopping, stopping_before_it_ran,
    preempted, leaving_for_others, left_for_others, out_of_its_hours, drained, missing_one, joining, shrinking,
    shrinking_and_growing, shrinking_before_it_ran, shrinking_while_suspended, going_to_rest, scaled_to_zero,
    scaled_to_zero_swapped, coming_back, woken_early, partly_done, second_run, kept, kept_alone, ended,
)  # fmt: skip


# ---- events -----------------------------------------------------------------------------------------------------


def happenings(bench: Bench) -> list[events.Event]:
    """Everything that may be said of the job now: sensible, late, doubled or senseless."""
    now, job = bench.now, bench.job
    said: list[events.Event] = [
        events.PoolChanged(now, Pool(DEFAULT_POOL, suspends=True)),
        events.SchedulingPaused(now, Cause.DISK_FULL, "no room"),
        events.ClockJumped(now, 20.0),
        events.DurationPredicted(now, "j", 50.0, 60.0),
        events.EnergyRatePredicted(now, RateMeasure.CARBON, now, (3.0, 1.0)),
        *(events.ProgressMeasured(now, "j", job.attempt - old, 2.5, 2_000) for old in (0, 1)),
        events.StopRequested(now, "j"),
        events.SuspendRequested(now, "j"),
        events.SuspendRequested(now, "j", swap=True),
        events.ResumeRequested(now, "j"),
        events.RequeueRequested(now, "j"),
        *(events.PriorityChanged(now, "j", priority) for priority in (Priority.LOW, Priority.CRITICAL)),
        events.NodeChoiceChanged(now, "j", (), (SpacingRule(SpacingKind.APART, "host", ("worker",), ("worker",)),)),
        events.MigrateRequested(now, "j", restart=True),
        *(events.DesiredCountChanged(now, "j", "worker", desired) for desired in (0, 1, 2, 3)),
        events.Ended(now, "j", job.attempt - 1, Outcome.USER_ERROR),
        *(events.Ended(now, "j", job.attempt, outcome) for outcome in OUTCOMES),
        *(events.Ended(now, "j", job.attempt, outcome, task.number) for outcome in OUTCOMES for task in job.tasks[:2]),
    ]
    failed = (Outcome.USER_ERROR, Outcome.OUT_OF_MEMORY)
    said += [events.Kept(now, "j", job.attempt, number, how, now + 50.0, 3) for how in failed for number in (0, 1)]
    said.append(events.Kept(now, "j", job.attempt - 1, 0, Outcome.USER_ERROR, now + 50.0, 3))
    for decision in (each for each in bench.decisions if each.job == "j"):
        said.append(events.Confirmed(now, decision.id))
        said += [events.Refused(now, decision.id, "no", fault) for fault in (False, True)]
    for node in bench.nodes.values():
        card = node.devices[0].card
        said += [
            events.NodeLost(now, node.name),
            events.NodeJoined(now, node),
            events.NodeJoined(now, with_other_cards(node)),
            events.NodeJoined(now, replace(node, schedulable=False)),
            events.NodeClosed(now, node.name, Cordon(now)),
            events.NodeClosed(now, node.name, Cordon(now, now + 50.0, drain=True)),
            events.NodeOpened(now, node.name),
            *(events.NodePowerChanged(now, node.name, state) for state in NodePowerState),
            events.NodeContents(now, node.name, (Content("data:faces@3", 7_000),), 1_000),
            *(events.CardClosed(now, node.name, card, Cordon(now, drain=drain)) for drain in (False, True)),
            events.CardOpened(now, node.name, card),
            *(events.CardLayoutChanged(now, node.name, card, state, ("1g.10gb",), "j") for state in LayoutChangeState),
            *(events.DeviceHealthChanged(now, node.name, node.devices[0].uuid, health) for health in DeviceHealth),
        ]
    return said


def with_other_cards(node: Node) -> Node:
    return replace(node, devices=tuple(replace(device, uuid=f"new-{device.uuid}") for device in node.devices))


HOURLY = {out_of_its_hours}
ELASTIC = {joining, missing_one, shrinking, shrinking_and_growing, shrinking_before_it_ran, shrinking_while_suspended}
SERVICE = {going_to_rest, scaled_to_zero, scaled_to_zero_swapped, coming_back, woken_early}
CASES = [
    (kind, state)
    for kind in JOBS
    for state in STATES
    if (kind.startswith("elastic") or state not in ELASTIC) and (kind.endswith("service") or state not in SERVICE)
    if (kind == "windowed") == (state in HOURLY) or (kind == "windowed" and state in (waiting, running, stopping))
]


every_case = pytest.mark.parametrize(("kind", "state"), CASES, ids=lambda value: getattr(value, "__name__", value))


@every_case
@pytest.mark.parametrize("shared_by", few_then_many([80], [4], [1]))
def test_every_event_leaves_the_books_in_order_and_the_job_comes_to_its_end(
    shared_by: int, kind: str, state: Callable[[Bench], None]
) -> None:
    """So many neighbouring cases share the events among them; at one, each is thrown at all."""
    bench = Bench(JOBS[kind])
    state(bench)
    bench.check()
    for event in happenings(bench)[CASES.index((kind, state)) % shared_by :: shared_by]:
        bench = Bench(JOBS[kind])
        state(bench)
        bench.tell(event)
        bench.check()
        bench.tick(1.0)
        bench.check()
        bench.play_on()
        assert bench.job.state in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


@every_case
def test_a_job_in_every_state_has_a_reason_whatever_becomes_of_its_nodes(
    kind: str, state: Callable[[Bench], None]
) -> None:
    for gone in ((), ("a",), ("b",), ("a", "b")):
        bench = Bench(JOBS[kind])
        state(bench)
        for node in gone:
            bench.tell(events.NodeLost(bench.now, node))
        for job in bench.core.jobs:
            reason, brief = bench.core.explain(job, bench.now), bench.core.cause(job, bench.now)
            assert (reason.cause, reason.summary) == (brief.cause, brief.summary)
