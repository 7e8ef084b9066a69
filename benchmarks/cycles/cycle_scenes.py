"""Scenes in which one cycle, or one fork, could take long: each builds a cluster, lets it happen, and yields rows.

A scene is a function in ``SCENES``; to add one, write it and enter it there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.calibration import as_served
from millpond.model.decisions import Decision, Stop
from millpond.model.events import (
    Confirmed,
    Ended,
    Event,
    JobSubmitted,
    NodeJoined,
    PolicyChanged,
    PoolChanged,
    QueueChanged,
    ResumeRequested,
    SuspendRequested,
)
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node, Pool
from millpond.model.resources import Amount, TaskRequest
from millpond.model.states import Outcome
from millpond.model.tenancy.tenants import Queue
from millpond.model.workloads import Job, Priority, Role, Suspendable
from millpond.scheduling.placement.kernels import compiled
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.simulation.kernel_warmup import warm_up

CARDS = 8
CARD_MIB = 16_384
ONE_CARD = (Role.rigid(TaskRequest(1000, 1024, 1), 1),)
BATCH = 100
"""So many answers of the engine come before the next cycle."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: CPU seconds, and what they should stay below on a machine of the target's calibration."""

    what: str
    seconds: float
    target_s: float


class Measured:
    """A scheduler on a cluster of equal nodes, an engine that never fails, and the CPU time of all it is asked.

    Attributes:
        total_s: of all events, cycles and wakeups since ``begin``.
        longest_s: the longest cycle since then, with the look at the next wakeup.
    """

    def __init__(self, nodes: int, pool: Pool | None = None) -> None:
        self.scheduler = Scheduler()
        warm_up(Settings())
        self.scheduler.use_kernels(compiled())
        self.now = 0.0
        self.cards = nodes * CARDS
        self.total_s = self.longest_s = 0.0
        self._unanswered: list[Decision] = []
        as_served()
        self.tell(PoolChanged(0.0, pool or Pool()))
        for number in range(nodes):
            self.join(number)

    def join(self, number: int, model: str = "A100") -> None:
        """A node comes."""
        name = f"n{number}"
        devices = tuple(Device(f"{name}-{i}", i, "fake", model, CARD_MIB, i // 2, i // 4) for i in range(CARDS))
        node = Node(name, 128_000, 1_048_576, devices, rack_name=f"r{number // 16}", swap_mib=262_144)
        self.tell(NodeJoined(self.now, node))

    def begin(self) -> None:
        """Take time from now on."""
        self.total_s = self.longest_s = 0.0

    def timed(self, work: Callable[[], object]) -> float:
        """CPU seconds of it, added to the total."""
        began = time.thread_time()
        work()
        took = time.thread_time() - began
        self.total_s += took
        return took

    def tell(self, *events: Event) -> None:
        """The scheduler hears of something."""
        for event in events:
            self.timed(lambda event=event: self.scheduler.handle(event))  # type: ignore[misc]

    def cycle(self) -> None:
        """One cycle, a second later, and the question when the next is due."""
        self.now += 1.0

        def work() -> None:
            self._unanswered += self.scheduler.decide(self.now)
            self.scheduler.next_wakeup(self.now)

        self.longest_s = max(self.longest_s, self.timed(work))

    def settle(self) -> None:
        """Cycles until nothing is decided, the engine's answers coming in batches once no cycle is due at once."""
        self.cycle()
        while self._unanswered or self.scheduler.is_unfinished:
            if self.scheduler.is_unfinished:
                self.cycle()
                continue
            batch, self._unanswered = self._unanswered[:BATCH], self._unanswered[BATCH:]
            for decision in batch:
                self.tell(Confirmed(self.now, decision.id))
                if isinstance(decision, Stop):
                    self.tell(Ended(self.now, decision.job, decision.attempt, Outcome.STOPPED))
            self.cycle()

    def submit(self, jobs: Iterable[Job]) -> None:
        """Jobs come."""
        self.tell(*(JobSubmitted(self.now, job) for job in jobs))

    def fill(self, **fields: Any) -> list[str]:
        """A job of one card on every card; returns their names."""
        names = [f"small{number}" for number in range(self.cards)]
        self.submit(Job(name, ONE_CARD, **fields) for name in names)
        self.settle()
        self.require("running", len(names))
        return names

    def require(self, state: str, jobs: int) -> None:
        """Stop the benchmark unless so many jobs are in a state: it would measure something else."""
        found = sum(record.state.value == state for record in self.scheduler.jobs.values())
        if found != jobs:
            raise SystemExit(f"{found} jobs are {state}, not {jobs}")

    def end(self, job: str) -> None:
        """A job ends well."""
        self.tell(Ended(self.now, job, self.scheduler.jobs[job].attempt, Outcome.SUCCESS))


def gang(name: str, cards: int) -> Job:
    """A gang of whole nodes, of a higher class than all else."""
    request = TaskRequest(8000, 8192, CARDS)
    return Job(name, (Role.rigid(request, cards // CARDS),), priority=Priority.HIGH)


# ---- scenes ---------------------------------------------------------------------------------------------------------


def forks(nodes: int, fork_s: float) -> Iterator[Row]:
    """A full cluster of small jobs, and a quarter as many waiting in lines of 500 users, is forked."""
    world = Measured(nodes)
    world.fill()
    world.submit(Job(f"waits{number}", ONE_CARD, user=f"user{number % 500}") for number in range(world.cards // 4))
    world.settle()
    twins: list[Scheduler] = []
    took = [world.timed(lambda: twins.append(world.scheduler.fork())) for _ in range(3)]
    yield Row(f"fork, {nodes:,} nodes", max(took), fork_s)
    twins.clear()
    change = PolicyChanged(world.now, "default", "default", preempt=True, reserve=True)
    yield Row(f"change of policy, {nodes:,} nodes", world.timed(lambda: world.scheduler.handle(change)), 2 * fork_s)


def swaps(nodes: int) -> Iterator[Row]:
    """Small jobs are swapped off for a gang and go on when it ends; then their users ask for the same."""
    world = Measured(nodes, pool=Pool(suspends=True))
    names = world.fill(suspendable=Suspendable.SWAP)
    yield from swapping(world, "swapped off for a gang", lambda: world.submit([gang("gang", world.cards)]), "suspended")
    yield from swapping(world, "going on behind it", lambda: world.end("gang"), "running")
    off = [SuspendRequested(world.now, name, swap=True) for name in names]
    yield from swapping(world, "swapped off on request", lambda: world.tell(*off), "suspended")
    on = [ResumeRequested(world.now, name) for name in names]
    yield from swapping(world, "going on on request", lambda: world.tell(*on), "running")


def swapping(world: Measured, what: str, work: Callable[[], None], state: str) -> Iterator[Row]:
    """All jobs of a world come into a state by some work and the cycles behind it."""
    world.begin()
    work()
    world.settle()
    world.require(state, world.cards)
    yield Row(f"{world.cards:,} jobs {what}", world.total_s, 1.0)
    yield Row("... the longest cycle of it", world.longest_s, 0.05)


def plans(cards: int, nodes: int, target_s: float) -> Iterator[Row]:
    """A gang of a higher class comes to a cluster full of small jobs: the cycle that asks them to leave."""
    world = Measured(nodes)
    world.fill()
    world.submit([gang("warm", CARDS)])
    world.settle()
    world.begin()
    world.submit([gang("gang", cards)])
    world.cycle()
    world.require("stopping", cards)
    yield Row(f"plan for {cards:,} cards over {world.cards:,} small jobs", world.total_s, target_s)
    world.settle()
    world.require("queued", cards + CARDS)
    yield Row("... the longest cycle until it starts", world.longest_s, target_s)


def guaranteed(nodes: int, lines: int) -> Iterator[Row]:
    """A tenth of the nodes have cards of a model of which nobody holds more than is guaranteed; many lines want them.

    The rest is held on borrowed room, so there is always work that would leave, and never any that would help.
    """
    scarce, each = nodes // 10, TaskRequest(1000, 1024, 1, models=("H100",))
    world = Measured(nodes - scarce)
    owned = scarce * CARDS
    world.tell(QueueChanged(0.0, Queue("owner", guarantee=Amount(owned * 1000))), QueueChanged(0.0, Queue("borrower")))
    world.tell(*(QueueChanged(0.0, Queue(f"q{line}", guarantee=Amount(8000))) for line in range(lines)))
    world.fill(queue="borrower")
    for number in range(nodes - scarce, nodes):
        world.join(number, "H100")
    world.submit(Job(f"owned{number}", (Role.rigid(each, 1),), queue="owner") for number in range(owned))
    world.settle()
    world.submit(Job(f"waits{line}", (Role.rigid(each, 1),), queue=f"q{line}") for line in range(lines))
    world.settle()
    took = []
    for number in range(50):
        world.begin()
        world.end(f"small{number}")
        world.submit([Job(f"next{number}", ONE_CARD, queue="borrower")])
        world.cycle()
        took.append(world.longest_s)
    world.require("queued", lines)
    yield Row(f"{lines} guaranteed lines that can take nothing back, at most of 50 cycles", max(took), 0.005)


SCENES: dict[str, Callable[[], Iterable[Row]]] = {
    "fork": lambda: forks(5_000, 0.1),
    "fork-large": lambda: forks(20_000, 0.5),
    "swap": lambda: swaps(500),
    "plan": lambda: plans(512, 1_000, 0.1),
    "guaranteed": lambda: guaranteed(1_000, 100),
    "plan-large": lambda: plans(4_096, 5_000, 0.5),
}
