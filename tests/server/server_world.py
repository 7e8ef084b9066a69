"""A world without processes for the server's tests: it outlives servers, and remembers what was ever started."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argon2 import PasswordHasher
from fresh_databases import fresh_sqlite

from millpond.model.confinement import UNTOLD, Confinement
from millpond.model.decisions import Decision, Start, Stop
from millpond.model.engine import Inventory, Observed
from millpond.model.events import Confirmed, Ended, Event, Kept
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.policy_trials import UNCHANGED, PolicyOverrides
from millpond.model.states import Outcome
from millpond.node.task.records import TaskId
from millpond.server.auth.secrets import Passwords
from millpond.server.runtime.active_jobs.job_cache import JobCache
from millpond.server.runtime.inbox import Submission
from millpond.server.runtime.loop import Loop
from millpond.server.runtime.loop_dependencies import LoopDependencies
from millpond.server.runtime.recovery import policy_change, recover
from millpond.server.runtime.scheduler_thread import SchedulerThread
from millpond.server.runtime.turn_processor import TurnProcessor
from millpond.server.store.store import Store
from millpond.specs.job.job_spec import check_job


class KilledError(Exception):
    """The server was killed here."""


def killed_at(place: str, which: int) -> Callable[[str], None]:
    """What a store and an engine call where they could be killed; raises when a place is come to for the nth time."""
    passed = itertools.count(1)

    def trip(where: str) -> None:
        if where == place and next(passed) == which:
            raise KilledError

    return trip


class Clock:
    """Stands still until it is moved."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def cheap_passwords() -> Passwords:
    """Password hashes that cost nothing: what they cost is not what is tested."""
    return Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))


def node(name: str = "n1", cards: int = 4) -> Node:
    """A machine with pretended cards."""
    devices = tuple(
        Device(f"{name}-{index}", index, "fake", "V100", 32_768, fake=True, cap_range_w=(100.0, 300.0))
        for index in range(cards)
    )
    return Node(name, 64_000, 262_144, devices)


@dataclass
class World:
    """What is really there: tasks by id, with how they ended, or None while they run.

    Attributes:
        starts: how often each was started, but for those that joined their gang anew by a decision of their own; more
            than once is the error these tests are after.
        joined: by which decision each of these was started last.
        confinement: of all tasks.
    """

    nodes: tuple[Node, ...] = (node(),)
    tasks: dict[TaskId, Ended | None] = field(default_factory=dict)
    starts: Counter[TaskId] = field(default_factory=Counter)
    joined: dict[TaskId, int] = field(default_factory=dict)
    confinement: Confinement = UNTOLD

    def end(self, task: TaskId, outcome: Outcome = Outcome.SUCCESS, exit_code: int = 0, at: float = 0.0) -> Ended:
        """A task ends by itself."""
        event = Ended(at, task.job, task.attempt, outcome, task.task, exit_code)
        self.tasks[task] = event
        return event

    @property
    def running(self) -> list[TaskId]:
        """Tasks that run."""
        return [task for task, end in self.tasks.items() if end is None]


