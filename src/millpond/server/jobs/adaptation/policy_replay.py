"""The child process that replays the last days under several policies: low in priority, bounded in memory."""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from millpond.forecasting.durations import Forecast
from millpond.model.codec import from_plain, to_plain
from millpond.model.policy_trials import ClusterPolicies
from millpond.server.jobs.what_if.child import answer_parent
from millpond.server.views.reports.recorded_jobs import Recorded, RecordedJob
from millpond.simulation.adaptation import TriedPolicy, WindowFigures
from millpond.simulation.policy_replays import PastJob, Windows, replay_choices
from millpond.simulation.trace import TraceJob
from millpond.simulation.what_if.plays import GoesOn

MOST_MEMORY_BYTES: Final = 4 << 30
REPLAY_WITHIN_S: Final = 120.0
"""A replay that takes longer is broken off, and its policy is not judged."""
_NICENESS: Final = 10
"""Beyond that of answers to questions."""


def question_text(snapshot: str, recorded: Recorded, choices: Sequence[ClusterPolicies], windows: Windows) -> str:
    """The request of the child.

    Args:
        snapshot: of the scheduler, as JSON.
        windows: of the jobs that count, by time, without gaps.
    """
    begin, until = windows[0][0], windows[-1][1]
    earlier = [job for job in recorded.earlier if job.ended_at > begin]
    past = [
        *(PastJob(_carried_in(job, begin, until), job.forecast, counts=False) for job in (*earlier, *recorded.running)),
        *(PastJob(_entry(job, job.submitted_at, job.length_s), job.forecast, counts=True) for job in recorded.jobs),
    ]
    plain = {
        "jobs": [_plain(each) for each in sorted(past, key=lambda each: each.entry.submit_at)],
        "choices": [to_plain(choice) for choice in choices],
        "windows": [list(window) for window in windows],
    }
    return f'{{"snapshot": {snapshot}, {json.dumps(plain)[1:]}'


def answer(request: dict[str, Any]) -> str:
    """The answer, both as JSON has them: for each policy the figures of each window."""
    choices = [from_plain(choice) for choice in request["choices"]]
    windows = [(begin, until) for begin, until in request["windows"]]
    tried = replay_choices(request["snapshot"], [_past_job(each) for each in request["jobs"]], choices, windows, bound)
    return json.dumps([[asdict(window) for window in each.windows] for each in tried])


def _entry(job: RecordedJob, at: float, length_s: float) -> TraceJob:
    return TraceJob(job.job, at, length_s, job.job.id)


def _carried_in(job: RecordedJob, begin: float, until: float) -> TraceJob:
    """A job that held cards, or waited, when the days began, or that runs still.

    What ran comes when its run began, as then it had the cards: but not much before the days, in which it had them too.
    What waited comes as they begin, in the order of submission.
    """
    if job.started_at >= begin and job.ended_at < math.inf:
        return _entry(job, begin, job.length_s)
    at = max(job.started_at, begin - (until - begin))
    return _entry(job, at, max(min(job.ended_at, until) - at, 1.0))


def _plain(each: PastJob) -> list[Any]:
    entry, forecast = each.entry, each.forecast
    guess = None if forecast is None else [forecast.expected_s, forecast.cautious_s]
    return [to_plain(entry.job), entry.submit_at, entry.duration_s, guess, each.counts]


def _past_job(plain: list[Any]) -> PastJob:
    job, at, length_s, guess, counts = plain
    made = from_plain(job)
    return PastJob(TraceJob(made, at, length_s, made.id), None if guess is None else Forecast(*guess), counts)


def read_answer(text: bytes, choices: Sequence[ClusterPolicies]) -> list[TriedPolicy]:
    """What the child answered."""
    return [
        TriedPolicy(choice, tuple(WindowFigures(**window) for window in windows))
        for choice, windows in zip(choices, json.loads(text), strict=True)
    ]


def bound() -> GoesOn:
    """Whether one replay may go on."""
    ends = time.monotonic() + REPLAY_WITHIN_S
    return lambda: time.monotonic() < ends


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    os.nice(_NICENESS)
    sys.exit(answer_parent(answer))
