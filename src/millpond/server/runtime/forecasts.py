"""Forecasts of how long jobs run, learnt from ended jobs outside the scheduler's thread.

Here a forecast is read by people and decides who waits, so nothing is said on slight grounds: only jobs of the same
kind, queue, user and name predict how long one takes, and the fewer of them have ended, the longer the cautious length.
Services run until they are stopped: nothing is learnt from them, and nothing said of them.

A forecast reaches the core as an event right behind the submission, so that a replay needs no forecaster.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from millpond.forecasting.durations import DurationPredictor, Forecast
from millpond.model.states import JobState
from millpond.model.workloads import Job, Kind
from millpond.specs.api.jobs.jobs import JobInfo

REMEMBERED: Final = 2_000
"""So many of the latest jobs are read again after a restart."""
_LEARNT_AT_ONCE: Final = 100
"""So many ends are learnt in about a millisecond."""


class Forecaster:
    """Learns from ends, guesses at submissions.

    Args:
        earlier: jobs that ended before this server began, newest first; read once, when the first guess is asked for.
    """

    def __init__(self, earlier: Callable[[int], Sequence[JobInfo]]) -> None:
        self._earlier: Callable[[int], Sequence[JobInfo]] | None = earlier
        self._lock = threading.Lock()
        self._predictors: defaultdict[str, DurationPredictor] = defaultdict(partial(DurationPredictor, shrinkage=0.0))
        self._ended: queue.SimpleQueue[JobInfo] = queue.SimpleQueue()

    def note(self, ended: Iterable[JobInfo]) -> None:
        """Jobs have ended; returns at once, what they teach is learnt when the next guess is asked for."""
        for info in ended:
            self._ended.put(info)

    @property
    def ready(self) -> bool:
        """Whether the next guess takes no time worth mentioning: not while there is much to learn first."""
        return self._earlier is None and self._ended.qsize() < _LEARNT_AT_ONCE

    def predict(self, job: Job) -> Forecast | None:
        """A guess at the length of a job's run; None while nothing is known. May read the store once."""
        with self._lock:
            if self._earlier is not None:
                for info in reversed(self._earlier(REMEMBERED)):
                    self._learn(info)
                self._earlier = None
            self._learn_new()
            return self._guess(job)

    def predict_at_once(self, job: Job) -> Forecast | None:
        """The same for those who must not wait: None also while others ask, or nothing was read yet."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._earlier is not None:
                return None
            self._learn_new()
            return self._guess(job)
        finally:
            self._lock.release()

    def _guess(self, job: Job) -> Forecast | None:
        predictor = self._predictors[job.kind.value]
        runs = predictor.runs_by_name(job)
        guess = predictor.predict(job) if runs else None
        if guess is None:
            return None
        # Two equal lengths would claim to be certain (``scheduling.ordering``).
        return Forecast(guess.expected_s, max(guess.cautious_s, guess.expected_s * (1.0 + 1.0 / runs)))

    def _learn_new(self) -> None:
        while not self._ended.empty():
            self._learn(self._ended.get())

    def _learn(self, info: JobInfo) -> None:
        """Only a run that came to its own end says how long such jobs take."""
        if info.state != JobState.SUCCEEDED or info.ended_at is None or info.kind == Kind.SERVICE:
            return
        if (ran_s := info.ran_s(info.ended_at)) is not None:
            self._predictors[info.kind].observe(info, ran_s)


def forecasts_at_submission(jobs: Sequence[tuple[JobInfo, Job]]) -> list[Forecast | None]:
    """What a server predicted of each job when it was submitted, if these are all that it had learnt from.

    Args:
        jobs: by submission.
    """
    forecaster = Forecaster(lambda _: ())
    ended = [info for info, _ in jobs if info.ended_at is not None]
    ends = sorted(ended, key=lambda info: info.ended_at or 0.0)
    learnt = 0
    guesses = []
    for info, job in jobs:
        before = learnt
        while learnt < len(ends) and (ends[learnt].ended_at or 0.0) <= info.queued_at:
            learnt += 1
        forecaster.note(ends[before:learnt])
        guesses.append(forecaster.predict(job))
    return guesses