class WorldEngine:
    """One server's engine on a world: does at once what it is told."""

    def __init__(self, world: World, clock: Clock) -> None:
        self.world = world
        self.clock = clock
        self.outbox: deque[Event] = deque()  # appended to and emptied by two threads
        self.applied: list[Decision] = []
        self.wake: Callable[[], None] = lambda: None

    def apply(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            self.applied.append(decision)
            if isinstance(decision, Start):
                self._start(decision)
            elif isinstance(decision, Stop):
                self._stop(decision)
            confinement = self.world.confinement if isinstance(decision, Start) else UNTOLD
            self.outbox.append(Confirmed(self.clock(), decision.id, confinement))
        self.wake()

    def adopt(self, expected: Iterable[TaskId], unanswered: Sequence[Decision]) -> None:
        wanted = set(expected)
        for task in sorted(wanted, key=lambda task: (task.job, task.task)):
            end = self.world.tasks.get(task)
            if end is not None:
                self.outbox.append(end)
        for task in self.world.running:
            if task not in wanted:
                self.world.end(task, Outcome.STOPPED, 143)
        self.apply(unanswered)

    def events(self) -> list[Event]:
        return [self.outbox.popleft() for _ in range(len(self.outbox))]

    def inventory(self) -> Inventory:
        world = self.world
        seen = (Observed(task.job, task.attempt, task.task, "", world.confinement) for task in world.tasks)
        return Inventory(world.nodes, tuple(seen))

    def finish(self, task: TaskId, outcome: Outcome = Outcome.SUCCESS, exit_code: int = 0) -> None:
        """A task ends by itself, and this engine notices."""
        self.outbox.append(self.world.end(task, outcome, exit_code, self.clock()))
        self.wake()

    def keep(self, task: TaskId, until: float, exit_code: int = 1) -> None:
        """A program fails, and this engine keeps its place."""
        failure = Outcome.USER_ERROR, until, exit_code, f"exit code {exit_code}"
        self.outbox.append(Kept(self.clock(), task.job, task.attempt, task.task, *failure))
        self.wake()

    def _start(self, decision: Start) -> None:
        for placed in decision.placements:
            task = TaskId(decision.job, decision.attempt, placed.task)
            if task not in self.world.tasks:
                self.world.starts[task] += 1
            elif not decision.joins or self.world.joined.get(task) == decision.id:
                continue
            self.world.tasks[task] = None
            self.world.joined[task] = decision.id

    def _stop(self, decision: Stop) -> None:
        for task in list(self.world.running):
            of_job = (task.job, task.attempt) == (decision.job, decision.attempt)
            if of_job and (not decision.tasks or task.task in decision.tasks):
                self.outbox.append(self.world.end(task, Outcome.STOPPED, 143, self.clock()))


def submission_of(job_id: str, key: str = "", **fields: Any) -> Submission:
    """A checked job of ada's."""
    document = {"command": "work", **fields}
    return Submission(check_job(document).to_job(job_id, "ada"), document, key, str(sorted(document.items())))


class Server:
    """Everything but HTTP, driven turn by turn; ``killed`` leaves it where it stands and starts the next one."""

    def __init__(
        self,
        state_dir: Path,
        world: World,
        clock: Clock,
        trip: Callable[[str], None] | None = None,
        policies: PolicyOverrides = UNCHANGED,
        dependencies: LoopDependencies | None = None,
    ) -> None:
        self.state_dir = state_dir
        self.clock = clock
        self.world = world
        self.store = TrippingStore(fresh_sqlite(state_dir), trip)
        self.engine = TrippingEngine(world, clock, trip)
        self.core = recover(self.store, policies)
        self.loop = Loop(JobCache())
        dependencies = dependencies or LoopDependencies(clock=clock)
        self.processor = TurnProcessor(self.store, self.core, self.loop, dependencies)
        self.scheduler = SchedulerThread(self.loop, self.processor)
        self.scheduler.settle(self.engine, lambda: policy_change(policies, self.core.scheduler.settings, clock()))

    def submit(self, job_id: str, key: str = "", **fields: Any) -> Submission:
        """Hand a job in; it is taken with the next turn."""
        submission = submission_of(job_id, key, **fields)
        self.loop.submit(submission)
        return submission

    def turn(self, time_slicing: int = 1) -> None:
        """Some turns, a second apart."""
        for _ in range(time_slicing):
            self.clock.now += 1.0
            self.scheduler.turn(0.0)

    def run_to_the_end(self) -> None:
        """Every running task ends well, until no job is left."""
        for _ in range(100):
            self.turn(2)
            for task in self.world.running:
                self.engine.finish(task)
            if not self.core.scheduler.jobs:
                return
        raise AssertionError(f"jobs never ended: {list(self.core.scheduler.jobs)}")


class TrippingStore(Store):
    """A store in which the server can be killed before and after each write."""

    def __init__(self, url: str, trip: Callable[[str], None] | None = None) -> None:
        super().__init__(url)
        self.trip = trip or (lambda _: None)

    def append(self, *arguments: Any) -> None:
        self.trip("before append")
        super().append(*arguments)
        self.trip("after append")

    def record(self, *arguments: Any, **named: Any) -> None:
        self.trip("before record")
        super().record(*arguments, **named)
        self.trip("after record")


class TrippingEngine(WorldEngine):
    """An engine in which the server can be killed around each call."""

    def __init__(self, world: World, clock: Clock, trip: Callable[[str], None] | None = None) -> None:
        super().__init__(world, clock)
        self.trip = trip or (lambda _: None)

    def apply(self, decisions: Sequence[Decision]) -> None:
        self.trip("before apply")
        super().apply(decisions)
        self.trip("after apply")

    def events(self) -> list[Event]:
        events = super().events()
        if events:
            self.trip("after events")
        return events
