"""Whether the simulator says what the live server does: 1,000 short jobs, run as real processes and simulated.

Jobs arrive at drawn instants, run for drawn lengths, and ask for one card, two, or a gang of two; more arrive than the
cards can take, so that most of them wait. The simulator is told which jobs came when and how long their commands sleep,
and one figure more: for how long a job holds its cards beyond the length of its command (processes start and end, the
report takes its way, and a turn of the scheduler takes note of it). That is measured beforehand, on jobs of the same
kind, once the server is warm. What the scheduler decides, and when, is the simulator's own doing.

It is also told what the server guessed of each job's length: guesses are events, not the scheduler's doing. They
follow the jobs that ended last, so who ended a millisecond before whom decides about the next guess, and that about who
goes first: left to learn by itself, the simulator has the same means, and another median (half as long again).

Beside each figure stands how far it moves when the overhead is a tenth smaller or larger: nobody can tell it better.
"""

from __future__ import annotations

import math
import random
import statistics
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.calibration import calibration_rate
from benchmarks.reporting import Table, command_line, emit, note, program, verdict
from benchmarks.server.served import ServedPond
from millpond.model.decisions import Decision
from millpond.model.events import DurationPredicted, Ended, Event, JobSubmitted, NodeJoined, Tick
from millpond.scheduling.scheduler import Scheduler
from millpond.server.store.connection.database import sqlite_url
from millpond.server.store.store import Store
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.trace import TraceJob, Workload
from millpond.simulation.world.costs import Costs

CARDS = "4x8:V100-32GB"
OVERLOAD = 1.5
"""What arrives in a second, as a multiple of what all cards can do in one."""
CARDS_IN_ALL = 32
WARM_UP = 50
"""Jobs before all others, whose overhead does not count: the server has not done everything once before."""
WITHIN = 0.05
DOUBT = 0.1
"""By which part of itself the overhead may be another."""

E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True)
class Draw:
    """One job: when it comes, how long its command sleeps, and on how many cards in how many tasks."""

    at_s: float
    length_s: float
    gpus: int
    tasks: int

    def document(self) -> dict[str, Any]:
        """Its job file."""
        command = ["sleep", f"{self.length_s:.2f}"]
        return {"command": command, "gpus": self.gpus, "tasks": self.tasks, "cpus": 0.1, "memory": "16MiB"}


@dataclass(frozen=True)
class Run:
    """What a server left in its store.

    Attributes:
        started_at: when it was decided to start each job, by job id.
        lengths: how long each job's command slept, by job id, in order of submission.
    """

    events: list[Event]
    decisions: list[Decision]
    started_at: dict[str, float]
    lengths: dict[str, float]

    def of(self, kind: type[E]) -> list[E]:
        """All events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def submitted_at(self) -> dict[str, float]:
        """By job id."""
        return {event.job.id: event.at for event in self.of(JobSubmitted) if event.job.id in self.lengths}

    @property
    def ended_at(self) -> dict[str, float]:
        """When the last task of each job ended, by job id."""
        return {event.job: event.at for event in self.of(Ended) if event.job in self.lengths}

    @property
    def guessed(self) -> dict[str, DurationPredicted]:
        """What was guessed of each job's length when it came, by job id."""
        return {event.job: event for event in self.of(DurationPredicted)}

    @property
    def freed_at(self) -> dict[str, float]:
        """When the scheduler could first give away what each job had held, by job id: at the turn behind its end."""
        found: dict[str, float] = {}
        over: list[str] = []
        for event in self.events:
            if isinstance(event, Ended) and event.job in self.lengths:
                over.append(event.job)
            elif isinstance(event, Tick):
                found.update(dict.fromkeys(over, event.at))
                over.clear()
        return found

    def overhead_s(self, jobs: Collection[str]) -> float:
        """For how long these jobs held their cards beyond the length of their command, on average."""
        freed_at = self.freed_at
        return statistics.fmean(freed_at[job] - self.started_at[job] - self.lengths[job] for job in jobs)


