"""What is known of the trials of sweeps: read from what they report, kept in the store, asked for by the API.

Whether a trial is to be stopped is decided here and stored before it is carried out
(``server.jobs.sweeps.sweep_watch``), so that a killed server neither forgets it nor counts it as anything else.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from millpond.model.errors import ConflictError
from millpond.model.states import JobState
from millpond.node.task.records import TaskId
from millpond.server.jobs.sweeps.readings import Point, TrialReading, printed_series
from millpond.server.store.store import Store
from millpond.specs.api.jobs.files import MetricsInfo
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.trials import TrialInfo, TrialList
from millpond.specs.job.job_file import JobFile
from millpond.specs.job.job_ids import member_id
from millpond.specs.job.sweeps import Halving, SweepFile, SweepMetric

_PARTS = {2: "half", 3: "third", 4: "quarter"}
STOPPED = "stopped"
WAITING = "waiting"
"""States of trials beside those of jobs: fell behind; not handed to the scheduler yet."""


def rungs_up_to(halving: Halving, step: float) -> Iterator[int]:
    """The rungs that a trial has come to after so many steps, the first first."""
    if halving.rungs is not None:
        yield from (rung for rung in halving.rungs if rung <= step)
        return
    rung = halving.first_step
    while rung <= step:
        yield rung
        rung *= halving.factor


def verdict(halving: Halving, metric: SweepMetric, rung: int, own: float | None, values: Sequence[float | None]) -> str:
    """Why a trial is to be stopped at a rung; empty when it goes on: successive halving without waiting.

    Source: Li et al., A System for Massively Parallel Hyperparameter Tuning (ASHA), MLSys 2020, section 3. There, a
    trial that is among the best of its rung is promoted to the next; here, trials run on, and one that is not among
    the best when it comes to a rung is stopped. Both keep 1 in ``factor`` at each rung, and neither waits for a rung
    to fill, which on cards that come and go never happens.

    Args:
        own: its value there; None: not finite, which is worse than anything.
        values: of all trials that came to the rung so far, its own among them.
    """
    losses = [_loss(metric, value) for value in values]
    kept = max(1, len(losses) // halving.factor)
    if sum(loss < _loss(metric, own) for loss in losses) < kept:
        return ""
    needed = sorted(losses)[kept - 1] * (1 if metric.goal == "minimize" else -1)
    part = _PARTS.get(halving.factor, f"1/{halving.factor}")
    shown = "not finite" if own is None else f"{own:.6g}"
    return f"behind the best {part} of {len(losses)} at step {rung}: {metric.name} {shown}, and {needed:.6g} was needed"


def _loss(metric: SweepMetric, value: float | None) -> float:
    """The smaller, the better."""
    if value is None:
        return math.inf
    return value if metric.goal == "minimize" else -value


@dataclass(slots=True)
class Trial:
    """What one trial has reported.

    Attributes:
        best, best_step: its value nearest to the goal, and where.
        last, last_step: its latest value.
        rungs: its value at each rung that it came to; None where that was not finite.
        stopped: why it is to be stopped; empty when it is not.
        settled: it has ended, and everything it reported is here.
    """

    best: float | None = None
    best_step: float | None = None
    last: float | None = None
    last_step: float | None = None
    rungs: dict[str, float | None] = field(default_factory=dict)
    stopped: str = ""
    settled: bool = False

    def note(self, point: Point, sweep: SweepFile) -> list[int]:
        """Note a reported value; returns the rungs that the trial has reached."""
        assert sweep.metric is not None, "without a metric nothing is read"
        self.last, self.last_step = point.value, point.step
        if point.value is not None and (self.best is None or sweep.metric.better(point.value, self.best)):
            self.best, self.best_step = point.value, point.step
        if sweep.halving is None:
            return []
        reached = [rung for rung in rungs_up_to(sweep.halving, point.step) if str(rung) not in self.rungs]
        self.rungs.update((str(rung), point.value) for rung in reached)
        return reached


class _Sweep:
    """A sweep and what is known of its trials, by job."""

    def __init__(self, file: SweepFile, known: dict[str, dict[str, Any]]) -> None:
        self.file = file
        self.trials = {job: Trial(**data) for job, data in known.items()}
        self.readings: dict[str, tuple[int, TrialReading]] = {}

    @property
    def is_silent(self) -> bool:
        """Whether no trial has reported anything."""
        return all(trial.last_step is None for trial in self.trials.values())


class Trials:
    """Trials of all sweeps that were looked at. Any thread.

    Args:
        look: a job's look; None when there is none.
        file_of: the job file of a job.
        note: has a text stand in a job's history.
    """

    def __init__(
        self,
        state_dir: Path,
        store: Store,
        look: Callable[[str], JobInfo | None],
        file_of: Callable[[str], JobFile],
        note: Callable[[str, str], None],
    ) -> None:
        self._state_dir = state_dir
        self._store = store
        self._look = look
        self._file_of = file_of
        self._note = note
        self._lock = threading.Lock()
        self._sweeps: dict[str, _Sweep] = {}

    def refresh(self, array: str) -> dict[str, str]:
        """Read what came since the last time; returns the living trials that are to be stopped, and why.

        Raises:
            ConflictError: it is no sweep.
        """
        with self._lock:
            sweep = self._sweep(array)
            if sweep.file.metric is None:
                return {}
            before_any_end = not any(trial.settled for trial in sweep.trials.values())
            changed: dict[str, Trial] = {}
            succeeded: list[str] = []
            for job in self._store.jobs.member_states(array):
                trial = sweep.trials.setdefault(job, Trial())
                info = None if trial.settled else self._look(job)
                if info is not None and self._read(sweep, trial, info):
                    changed[job] = trial
                    succeeded += [job] * (trial.settled and info.state == JobState.SUCCEEDED)
            if succeeded and before_any_end and sweep.is_silent:
                self._note(array, f"{succeeded[0]} has succeeded and reported no {sweep.file.metric.described()}")
            if changed:
                self._store.trials.write(array, {job: asdict(trial) for job, trial in changed.items()})
            return {job: trial.stopped for job, trial in sweep.trials.items() if trial.stopped and not trial.settled}

    def add_printed(self, info: JobInfo, found: MetricsInfo, last: int) -> MetricsInfo:
        """The metrics that a job reported; of a trial that only prints the metric of its sweep, with that one.

        Args:
            last: how many of the newest points.
        """
        sweep = self._file_of(info.parent).sweep if info.parent else None
        if sweep is None or sweep.metric is None or any(each.name == sweep.metric.name for each in found.series):
            return found
        run = TaskId(info.id, found.attempt, 0)
        series, cut = printed_series(self._state_dir, run, sweep.metric, last)
        if series is None:
            return found
        return found.model_copy(update={"series": [*found.series, series], "truncated": found.truncated or cut})

    def drop(self, array: str) -> None:
        """It has ended: what is known of it is in the store."""
        with self._lock:
            self._sweeps.pop(array, None)

    def table(self, info: JobInfo, limit: int) -> TrialList:
        """All trials of a sweep, the best first, then those of which nothing is known, by number.

        Raises:
            ConflictError: it is no sweep.
        """
        self.refresh(info.id)
        with self._lock:
            sweep = self._sweep(info.id)
            states = self._store.jobs.member_states(info.id)
            rows = [self._trial_info(info, sweep, index, states) for index in sweep.file.members]
            if info.ended_at is not None:
                self._sweeps.pop(info.id)
        metric = sweep.file.metric
        if metric is not None:
            sign = 1 if metric.goal == "minimize" else -1
            rows.sort(key=lambda trial: (trial.value is None, sign * (trial.value or 0.0), trial.index))
        return TrialList(
            job=info.id,
            metric="" if metric is None else metric.name,
            goal="" if metric is None else metric.goal,
            trials=rows[:limit],
            truncated=len(rows) > limit,
        )

    def _sweep(self, array: str) -> _Sweep:
        found = self._sweeps.get(array)
        if found is None:
            file = self._file_of(array).sweep
            if file is None:
                raise ConflictError(f"job {array!r} is not a sweep", "only sweeps have trials")
            found = self._sweeps[array] = _Sweep(file, self._store.trials.of(array))
        return found

    def _read(self, sweep: _Sweep, trial: Trial, info: JobInfo) -> bool:
        """Read what a trial reported since the last time; says whether anything is new."""
        assert sweep.file.metric is not None, "without a metric nothing is read"
        attempt = max(info.attempt, 1)
        read_attempt, reading = sweep.readings.get(info.id, (0, None))
        if reading is None or read_attempt != attempt:
            reading = TrialReading.of(self._state_dir, info.id, attempt, sweep.file.metric)
            sweep.readings[info.id] = (attempt, reading)
        over = JobState(info.state).ended
        points = reading.fresh(over=over)
        for point in points:
            for rung in trial.note(point, sweep.file):
                self._judge(sweep, trial, rung)
        if over:
            trial.settled = True
            sweep.readings.pop(info.id)
        return bool(points) or trial.settled

    def _judge(self, sweep: _Sweep, trial: Trial, rung: int) -> None:
        """A trial came to a rung: it goes on, or is to be stopped."""
        halving, metric, name = sweep.file.halving, sweep.file.metric, str(rung)
        if halving is None or metric is None or trial.stopped:
            return
        values = [other.rungs[name] for other in sweep.trials.values() if name in other.rungs]
        trial.stopped = verdict(halving, metric, rung, trial.rungs[name], values)

    def _trial_info(self, array: JobInfo, sweep: _Sweep, index: int, states: dict[str, str]) -> TrialInfo:
        job = member_id(array.id, index)
        trial = sweep.trials.get(job, Trial())
        if job not in states:
            state = WAITING if array.ended_at is None else JobState.CANCELLED.value
        else:
            state = states[job]
            if not trial.settled and (info := self._look(job)) is not None:
                state = info.state
        if trial.stopped and state == JobState.CANCELLED:
            state = STOPPED
        return TrialInfo(
            index=index,
            job=job,
            parameters=sweep.file.trial(index),
            state=state,
            value=trial.best,
            step=trial.best_step,
            last=trial.last,
            last_step=trial.last_step,
            stopped=trial.stopped if state == STOPPED else "",
        )
