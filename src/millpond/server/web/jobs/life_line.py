"""A job's life as a line: how long it waited, ran, and was suspended, with the reasons, up to now or to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millpond.specs.api.events import EventInfo
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.reasons import WaitInfo

_NARROWEST: Final = 0.4
"""Percent of the line that even the shortest span takes, so that it is seen."""


@dataclass(frozen=True, slots=True)
class LifeSpan:
    """A span of a job's life.

    Attributes:
        look: ``waits``, ``runs``, ``starts``, ``rests`` or ``ends``; also a word for the style sheet.
        begin, width: in percent of the line.
        text: the reason it waited, or how its run came to be.
    """

    look: str
    since: float
    until: float
    begin: float = 0.0
    width: float = 0.0
    text: str = ""


_TURNS: Final = {
    "JobSubmitted": "waits",
    "Start": "starts",
    "Confirmed Start": "runs",
    "Confirmed Suspend": "rests",
    "Confirmed Resume": "runs",
    "Stop": "ends",
}
"""What begins with which entry of a job's history."""


def life_of(job: JobInfo, events: list[EventInfo], waits: list[WaitInfo], now: float) -> list[LifeSpan]:
    """The spans of a job's life in their order.

    Args:
        waits: why it waited, as far as that was noted.
        now: where the line of a living job ends.
    """
    end = job.ended_at if job.ended_at is not None else max(now, job.submitted_at)
    turns = [(job.submitted_at, "waits"), *(_turns(events) if job.array is None else _turns_of_array(job))]
    spans: list[LifeSpan] = []
    for (since, look), (until, _) in zip(turns, [*turns[1:], (end, "")], strict=True):
        until = min(until, end)
        if spans and spans[-1].look == look:
            spans[-1] = LifeSpan(look, spans[-1].since, until)
        elif until > since or not spans:
            spans.append(LifeSpan(look, since, until))
    return _placed([_told(span, waits) for span in spans], job.submitted_at, end)


def _turns(events: list[EventInfo]) -> list[tuple[float, str]]:
    found: list[tuple[float, str]] = []
    decided: dict[int, str] = {}
    for event in events:
        kind = event.what
        if event.decided:
            decided[event.data.get("id", 0)] = kind
        elif kind == "Confirmed":
            kind = f"Confirmed {decided.get(event.data.get('decision', 0), '')}"
        elif kind == "Ended" and found and found[-1][1] in ("runs", "ends", "rests", "starts"):
            found.append((event.at, "waits"))  # it is tried again, or this is the end of the line
            continue
        if kind in _TURNS:
            found.append((event.at, _TURNS[kind]))
    return found


def _turns_of_array(job: JobInfo) -> list[tuple[float, str]]:
    """An array has no run of its own: it runs from the first start of a member on."""
    return [] if job.first_started_at is None else [(job.first_started_at, "runs")]


def _told(span: LifeSpan, waits: list[WaitInfo]) -> LifeSpan:
    if span.look != "waits":
        return span
    reasons = [wait.summary for wait in waits if wait.since < span.until and wait.until > span.since]
    return LifeSpan(span.look, span.since, span.until, text="; ".join(dict.fromkeys(reasons)))


def _placed(spans: list[LifeSpan], begin: float, end: float) -> list[LifeSpan]:
    """Spans with their places on the line; short ones are widened, so that all of them together may be too."""
    whole = max(end - begin, 1e-9)
    widths = [max(100 * (span.until - span.since) / whole, _NARROWEST) for span in spans]
    scale = 100 / sum(widths)
    placed, at = [], 0.0
    for span, width in zip(spans, widths, strict=True):
        placed.append(LifeSpan(span.look, span.since, span.until, round(at, 2), round(width * scale, 2), span.text))
        at += width * scale
    return placed
