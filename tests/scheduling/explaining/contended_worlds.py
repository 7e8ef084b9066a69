"""Random worlds in which much waits, and for many different reasons: for tests of explanations.

A world is drawn from a seed: machines in three pools (suspending, over-committed, of whole cards), a tree of queues,
limits of users, policies. Each step does one thing that users, operators, engines or hardware do.
"""

from __future__ import annotations

import random
from dataclasses import replace

from scripts import MODELS, POOLS, SLICES, WHOLE, tree
from worlds import CARD_MIB, World, machine

from millpond.model.errors import MillpondError
from millpond.model.events import (
    DeviceHealthChanged,
    DurationPredicted,
    JobSubmitted,
    LimitChanged,
    NodeClosed,
    NodeOpened,
    ResumeRequested,
    SchedulingPaused,
    SchedulingResumed,
    StopRequested,
    SuspendRequested,
)
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import Cordon, Node, Pool, SharingPolicy
from millpond.model.hardware.topology import Level
from millpond.model.reasons import Cause
from millpond.model.resources import Amount
from millpond.model.states import JobState, Outcome
from millpond.model.tenancy.tenants import Limit, Queue
from millpond.model.windows import Window
from millpond.model.workloads import (
    Checkpoint,
    CheckpointMode,
    Job,
    Priority,
    RetryDelay,
    Role,
    Suspendable,
)
from millpond.scheduling.settings import Settings

ORDERINGS = ("default", "default", "default", "default", "fair", "fair", "edf", "fifo", "sjf", "ssf")
LENGTHS_S = (30.0, 200.0, 1_000.0, 10_000.0)
STEPS_S = (0.0, 1.0, 20.0, 150.0, 900.0)


