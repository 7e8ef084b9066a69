"""A server that chooses among policies each night, on a trace whose mix changes halfway.

Both halves are jobs of the log of Philly, September and October 2017, in the order and at the pace of the log: of the
first half jobs of one card and a day at most, of the second those of two to eight cards and four hours at most. Of each
half so many jobs are taken, every nth, that they ask for the same part of the cluster. Each row is the whole trace
under one ordering, or under the code of the server that chooses: it sees what has ended by then and replays that.
All is played twice: from an empty cluster without any history, and behind the week before it in the log, of the mix and
the load of the first half, which does not count. The first day of the first half is a rush. Fixed orderings are also
played on traces that begin on other days of the log.

The figure of a half is the mean slowdown (over a minute at least) of the jobs that came in it. Regret is that of a row
over that of the best fixed ordering of each half, chosen in hindsight, as a mean over both halves. Beside it stands the
regret over the best of those orderings under which nobody waits for much longer than the backlog explains: ``sjf`` lets
single jobs wait without end, which no mean shows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np

from benchmarks.reporting import Table, command_line, emit, note, program, verdict
from benchmarks.traces.cases import PHILLY_LOG, find
from millpond.model.events import PolicyChanged
from millpond.model.policy_trials import UNCHANGED
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.server.jobs.adaptation import policy_replay
from millpond.server.jobs.adaptation.night_record import FILE, NightRecord
from millpond.server.jobs.adaptation.policy_adaptation import PolicyAdapter
from millpond.server.views.reports.recorded_jobs import Recorded, RecordedJob
from millpond.simulation.adaptation import window_figures
from millpond.simulation.clusters import capacity_milli, uniform_cluster
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.readers import read_workload
from millpond.simulation.trace import TraceJob, Workload
from millpond.specs.config.adapting import AdaptFile, CandidateFile

CLUSTER: Final = "2x8"
LOAD: Final = 0.7
HALF_DAYS: Final = 14
HISTORIES: Final = (0, 7)
BEGIN_DAY: Final = 30
"""Of the log; the rush is on it."""
OTHER_DAYS: Final = (23, 16, 9)
"""On which else the trace begins behind a week of history, to see how far the best ordering is chance."""
HALVES: Final = ("one card", "gangs")
BOUNDED: Final = ("default", "fair", "fifo")
"""Orderings under which no job waits for much longer than the backlog explains."""
FIXED: Final = ("default", "sjf", "fair", "fifo")
BEGINS: Final = ("default", "fifo")
"""The policies from which the server begins to choose."""
MOST_REGRET: Final = 0.05
MOST_BEHIND: Final = 0.02
HOUR_S: Final = 3_600.0
DAY_S: Final = 24 * HOUR_S
RULE: Final = AdaptFile(hour=3, days=7, margin=0.05, candidates=[CandidateFile(ordering=name) for name in FIXED])


@dataclass(frozen=True, slots=True)
class Row:
    """Mean slowdown, and the wait in hours that 95 % do not exceed and the longest one, of the jobs of each half."""

    slowdown: tuple[float, ...]
    p95_wait_h: tuple[float, ...]
    longest_wait_h: tuple[float, ...]
    changes: tuple[str, ...] = ()


def mixed(folder: Path, history_days: int, begin_day: int) -> tuple[Workload, tuple[float, float]]:
    """The trace, two halves with another mix each behind some days like the first; and when each half begins."""
    log = read_workload("philly", find(folder, PHILLY_LOG.file), 8, skip_bad_rows=True)
    begin = log.jobs[0].submit_at + begin_day * DAY_S
    cards = capacity_milli(uniform_cluster(CLUSTER)) / 1000

    def part(since: float, days: int, fits: Callable[[TraceJob], bool]) -> list[TraceJob]:
        found = [job for job in log.jobs if since <= job.submit_at < since + days * DAY_S and fits(job)]
        asked = sum(job.duration_s * job.job.gpu_milli / 1000 for job in found) / (cards * max(days, 1) * DAY_S)
        if not found:
            return []
        keep = LOAD / asked
        return [job for index, job in enumerate(found) if int((index + 1) * keep) > int(index * keep)]

    def is_first(job: TraceJob) -> bool:
        return job.job.gpu_milli == 1000 and job.duration_s <= DAY_S

    middle = begin + HALF_DAYS * DAY_S
    jobs = [
        *part(begin - history_days * DAY_S, history_days, is_first),
        *part(begin, HALF_DAYS, is_first),
        *part(middle, HALF_DAYS, lambda job: 2000 <= job.job.gpu_milli <= 8_000 and job.duration_s <= 4 * HOUR_S),
    ]
    return replace(log, jobs=tuple(jobs)), (begin, middle)


class NightlyChoice:
    """Runs the server's own adapter on a simulated server, once a day of its clock."""

    def __init__(self, simulation: Simulation, scheduler: Scheduler, record: NightRecord) -> None:
        self._simulation, self._scheduler = simulation, scheduler
        self.changes: list[str] = []
        self._adapter = PolicyAdapter(
            cast(Any, self), cast(Any, self), lambda: RULE, UNCHANGED, record, self.clock, self._ask
        )
        self._adapter.look()

    def clock(self) -> float:
        """The present of the simulation."""
        return self._simulation.engine.now

    def goes_on(self) -> bool:
        """Before each instant: choose, if it is night."""
        before = self._adapter.latest
        self._adapter.look()
        if self._adapter.latest != before:
            note(self._adapter.latest)
        return True

    def look_up(self, question: Callable[[Any], Any], *, is_long: bool) -> Any:
        """What the core answers."""
        return question(SimpleNamespace(scheduler=self._scheduler))

    def wait_for(self, future: Future[None]) -> None:
        """A change is made by the time that it is asked for."""
        future.result(0)

    def change_setting(self, event: Callable[[float], PolicyChanged]) -> Future[None]:
        """Tell the core."""
        change = event(self.clock())
        self._scheduler.handle(change)
        self.changes.append(change.why)
        answer: Future[None] = Future()
        answer.set_result(None)
        return answer

    async def recorded_with_present(self, since: float, until: float, earlier_s: float, _most: int) -> Recorded:
        """What has ended of what came between two instants and before, and what runs."""
        found = Recorded([], {"wait or run still": 0})
        records, forecasts = self._scheduler.jobs, self._simulation.forecasts
        for index, (entry, work) in enumerate(
            zip(self._simulation.world.workload.jobs, self._simulation.works, strict=True)
        ):
            at, forecast = entry.submit_at, forecasts.get(index)
            if not since - earlier_s <= at < until:
                continue
            if work.ended_at <= until:
                started = work.ended_at - entry.duration_s
                job = RecordedJob(work.job, at, entry.duration_s, work.ended_at, started, forecast)
                (found.jobs if at >= since else found.earlier).append(job)
                continue
            found.left_out["wait or run still"] += at >= since
            started_at = records[work.job.id].started_at
            if started_at is not None:
                found.running.append(RecordedJob(work.job, at, until - started_at, np.inf, started_at, forecast))
        return found

    async def _ask(self, _module: str, text: str, _within_s: float, _remedy: str) -> bytes:
        return policy_replay.answer(json.loads(text)).encode()


