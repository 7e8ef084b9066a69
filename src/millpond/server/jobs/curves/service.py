"""Compares runs by their curves: which runs and metrics are meant, and as many points of each as are asked for."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millpond.model.errors import InvalidInputError, MillpondError
from millpond.server.jobs.curves.curve import Curve, CurvePoints, thinned
from millpond.server.jobs.curves.run_curves import CurveKey, RunCurves
from millpond.server.jobs.sweeps.trials import STOPPED
from millpond.server.views.visibility import Reader
from millpond.specs.api.jobs.curves import CurveInfo, CurveRun, CurvesInfo
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.trials import TrialList
from millpond.specs.job.job_file import JobFile
from millpond.specs.job.sweeps import SweepFile

MOST_RUNS: Final = 50
MOST_SHOWN: Final = 12
"""Metrics of which curves are given at a time."""
SHOWN: Final = 6
POINTS: Final = 500
MOST_POINTS: Final = 5_000
_LEAST_POINTS: Final = 100
READ_FOR_S: Final = 1.0
"""In one answer; what is not read by then follows with the next."""
KEPT_IN_ALL: Final = 2_000_000
"""Points of all runs in memory, 24 bytes each; those looked at longest ago are read again when they are needed."""


@dataclass(frozen=True, slots=True)
class CurvesRequest:
    """What is to be compared.

    Attributes:
        jobs: ids; of an array or a sweep, its members: of a sweep with a metric the best ones.
        metrics: names; empty: the first ones there are, that of the sweep before all.
        points: at the most so many of each curve.
        in_all: at the most so many of all curves of a metric together, but no fewer than 100 of each.
        begin, end: the steps between which these are; None: from the first, to the last.
    """

    jobs: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    points: int = POINTS
    in_all: int = MOST_RUNS * MOST_POINTS
    begin: float | None = None
    end: float | None = None

    def given(self, points: CurvePoints, most: int) -> CurvePoints:
        """At most so many points of a curve; of a part of it, the next point on either side too."""
        first = 0 if self.begin is None else max(bisect_left(points.steps, self.begin) - 1, 0)
        last = len(points) if self.end is None else bisect_right(points.steps, self.end) + 1
        is_part = first > 0 or last < len(points)
        return thinned(points.part(first, last) if is_part else points, most)


class Curves:
    """Reads curves for those who may see the runs. Any thread.

    Args:
        look: a job; None when there never was one.
        file_of: the job file of a job.
        trials: the trials of a sweep, the best first.
        members: the ids of the members of an array.
    """

    def __init__(
        self,
        state_dir: Path,
        look: Callable[[str], JobInfo | None],
        file_of: Callable[[str], JobFile],
        trials: Callable[[JobInfo, int], TrialList],
        members: Callable[[str], list[str]],
    ) -> None:
        self._state_dir = state_dir
        self._look = look
        self._file_of = file_of
        self._trials = trials
        self._members = members
        self._lock = threading.Lock()
        self._known: dict[str, RunCurves] = {}

    def compare(self, request: CurvesRequest, reader: Reader) -> CurvesInfo:
        """The curves of runs, as far as a reader may see these.

        Raises:
            InvalidInputError: nothing is asked for.
        """
        if not request.jobs:
            raise InvalidInputError("no job is named", "name jobs, arrays or sweeps: ?job=ID&job=ID")
        found, missing = self._runs(request.jobs, reader)
        infos, left_out = found[:MOST_RUNS], len(found) - MOST_RUNS
        with self._lock:
            until = time.monotonic() + READ_FOR_S
            read = [(info, self._known_run(info)) for info in infos]
            is_whole = all(run.refresh(info, until) for info, run in read)
            self._forget()
            sweep = self._common_sweep(infos)
            metrics = sorted({key.metric for _, run in read for key in run.curves})
            aim = sweep.metric if sweep is not None else None
            shown = list(request.metrics[:MOST_SHOWN]) or _first(metrics, "" if aim is None else aim.name)
            return CurvesInfo(
                runs=[self._run_info(info, run) for info, run in read],
                metrics=metrics,
                shown=shown,
                curves=[each for metric in shown for each in _of_metric(read, metric, request)],
                aim="" if aim is None else aim.name,
                goal="" if aim is None else aim.goal,
                missing=missing,
                left_out=max(left_out, 0),
                whole=is_whole,
            )

    def _runs(self, names: tuple[str, ...], reader: Reader) -> tuple[list[JobInfo], list[str]]:
        """The jobs that are meant, each once, and the names of what is none."""
        found: dict[str, JobInfo] = {}
        missing = []
        for name in dict.fromkeys(names):
            info = self._look(name)
            if info is None or not reader.sees(info):
                missing.append(name)
            elif info.array is None:
                found[info.id] = info
            else:
                found |= {member.id: member for member in self._members_of(info)}
        return list(found.values()), missing

    def _members_of(self, array: JobInfo) -> Iterator[JobInfo]:
        assert array.array is not None
        if array.array.sweep:
            names = [trial.job for trial in self._trials(array, MOST_RUNS + 1).trials]
        else:
            names = self._members(array.id)[: MOST_RUNS + 1]
        for name in names:
            info = self._look(name)
            if info is not None and info.attempt:
                yield info

    def _known_run(self, info: JobInfo) -> RunCurves:
        run = self._known.pop(info.id, None)
        if run is None:
            sweep = self._sweep_of(info)
            run = RunCurves(self._state_dir, info.id, None if sweep is None else sweep.metric)
        self._known[info.id] = run
        return run

    def _forget(self) -> None:
        """Let go of the runs that were looked at longest ago, where all of them are too large."""
        size = sum(run.size for run in self._known.values())
        for job in list(self._known)[:-1]:
            if size <= KEPT_IN_ALL:
                return
            size -= self._known.pop(job).size

    def _common_sweep(self, infos: list[JobInfo]) -> SweepFile | None:
        parents = {info.parent for info in infos}
        return self._sweep_of(infos[0]) if len(parents) == 1 and infos else None

    def _sweep_of(self, info: JobInfo) -> SweepFile | None:
        if not info.parent:
            return None
        try:
            return self._file_of(info.parent).sweep
        except MillpondError:  # it was forgotten meanwhile
            return None

    def _run_info(self, info: JobInfo, run: RunCurves) -> CurveRun:
        sweep = self._sweep_of(info)
        return CurveRun(
            job=info.id,
            name=info.name,
            user=info.user,
            state=STOPPED if info.stopped_early else info.state,
            attempt=info.attempt,
            started_at=info.first_started_at,
            parent=info.parent,
            parameters={} if sweep is None or info.index is None else sweep.trial(info.index),
            metrics=sorted({key.metric for key in run.curves}),
            notes=run.notes,
        )


def _first(metrics: list[str], aim: str) -> list[str]:
    return sorted(metrics, key=lambda metric: (metric != aim, metric))[:SHOWN]


def _of_metric(read: list[tuple[JobInfo, RunCurves]], metric: str, request: CurvesRequest) -> Iterator[CurveInfo]:
    """All curves of a metric."""
    found = [
        (info.id, key, curve) for info, run in read for key, curve in sorted(run.curves.items()) if key.metric == metric
    ]
    most = min(request.points, max(request.in_all // max(len(found), 1), _LEAST_POINTS))
    for job, key, curve in found:
        points = curve.ordered()
        yield _curve_info(job, key, curve, request.given(points, most))


def _curve_info(job: str, key: CurveKey, curve: Curve, shown: CurvePoints) -> CurveInfo:
    points = curve.ordered()
    least = points.values.index(min(points.values)) if len(points) else None
    highest = points.values.index(max(points.values)) if len(points) else None
    return CurveInfo(
        job=job,
        task=key.task,
        metric=key.metric,
        folder=key.folder,
        count=curve.count,
        not_finite=curve.not_finite,
        least=None if least is None else points.values[least],
        least_step=None if least is None else points.steps[least],
        most=None if highest is None else points.values[highest],
        most_step=None if highest is None else points.steps[highest],
        last=points.values[-1] if len(points) else None,
        last_step=points.steps[-1] if len(points) else None,
        steps=list(shown.steps),
        values=list(shown.values),
        at=list(shown.at),
    )