@dataclass(frozen=True, slots=True)
class Course:
    """When each job started and ended, and how long it waited: seconds from the first submission on, by job."""

    starts: list[float]
    waits: list[float]
    ends: list[float]

    @property
    def makespan_s(self) -> float:
        """From the first submission to the last end."""
        return max(self.ends)


class ToldScheduler:
    """A scheduler that hears the guesses of an earlier run, and none of the simulator's own."""

    def __init__(self, guessed: Mapping[str, DurationPredicted]) -> None:
        self._scheduler = Scheduler()
        self._guessed = guessed
        self.decide = self._scheduler.decide
        self.next_wakeup = self._scheduler.next_wakeup
        self.forget = self._scheduler.forget

    def handle(self, event: Event) -> None:
        """Take note of an event."""
        if not isinstance(event, DurationPredicted):
            self._scheduler.handle(event)
        if isinstance(event, JobSubmitted) and (guess := self._guessed.get(event.job.id)) is not None:
            self._scheduler.handle(replace(guess, at=event.at))


def stored_run(state_dir: Path, lengths: dict[str, float]) -> Run:
    """Read what a server that is down has left of these jobs."""
    store = Store(sqlite_url(state_dir / "millpond.db"))
    try:
        events = [entry.event for entry in store.events_after(0)]
        decisions = [decision for cycle in store.decisions_after(0).values() for decision in cycle]
        started_at = {job: store.histories.of_job(job)[1][0].at for job in lengths}
    finally:
        store.close()
    return Run(events, decisions, started_at, lengths)


def live_course(run: Run, jobs: Collection[str]) -> Course:
    """What the server did with these jobs."""
    return _course(run, jobs, run.started_at, run.ended_at)


def simulated_course(run: Run, jobs: Collection[str], overhead_s: float) -> Course:
    """What the simulator does with these jobs; it is told of all, as those before are in the way of the first.

    Args:
        overhead_s: for how long each job holds its cards beyond the length of its command.
    """
    entries = [TraceJob(event.job, event.at, run.lengths[event.job.id]) for event in run.of(JobSubmitted)]
    nodes = tuple(event.node for event in run.of(NodeJoined))
    world = World(nodes, Workload(tuple(entries), "the live run"), "predicted", Costs(start_s=overhead_s))
    simulation = Simulation(world, ToldScheduler(run.guessed))
    simulation.run()
    started_at = {work.job.id: work.first_start_at for work in simulation.works}
    return _course(run, jobs, started_at, {work.job.id: work.ended_at for work in simulation.works})


def _course(run: Run, jobs: Collection[str], started_at: dict[str, float], ended_at: dict[str, float]) -> Course:
    submitted_at = run.submitted_at
    began = min(submitted_at[job] for job in jobs)
    return Course(
        [started_at[job] - began for job in jobs],
        [started_at[job] - submitted_at[job] for job in jobs],
        [ended_at[job] - began for job in jobs],
    )


@program
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = command_line(__doc__)
    parser.add_argument("--jobs", type=int, default=1_000, help="jobs that are compared [1000]")
    parser.add_argument("--before", type=int, default=150, help="jobs on which the overhead is measured [150]")
    parser.add_argument("--mean-length", type=float, default=3.0, metavar="S", help="of the commands [3]")
    parser.add_argument("--seed", type=int, default=1, help="of arrivals and lengths [1]")
    options = parser.parse_args(arguments)
    lots = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="millpond-twin-") as directory:
        state_dir = Path(directory) / "state"
        with ServedPond(state_dir, ["--fake-gpus", CARDS]) as pond:
            pond.up()
            warm_up = submit_all(pond, draws(lots, WARM_UP, options.mean_length))
            note(f"measuring the overhead on {options.before} jobs")
            before = submit_all(pond, draws(lots, options.before, options.mean_length))
            note(f"running {options.jobs} jobs")
            lengths = submit_all(pond, draws(lots, options.jobs, options.mean_length))
        run = stored_run(state_dir, warm_up | before | lengths)
    overhead_s, in_the_run_s = run.overhead_s(before), run.overhead_s(lengths)
    live = live_course(run, lengths)
    differences, *doubts = (
        compared(live, simulated_course(run, lengths, overhead_s * (1 + by))) for by in (0.0, -DOUBT, DOUBT)
    )
    moves = [
        max(abs(other.difference - row.difference) for other in others)
        for row, *others in zip(differences, *doubts, strict=True)
    ]
    table = Table("what", "live", "simulated", "difference", "moves by", f"within {WITHIN:.0%}", texts=1)
    for row, move in zip(differences, moves, strict=True):
        figures = f"{row.live_s:.2f}", f"{row.simulated_s:.2f}", f"{row.difference:+.1%}", f"{move:.1%}"
        table.add(row.what, *figures, verdict(row.met))
    result = {
        "calibration_rate": calibration_rate(),
        "jobs": options.jobs,
        "seed": options.seed,
        "overhead_s": {"measured": overhead_s, "in the run": in_the_run_s},
        "rows": [
            asdict(row) | {"difference": row.difference, "moves_by": move, "met": row.met}
            for row, move in zip(differences, moves, strict=True)
        ],
    }
    emit(
        result,
        options.json,
        [table, f"overhead of a job: {overhead_s:.3f} s measured, {in_the_run_s:.3f} s in the run"],
    )
    return 0