def played(workload: Workload, halves: tuple[float, float], ordering: str, *, chooses: bool) -> Row:
    """The whole trace, from one ordering on, and the figures of the halves that begin at these instants."""
    world = World(uniform_cluster(CLUSTER), workload, "predicted")
    scheduler = make_scheduler(Settings(ordering=ordering))
    simulation = Simulation(world, scheduler)
    simulation.engine.now = workload.jobs[0].submit_at
    with TemporaryDirectory() as folder:
        night = NightlyChoice(simulation, scheduler, NightRecord(Path(folder) / FILE)) if chooses else None
        simulation.run(goes_on=None if night is None else night.goes_on)
    jobs = [
        (entry.submit_at, work.ended_at, entry.duration_s)
        for entry, work in zip(workload.jobs, simulation.works, strict=True)
    ]
    begin, middle = halves
    windows = (begin, middle), (middle, np.inf)
    figures = [window_figures(jobs, window) for window in windows]
    waits = [[end - at - took for at, end, took in jobs if since <= at < until] for since, until in windows]
    return Row(
        tuple(each.slowdown for each in figures),
        tuple(each.p95_wait_s / HOUR_S for each in figures),
        tuple(max(each, default=0.0) / HOUR_S for each in waits),
        () if night is None else tuple(night.changes),
    )


def scene(
    traces: Path, history_days: int, begin_day: int, begins: Sequence[str]
) -> tuple[dict[str, Any], list[Table | str]]:
    """All rows behind so many days of history, those that choose from these policies on."""
    workload, halves = mixed(traces, history_days, begin_day)
    fixed = {name: played(workload, halves, name, chooses=False) for name in FIXED}
    bests = [[min(fixed[name].slowdown[half] for name in names) for half in (0, 1)] for names in (FIXED, BOUNDED)]
    chosen = {f"chosen, from {name}": played(workload, halves, name, chooses=True) for name in begins}
    slowdowns, waits = ([f"{half}: {what}" for half in HALVES] for what in ("slowdown", "p95 and longest wait, h"))
    regrets = "regret %", "over bounded waits %", "behind default %"
    table = Table("policy", *slowdowns, *waits, *regrets, "met", texts=1)
    result: dict[str, Any] = {"jobs": len(workload.jobs), "rows": {}}
    for name, row in (fixed | chosen).items():
        regret, bounded = (float(np.mean([row.slowdown[half] / best[half] for half in (0, 1)])) - 1 for best in bests)
        behind = max(row.slowdown[half] / fixed["default"].slowdown[half] for half in (0, 1)) - 1
        met = regret <= MOST_REGRET and behind <= MOST_BEHIND if name in chosen else None
        shown_waits = (f"{p95:.1f} {most:.1f}" for p95, most in zip(row.p95_wait_h, row.longest_wait_h, strict=True))
        parts = (f"{100 * part:.1f}" for part in (regret, bounded, behind))
        table.add(name, *(f"{each:.2f}" for each in row.slowdown), *shown_waits, *parts, verdict(met))
        judged = {"regret": regret, "regret_over_bounded_waits": bounded, "behind_default": behind, "met": met}
        result["rows"][name] = asdict(row) | judged
    return result, [table, *(f"{name}: {why}" for name, row in chosen.items() for why in row.changes)]


@program
def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Play all rows, without a history and with one."""
    parser = command_line(__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="folder with the published traces, or above it")
    options = parser.parse_args(arguments)
    result: dict[str, Any] = {"cluster": CLUSTER, "load": LOAD}
    shown: list[Table | str] = []
    scenes = [(days, BEGIN_DAY, BEGINS) for days in HISTORIES] + [(HISTORIES[-1], day, ()) for day in OTHER_DAYS]
    for days, begin_day, begins in scenes:
        rows, text = scene(options.traces, days, begin_day, begins)
        what = f"from day {begin_day} on, {days} days of history"
        result[what] = rows
        shown += [f"{what}, {rows['jobs']} jobs", *text]
    emit(result, options.json, shown)
    return result


if __name__ == "__main__":
    main()
