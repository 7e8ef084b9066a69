"""Random worlds in which guarantees are put to the test: trees of queues, work of many kinds, hardware that fails.

A world is drawn from a seed. A step is one thing that happens; then the scheduler comes to rest, its engine answering
at once, and what should be true is computed anew from the jobs and their places, not from the books of the core:

- *The guarantee*: no job waits that a guarantee covers, that no limit keeps out, and that has room once all work has
  left that was lent at its expense, unless that room is kept for another job that a guarantee covers and that goes
  first. Lent is work outside that guarantee to which no guarantee of its own is owed (first to what is not preemptible,
  then to what took its place back, then by class and by who came first), and that carries no protection now: it is
  preemptible, its minimum run time is over, and it has a preemption left. All who leave for a job are asked in one
  cycle: one round of taking back.
- *Nothing is borrowed for good*: what is not preemptible starts within a guarantee, beside what the queues below that
  are promised and do not use.
- *The verdict*: a job of which it is said at submission that it can never run does not run.
- *The books*: what each queue is said to hold is what its jobs hold.

What may leave keeps no work that stays from cards that are idle and within what its queue is guaranteed: neither work
of no higher class nor, where some gangs stay with their minimum alone (``with_cores``), what they have beyond that.

Where guarantees name models of cards (``with_models``), a job that takes several has a choice for each of them, and all
of this holds for each.

Strict orderings are left out: under them a job without room keeps out all behind it in its pool, guaranteed or not.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "scheduling"))

from worlds import World, asks, elastic, gang, machine

from benchmarks.tenancy.counted_queues import CountedTree
from benchmarks.tenancy.random_trees import MODELS, leaves_of, of_model, of_some_models, random_tree_on
from millpond.model.decisions import Decision, Start, Stop, Suspend
from millpond.model.events import DeviceHealthChanged, NodeJoined, NodeLost
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import Pool
from millpond.model.resources import CARD_MILLI, Amount, TaskRequest
from millpond.model.states import JobState
from millpond.model.tenancy.tenants import DEFAULT_QUEUE, Queue
from millpond.model.workloads import Checkpoint, CheckpointMode, Job, Priority
from millpond.scheduling.placement.kernels import fastest
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.settings import Settings

CLASSES = (Priority.LOW, Priority.NORMAL, Priority.NORMAL, Priority.NORMAL, Priority.HIGH)
WAITS_S = (1.0, 30.0, 120.0, 900.0, 7_200.0)
ENOUGH_JOBS = 24
"""No more are submitted while so many have not ended."""


class WatchedWorld(World):
    """A world that remembers in which cycles work was asked to leave for whom, and what started.

    Attributes:
        asked: cycles by the job for which work was asked to leave; to be cleared by who looks.
        started: jobs that have started since somebody looked.
    """

    def __init__(self, *nodes: object, **fields: object) -> None:
        self.asked: dict[str, set[int]] = {}
        self.started: set[str] = set()
        self._cycles = 0
        super().__init__(*nodes, **fields)  # type: ignore[arg-type]

    def tick(self) -> list[Decision]:
        """One cycle."""
        self._cycles += 1
        decisions = super().tick()
        for each in decisions:
            if isinstance(each, Stop | Suspend) and each.for_job:
                self.asked.setdefault(each.for_job, set()).add(self._cycles)
            if isinstance(each, Start) and not each.joins:
                self.started.add(each.job)
        return decisions


class GuaranteeWalk:
    """One world, and what happens in it.

    Attributes:
        found: how often each thing was seen.
        wrong: what should not be, in words.
    """

    def __init__(self, seed: int, *, with_models: bool = False, with_cores: bool = False) -> None:
        self.draws = draws = random.Random(seed)
        self._with_models, self._with_cores = with_models, with_cores
        self.found: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._jobs = 0
        self.nodes = {f"n{number}": draws.choice((1, 2, 4, 8)) for number in range(draws.randint(1, 4))}
        self._machines = {
            name: replace(
                of_model(machine(name, cards), MODELS[number % 2 if with_models else 0]),
                cpu_milli=draws.choice((cards * 2_000, 64_000)),
            )
            for number, (name, cards) in enumerate(self.nodes.items())
        }
        self._is_lost: set[str] = set()
        self._faulty: set[str] = set()
        self._refused: set[str] = set()
        queues = random_tree_on(draws, self._machines.values(), with_models=with_models)
        self._leaves = [*leaves_of(queues), DEFAULT_QUEUE]
        self.queues = (*queues, Queue(DEFAULT_QUEUE))
        self._empty = CountedTree(self.queues, ())
        settings = Settings(ordering=draws.choice(("default", "default", "fair", "edf")), preempt=draws.random() < 0.3)
        pool = Pool(suspends=draws.random() < 0.3, turn_s=0.0)
        self.world = WatchedWorld(*self._machines.values(), settings=settings, queues=queues, pools=(pool,))
        self.world.core.use_kernels(fastest())

    def _model_of(self, node: str) -> str:
        return self._machines[node].devices[0].model

    # ---- what happens -------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One thing happens, the scheduler comes to rest, and what should be true is held against what is."""
        world, draws = self.world, self.draws
        self.found["steps"] += 1
        world.asked.clear()
        world.started.clear()
        before = {name for name, record in world.core.jobs.items() if record.state is JobState.RUNNING}
        what = draws.random()
        alive = [name for name, record in world.core.jobs.items() if record.ended_at is None]
        if what < 0.5 and len(alive) < ENOUGH_JOBS:
            jobs = [self._job() for _ in range(draws.randint(1, 2))]
            if not self._is_lost:
                self._refused.update(job.id for job in jobs if world.core.check(job) is not None)
            world.submit(*jobs)
        elif what < 0.72 and (running := sorted(world.running())):
            world.end(draws.choice(running))
        elif what < 0.88:
            world.go_to(world.now + draws.choice(WAITS_S))
        else:
            self._fail_or_mend()
        self._judge(before)

    def _job(self) -> Job:
        draws, name = self.draws, f"j{self._jobs}"
        self._jobs += 1
        fields = {
            "queue": draws.choice(self._leaves),
            "priority": draws.choice(CLASSES),
            "user": draws.choice("xyz"),
            "preemptible": draws.random() < 0.8,
            "minimum_run_s": draws.choice((0.0, 0.0, 0.0, 100.0, 1_000.0)),
            "preemption_budget": draws.choice((1_000_000, 1_000_000, 1)),
            "checkpoint": draws.choice((Checkpoint(), Checkpoint(CheckpointMode.SIGNAL))),
        }
        match draws.choice(("single", "single", "single", "gang", "elastic")):
            case "single":
                request = asks(draws.choice((0, 0.5, 1, 1, 2, 4, 8)), cpus=draws.choice((1, 2)))
                return gang(name, 1, self._of_some_models(request), **fields)
            case "gang":
                tasks = draws.choice((2, 3))
                return gang(name, tasks, self._of_some_models(asks(draws.choice((1, 2, 4)))), **fields)
            case _:
                if self._with_cores and draws.random() < 0.6:
                    fields |= {"preemptible": False, "rest_preemptible": True}
                least = draws.choice((1, 2))
                sizes = (least, least + draws.choice((0, 1, 2)), least + 3)
                return elastic(name, sizes, self._of_some_models(asks(1)), **fields)

    def _of_some_models(self, request: TaskRequest) -> TaskRequest:
        return of_some_models(self.draws, request) if self._with_models else request

    def _fail_or_mend(self) -> None:
        """A card or a node fails, or comes back."""
        draws, world = self.draws, self.world
        name = draws.choice(sorted(self.nodes))
        if name in self._is_lost:
            self._is_lost.remove(name)
            world.tell(NodeJoined(world.now, self._machines[name]))
            self._faulty -= {device.uuid for device in self._machines[name].devices}
        elif draws.random() < 0.3:
            self._is_lost.add(name)
            world.tell(NodeLost(world.now, name))
        else:
            device = draws.choice(self._machines[name].devices).uuid
            health = DeviceHealth.OK if device in self._faulty else DeviceHealth.FAULTY
            self._faulty ^= {device}
            world.tell(DeviceHealthChanged(world.now, name, device, health))
        world.settle()

    # ---- what should be -----------------------------------------------------------------------------------------

    def _judge(self, ran: Collection[str]) -> None:
        core = self.world.core
        holding = [record for record in core.jobs.values() if any(task.holding for task in record.tasks)]
        tree = self._tree_of(holding)
        for status in core.queue_statuses():
            name, share = status.queue.name, status.share
            held, booked = tree.held[name], core._state.queues.by_name[name].held
            if (
                self._counted(booked) != self._counted(held)
                or share.used != held.gpu_milli
                or share.used != share.within + share.borrowed
            ):
                self.wrong.append(f"{name} holds {held}; booked are {booked}, and shown {share}")
        for job, cycles in self.world.asked.items():
            self.found["taken back"] += job in self.world.started
            if len(cycles) > 1 and core.jobs[job].took_back:
                self.wrong.append(f"work was asked to leave for {job} in {len(cycles)} cycles")
        self.found["can never run"] = len(self._refused)
        if ran_after_all := self._refused & self.world.started:
            self.wrong.append(f"{min(ran_after_all)} runs, and was said never to")
        for record in holding:
            if record.id in self.world.started - set(ran) and not record.job.preemptible:
                self._judge_unpreemptible(record, holding)
        for record in core.jobs.values():
            if record.line and record.state is JobState.QUEUED:
                self._judge_waiting(record, holding, tree)

    def _tree_of(self, holding: Iterable[JobRecord]) -> CountedTree:
        return CountedTree(self.queues, ((each.queue, self._held(each)) for each in holding))

    def _counted(self, amount: Amount) -> Amount:
        """The same without models, where the core counts none, and without card memory, which nothing bounds here."""
        models = amount.models if self.world.core._state.queues.counts_cards else ()
        return replace(amount, models=models, card_mib=0, card_share_milli=0)

    def _held(self, record: JobRecord) -> Amount:
        """What a job holds, by models of its cards."""
        tasks = [task for task in record.tasks if task.holding]
        return self._on_models(record, record.held_by(tasks), tasks)

    def _for_good(self, record: JobRecord) -> Amount:
        """What a running job holds and does not give back when it is asked."""
        if record.job.preemptible:
            return Amount()
        return self._least(record) if record.job.rest_preemptible else self._held(record)

    def _least(self, record: JobRecord) -> Amount:
        """The least size of a running job, by models of its cards."""
        tasks = [task for task in record.tasks if task.holding][: record.job.roles[0].minimum]
        return self._on_models(record, record.demand.least_amount, tasks)

    def _on_models(self, record: JobRecord, amount: Amount, tasks: Iterable[TaskRecord]) -> Amount:
        models, milli = Counter[str](), record.job.roles[0].request.gpu_milli
        for task in tasks if amount.gpu_milli and self._with_models else ():
            assert task.placement is not None
            models[self._model_of(task.placement.node)] += milli
        return replace(amount, models=tuple(sorted(models.items())))

    def _choices(self, record: JobRecord) -> list[Amount]:
        """With how much a waiting job could start, by models of cards."""
        least, taken = record.demand.least_amount, record.job.roles[0].request.models
        if not self._with_models or not least.gpu_milli:
            return [least]
        present = {self._model_of(name) for name in self.nodes if name not in self._is_lost}
        return [
            replace(least, models=((model, least.gpu_milli),))
            for model in sorted(present)
            if model in (taken or MODELS)
        ]

    def _judge_unpreemptible(self, record: JobRecord, holding: Collection[JobRecord]) -> None:
        """What is not preemptible has started: with that of its kind it fits in what its queues are guaranteed."""
        tree = CountedTree(self.queues, ((each.queue, self._for_good(each)) for each in holding))
        self.found["not preemptible"] += 1
        if not record.gpu_milli or not any(each.guarantee != Amount() for each in self.queues):
            return
        held = self._for_good(record)
        by_model = [replace(held, gpu_milli=milli, models=((model, milli),)) for model, milli in held.models] or [held]
        if all(
            any(tree.is_within(name, each) and tree.keeps_promises(name, each) for name in tree.path(record.queue))
            for each in by_model
        ):
            return
        self.wrong.append(f"{record.id} is not preemptible, and runs in {record.queue} on no guarantee")

    def _judge_waiting(self, record: JobRecord, holding: Collection[JobRecord], tree: CountedTree) -> None:
        """A job waits: either no guarantee covers it, or it has no room even beside those who need not leave alone."""
        for amount in self._choices(record):
            guarantor = tree.guarantor(record.queue, amount)
            if guarantor is not None:
                self._judge_guaranteed(record, amount, guarantor, holding)
            elif not record.job.preemptible:
                self._judge_for_good(record, amount, holding, tree)

    def _judge_guaranteed(
        self, record: JobRecord, amount: Amount, guarantor: str, holding: Collection[JobRecord]
    ) -> None:
        tree = self._tree_of(holding)
        self.found["guaranteed and waiting"] += 1
        if not record.job.preemptible and not self._keeps_promises(record, amount, tree):
            return
        lent = [each for each in holding if self._is_lent(each, guarantor, holding)]
        rest = [each for each in holding if each not in lent]
        kept = self._kept_for_others(record, tree)
        kept.update(name for name in self.nodes if amount.models and self._model_of(name) != amount.models[0][0])
        if self._tree_of(rest).admits(record.queue, amount) and self._fits(record, rest, kept):
            names = ", ".join(each.id for each in lent)
            self.wrong.append(f"{record.id} waits in {record.queue} within the guarantee of {guarantor}; lent: {names}")

    def _judge_for_good(
        self, record: JobRecord, amount: Amount, holding: Collection[JobRecord], tree: CountedTree
    ) -> None:
        """What stays waits: it has no room, or no guarantee covers it beside what it makes nobody borrow."""
        counted = CountedTree(self.queues, ((each.queue, self._before(record, each)) for each in holding))
        if counted.guarantor(record.queue, amount) is None or not self._keeps_promises(record, amount, counted):
            return
        self.found["covered for good and waiting"] += 1
        core = self.world.core
        claimed = {
            node for claim in core._claims.reservations.values() if claim.job != record.id for node in claim.nodes
        }
        kept = {core._state.cluster.node_name(node) for node in claimed}
        kept.update(name for name in self.nodes if amount.models and self._model_of(name) != amount.models[0][0])
        if tree.admits(record.queue, amount) and self._fits(record, holding, kept):
            self.wrong.append(f"{record.id} stays, and waits in {record.queue} behind what would be borrowed")

    def _before(self, record: JobRecord, holder: JobRecord) -> Amount:
        """What of running work comes before a job that stays, on a guarantee that both live on."""
        job = holder.job
        is_behind = (
            job.preemptible
            and job.priority <= record.job.priority
            and holder.preemptions < job.preemption_budget
            and holder.state is JobState.RUNNING
        )
        if is_behind:
            return Amount()
        return self._for_good(holder) if job.rest_preemptible else self._held(holder)

    def _keeps_promises(self, record: JobRecord, amount: Amount, tree: CountedTree) -> bool:
        """Whether a job that will not give its place back leaves what the queues beside it are promised."""
        with_it = CountedTree(self.queues, ())
        with_it.held = dict(tree.held)
        with_it.add(record.queue, amount)
        guaranteed = [name for name in tree.path(record.queue) if tree.covers(name, amount)]
        return any(with_it.keeps_promises(name, amount) for name in guaranteed)

    def _is_lent(self, victim: JobRecord, guarantor: str, holding: Collection[JobRecord]) -> bool:
        """Whether running work has to leave for one that a guarantee covers."""
        path = self._empty.path(victim.queue)
        if guarantor in path or victim.state is not JobState.RUNNING or not victim.job.preemptible:
            return False
        started = self.world.now if victim.started_at is None else victim.started_at
        is_protected = started + victim.job.minimum_run_s > self.world.now
        if is_protected or victim.preemptions >= victim.job.preemption_budget:
            return False
        common = self._empty.path(guarantor)
        return not any(victim.id in self._owed(name, holding)[0] for name in path if name not in common)

    def _owed(self, name: str, holding: Collection[JobRecord]) -> tuple[set[str], set[str]]:
        """The jobs to whom the guarantee of a queue is owed, and those to whom those below it are."""
        tree, owed, filled = self._empty, set(), Amount()
        there = [each for each in holding if name in tree.path(each.queue) and each.state is JobState.RUNNING]
        below: set[str] = set()
        for each in self.queues:
            if each.parent == name:
                below.update(*self._owed(each.name, there))
        there.sort(
            key=lambda each: (
                each.job.preemptible, not each.took_back, each.id not in below, -each.job.priority, each.placed_by
            )
        )  # fmt: skip
        for each in there:
            if tree.covers(name, self._least(each), filled):
                owed.add(each.id)
                filled += self._least(each)
        return owed, below

    def _kept_for_others(self, record: JobRecord, tree: CountedTree) -> set[str]:
        """The nodes that are kept for another job that a guarantee covers, and that goes before this one."""
        core, kept = self.world.core, set()
        for reservation in core._claims.reservations.values():
            holder = core.jobs[reservation.job]
            is_covered = any(tree.guarantor(holder.queue, each) is not None for each in self._choices(holder))
            if holder is not record and is_covered:
                kept.update(core._state.cluster.node_name(node) for node in reservation.nodes)
        self.found["kept for others"] += bool(kept)
        return kept

    def _fits(self, record: JobRecord, rest: Collection[JobRecord], kept: Collection[str]) -> bool:
        """Whether the least size of a job, all of whose tasks are alike, has room beside what stays."""
        request, tasks = record.job.roles[0].request, record.job.roles[0].minimum
        out_of_use = self._faulty | self.world.core._state.card_cordons.by_card.keys()  # closed: it failed repeatedly
        room = 0
        for name, node in self._machines.items():
            if name in self._is_lost or name in kept:
                continue
            free = {device.uuid: CARD_MILLI for device in node.devices if device.uuid not in out_of_use}
            cpu, memory = node.cpu_milli, node.memory_mib
            for each in rest:
                for task in each.tasks:
                    if task.holding is None or task.placement is None or task.placement.node != name:
                        continue
                    asked = each.job.roles[task.role_index].request
                    cpu, memory = cpu - asked.cpu_milli, memory - asked.memory_mib
                    for grant in task.placement.grants:
                        if grant.device in free:
                            free[grant.device] -= grant.compute_milli
            most = [cpu // request.cpu_milli, memory // request.memory_mib]
            if request.devices > 1:
                most.append(sum(milli == CARD_MILLI for milli in free.values()) // request.devices)
            elif request.devices:
                most.append(sum(milli // request.slice.compute_milli for milli in free.values()))
            room += max(min(most), 0)
        return room >= tasks
