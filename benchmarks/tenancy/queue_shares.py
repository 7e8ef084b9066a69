"""How near queues come to their weights while all of them have more work than there is room for.

Every user keeps as many jobs waiting as would fill the cluster, and the scheduler decides on the simulated engine. A
case says which queues there are, how many users each has, and how long and how wide their jobs are (exponential
lengths, a mean for each queue). Shares are of the dominant resource (cards or CPUs, of which one holds the larger part
of all there are; Ghodsi et al., NSDI'11) held from the first tenth of the span to its end; the error is the largest
deviation of a leaf from what the weights entitle it to, relative to that. *Jain* is Jain's index of the same, held
against the weights, on the worst of all whole days; *users* is that of the users of a leaf, over the span.

A second table has the finish-time fairness rho of twelve users (Themis, NSDI'20: completion time over that alone on an
equal part of the cluster; the worst user's mean) under ``fifo``, ``fair`` and ``default``, on a synthetic workload of
which forecasts are known.

Cases are played beside each other, one a process; each is told of when it has been played.

    python -m benchmarks.tenancy.queue_shares [--only TEXT] [--days N] [--workers N] [--json FILE]
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from multiprocessing import get_context
from typing import Any

import numpy as np

from benchmarks.reporting import Table, command_line, emit, note, program, verdict
from millpond.model.decisions import Start
from millpond.model.events import DurationPredicted, Ended, JobSubmitted, NodeJoined, PoolChanged, QueueChanged
from millpond.model.hardware.nodes import Pool
from millpond.model.tenancy.tenants import Queue
from millpond.model.workloads import Checkpoint, CheckpointMode, Job
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import capacity_milli, uniform_cluster
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import World
from millpond.simulation.kernel_warmup import warm_up
from millpond.simulation.queueing import replay
from millpond.simulation.results.fairness import jain_index
from millpond.simulation.synthetic import SyntheticOptions, synthesise
from millpond.simulation.trace import gang_roles
from millpond.simulation.world.costs import Costs
from millpond.simulation.world.engine import NEVER, SimulatedEngine
from millpond.simulation.world.work import Work

DAY_S = 86_400.0
CARDS_PER_NODE, NODES = 8, 2
WITHIN = 0.05
"""Target of the error."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """What is submitted to one leaf.

    Attributes:
        mean_s: of the lengths, which are exponential; cards, cpus: of each job.
    """

    queue: str
    mean_s: float = 3_600.0
    cards: int = 1
    users: int = 1
    cpus: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """Queues, who submits to them, and for how long they are watched."""

    name: str
    queues: tuple[Queue, ...]
    crowds: tuple[Crowd, ...]
    days: float = 10.0


def _pair(name: str, weights: tuple[float, float], one: Crowd, other: Crowd) -> Case:
    queues = (Queue(one.queue, weight=weights[0]), Queue(other.queue, weight=weights[1]))
    return Case(name, queues, (one, other))


A, B = Crowd("a"), Crowd("b")
NESTED = (
    Queue("x", weight=2.0),
    Queue("y"),
    Queue("x1", parent="x", weight=3.0),
    Queue("x2", parent="x"),
    Queue("y1", parent="y"),
    Queue("y2", parent="y"),
)
CASES = (
    *(_pair(f"{weight}:1", (weight, 1), A, B) for weight in (1, 3, 10)),
    *(_pair(f"{weight}:1, ten users below", (weight, 1), A, replace(B, users=10)) for weight in (1, 3, 10)),
    _pair("3:1, ten users above", (3, 1), replace(A, users=10), B),
    _pair("3:1, 10 min against 10 h", (3, 1), replace(A, mean_s=600.0), replace(B, mean_s=36_000.0)),
    _pair("1:3, 10 min against 10 h", (1, 3), replace(A, mean_s=600.0), replace(B, mean_s=36_000.0)),
    _pair("1:1, 1 h against 2 days", (1, 1), A, replace(B, mean_s=2 * DAY_S)),
    _pair("1:1, 1 card against 8", (1, 1), A, replace(B, cards=8)),
    _pair("3:1, 8 cards against 1", (3, 1), replace(A, cards=8), B),
    _pair("1:1, short and narrow against long and wide", (1, 1), replace(A, mean_s=600.0), Crowd("b", 36_000.0, 8)),
    _pair("1:1, 2 against 24 CPUs a card", (1, 1), replace(A, cpus=2), replace(B, cpus=24)),
    _pair("2:1, 2 against 24 CPUs a card", (2, 1), replace(A, cpus=2), replace(B, cpus=24)),
    _pair("1:1, 4 CPUs a card against 16 CPUs without", (1, 1), replace(A, cpus=4), replace(B, cards=0, cpus=16)),
    Case("one queue, ten users", (Queue("a"),), (replace(A, users=10),)),
    Case("one queue, jobs of 10 min, 1 h and 4 h", (Queue("a"),), (Crowd("a", 600.0), A, Crowd("a", 14_400.0))),
    Case(
        "nested 2(3:1):1(1:1), one to ten users, 10 min to 10 h",
        NESTED,
        (Crowd("x1", 36_000.0), Crowd("x2", 600.0, users=10), Crowd("y1", 3_600.0, 2), Crowd("y2", 7_200.0, users=3)),
    ),
)


@dataclass(frozen=True, slots=True)
class Policy:
    """What is tried."""

    ordering: str
    known: bool = False
    preempt: bool = False

    @property
    def label(self) -> str:
        """A few words."""
        return f"{self.ordering}{', exact' if self.known else ''}{', preempt' if self.preempt else ''}"


POLICIES = (
    Policy("fair"),
    Policy("default"),
    Policy("default", known=True),
    Policy("default", preempt=True),
    Policy("default", known=True, preempt=True),
)


class Saturation:
    """Users who never run out of waiting jobs, on one scheduler and one engine."""

    def __init__(self, case: Case, policy: Policy) -> None:
        self.case = case
        self.policy = policy
        self.scheduler = make_scheduler(Settings(ordering=policy.ordering, preempt=policy.preempt))
        nodes = uniform_cluster(f"{NODES}x{CARDS_PER_NODE}")
        self.cards_milli, self.cpu_milli = capacity_milli(nodes), sum(node.cpu_milli for node in nodes)
        self.engine = SimulatedEngine(nodes, (), Costs(preemption=Settings().preemption_cost))
        self.preemptions = 0
        self._draw = random.Random(1)
        self._origin: dict[str, tuple[Crowd, int]] = {}
        for event in (PoolChanged(0.0, Pool()), *(QueueChanged(0.0, queue) for queue in case.queues)):
            self.scheduler.handle(event)
        for node in nodes:
            self.scheduler.handle(NodeJoined(0.0, node))
        for crowd in case.crowds:
            waiting = math.ceil(NODES * CARDS_PER_NODE / max(crowd.cards, 1) / crowd.users) + 1
            for user in range(crowd.users):
                for _ in range(waiting):
                    self._submit(crowd, user)

    def run(self, until_s: float) -> None:
        """Play up to an instant."""
        engine, scheduler, started = self.engine, self.scheduler, set()
        wake: float = 0.0
        while (now := min(engine.next_at(), wake)) <= until_s:
            engine.now = now
            for event in engine.events():
                scheduler.handle(event)
                if type(event) is Ended and event.job in self._origin and self._has_ended(event.job):
                    scheduler.forget(event.job)
            decisions = scheduler.decide(now)
            engine.apply(decisions)
            for decision in decisions:
                if isinstance(decision, Start) and decision.job not in started:
                    started.add(decision.job)
                    self._submit(*self._origin[decision.job])
            next_wake = scheduler.next_wakeup(now)
            wake = NEVER if next_wake is None else max(next_wake, now + 0.001)
        engine.now = until_s

    def held_s(self, since: float, until: float) -> dict[str, float]:
        """Seconds of the whole cluster that each leaf had within a span, by its dominant resource."""
        held = self._held(since, until, lambda job: job.queue)
        return {leaf: held.get(leaf, 0.0) for leaf in dict.fromkeys(crowd.queue for crowd in self.case.crowds)}

    def held_by_users_s(self, since: float, until: float) -> dict[str, list[float]]:
        """The same of the users of each leaf."""
        held = self._held(since, until, lambda job: job.user)
        found: dict[str, list[float]] = {}
        for queue, user in dict.fromkeys((work.job.queue, work.job.user) for work in self.engine.works.values()):
            found.setdefault(queue, []).append(held.get(user, 0.0))
        return found

    def busy_s(self, since: float, until: float) -> float:
        """Seconds of the whole cluster in which its cards, or else its CPUs, were held."""
        return self._held(since, until, lambda job: "")[""]

    def _held(self, since: float, until: float, owner: Callable[[Job], str]) -> dict[str, float]:
        works = list(self.engine.works.values())
        held: dict[str, list[float]] = {}
        stretches = [(index, start, end) for index, start, end, *_ in self.engine.runs]
        stretches += [(work.index, work.held_since, until) for work in works if work.held_since < NEVER]
        for index, start, end in stretches:
            job, length = works[index].job, max(min(end, until) - max(start, since), 0.0)
            sums = held.setdefault(owner(job), [0.0, 0.0])
            sums[0] += length * job.gpu_milli / self.cards_milli
            sums[1] += length * sum(role.desired * role.request.cpu_milli for role in job.roles) / self.cpu_milli
        self.preemptions = sum(work.preemptions for work in works)
        return {name: max(sums) for name, sums in held.items()}

    def _has_ended(self, job: str) -> bool:
        return self.engine.works[job].ended_at == self.engine.works[job].ended_at

    def _submit(self, crowd: Crowd, user: int) -> None:
        now, number = self.engine.now, len(self.engine.works)
        job = Job(
            f"job-{number}",
            gang_roles(crowd.cards, CARDS_PER_NODE, cpu_milli=1000 * crowd.cpus),
            queue=crowd.queue,
            user=f"{crowd.queue}-{self.case.crowds.index(crowd)}-{user}",
            checkpoint=Checkpoint(CheckpointMode.SIGNAL),
        )
        length = max(self._draw.expovariate(1.0 / crowd.mean_s), 1.0)
        self._origin[job.id] = (crowd, user)
        self.engine.works[job.id] = Work(number, job, length)
        self.scheduler.handle(JobSubmitted(now, job))
        if self.policy.known:
            self.scheduler.handle(DurationPredicted(now, job.id, length, length))


def entitled(queues: Sequence[Queue], leaf: str) -> float:
    """A leaf's part of the cluster while every queue has work: its weight among its siblings, times its parent's."""
    by_name = {queue.name: queue for queue in queues}
    part, queue = 1.0, by_name.get(leaf)
    while queue is not None:
        part *= queue.weight / sum(other.weight for other in queues if other.parent == queue.parent)
        queue = by_name.get(queue.parent)
    return part


def measured(case: Case, policy: Policy, days: float | None = None) -> dict[str, Any]:
    """Play a case under a policy."""
    span_s = (days or case.days) * DAY_S
    began = time.process_time()
    saturation = Saturation(case, policy)
    saturation.run(span_s)
    held = saturation.held_s(0.1 * span_s, span_s)
    total = sum(held.values())
    errors = {leaf: held[leaf] / total / entitled(case.queues, leaf) - 1.0 for leaf in held}
    error = max(errors.values(), key=abs)
    users = [each for each in saturation.held_by_users_s(0.1 * span_s, span_s).values() if len(each) > 1]
    return {
        "case": case.name,
        "policy": policy.label,
        "shares": {leaf: held[leaf] / total for leaf in held},
        "entitled": {leaf: entitled(case.queues, leaf) for leaf in held},
        "error": error,
        "met": abs(error) <= WITHIN,
        "jain_of_worst_day": min((_jain_of_day(saturation, day) for day in range(int(span_s / DAY_S))), default=None),
        "jain_of_users": min((jain_index(np.array(each)) for each in users), default=None),
        "busy": saturation.busy_s(0.1 * span_s, span_s) / (0.9 * span_s),
        "jobs": sum(1 for work in saturation.engine.works.values() if work.ended_at == work.ended_at),
        "preemptions": saturation.preemptions,
        "cpu_s": time.process_time() - began,
    }


def _jain_of_day(saturation: Saturation, day: int) -> float:
    held = saturation.held_s(day * DAY_S, (day + 1) * DAY_S)
    return jain_index(np.array([held[leaf] / entitled(saturation.case.queues, leaf) for leaf in held]))


RHO_CLUSTER, RHO_JOBS, RHO_LOAD = "8x8", 3_000, 1.0
RHO_ORDERINGS = ("fifo", "fair", "default")


def finish_times(ordering: str, jobs: int) -> dict[str, Any]:
    """The finish-time fairness of twelve users under an ordering, without preemption between equals."""
    nodes = uniform_cluster(RHO_CLUSTER)
    workload = synthesise(SyntheticOptions(jobs=jobs, load=RHO_LOAD), 8 * len(nodes), 8, seed=1)
    metrics = replay(World(nodes, workload, "predicted"), Settings(ordering=ordering)).metrics
    return {
        "ordering": ordering,
        "rho_of_worst_user": metrics.worst_rho,
        "jain": metrics.jain_index,
        "mean_completion_s": metrics.jct_s.mean,
    }


def _lines(only: str, days: float | None, workers: int) -> Iterator[dict[str, Any]]:
    wanted = [(case, policy) for case in CASES for policy in POLICIES if only in f"{case.name}: {policy.label}"]
    if not wanted:
        return
    cases, policies = zip(*wanted, strict=True)
    count = max(min(workers, len(wanted)), 1)
    with ProcessPoolExecutor(count, get_context("spawn"), initializer=warm_up, initargs=(Settings(),)) as pool:
        for row in pool.map(measured, cases, policies, repeat(days)):
            note(f"{row['case']}: {row['policy']}: {100 * row['error']:+.1f} %, {row['cpu_s']:.1f} s of CPU time")
            yield row


def _table(lines: Sequence[dict[str, Any]]) -> Table:
    table = Table(
        "case", "policy", "shares", "error %", "met", "Jain", "users", "busy %", "jobs", "preempt.", "CPU s", texts=3
    )  # fmt: skip
    for line in lines:
        shares = " ".join(f"{100 * part:.1f}" for part in line["shares"].values())
        table.add(
            line["case"], line["policy"], shares, f"{100 * line['error']:+.1f}", verdict(line["met"]),
            *("" if line[name] is None else f"{line[name]:.3f}" for name in ("jain_of_worst_day", "jain_of_users")),
            f"{100 * line['busy']:.1f}", f"{line['jobs']:,}", f"{line['preemptions']:,}", f"{line['cpu_s']:.1f}",
        )  # fmt: skip
    return table


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose case and policy contain it")
    parser.add_argument("--days", type=float, help="the span; 10 unless given")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes; one a core unless given")
    parser.add_argument("--rho-jobs", type=int, default=RHO_JOBS, metavar="N", help="of the workload for rho; 0: none")
    options = parser.parse_args(arguments)
    warm_up(Settings())
    lines = list(_lines(options.only, options.days, options.workers))
    rho = [finish_times(ordering, options.rho_jobs) for ordering in RHO_ORDERINGS] if options.rho_jobs else []
    emit(
        {"within": WITHIN, "rows": lines, "rho": rho},
        options.json,
        [_table(lines), *(("", _rho_table(rho)) if rho else ())],
    )


def _rho_table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table("ordering", "rho of the worst user", "Jain of 1 / rho", "mean completion, s", texts=1)
    for row in rows:
        figures = (f"{row['rho_of_worst_user']:.2f}", f"{row['jain']:.3f}", f"{row['mean_completion_s']:,.0f}")
        table.add(row["ordering"], *figures)
    return table


if __name__ == "__main__":
    main()
