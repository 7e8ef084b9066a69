"""The attempts of a job: when and where each ran, and why it ended, read from the job's history.

An attempt is a run of all tasks of a job. Tasks that are started again beside their mates belong to the attempt of
these. A start that the engine refused is an attempt that never ran.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from millpond.model.decisions import Start, Stop
from millpond.model.events import ALL_TASKS, Confirmed, Ended, Kept, Refused
from millpond.model.reasons import Cause
from millpond.model.states import JobState, Outcome
from millpond.specs.api.events import EventInfo
from millpond.specs.api.jobs.jobs import JobInfo, beyond_exit_code

CODES_SHOWN: Final = 4
_CONSEQUENCES: Final = (Cause.GANG_BROKEN, Cause.WORK_DONE)
"""Causes of a stop that follows from how tasks ended: that is then why the attempt ended."""
_UNREMARKABLE: Final = (Outcome.SUCCESS, Outcome.STOPPED)


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """Why an attempt ended, in the words of the history.

    Attributes:
        cause: why the scheduler ended it, a ``model.reasons.Cause``; empty: it did not.
        for_job: the job that got the room; empty: none, or one that is not for the reader.
        text: how its tasks ended, or why they could not be started.
    """

    cause: str = ""
    for_job: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt.

    Attributes:
        started_at: None: it never ran.
        ended_at: None: not known, or it goes on.
        codes: exit codes with the numbers of their tasks, others than 0 first; of all tasks, where they are one, -1.
        codes_left_out: so many more.
        restarted: numbers of the tasks that were started again within it.
        end: None: it goes on.
    """

    number: int
    started_at: float | None
    ended_at: float | None
    nodes: tuple[str, ...]
    codes: tuple[tuple[int, int], ...]
    codes_left_out: int
    restarted: tuple[int, ...]
    end: AttemptEnd | None


@dataclass(slots=True)
class _AttemptHistory:
    """What a history has told of an attempt so far."""

    number: int
    decided_at: float
    nodes: dict[str, None] = field(default_factory=dict)
    tasks: set[int] = field(default_factory=set)
    confirmed_at: float | None = None
    refused: EventInfo | None = None
    stop: EventInfo | None = None
    broken: bool = False
    failed: dict[int, EventInfo] = field(default_factory=dict)
    last: EventInfo | None = None
    codes: dict[int, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    restarted: set[int] = field(default_factory=set)


def attempts_of(job: JobInfo, events: Iterable[EventInfo]) -> list[AttemptRow]:
    """All attempts of a job, the newest first; none of an array, whose members have their own.

    Args:
        events: its history, oldest first.
    """
    histories: dict[int, _AttemptHistory] = {}
    starts: dict[int, _AttemptHistory] = {}
    for event in events:
        data = event.data
        match event.what:
            case Start.__name__:
                attempt = histories.get(data["attempt"])
                if attempt is None:
                    attempt = histories[data["attempt"]] = _AttemptHistory(data["attempt"], event.at)
                    starts[data["id"]] = attempt
                _place(attempt, data["placements"])
            case Confirmed.__name__ | Refused.__name__ if (found := starts.get(data["decision"])) is not None:
                if event.what == Confirmed.__name__:
                    found.confirmed_at = event.at
                else:
                    found.refused = event
            case Stop.__name__ if (found := histories.get(data["attempt"])) is not None:
                if data["cause"] in _CONSEQUENCES:
                    found.broken = True
                elif not data.get("tasks"):
                    found.stop = event
            case Ended.__name__ | Kept.__name__ if (found := histories.get(data.get("attempt", 0))) is not None:
                _end(found, event)
    return [_row(job, attempt) for _, attempt in sorted(histories.items(), reverse=True)]


def _place(attempt: _AttemptHistory, placements: Iterable[dict[str, Any]]) -> None:
    for placement in placements:
        task = placement["task"]
        attempt.nodes[placement["node"]] = None
        attempt.tasks.add(task)
        if task in attempt.ended:
            attempt.ended.discard(task)
            attempt.failed.pop(task, None)
            attempt.restarted.add(task)


def _end(attempt: _AttemptHistory, event: EventInfo) -> None:
    """A task, or all that still ran, has ended, or has failed and is kept for a look inside."""
    task = event.data.get("task", ALL_TASKS)
    tasks = attempt.tasks - attempt.ended if task == ALL_TASKS else {task}
    attempt.last = event
    code = event.data.get("exit_code")
    for each in tasks:
        if event.data["outcome"] not in _UNREMARKABLE and not attempt.broken:
            attempt.failed[each] = event
        if code is None:
            attempt.codes.pop(each, None)
        else:
            attempt.codes[each] = code
    if event.what == Ended.__name__:
        attempt.ended |= tasks


def _row(job: JobInfo, attempt: _AttemptHistory) -> AttemptRow:
    goes_on = attempt.number == job.attempt and not (JobState(job.state).ended or job.state == JobState.QUEUED)
    last = attempt.refused or attempt.last
    codes = sorted(attempt.codes.items(), key=lambda each: (each[1] == 0, each[0]))
    if len(set(attempt.codes.values())) == 1 and attempt.codes.keys() == attempt.tasks:
        codes = [(ALL_TASKS, codes[0][1])]
    return AttemptRow(
        number=attempt.number,
        started_at=None if attempt.refused else attempt.confirmed_at or attempt.decided_at,
        ended_at=None if goes_on or last is None else last.at,
        nodes=tuple(attempt.nodes),
        codes=tuple(codes[:CODES_SHOWN]),
        codes_left_out=max(len(codes) - CODES_SHOWN, 0),
        restarted=tuple(sorted(attempt.restarted)),
        end=None if goes_on else _why(attempt, job.state == JobState.SUCCEEDED and attempt.number == job.attempt),
    )


def _why(attempt: _AttemptHistory, succeeded: bool) -> AttemptEnd:
    if attempt.refused is not None:
        return AttemptEnd(text=attempt.refused.text)
    if attempt.stop is None:
        told = attempt.last if succeeded or not attempt.failed else [*attempt.failed.values()][-1]
        return AttemptEnd(text="" if told is None else told.text)
    stop, last = attempt.stop.data, {} if attempt.last is None else attempt.last.data
    said = beyond_exit_code(last.get("detail", ""), last.get("exit_code"))
    return AttemptEnd(stop["cause"], stop.get("for_job", ""), said)
