"""The child process that plays a change: bounds on its work, the question as plain data, the answer as JSON."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import Any, Final

from millpond.model.codec import from_plain, to_plain
from millpond.model.events import Event
from millpond.server.jobs.what_if.child import answer_parent
from millpond.server.jobs.what_if.past_jobs import past_jobs, past_of, past_plain
from millpond.server.views.reports.recorded_jobs import Recorded
from millpond.simulation.results.summaries import finite
from millpond.simulation.what_if.answers import WhatIfQuery, answer_live, answer_past
from millpond.simulation.what_if.plays import GoesOn

MOST_CYCLES: Final = 100_000
PLAY_WITHIN_S: Final = 12.0
"""A play that takes longer is broken off where it is; there are three at the most."""
_CLOCK_EVERY: Final = 16


def question_text(
    snapshot: str, change: tuple[list[Event], list[str]], span: tuple[float, float], recorded: Recorded | None
) -> str:
    """The request of the child.

    Args:
        snapshot: of the scheduler, as JSON.
        change: as events, and in words.
        span: the present, and how far it is played forward; of the past, when the jobs were submitted.
    """
    events, words = change
    plain: dict[str, Any] = {
        "changes": [to_plain(event) for event in events],
        "words": words,
        "begin_at": span[0],
        "until": span[1],
    }
    if recorded is not None:
        plain["left_out"] = recorded.left_out
        plain["jobs"] = past_plain(past_jobs(recorded, *span))
    return f'{{"snapshot": {snapshot}, {json.dumps(plain)[1:]}'


def answer(request: dict[str, Any]) -> str:
    """The answer to a question, both as JSON has them."""
    changes = tuple(from_plain(event) for event in request["changes"])
    question = WhatIfQuery(changes, tuple(request["words"]), bound)
    if "jobs" in request:
        past, begin_at, left_out = past_of(request["jobs"]), request["begin_at"], request["left_out"]
        found_out = answer_past(request["snapshot"], past, begin_at, question, left_out)
    else:
        found_out = answer_live(request["snapshot"], question, request["begin_at"], request["until"])
    return json.dumps(finite(asdict(found_out)))


def bound() -> GoesOn:
    """Whether one play may go on, asked before each of its instants."""
    ends = time.monotonic() + PLAY_WITHIN_S
    asked = 0

    def goes_on() -> bool:
        nonlocal asked
        asked += 1
        return asked <= MOST_CYCLES and (asked % _CLOCK_EVERY > 0 or time.monotonic() < ends)

    return goes_on


if __name__ == "__main__":
    sys.exit(answer_parent(answer))