class ContendedWorld:
    """One world, and what happens in it.

    Attributes:
        nodes: the machines at first; their cards may fail later.
    """

    def __init__(self, seed: int) -> None:
        self.draws = draws = random.Random(seed)
        self._rules = random.Random(f"rules {seed}")
        pools = (*POOLS, Pool("whole", SharingPolicy.EXCLUSIVE))
        names = ["default"] * draws.randint(2, 4) + ["shared"] + ["whole"] * draws.randint(1, 2)
        self.nodes = [self._node(f"n{number}", pool) for number, pool in enumerate(names)]
        settings = Settings(
            ordering=draws.choice(ORDERINGS), preempt=draws.random() < 0.4, reserve=draws.random() < 0.8
        )
        self.world = World(*self.nodes, settings=settings, pools=pools, queues=self._queues())
        if draws.random() < 0.5:
            self.world.tell(LimitChanged(0.0, self._limit()))
        self._count = 0

    def _node(self, name: str, pool: str) -> Node:
        draws = self.draws
        return machine(
            name,
            draws.choice((4, 4, 2, 8)),
            model=draws.choice(MODELS),
            card_mib=draws.choice((CARD_MIB, CARD_MIB, 0)),
            pool=pool,
            rack_name=draws.choice(("r1", "r2")),
            swap_mib=draws.choice((0, 64_000)),
            extras=draws.choice(((), (("rdma", 2),), (("licence", 1), ("rdma", 4)))),
            cpu_milli=draws.choice((64_000, 24_000)),
        )

    def _queues(self) -> tuple[Queue, ...]:
        draws = self.draws
        queues = tree(draws.choice((12, 6, 4)), draws.choice((4, 0)))
        if draws.random() < 0.4:
            first = queues[0]
            assert first.limit is not None
            limit = Amount(first.limit.gpu_milli, draws.choice((8_000, 30_000)), draws.choice((0, 80_000)))
            queues = (replace(first, limit=limit), *queues[1:])
        return tuple(self._with_rules(queue) for queue in queues)

    def _with_rules(self, queue: Queue) -> Queue:
        """The same queue, which may bound how many of its jobs run and protect their runs."""
        draws = self._rules
        if draws.random() < 0.2:
            queue = replace(queue, running_jobs=draws.randint(1, 5))
        if queue.limit is not None and draws.random() < 0.3:
            models = tuple((model, draws.choice((0, 1_000, 3_000))) for model in sorted(MODELS) if draws.random() < 0.6)
            queue = replace(queue, limit=replace(queue.limit, models=models))
        return replace(queue, minimum_run_s=draws.choice((0.0, 50.0, 2_000.0))) if draws.random() < 0.2 else queue

    def _limit(self) -> Limit:
        draws = self.draws
        who = draws.choice((("ann", ""), ("bob", ""), ("", "blue"), ("", "default")))
        return draws.choice(
            (
                Limit(*who, jobs=draws.randint(1, 3)),
                Limit(*who, gpu_milli=draws.choice((1_000, 4_000))),
                Limit(*who, cpu_milli=draws.choice((2_000, 24_000))),
                Limit(*who),
            )
        )

    # ---- what happens -------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One thing happens; the scheduler has heard of it and has not decided yet."""
        draws, world = self.draws, self.world
        if draws.random() < 0.75:
            self._submit()
            return
        what = draws.choice(
            (self._end, self._end, self._fail, self._wait, self._wait, self._close, self._open, self._halt,
             self._card, self._bound, self._leave, self._stop, self._pause)
        )  # fmt: skip
        try:
            what()
        except MillpondError:
            world.settle()  # it was too late for that

    def _submit(self) -> None:
        draws, world = self.draws, self.world
        self._count += 1
        job = self._job(f"j{self._count}")
        if world.core.check(job) is not None:
            return
        for names, chance in ((world.lingering, 0.4), (world.slow, 0.15)):
            if draws.random() < chance:
                names.add(job.id)
        if draws.random() < 0.03:
            world.refusing[job.id] = False
        world.tell(JobSubmitted(world.now, job))
        if draws.random() < 0.6:
            length_s = draws.choice(LENGTHS_S)
            world.tell(DurationPredicted(world.now, job.id, length_s, length_s * draws.choice((1.0, 2.0))))

    def _job(self, id_: str) -> Job:
        draws = self.draws
        requests = WHOLE if draws.random() < 0.7 else SLICES
        shape = draws.random()
        if shape < 0.6:
            roles: tuple[Role, ...] = (Role.rigid(draws.choice(requests), 1),)
        elif shape < 0.8:
            roles = (Role.rigid(draws.choice(requests), draws.randint(2, 4)),)
        elif shape < 0.9:
            least = draws.randint(1, 2)
            roles = (Role(draws.choice(requests), least + 1, least, least + 2),)
        else:
            roles = tuple(Role.rigid(draws.choice(requests), draws.randint(1, 2), name) for name in ("chief", "worker"))
        return Job(
            id_,
            roles,
            user=draws.choice(("ann", "bob", "cid")),
            queue=draws.choice(("default", "default", "default", "red", "blue", "guest")),
            pool=draws.choice(("default", "default", "default", "shared", "whole")),
            priority=draws.choice((Priority.NORMAL, Priority.NORMAL, Priority.LOW, Priority.HIGH)),
            together=(together := draws.choice((Level.CLUSTER, Level.ZONE, Level.RACK, Level.NODE))),
            together_required=draws.random() < 0.5 and together < Level.CLUSTER,
            retries=1,
            retry_delay=draws.choice((RetryDelay(), RetryDelay(60.0))),
            time_limit_s=draws.choice((None, None, 500.0)),
            preemptible=draws.random() < 0.7,
            minimum_run_s=draws.choice((0.0, 0.0, 100.0)),
            preemption_budget=draws.choice((1_000_000, 1)),
            suspendable=draws.choice(tuple(Suspendable)),
            windows=draws.choice((*[()] * 16, (Window(0, 20),), (Window(10, 40),))),
            checkpoint=draws.choice((Checkpoint(), Checkpoint(CheckpointMode.SIGNAL))),
        )

    def _one(self, *states: JobState) -> str:
        found = [job for job, record in self.world.core.jobs.items() if record.state in states]
        return self.draws.choice(found) if found else ""

    def _end(self) -> None:
        if job := self._one(JobState.RUNNING):
            self.world.end(job)

    def _fail(self) -> None:
        if job := self._one(JobState.RUNNING):
            self.world.end(job, Outcome.USER_ERROR)

    def _wait(self) -> None:
        self.world.go_to(self.world.now + self.draws.choice(STEPS_S))

    def _close(self) -> None:
        draws, world = self.draws, self.world
        planned = draws.random() < 0.4
        begin = world.now + (draws.choice((60.0, 600.0)) if planned else 0.0)
        until = draws.choice((None, begin + 300.0))
        cordon = Cordon(begin, until, draws.choice(("", "repair")), drain=draws.random() < 0.3, planned=planned)
        world.tell(NodeClosed(world.now, draws.choice(self.nodes).name, cordon))

    def _open(self) -> None:
        self.world.tell(NodeOpened(self.world.now, self.draws.choice(self.nodes).name, planned=True))

    def _halt(self) -> None:
        job = self._one(JobState.RUNNING, JobState.SUSPENDED, JobState.QUEUED)
        if not job:
            return
        now, draws = self.world.now, self.draws
        is_halted = self.world.core.jobs[job].suspended_by != ""
        event = ResumeRequested(now, job) if is_halted else SuspendRequested(now, job, swap=draws.random() < 0.5)
        self.world.tell(event)

    def _card(self) -> None:
        node = self.draws.choice(self.nodes)
        health = self.draws.choice((DeviceHealth.OK, DeviceHealth.OK, DeviceHealth.FAULTY))
        device = self.draws.choice(node.devices)
        self.world.tell(DeviceHealthChanged(self.world.now, node.name, device.uuid, health))

    def _bound(self) -> None:
        self.world.tell(LimitChanged(self.world.now, self._limit()))

    def _leave(self) -> None:
        leaving = [job for job in self.world.lingering if job in self.world._stopped]
        if leaving:
            self.world.leave(self.draws.choice(sorted(leaving)))

    def _stop(self) -> None:
        if job := self._one(JobState.QUEUED, JobState.RUNNING):
            self.world.tell(StopRequested(self.world.now, job))

    def _pause(self) -> None:
        world = self.world
        if world.core.holds:
            world.tell(SchedulingResumed(world.now, Cause.DISK_FULL))
        elif self.draws.random() < 0.1:
            world.tell(SchedulingPaused(world.now, Cause.DISK_FULL, "the disk is full"))


class CardMemoryWorld(ContendedWorld):
    """The same, where many limits and guarantees are of card memory."""

    def __init__(self, seed: int) -> None:
        self._memory = random.Random(f"card memory {seed}")
        super().__init__(seed)

    def _with_rules(self, queue: Queue) -> Queue:
        queue, draws = super()._with_rules(queue), self._memory
        if queue.limit is not None and draws.random() < 0.6:
            queue = replace(queue, limit=replace(queue.limit, card_mib=draws.choice((16_000, 40_000, 80_000))))
        if queue.name in ("red", "guest") and draws.random() < 0.6:
            most = draws.choice((12_000, 16_000, 40_000))
            queue = replace(queue, guarantee=replace(queue.guarantee, card_mib=most))
        return queue

    def _limit(self) -> Limit:
        limit, draws = super()._limit(), self._memory
        return replace(limit, card_mib=draws.choice((16_000, 48_000))) if draws.random() < 0.4 else limit
