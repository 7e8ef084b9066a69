"""Cycles of a full cluster with very many waiting jobs: one job ends and one is submitted, and all it leads to.

Jobs have the shapes of an openb pod list, drawn by weight, and come from 500 users of 50 queues; half of them have a
forecast. All are submitted at once, until so many wait. Then, in each step, one running job ends, one is submitted, a
cycle runs, and its decisions are obeyed. *Decide* is the CPU time of that first cycle; *quiet* that of the whole step,
with more cycles until one decides nothing.

Scenes, each with and without preemption by the ordering:

- ``shares``: queues of equal weight, no limits;
- ``limits``: every queue has a limit and a part of its work has a higher class of priority;
- ``guarantees``: half of the queues are guaranteed their part of three quarters of the cluster.

Targets are stated for a machine whose calibration loop makes 40 million additions a second; a figure is scaled to that
machine before it is held against them.

    python -m benchmarks.cycles.busy_cycles --pods openb_pod_list_default.csv [--nodes 1000 5000] [--scenes shares]
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calibration import TARGET_RATE, as_served, calibration_rate
from benchmarks.cycles.core_speed import CARDS, cluster, requests_of
from benchmarks.reporting import Table, command_line, emit, note, program, verdict
from millpond.model.decisions import Decision, Start, Stop
from millpond.model.events import Confirmed, DurationPredicted, Ended, JobSubmitted, NodeJoined, QueueChanged
from millpond.model.resources import Amount, TaskRequest
from millpond.model.states import JobState, Outcome
from millpond.model.tenancy.tenants import Queue
from millpond.model.workloads import Job, Priority, Role
from millpond.scheduling.placement.kernels import compiled
from millpond.scheduling.records import JobRecord
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.simulation.kernel_warmup import warm_up

QUEUES, USERS = 50, 500
WAITING = {1_000: 10_000, 5_000: 10_000, 20_000: 50_000}
"""How many jobs wait, by nodes."""
DECIDE_MS = {1_000: 10.0, 5_000: 10.0, 20_000: 30.0}
"""What the 99th percentile of the first cycle should stay below, by nodes,"""
QUIET_MS = 100.0
"""and that of the whole step."""
SCENES = ("shares", "limits", "guarantees")
MOST_CYCLES = 64
"""So many cycles a step may need until nothing more is decided."""


@dataclass
class Scene:
    """What is measured."""

    name: str
    nodes: int
    waiting: int
    preempt: bool


class BusyCluster:
    """A full cluster and its engine, which obeys at once."""

    def __init__(self, scene: Scene, requests: dict[TaskRequest, int]) -> None:
        self.random = np.random.default_rng(0)
        self.scene = scene
        settings = Settings(preempt=scene.preempt, typical_mix=tuple(requests.items()))
        self.scheduler = Scheduler(settings)
        warm_up(settings)
        self.scheduler.use_kernels(compiled())
        for node in cluster(scene.nodes):
            self.scheduler.handle(NodeJoined(0.0, node))
        self._define_queues()
        self.roles = [(Role.rigid(request, 1),) for request in requests]
        self.chances = np.array(list(requests.values()), dtype=float) / sum(requests.values())
        self.now = 1.0
        self.number = 0
        self.running: list[str] = []
        as_served()

    def _define_queues(self) -> None:
        milli = 1000 * CARDS * self.scene.nodes // QUEUES
        for number in range(QUEUES):
            limit = Amount(2 * milli) if self.scene.name == "limits" else None
            guaranteed = self.scene.name == "guarantees" and number % 2 == 0
            guarantee = Amount(3 * milli // 2 if guaranteed else 0)
            self.scheduler.handle(QueueChanged(0.0, Queue(f"q{number}", guarantee=guarantee, limit=limit)))

    def submit(self) -> None:
        """One more job, of a drawn shape, user and length."""
        random, number = self.random, self.number
        self.number += 1
        user = int(random.integers(USERS))
        role = self.roles[int(random.choice(len(self.roles), p=self.chances))]
        high = self.scene.name == "limits" and random.random() < 0.1
        job = Job(
            f"j{number}", role, queue=f"q{user % QUEUES}", user=f"u{user}",
            priority=Priority.HIGH if high else Priority.NORMAL,
        )  # fmt: skip
        self.scheduler.handle(JobSubmitted(self.now, job))
        if number % 2:
            length = float(random.lognormal(8.0, 1.5))
            self.scheduler.handle(DurationPredicted(self.now, job.id, length, 2.0 * length))

    def obey(self, decisions: Sequence[Decision]) -> None:
        """Do what was decided, at once."""
        for decision in decisions:
            if isinstance(decision, Start):
                self.scheduler.handle(Confirmed(self.now, decision.id))
                self.running.append(decision.job)
            elif isinstance(decision, Stop):
                self.scheduler.handle(Confirmed(self.now, decision.id))
                self.scheduler.handle(Ended(self.now, decision.job, decision.attempt, Outcome.STOPPED))

    def end_one(self) -> None:
        """A random running job ends."""
        while True:
            position = int(self.random.integers(len(self.running)))
            self.running[position], self.running[-1] = self.running[-1], self.running[position]
            record = self.scheduler.jobs.get(self.running.pop())  # None: it was preempted, ran again and has ended
            if record is not None and record.state is JobState.RUNNING:
                self.scheduler.handle(Ended(self.now, record.id, record.attempt, Outcome.SUCCESS))
                self.scheduler.forget(record.id)
                return

    def settle(self) -> int:
        """Cycles until one decides nothing; returns how many."""
        for count in range(1, MOST_CYCLES + 1):
            decisions = self.scheduler.decide(self.now)
            if not decisions:
                return count
            self.obey(decisions)
        return MOST_CYCLES

    def waiting(self) -> list[JobRecord]:
        """All jobs that wait."""
        return [record for record in self.scheduler.jobs.values() if record.state is JobState.QUEUED]

    def fill(self) -> None:
        """Submit until, with all the room taken, so many wait."""
        missing = self.scene.waiting
        while missing > 0:
            for _ in range(missing):
                self.submit()
            self.settle()
            missing = self.scene.waiting - len(self.waiting())
        for _ in range(MOST_CYCLES):  # until the order of those that run and those that wait has settled
            self.now += 60.0
            if self.settle() == 1:
                break

    def step(self) -> tuple[float, float, int]:
        """CPU seconds of the first cycle and of the whole step, and the number of its cycles."""
        self.now += 1.0
        began = time.thread_time()
        self.end_one()
        self.submit()
        before = time.thread_time()
        decisions = self.scheduler.decide(self.now)
        decided = time.thread_time() - before
        self.obey(decisions)
        cycles = 1 + (self.settle() if decisions else 0)
        return decided, time.thread_time() - began, cycles


def measure(scene: Scene, requests: dict[TaskRequest, int], steps: int) -> dict[str, Any]:
    """Percentiles of one scene, in milliseconds of CPU time."""
    before = calibration_rate()
    began = time.thread_time()
    busy = BusyCluster(scene, requests)
    busy.fill()
    filled = time.thread_time() - began
    for _ in range(max(steps // 10, 3)):
        busy.step()
    times = np.array([busy.step() for _ in range(steps)])
    decide, whole = 1e3 * times[:, 0], 1e3 * times[:, 1]
    rate = (before + calibration_rate()) / 2
    decide_p99, quiet_p99 = float(np.percentile(decide, 99)), float(np.percentile(whole, 99))
    scale = rate / TARGET_RATE
    return {
        **asdict(scene),
        "lines": len({record.line for record in busy.waiting()}),
        "fill_s": filled,
        "decide_p50_ms": float(np.percentile(decide, 50)),
        "decide_p99_ms": decide_p99,
        "decide_p99_scaled_ms": decide_p99 * scale,
        "decide_target_ms": DECIDE_MS[scene.nodes],
        "quiet_p50_ms": float(np.percentile(whole, 50)),
        "quiet_p99_ms": quiet_p99,
        "quiet_p99_scaled_ms": quiet_p99 * scale,
        "quiet_target_ms": QUIET_MS,
        "cycles": float(times[:, 2].mean()),
        "calibration_per_s": rate,
        "met": decide_p99 * scale < DECIDE_MS[scene.nodes] and quiet_p99 * scale < QUIET_MS,
    }


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--pods", type=Path, required=True, help="an openb pod list")
    parser.add_argument("--nodes", type=int, nargs="+", choices=WAITING, default=list(WAITING))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--scenes", nargs="+", choices=SCENES, default=list(SCENES))
    options = parser.parse_args(arguments)
    requests = requests_of(options.pods)
    table = Table("scene", "preempt", "nodes", "waiting", "lines", "decide p50 ms", "p99", "scaled", "target",
                  "quiet p50 ms", "p99", "scaled", "target", "met", "calibration/s", texts=2)  # fmt: skip
    rows = []
    for nodes in options.nodes:
        for name in options.scenes:
            for preempt in (False, True):
                note(f"{name}, {nodes:,} nodes{', preempt' if preempt else ''}")
                row = measure(Scene(name, nodes, WAITING[nodes], preempt), requests, options.steps)
                rows.append(row)
                milliseconds = (
                    f"{row[f'{kind}_{key}_ms']:.1f}"
                    for kind in ("decide", "quiet")
                    for key in ("p50", "p99", "p99_scaled", "target")
                )
                table.add(
                    row["name"], "yes" if preempt else "no", f"{nodes:,}", f"{row['waiting']:,}", f"{row['lines']:,}",
                    *milliseconds, verdict(row["met"]), f"{row['calibration_per_s'] / 1e6:,.1f} M",
                )  # fmt: skip
    emit({"rows": rows}, options.json, [table])


if __name__ == "__main__":
    main()
