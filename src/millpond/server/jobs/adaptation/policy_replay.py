"""The child process that replays the last days under several policies: low in priority, bounded in memory."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from millpond.model.codec import from_plain, to_plain
from millpond.model.policy_trials import ClusterPolicies
from millpond.server.jobs.what_if.child import answer_parent
from millpond.server.jobs.what_if.past_jobs import past_jobs, past_of, past_plain
from millpond.server.views.reports.recorded_jobs import Recorded
from millpond.simulation.adaptation import TriedPolicy, WindowFigures
from millpond.simulation.policy_replays import Windows, replay_choices
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
    plain = {
        "jobs": past_plain(past_jobs(recorded, windows[0][0], windows[-1][1])),
        "choices": [to_plain(choice) for choice in choices],
        "windows": [list(window) for window in windows],
    }
    return f'{{"snapshot": {snapshot}, {json.dumps(plain)[1:]}'


def answer(request: dict[str, Any]) -> str:
    """The answer, both as JSON has them: for each policy the figures of each window."""
    choices = [from_plain(choice) for choice in request["choices"]]
    windows = [(begin, until) for begin, until in request["windows"]]
    tried = replay_choices(request["snapshot"], past_of(request["jobs"]), choices, windows, bound)
    return json.dumps([[asdict(window) for window in each.windows] for each in tried])


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
