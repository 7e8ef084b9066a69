"""Speed of the scheduling core: place and release at 85 % load, and one gang of 512 tasks.

A cluster of nodes with eight cards is filled with the shapes of an openb pod list, drawn by weight, until 85 % of its
compute is held. Then one job ends and one is submitted, again and again, through ``handle`` and ``decide``: journal,
ordering, reasons and decision objects included. One *decision* is one job placed; its submission, its confirmation and
the end of another job are part of its time. This is done in one queue, and in a tree on three floors: two
organisations of five departments of five groups, ten users in each of these 50, everything guaranteed evenly on all
floors, and lent. Latency is that of submission with ``decide``, and of the whole step; that
of the step also in CPU time, because on a busy machine one step in a hundred waits some milliseconds for a core.

Beside the rates stands that of a calibration loop (pure Python arithmetic), so that runs on different machines, or on a
busy one, can be compared; *scaled* is the rate on a machine whose loop makes 40 million additions a second. Targets are
stated for that machine and 5,000 nodes. With `--contents` each node holds 12 of 60 images, and each job needs one; at
the end jobs come that wait for an image which the fullest tenth of the nodes alone holds.

    python -m benchmarks.cycles.core_speed --pods openb_pod_list_default.csv [--nodes N ...] [--contents] [--json FILE]
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.calibration import TARGET_RATE, as_served, calibration_rate
from benchmarks.reporting import Table, command_line, emit, program, verdict
from millpond.model.contents import Content
from millpond.model.decisions import Decision, Prefetch, Stop
from millpond.model.events import Confirmed, Ended, JobSubmitted, NodeContents, NodeJoined, QueueChanged
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.resources import CARD_MILLI, Amount, TaskRequest
from millpond.model.states import Outcome
from millpond.model.tenancy.tenants import DEFAULT_QUEUE, ROOT_QUEUE, Queue
from millpond.model.workloads import Job, Role
from millpond.scheduling.placement.kernels import compiled
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.simulation.readers import openb

CARDS = 8
LOAD = 0.85
WARM_STEPS = 200
TARGET_NODES, TARGET_DECISIONS_PER_CPU_S, TARGET_P99_MS = 5_000, 15_000, 1.0
FLOORS = (2, 5, 5)
"""Queues below each of the floor above, from the root on."""
USERS_PER_QUEUE = 10
IMAGES = [Content(f"image:{number}", (1 + number % 10) * 1_000_000_000) for number in range(60)]
HELD, FETCH_RATE = 12, 100_000_000
RARE = Content("image:rare", 10**12)
WAITS = 50


def cluster(count: int) -> list[Node]:
    """``count`` nodes of eight cards, sixteen to a rack."""
    return [
        Node(
            f"n{number}",
            cpu_milli=128_000,
            memory_mib=1_048_576,
            devices=tuple(
                Device(f"n{number}-{card}", card, "fake", "A100", 0, card // 2, card // 4, fake=True)
                for card in range(CARDS)
            ),
            rack_name=f"r{number // 16}",
        )
        for number in range(count)
    ]


def queue_tree(cards: int) -> list[Queue]:
    """Queues on three floors, parents first, each guaranteed an even part of what its parent is."""
    found: list[Queue] = []
    above = [ROOT_QUEUE]
    for width in FLOORS:
        cards //= width
        floor = [
            Queue(f"{parent}.{number}", parent, guarantee=Amount(cards * CARD_MILLI))
            for parent in above
            for number in range(width)
        ]
        found += floor
        above = [queue.name for queue in floor]
    return found


class Driver:
    """Feeds a scheduler and answers it, as an engine would that never fails.

    Args:
        queues: a tree, parents first; its last floor takes the jobs.
    """

    def __init__(
        self, nodes: int, requests: Sequence[TaskRequest], weights: Sequence[int], queues: Sequence[Queue] = ()
    ) -> None:
        self.random = np.random.default_rng(0)
        mix = tuple(zip(requests, weights, strict=True))
        self.scheduler = Scheduler(Settings(typical_mix=mix))
        self.scheduler.use_kernels(compiled())
        for queue in queues:
            self.scheduler.handle(QueueChanged(0.0, queue))
        for node in cluster(nodes):
            self.scheduler.handle(NodeJoined(0.0, node))
        as_served()
        parents = {queue.parent for queue in queues}
        leaves = [queue.name for queue in queues if queue.name not in parents]
        users = [(leaf, f"{leaf}-{user}") for leaf in leaves for user in range(USERS_PER_QUEUE)]
        self.users = users or [(DEFAULT_QUEUE, "")]
        self.roles = [(Role.rigid(request, 1),) for request in requests]
        self.chances = np.array(weights, dtype=float) / sum(weights)
        self.running: list[tuple[str, int]] = []
        self.held_milli = 0
        self.now = 0.0
        self.number = 0
        self.needs_contents = False
        self.jobs: list[Job] = []
        self.chosen: list[float] = []

    def prepare(self, count: int) -> None:
        """Have jobs of shapes drawn by weight, and choices of who ends, at hand: making them is not measured."""
        drawn = self.random.choice(len(self.roles), size=count, p=self.chances).tolist()
        owners = [self.users[each] for each in self.random.integers(len(self.users), size=count).tolist()]
        self.jobs = [
            Job(f"j{self.number + number}", self.roles[role], queue=queue, user=user)
            for number, (role, (queue, user)) in enumerate(zip(drawn, owners, strict=True))
        ]
        self.chosen = self.random.random(count).tolist()
        if self.needs_contents:
            needed = self.random.integers(len(IMAGES), size=count).tolist()
            self.jobs = [replace(job, contents=(IMAGES[each],)) for job, each in zip(self.jobs, needed, strict=True)]
        self.number += count

    def report_contents(self) -> None:
        """Each node holds some images, and from now on each job needs one."""
        self.needs_contents = True
        for view in self.scheduler.node_views():
            held = tuple(IMAGES[each] for each in self.random.choice(len(IMAGES), HELD, replace=False))
            self.scheduler.handle(NodeContents(0.0, view.node.name, held, FETCH_RATE))

    def wait_for_contents(self) -> float:
        """Seconds, the median, from the submission of a job to the end of the cycle in which it chooses to wait for a
        node that holds what it needs, though there is room on others."""
        views = sorted(
            self.scheduler.node_views(), key=lambda view: sum(use.compute_free_milli for use in view.devices)
        )
        for number, view in enumerate(views):
            held = (RARE,) if number < len(views) // 10 else ()
            self.scheduler.handle(NodeContents(self.now, view.node.name, held, FETCH_RATE))
        took, role = [], (Role.rigid(TaskRequest(1000, 1024, 1), 1),)
        for number in range(WAITS):
            self.jobs.append(Job(f"waits{number}", role, queue=self.users[0][0], contents=(RARE,)))
            began = time.perf_counter()
            decisions = self.submit()
            took.append(time.perf_counter() - began)
            self.confirm(decisions)
        return float(np.median(took))

    def submit(self) -> list[Decision]:
        """One job, and the cycle it causes."""
        if not self.jobs:
            self.prepare(4096)
        self.now += 0.001
        self.scheduler.handle(JobSubmitted(self.now, self.jobs.pop()))
        return self.scheduler.decide(self.now)

    def confirm(self, decisions: Sequence[Decision]) -> int:
        """Confirm all starts; returns how many there were. What is asked to leave for others has left at once."""
        starts = 0
        for decision in decisions:
            self.scheduler.handle(Confirmed(self.now, decision.id))
            if isinstance(decision, Prefetch):
                continue
            run, milli = (decision.job, decision.attempt), self.scheduler.jobs[decision.job].gpu_milli
            if isinstance(decision, Stop):
                self.scheduler.handle(Ended(self.now, *run, Outcome.STOPPED))
                self.running.remove(run)
                self.held_milli -= milli
            else:
                self.running.append(run)
                self.held_milli += milli
                starts += 1
        return starts

    def end_one(self) -> None:
        """A random running job ends."""
        position = int(self.chosen.pop() * len(self.running))
        self.running[position], self.running[-1] = self.running[-1], self.running[position]
        job, attempt = self.running.pop()
        self.held_milli -= self.scheduler.jobs[job].gpu_milli
        self.scheduler.handle(Ended(self.now, job, attempt, Outcome.SUCCESS))
        self.scheduler.forget(job)


def requests_of(pods: Path) -> Counter[TaskRequest]:
    """What the pods of an openb list that take cards ask for, and how many ask for it; the first one first."""
    jobs = openb.read_pods(pods, skip_bad_rows=False).jobs
    return Counter(request for entry in jobs if (request := entry.job.roles[0].request).devices)


def steady_state(
    nodes: int, pods: Path, steps: int, queues: Sequence[Queue], *, contents: bool = False
) -> dict[str, float]:
    """Rates and latencies at 85 % load."""
    counts = requests_of(pods)
    driver = Driver(nodes, list(counts), list(counts.values()), queues)
    if contents:
        driver.report_contents()
    began = time.perf_counter()
    while driver.held_milli < LOAD * nodes * CARDS * 1000:
        driver.confirm(driver.submit())
    filled = time.perf_counter() - began
    driver.prepare(steps + WARM_STEPS)
    for _ in range(WARM_STEPS):
        driver.end_one()
        driver.confirm(driver.submit())
    decide, whole, own, placed = [], [], [], 0
    cpu = time.process_time()
    for _ in range(steps):
        start, start_cpu = time.perf_counter(), time.thread_time()
        driver.end_one()
        before = time.perf_counter()
        decisions = driver.submit()
        after = time.perf_counter()
        placed += driver.confirm(decisions)
        decide.append(after - before)
        own.append(time.thread_time() - start_cpu)
        whole.append(time.perf_counter() - start)
    cpu = time.process_time() - cpu
    waiting = sum(record.state.value == "queued" for record in driver.scheduler.jobs.values())
    return {
        "nodes": nodes,
        "queues": len({queue for queue, _ in driver.users}),
        "shapes": len(counts),
        "decisions_per_cpu_s": placed / cpu,
        "submit_and_decide_p50_ms": 1e3 * float(np.percentile(decide, 50)),
        "submit_and_decide_p99_ms": 1e3 * float(np.percentile(decide, 99)),
        "step_p99_ms": 1e3 * float(np.percentile(whole, 99)),
        "step_cpu_p99_ms": 1e3 * float(np.percentile(own, 99)),
        "step_max_ms": 1e3 * max(whole),
        "jobs_running": len(driver.running),
        "jobs_waiting": waiting,
        "fill_placements_per_s": len(driver.running) / filled,
        **({"wait_for_contents_ms": 1e3 * driver.wait_for_contents()} if contents else {}),
    }


def gang(tasks: int) -> float:
    """Seconds from the submission of one whole-node gang to its decision, on as many empty nodes."""
    driver = Driver(tasks, [TaskRequest(1000, 1024, CARDS)], [1])
    job = Job("gang", (Role.rigid(TaskRequest(1000, 1024, CARDS), tasks),))
    driver.scheduler.decide(0.0)
    began = time.perf_counter()
    driver.scheduler.handle(JobSubmitted(1.0, job))
    (decision,) = driver.scheduler.decide(1.0)
    took = time.perf_counter() - began
    if len(decision.placements) != tasks:  # type: ignore[attr-defined]
        raise SystemExit("the gang was not placed whole")
    return took


def _is_met(row: dict[str, float]) -> bool | None:
    """Whether the targets were reached; None where none was set."""
    if row["nodes"] != TARGET_NODES:
        return None
    return row["scaled"] >= TARGET_DECISIONS_PER_CPU_S and row["step_cpu_p99_ms"] < TARGET_P99_MS


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--pods", type=Path, required=True, help="an openb pod list")
    parser.add_argument("--nodes", type=int, nargs="+", default=[500, 5000, 50_000])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--contents", action="store_true", help="nodes hold images, and jobs need them")
    options = parser.parse_args(arguments)
    gang(8)  # compiles, or loads from the cache, what the measurement uses
    rows = []
    for nodes in options.nodes:
        for queues in ([], queue_tree(nodes * CARDS)):
            row = steady_state(nodes, options.pods, options.steps, queues, contents=options.contents)
            row["calibration_per_s"] = calibration_rate()
            row["scaled"] = row["decisions_per_cpu_s"] * TARGET_RATE / row["calibration_per_s"]
            rows.append(row)
    gangs = [gang(512) for _ in range(3)]
    result = {"steady_state": rows, "gang_512_s": min(gangs), "gang_512_all_s": gangs}
    table = Table("nodes", "queues", "decisions/cpu s", "p50 ms", "p99 ms", "step p99 ms", "of it CPU",
                  "calibration/s", "scaled", "met")  # fmt: skip
    for row in rows:
        table.add(
            f"{row['nodes']:,.0f}",
            f"{row['queues']}",
            f"{row['decisions_per_cpu_s']:,.0f}",
            f"{row['submit_and_decide_p50_ms']:.3f}",
            f"{row['submit_and_decide_p99_ms']:.3f}",
            f"{row['step_p99_ms']:.3f}",
            f"{row['step_cpu_p99_ms']:.3f}",
            f"{row['calibration_per_s']:,.0f}",
            f"{row['scaled']:,.0f}",
            verdict(_is_met(row)),
        )
    waits = [
        f"{row['nodes']:,.0f} nodes, {row['queues']} queues: a job waits for contents after "
        f"{row['wait_for_contents_ms']:.2f} ms"
        for row in rows
        if options.contents
    ]
    emit(result, options.json, [table, *waits, f"gang of 512 on 512 nodes: {min(gangs):.3f} s"])


if __name__ == "__main__":
    main()
