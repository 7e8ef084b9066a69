"""Whether large, rare and long jobs start in time beside an endless stream of small ones, and what that costs the rest.

Four scenes of synthetic work below full load. *gang*: one of 32 of 64 cards for 4 h, while small jobs ask for 60 or
80 % of the cluster. *wide*: jobs of a whole node, load 0.95. *scarce*: jobs that want the cards of one node of eight,
which others use too. *long*: a user whose jobs run for a day among users of short ones. Their waits are held against
those under plain EASY FIFO, which knows all lengths (``edf`` with no deadlines: first come, first served, with
backfill), and the mean completion of all work against that of an earlier result (``--base FILE``).

    python -m benchmarks.traces.starvation [--scene NAME] [--seeds 3] [--base FILE] [--json FILE]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reporting import Table, command_line, emit, note, program, verdict
from millpond.model.events import DurationPredicted, Event
from millpond.model.workloads import Job
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.kernel_warmup import warm_up
from millpond.simulation.results.history import history_of
from millpond.simulation.trace import TraceJob, Workload, gang_roles
from millpond.simulation.world.costs import Costs

CARDS, PER_NODE = 64, 8
HOUR_S = 3600.0
WATCHED = "watched"
"""Name of the jobs that a scene is about."""

MOST_TIMES_EASY = 3.0
MOST_COMPLETION_LOST = 0.03


@dataclass(frozen=True, slots=True)
class Policy:
    """What is tried.

    Attributes:
        forecasts: the scheduler is told how long each job will run.
    """

    ordering: str
    preempt: bool
    forecasts: bool

    @property
    def label(self) -> str:
        """A few words."""
        return f"{self.ordering}{', preempt' if self.preempt else ''}{'' if self.forecasts else ', lengths unknown'}"


EASY = Policy("edf", preempt=False, forecasts=True)
POLICIES = (
    *(Policy("default", preempt, forecasts) for preempt in (False, True) for forecasts in (True, False)),
    *(Policy("fair", False, forecasts) for forecasts in (True, False)),
)


class _Unforecast:
    """A scheduler that is not told how long jobs will run."""

    def __init__(self, core: Scheduler) -> None:
        self.decide, self.next_wakeup, self.forget = core.decide, core.next_wakeup, core.forget
        self._core = core

    def handle(self, event: Event) -> None:
        """Pass an event on, unless it is a forecast."""
        if not isinstance(event, DurationPredicted):
            self._core.handle(event)


# ---- the scenes -----------------------------------------------------------------------------------------------------

Draws = np.random.Generator


def _stream(
    draws: Draws, load: float, days: float, mean_s: float, sizes: Sequence[tuple[int, float]], users: int = 1
) -> Iterator[TraceJob]:
    """Jobs with log-normal lengths that come at random and together ask for so much of the cluster."""
    cards, shares = zip(*sizes, strict=True)
    rate = load * CARDS / (mean_s * float(np.dot(cards, shares)))
    at, spread = 0.0, 1.0
    while (at := at + float(draws.exponential(1.0 / rate))) < days * 24 * HOUR_S:
        size = int(draws.choice(cards, p=shares))
        length_s = float(np.clip(draws.lognormal(np.log(mean_s) - spread**2 / 2, spread), 30.0, 20 * mean_s))
        user = f"user-{int(draws.integers(users))}" if users > 1 else ""
        yield TraceJob(Job("small", gang_roles(size, PER_NODE), user=user), at, length_s)


def _evenly(days: float, every_h: float, job: Job, length_s: float, first_h: float = 24.0) -> Iterator[TraceJob]:
    """Watched jobs, one every so many hours."""
    for at in np.arange(first_h, days * 24, every_h):
        yield TraceJob(job, float(at) * HOUR_S, length_s)


SMALL = ((1, 0.7), (2, 0.2), (4, 0.1))


def _gang(load: float) -> Callable[[Draws], list[TraceJob]]:
    def jobs(draws: Draws) -> list[TraceJob]:
        gang = Job(WATCHED, gang_roles(32, PER_NODE), name=WATCHED)
        return [*_stream(draws, load, 6, HOUR_S, SMALL), *_evenly(2, 48, gang, 4 * HOUR_S)]

    return jobs


def _wide(draws: Draws) -> list[TraceJob]:
    wide = Job(WATCHED, gang_roles(8, PER_NODE), name=WATCHED)
    return [*_stream(draws, 0.91, 5, HOUR_S, SMALL), *_evenly(5, 6, wide, 2 * HOUR_S)]


def _scarce(draws: Draws) -> list[TraceJob]:
    scarce = Job(WATCHED, gang_roles(4, PER_NODE, models=("RARE",)), name=WATCHED)
    return [*_stream(draws, 0.92, 5, HOUR_S, SMALL), *_evenly(5, 6, scarce, 2 * HOUR_S)]


def _long(draws: Draws) -> list[TraceJob]:
    long = Job(WATCHED, gang_roles(2, PER_NODE), user="long", name=WATCHED)
    return [*_stream(draws, 0.8, 4, 0.5 * HOUR_S, SMALL, users=4), *_evenly(4, 5, long, 24 * HOUR_S, first_h=1.0)]


SCENES: dict[str, Callable[[Draws], list[TraceJob]]] = {
    "gang, load 0.6": _gang(0.6),
    "gang, load 0.8": _gang(0.8),
    "wide": _wide,
    "scarce": _scarce,
    "long": _long,
}


def _world(scene: str, seed: int) -> World:
    entries = sorted(SCENES[scene](np.random.default_rng(seed)), key=lambda entry: entry.submit_at)
    jobs = tuple(replace(each, job=replace(each.job, id=f"job-{number}")) for number, each in enumerate(entries))
    nodes = uniform_cluster(f"{CARDS // PER_NODE}x{PER_NODE}")
    if scene == "scarce":
        nodes = (*nodes[:-1], replace(uniform_cluster(f"1x{PER_NODE}:RARE")[0], name="rare"))
    costs = Costs(preemption=Settings().preemption_cost)
    return World(nodes, Workload(jobs, f"{scene}, seed {seed}"), durations="exact", costs=costs)


# ---- what they come to ----------------------------------------------------------------------------------------------


def played(scene: str, policy: Policy, seed: int) -> dict[str, Any]:
    """One scene under one policy: waits of the watched jobs until their first start, and completion times, in hours."""
    world = _world(scene, seed)
    settings = Settings(ordering=policy.ordering, preempt=policy.preempt)
    warm_up(settings)
    core = make_scheduler(settings)
    simulation = Simulation(world, core if policy.forecasts else _Unforecast(core))
    simulation.run()
    history = history_of(simulation)
    watched = np.array([entry.job.name == WATCHED for entry in world.workload.jobs])
    waits = (history.first_start_at - history.submit_at)[watched] / HOUR_S
    return {
        "waits_h": waits.tolist(),
        "watched_h": float(history.jct_s[watched].mean() / HOUR_S),
        "mean_h": float(history.jct_s.mean() / HOUR_S),
        "jobs": len(watched),
    }


def measured(scene: str, policy: Policy, seeds: int) -> dict[str, Any]:
    """A scene under a policy, over all seeds."""
    note(f"{scene}: {policy.label}")
    runs = [played(scene, policy, seed) for seed in range(seeds)]
    waits = np.concatenate([run["waits_h"] for run in runs])
    return {
        "scene": scene,
        "policy": policy.label,
        "wait_h": float(waits.mean()),
        "longest_wait_h": float(waits.max()),
        "watched_h": float(np.mean([run["watched_h"] for run in runs])),
        "mean_h": float(np.mean([run["mean_h"] for run in runs])),
    }


def rows_of(scene: str, seeds: int, base: dict[tuple[str, str], float]) -> Iterator[dict[str, Any]]:
    """A scene under EASY FIFO and under all policies."""
    easy = measured(scene, EASY, seeds)
    yield {**easy, "policy": "EASY FIFO", "times_easy": 1.0, "longest_times_easy": 1.0, "more": None, "met": None}
    for policy in POLICIES:
        row = measured(scene, policy, seeds)
        times = row["wait_h"] / easy["wait_h"]
        longest = row["longest_wait_h"] / easy["longest_wait_h"]
        before = base.get((scene, policy.label))
        more = None if before is None else row["mean_h"] / before - 1
        met = max(times, longest) <= MOST_TIMES_EASY and (more is None or more <= MOST_COMPLETION_LOST)
        yield {**row, "times_easy": times, "longest_times_easy": longest, "more": more, "met": met}


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(
        "scene", "policy", "wait h", "x EASY", "longest h", "x EASY", "its completion h", "mean completion h", "more %",
        "met", texts=2,
    )  # fmt: skip
    for row in rows:
        table.add(
            row["scene"], row["policy"], f"{row['wait_h']:.2f}", f"{row['times_easy']:.1f}",
            f"{row['longest_wait_h']:.2f}", f"{row['longest_times_easy']:.1f}", f"{row['watched_h']:.2f}",
            f"{row['mean_h']:.3f}", "" if row["more"] is None else f"{100 * row['more']:+.1f}", verdict(row["met"]),
        )  # fmt: skip
    return table


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--scene", choices=sorted(SCENES), help="this one alone")
    parser.add_argument("--seeds", type=int, default=3, help="how many draws of each scene")
    parser.add_argument("--base", type=Path, metavar="FILE", help="what --json wrote before a change")
    options = parser.parse_args(arguments)
    before = json.loads(options.base.read_text(encoding="utf-8"))["rows"] if options.base else []
    base = {(row["scene"], row["policy"]): row["mean_h"] for row in before}
    scenes = [options.scene] if options.scene else list(SCENES)
    rows = [row for scene in scenes for row in rows_of(scene, options.seeds, base)]
    emit({"rows": rows}, options.json, [_table(rows)])


if __name__ == "__main__":
    main()
