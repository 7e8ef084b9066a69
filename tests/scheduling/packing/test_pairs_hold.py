"""Whatever happens to jobs that share cards, the books stay true, and a restored scheduler goes on alike."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worlds import World, machine, queue, single

from ledgers import check_everything
from millpond.model.decisions import Decision, Start
from millpond.model.errors import MillpondError
from millpond.model.events import (
    DeviceHealthChanged,
    Event,
    MigrateRequested,
    NodeClosed,
    NodeJoined,
    NodeLost,
    NodeOpened,
    PolicyChanged,
    PoolChanged,
    PriorityChanged,
    ProgressMeasured,
    QueueChanged,
    RequeueRequested,
    ResumeRequested,
    StopRequested,
    SuspendRequested,
    TimeLimitChanged,
)
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import Cordon, Pool
from millpond.model.reasons import Cause
from millpond.model.states import Outcome
from millpond.model.workloads import Checkpoint, CheckpointMode, Job, Priority
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings

NAMES = ("a", "b", "c", "d", "e")
NODES = [machine(f"n{number}", 3) for number in range(2)]
QUEUES = [queue("default", guarantee=2), queue("other", guarantee=1, limit=5)]


class Restless(World):
    """A world in which anything happens next.

    Attributes:
        twin: a scheduler that has been restored from a snapshot at some instant, and decides all the same since.
        shared: how often a job became a guest.
    """

    def __init__(self, draws: random.Random) -> None:
        self.twin: Scheduler | None = None
        self.shared = 0
        policy = Settings(preempt=draws.random() < 0.5, reserve=draws.random() < 0.7)
        super().__init__(*NODES, pools=[Pool(packs=True)], queues=QUEUES, settings=policy)
        self._draws = draws
        self._count = 0

    def tell(self, event: Event) -> None:
        """Both hear of it; what is refused changes neither."""
        for core in (self.core, self.twin):
            if core is not None:
                try:
                    core.handle(event)
                except MillpondError:
                    continue

    def tick(self) -> list[Decision]:
        """Both decide the same."""
        decisions = self.core.decide(self.now)
        if self.twin is not None:
            assert self.twin.decide(self.now) == decisions
        self.shared += sum(isinstance(each, Start) and each.cause is Cause.SHARES for each in decisions)
        return decisions

    def step(self) -> None:
        """The next thing happens, and everything is checked."""
        self.now += self._draws.choice((0.0, 1.0, 40.0, 130.0))
        happens: list[Callable[[], None]] = [
            self._submit, self._submit, self._submit, self._measure, self._measure, self._measure, self._end, self._ask,
            self._trouble, self._restore,
        ]  # fmt: skip
        self._draws.choice(happens)()
        self.settle()
        check_everything(self.core)

    def _submit(self) -> None:
        draws, number = self._draws, self._count
        self._count += 1
        saves = Checkpoint(CheckpointMode.SIGNAL) if draws.random() < 0.9 else Checkpoint()
        fields: dict[str, Any] = {"retries": 1} if draws.random() < 0.5 else {}
        name = draws.choice(NAMES)
        priority = draws.choices((Priority.NORMAL, Priority.HIGH, Priority.BACKGROUND), (8, 1, 1))[0]
        queue_name = draws.choices(("default", "other"), (3, 1))[0]
        size = draws.choices((1, 2, 3), (6, 2, 1))[0]
        job: Job = single(
            f"{name}{number}", size, name=name, checkpoint=saves, priority=priority, queue=queue_name, **fields
        )
        self.submit(job)

    def _running_job(self) -> str:
        alive = [job for job, record in self.core.jobs.items() if record.id in self.core._state.running]
        return self._draws.choice(alive) if alive else "none"

    def _measure(self) -> None:
        job = self._running_job()
        if job in self.core.jobs:
            record = self.core.jobs[job]
            parts = (1.0, 1.0, 0.9, 0.8, 0.3, None) if record.packed_with else (1.0,)
            part = self._draws.choice(parts)
            per_s = None if part is None else 10.0 * part
            most = 16_000 if record.packed_with else 7_000
            mib = self._draws.choices((1_000, most, None), (40, 1, 1))[0]
            self.tell(ProgressMeasured(self.now, job, record.attempt, per_s, record.gpu_milli, memory_mib=mib))

    def _end(self) -> None:
        job = self._running_job()
        if job in self.core.jobs:
            outcomes = (Outcome.SUCCESS, Outcome.SUCCESS, Outcome.USER_ERROR, Outcome.OUT_OF_MEMORY)
            self.end(job, self._draws.choice(outcomes))

    def _ask(self) -> None:
        job = self._running_job()
        events = (
            StopRequested(self.now, job), SuspendRequested(self.now, job), ResumeRequested(self.now, job),
            MigrateRequested(self.now, job), RequeueRequested(self.now, job),
            PriorityChanged(self.now, job, self._draws.choice((Priority.LOW, Priority.NORMAL))),
            TimeLimitChanged(self.now, job, 200.0),
        )  # fmt: skip
        self.tell(self._draws.choice(events))

    def _trouble(self) -> None:
        node = self._draws.choice(NODES)
        device = self._draws.choice(node.devices).uuid
        health = self._draws.choice((DeviceHealth.OK, DeviceHealth.FAULTY))
        packs = Pool(packs=self._draws.random() < 0.8, suspends=self._draws.random() < 0.2)
        events = (
            NodeLost(self.now, node.name), NodeJoined(self.now, node), NodeJoined(self.now, node),
            NodeClosed(self.now, node.name, Cordon(self.now, drain=self._draws.random() < 0.5)),
            NodeOpened(self.now, node.name), DeviceHealthChanged(self.now, node.name, device, health),
            PoolChanged(self.now, packs), QueueChanged(self.now, self._draws.choice(QUEUES)),
            PolicyChanged(self.now, self._draws.choice(("default", "fifo", "tiresias")), "default", True, True),
        )  # fmt: skip
        self.tell(self._draws.choice(events))

    def _restore(self) -> None:
        self.twin = Scheduler.restore(self.core.snapshot()) if self._draws.random() < 0.5 else self.core.fork()


@pytest.mark.long
@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_books_stay_true_and_restored_schedulers_go_on_alike(seed: int) -> None:
    here = Restless(random.Random(seed))
    for _ in range(50):
        here.step()


@pytest.mark.long
def test_in_such_a_world_many_share_cards() -> None:
    here = Restless(random.Random(6))
    for _ in range(120):
        here.step()
    assert here.shared > 10
