"""How true the estimates are of when a waiting job starts.

Replays a workload, stops at instants drawn by a seed, asks for the estimate of one job that waits then, and compares it
with the start that followed. Counted are the samples that had to wait for more than ten minutes still. For each
workload, ordering and knowledge of lengths it prints

- *unknown*: how many questions were answered with "not known", or with an interval without an end,
- *covers*: how many of the real starts lay in the interval, and *early*, *late*: how many before and behind it,
- *error*: the median of |likely wait - wait| / wait; *width*: the median of the interval's length / wait,
- *pinball*: mean pinball loss of the interval's ends and the likely wait, as the quantiles 0.05, 0.95 and 0.5, over
  that of one number: the job's place in line x mean work of a job (card-seconds) / cards,
- *ms*: mean CPU time of a question, and the longest.

Lengths are exact, rough (the real length times a log-normal error of sigma 0.5, told with its spread), vague (of sigma
1.0), or unknown. Of the workloads, *tenants* is the synthetic one in a tree of queues on two floors that are guaranteed
half of the cluster and lend it, with three classes of priority, so that work is taken back and displaced. *images* is
its first half, where each job needs one of 60 images, a node holds twelve, and to fetch another takes 300 s.

    python -m benchmarks.traces.estimate_quality --traces DIR [--samples 600] [--only WORKLOAD] [--json FILE]
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.reporting import Table, command_line, emit, note, program
from benchmarks.traces.cases import PHILLY, Policy, arguments_of, find, scenario
from millpond.model.contents import Content
from millpond.model.decisions import Decision, Start
from millpond.model.errors import InvalidInputError
from millpond.model.events import DurationPredicted, Event
from millpond.model.resources import CARD_MILLI, Amount
from millpond.model.tenancy.tenants import Queue
from millpond.model.workloads import Priority
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import capacity_milli, uniform_cluster
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.scenario import read_world
from millpond.simulation.synthetic import SyntheticOptions, synthesise
from millpond.simulation.world.node_caches import CacheSize

KNOWLEDGE = {"exact": 0.0, "rough": 0.5, "vague": 1.0, "none": math.inf}
"""Standard deviation of the natural logarithm of what is known of a length."""

WORKLOADS = ("synthetic", "tenants", "images", "philly")
SYNTHETIC_CLUSTER, SYNTHETIC_JOBS, SYNTHETIC_LOAD, SEED = "16x8", 6000, 0.9, 1
GUARANTEED = 0.5
"""Of the cluster, to all queues of *tenants* together."""
IMAGES, IMAGES_KEPT, IMAGE_BYTES, FETCH_S = 60, 12, 10**10, 300.0
"""So many in all, and on each node."""
SHORTEST_WAIT_S = 600.0
QUANTILES = (0.05, 0.5, 0.95)
NINE_IN_TEN = 1.2816
"""A normal value lies below so many standard deviations nine times in ten."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One question, with the answer of the time and the truth.

    Attributes:
        interval: the answer, in seconds from then: earliest, likely, latest; empty: not known.
        place_s: what the job's place in line alone would say.
        cpu_s: what the question cost.
    """

    job: str
    at: float
    interval: tuple[float, ...]
    place_s: float
    cpu_s: float
    waited_s: float = math.nan


class Questioner:
    """A scheduler that is asked, between its cycles, when a job will start."""

    def __init__(self, scheduler: Scheduler, sigma: float, instants: Sequence[float], seed: int) -> None:
        self.samples: list[Sample] = []
        self._core = scheduler
        self._sigma = sigma
        self._instants = sorted(instants, reverse=True)
        self._draw = random.Random(seed)
        self._open: dict[str, list[Sample]] = {}
        self._work_s, self._jobs = 0.0, 0

    def handle(self, event: Event) -> None:
        """Pass an event on, with the length of a job as far as it is to be known."""
        if isinstance(event, DurationPredicted) and self._sigma > 0.0:
            length = event.expected_s
            expected = length * math.exp(self._draw.gauss(0.0, self._sigma))
            event = replace(event, expected_s=expected, cautious_s=expected * math.exp(NINE_IN_TEN * self._sigma))
        self._core.handle(event)

    def decide(self, now: float) -> list[Decision]:
        """A cycle, and the questions that are due then."""
        decisions = self._core.decide(now)
        for decision in decisions:
            if isinstance(decision, Start):
                self.samples += [replace(each, waited_s=now - each.at) for each in self._open.pop(decision.job, ())]
        if self._instants and self._instants[-1] <= now:
            while self._instants and self._instants[-1] <= now:
                self._instants.pop()
            self._ask(now)
        return decisions

    def next_wakeup(self, now: float) -> float | None:
        """That of the scheduler."""
        return self._core.next_wakeup(now)

    def forget(self, job_id: str) -> None:
        """A job has ended: what it took is known now."""
        record = self._core.jobs[job_id]
        self._work_s += record.attained_s * record.gpu_milli / 1000
        self._jobs += 1
        self._core.forget(job_id)

    def _ask(self, now: float) -> None:
        waiting = [job for job, record in self._core.jobs.items() if record.line]
        if not waiting:
            return
        job = self._draw.choice(waiting)
        before = time.process_time()
        reason = self._core.explain(job, now)
        cpu_s = time.process_time() - before
        start, place = reason.start, reason.position or 1
        cards = sum(len(view.node.devices) for view in self._core.node_views())
        place_s = place * (self._work_s / max(self._jobs, 1)) / cards
        interval: tuple[float, ...] = ()
        if start is not None and start.likely_at is not None and start.latest_at is not None:
            interval = (start.earliest_at - now, start.likely_at - now, start.latest_at - now)
        sample = Sample(job, now, interval, place_s, cpu_s)
        self._open.setdefault(job, []).append(sample)


@dataclass(frozen=True, slots=True)
class Row:
    """What is replayed."""

    workload: str
    ordering: str
    preempt: bool
    durations: str


def rows(only: str | None) -> Iterator[Row]:
    """Everything that is measured."""
    for workload in WORKLOADS:
        for ordering, preempt in (("fifo", False), ("default", False), ("default", True)):
            for durations in KNOWLEDGE:
                # Who knows no lengths knows no queues either; under a strict order those within a guarantee go first.
                has_rows = workload != "tenants" or (ordering != "fifo" and durations != "none")
                if only in (None, workload) and has_rows:
                    yield Row(workload, ordering, preempt, durations)


def world_of(row: Row, traces: Path | None) -> World:
    """The jobs and the cluster; with exact durations, which the questioner spoils."""
    durations = "none" if row.durations == "none" else "exact"
    if row.workload != "philly":
        nodes = uniform_cluster(SYNTHETIC_CLUSTER)
        workload = synthesise(SyntheticOptions(jobs=SYNTHETIC_JOBS, load=SYNTHETIC_LOAD), 8 * len(nodes), 8, SEED)
        world = World(nodes, workload, durations)
        make = {"tenants": with_tenants, "images": with_images}.get(row.workload)
        return world if make is None else make(world)
    if traces is None:
        raise InvalidInputError("the Philly trace is needed", "name the folder of the traces with --traces")
    played = scenario(arguments_of(PHILLY, Policy(row.ordering, durations, row.preempt), find(traces, PHILLY.file)))
    return read_world(played)


def with_tenants(world: World) -> World:
    """The same jobs, each in the queue of its user and of a class of priority, in two groups of two queues."""
    draw = random.Random(SEED)
    cards = capacity_milli(world.nodes) // CARD_MILLI
    queues, leaves = [], []
    for group in ("left", "right"):
        queues.append(Queue(group, guarantee=Amount(int(GUARANTEED * cards / 2) * CARD_MILLI)))
        for name in (f"{group}-one", f"{group}-two"):
            queues.append(Queue(name, group, guarantee=Amount(int(GUARANTEED * cards / 4) * CARD_MILLI)))
            leaves.append(name)
    users = sorted({entry.job.user for entry in world.workload.jobs})
    queue_of = {user: leaves[number % len(leaves)] for number, user in enumerate(users)}
    classes = (Priority.LOW, Priority.NORMAL, Priority.NORMAL, Priority.NORMAL, Priority.HIGH)
    jobs = tuple(
        replace(entry, job=replace(entry.job, queue=queue_of[entry.job.user], priority=draw.choice(classes)))
        for entry in world.workload.jobs
    )
    return replace(world, workload=replace(world.workload, jobs=jobs), queues=tuple(queues))


def with_images(world: World) -> World:
    """The first half of the jobs, each of which needs an image, the first ones more often, and nodes that hold some."""
    draw = random.Random(SEED)
    images = [Content(f"image:{number}", IMAGE_BYTES) for number in range(IMAGES)]
    weights = [(number + 1) ** -0.8 for number in range(IMAGES)]
    jobs = tuple(
        replace(entry, job=replace(entry.job, contents=tuple(draw.choices(images, weights))))
        for entry in world.workload.jobs[: SYNTHETIC_JOBS // 2]
    )
    cache = CacheSize(IMAGES_KEPT * IMAGE_BYTES, round(IMAGE_BYTES / FETCH_S))
    return replace(world, workload=replace(world.workload, jobs=jobs), cache=cache)


def samples_of(world: World, row: Row, count: int) -> list[Sample]:
    """Questions, answered and followed up, whose job still had to wait for long."""
    arrivals = [entry.submit_at for entry in world.workload.jobs]
    draw = random.Random(SEED)
    instants = [draw.uniform(arrivals[0], arrivals[-1]) for _ in range(count)]
    core = make_scheduler(Settings(ordering=row.ordering, preempt=row.preempt))
    questioner = Questioner(core, KNOWLEDGE[row.durations], instants, SEED)
    Simulation(world, questioner).run()
    return [each for each in questioner.samples if each.waited_s > SHORTEST_WAIT_S]


def figures(samples: Sequence[Sample]) -> dict[str, Any]:
    """What the samples say of the estimates."""
    known = [each for each in samples if each.interval]
    count = max(len(known), 1)
    early = sum(each.waited_s < each.interval[0] for each in known)
    late = sum(each.waited_s > each.interval[2] for each in known)
    loss = sum(_pinball(each, each.interval) for each in known)
    loss_of_place = sum(_pinball(each, (each.place_s,) * 3) for each in known)
    return {
        "samples": len(samples),
        "median_wait_s": _median(each.waited_s for each in samples),
        "unknown": 1 - len(known) / max(len(samples), 1),
        "covers": 1 - (early + late) / count,
        "early": early / count,
        "late": late / count,
        "error": _median(abs(each.interval[1] - each.waited_s) / each.waited_s for each in known),
        "width": _median((each.interval[2] - each.interval[0]) / each.waited_s for each in known),
        "pinball": loss / loss_of_place if loss_of_place else math.nan,
        "cpu_ms": 1000 * sum(each.cpu_s for each in samples) / max(len(samples), 1),
        "longest_ms": 1000 * max((each.cpu_s for each in samples), default=0.0),
    }


def _median(values: Iterable[float]) -> float:
    found = list(values)
    return statistics.median(found) if found else math.nan


def _pinball(sample: Sample, quantiles: Sequence[float]) -> float:
    """Mean loss of a forecast of quantiles, in seconds."""
    losses = (
        max(part * (sample.waited_s - value), (part - 1) * (sample.waited_s - value))
        for part, value in zip(QUANTILES, quantiles, strict=True)
    )
    return sum(losses) / len(QUANTILES)


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--traces", type=Path, help="folder with the traces, at any depth")
    parser.add_argument("--only", choices=WORKLOADS, help="one workload")
    parser.add_argument("--samples", type=int, default=600, help="questions of each row")
    parser.add_argument("--details", action="store_true", help="every sample in the JSON")
    options = parser.parse_args(arguments)
    lines = []
    for row in rows(options.only):
        note(f"{row.workload}: {row.ordering}, {'preemptive, ' if row.preempt else ''}{row.durations}")
        samples = samples_of(world_of(row, options.traces), row, options.samples)
        line = {**asdict(row), **figures(samples)}
        lines.append({**line, "details": [asdict(each) for each in samples]} if options.details else line)
    emit({"rows": lines}, options.json, [_table(lines)])


def _table(lines: Sequence[dict[str, Any]]) -> Table:
    table = Table(
        "workload", "ordering", "preempt", "lengths", "samples", "wait", "unknown", "covers", "early", "late", "error",
        "width", "pinball", "ms", "most", texts=4,
    )  # fmt: skip
    for line in lines:
        parts = (f"{100 * line[name]:.0f} %" for name in ("unknown", "covers", "early", "late", "error"))
        table.add(
            line["workload"], line["ordering"], "yes" if line["preempt"] else "no", line["durations"],
            f"{line['samples']}", f"{line['median_wait_s']:,.0f}", *parts, f"{line['width']:.2f}",
            f"{line['pinball']:.2f}", f"{line['cpu_ms']:.1f}", f"{line['longest_ms']:.0f}",
        )  # fmt: skip
    return table


if __name__ == "__main__":
    main()
