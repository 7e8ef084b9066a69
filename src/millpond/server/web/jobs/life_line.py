"""A job's life as a line: how long it waited, ran, and was suspended, with the reasons, up to now or to its end.

A job that comes after others, or whose image or data are far, is submitted to the scheduler once these are there. Until
then it is blocked: it could not start, whatever were free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from millpond.model.reasons import Cause
from millpond.specs.api.events import EventInfo
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.reasons import ReasonInfo

_NARROWEST: Final = 0.4
"""Percent of the line that even the shortest span takes, so that it is seen."""


@dataclass(frozen=True, slots=True)
class LifeSpan:
    """A span of a job's life.

    Attributes:
        look: ``blocked``, ``waits``, ``runs``, ``starts``, ``rests`` or ``ends``; also a word for the style sheet.
        begin, width: in percent of the line.
        text: the reason it waited, or is blocked now.
        after: while it was blocked, the jobs that it was submitted to come after.
    """

    look: str
    since: float
    until: float
    begin: float = 0.0
    width: float = 0.0
    text: str = ""
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LifeLine:
    """A job's whole life.

    Attributes:
        eligible_at: when it could first start; None: not yet, or it never could.
    """

    submitted_at: float
    eligible_at: float | None
    spans: list[LifeSpan]


_TURNS: Final = {
    "Start": "starts",
    "Confirmed Start": "runs",
    "Confirmed Suspend": "rests",
    "Confirmed Resume": "runs",
    "Stop": "ends",
}
"""What begins with which entry of a job's history."""
_HOLDS: Final = (Cause.DEPENDENCY, Cause.WAITING_FOR_DATA, Cause.WAITING_FOR_IMAGE)
_SHORTEST_HOLD_S: Final = 1.0
"""A job that is handed on sooner was not blocked."""


def life_of(
    job: JobInfo,
    after: Sequence[str],
    events: Sequence[EventInfo],
    reason: ReasonInfo,
    now: float,
) -> LifeLine:
    """A job's life up to its end.

    Args:
        after: the jobs that it was to come after.
        reason: why it waits, and why it waited as far as that was noted.
        now: where the line of a living job ends.
    """
    submitted_at = job.submitted_at
    end = job.ended_at if job.ended_at is not None else max(now, submitted_at)
    eligible_at = job.eligible_at
    if eligible_at is not None and eligible_at - submitted_at < _SHORTEST_HOLD_S:
        eligible_at = submitted_at
    turns = [] if eligible_at is None else [(eligible_at, "waits")]
    turns += _turns(events) if job.array is None else _turns_of_array(job)
    if eligible_at != submitted_at:
        turns.insert(0, (submitted_at, "blocked"))
    spans: list[LifeSpan] = []
    for (since, look), (until, _) in zip(turns, [*turns[1:], (end, "")], strict=True):
        until = min(until, end)
        if spans and spans[-1].look == look:
            spans[-1] = LifeSpan(look, spans[-1].since, until)
        elif until > since or not spans:
            spans.append(LifeSpan(look, since, until))
    told = [_told(span, reason, tuple(after)) for span in spans]
    return LifeLine(submitted_at, eligible_at, _placed(told, submitted_at, end))


def _turns(events: Sequence[EventInfo]) -> list[tuple[float, str]]:
    """A job runs while one of its tasks does: single replicas of a service come and go meanwhile."""
    found: list[tuple[float, str]] = []
    decided: dict[int, str] = {}
    attempt, living = None, set[int]()
    for event in events:
        kind, data = event.what, event.data
        if event.decided:
            decided[data.get("id", 0)] = kind
        elif kind == "Confirmed":
            kind = f"Confirmed {decided.get(data.get('decision', 0), '')}"
        elif kind == "Ended" and found and found[-1][1] in ("runs", "ends", "rests", "starts"):
            living -= {data["task"]} if "task" in data else living
            if not living:
                found.append((event.at, "waits"))  # it is tried again, or this is the end of the line
            continue
        if kind == "Start":
            is_more = bool(living) and data.get("attempt") == attempt
            attempt, living = data.get("attempt"), (living if is_more else set()) | _tasks_placed(data)
            if is_more:
                continue
        if kind == "Stop" and data.get("tasks") and living - set(data["tasks"]):
            continue
        if kind in _TURNS:
            found.append((event.at, _TURNS[kind]))
    return found


def _tasks_placed(start: Mapping[str, Any]) -> set[int]:
    return {placement["task"] for placement in start.get("placements", ())}


def _turns_of_array(job: JobInfo) -> list[tuple[float, str]]:
    """An array has no run of its own: it runs from the first start of a member on."""
    return [] if job.first_started_at is None else [(job.first_started_at, "runs")]


def _told(span: LifeSpan, reason: ReasonInfo, after: tuple[str, ...]) -> LifeSpan:
    if span.look == "blocked":
        return replace(span, text=reason.summary if reason.cause in _HOLDS else "", after=after)
    if span.look != "waits":
        return span
    reasons = [wait.summary for wait in reason.waits if wait.since < span.until and wait.until > span.since]
    return replace(span, text="; ".join(dict.fromkeys(reasons)))


def _placed(spans: list[LifeSpan], begin: float, end: float) -> list[LifeSpan]:
    """Spans with their places on the line; short ones are widened, so that all of them together may be too."""
    whole = max(end - begin, 1e-9)
    widths = [max(100 * (span.until - span.since) / whole, _NARROWEST) for span in spans]
    scale = 100 / sum(widths)
    placed, at = [], 0.0
    for span, width in zip(spans, widths, strict=True):
        placed.append(replace(span, begin=round(at, 2), width=round(width * scale, 2)))
        at += width * scale
    return placed