def draws(lots: random.Random, count: int, mean_length_s: float) -> list[Draw]:
    """So many jobs: exponential between arrivals, lengths between a fifth and nine fifths of their mean."""
    apart_s = mean_length_s * 1.2 / CARDS_IN_ALL / OVERLOAD  # 1.2 cards a job
    at_s, found = 0.0, []
    for _ in range(count):
        gpus, tasks = lots.choices([(1, 1), (2, 1), (1, 2)], [8, 1, 1])[0]
        found.append(Draw(at_s, round(mean_length_s * lots.uniform(0.2, 1.8), 2), gpus, tasks))
        at_s += lots.expovariate(1 / apart_s)
    return found


def submit_all(pond: ServedPond, jobs: Sequence[Draw]) -> dict[str, float]:
    """Hand jobs in when they come, and wait until all have ended; returns their lengths by id."""
    lengths = {}
    began = time.monotonic()
    with pond.client() as client:
        for job in jobs:
            time.sleep(max(began + job.at_s - time.monotonic(), 0.0))
            lengths[client.submit(job.document()).id] = job.length_s
        while client.jobs(limit=1).jobs:
            time.sleep(0.1)
    return lengths


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of both courses, in seconds.

    Attributes:
        whole_s: what the difference is a part of.
    """

    what: str
    live_s: float
    simulated_s: float
    whole_s: float

    @property
    def difference(self) -> float:
        """As a part of the whole; where that is nothing, anything at all is infinitely more."""
        apart = self.simulated_s - self.live_s
        return apart / self.whole_s if self.whole_s else math.copysign(math.inf, apart) if apart else 0.0

    @property
    def met(self) -> bool:
        """Whether both agree."""
        return abs(self.difference) <= WITHIN


def compared(live: Course, simulated: Course) -> list[Difference]:
    """Makespan, starts and waits, each as a part of itself; how far single jobs lie apart, as one of the makespan."""
    return [
        Difference("makespan", live.makespan_s, simulated.makespan_s, live.makespan_s),
        *_figures("start", live.starts, simulated.starts),
        *_figures("wait", live.waits, simulated.waits),
        *_apart(live, simulated),
    ]


def _figures(what: str, live: Sequence[float], simulated: Sequence[float]) -> Iterator[Difference]:
    mean = statistics.fmean(live)
    yield Difference(f"{what}, mean", mean, statistics.fmean(simulated), mean)
    for part in (0.5, 0.9, 0.99):
        figure = _quantile(live, part)
        yield Difference(f"{what}, p{part * 100:g}", figure, _quantile(simulated, part), figure)


def _apart(live: Course, simulated: Course) -> Iterator[Difference]:
    """How far apart the starts of one and the same job lie."""
    apart = [abs(one - other) for one, other in zip(live.starts, simulated.starts, strict=True)]
    for part in (0.5, 0.9):
        yield Difference(f"starts of the same job apart, p{part * 100:g}", 0.0, _quantile(apart, part), live.makespan_s)


def _quantile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


if __name__ == "__main__":
    raise SystemExit(main())
