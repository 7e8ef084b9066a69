"""A job's life as a line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millpond.server.web.jobs.life_line import life_of
from millpond.specs.api.events import EventInfo
from millpond.specs.api.jobs.jobs import ArrayInfo, JobInfo
from millpond.specs.api.jobs.reasons import WaitInfo


def job(ended_at: float | None = None) -> JobInfo:
    return JobInfo(
        id="a", name="", queue="q", pool="p", user="u", kind="train", priority="normal", state="running", attempt=1,
        submitted_at=100.0, ended_at=ended_at,
    )  # fmt: skip


def happened(at: float, what: str, **data: Any) -> EventInfo:
    decided = what in ("Start", "Stop", "Suspend", "Resume")
    return EventInfo(seq=1, at=at, what=what, decided=decided, text="", data=data)


RUN = [happened(100, "JobSubmitted"), happened(160, "Start", id=7), happened(170, "Confirmed", decision=7)]


def seen(ended_at: float | None, events: list[EventInfo], now: float = 200.0) -> list[tuple[str, float, float]]:
    return [(span.look, span.since, span.until) for span in life_of(job(ended_at), events, [], now)]


def test_a_job_waits_starts_and_runs_until_now() -> None:
    assert seen(None, RUN) == [("waits", 100, 160), ("starts", 160, 170), ("runs", 170, 200)]
    assert seen(None, RUN[:1]) == [("waits", 100, 200)]


def test_an_array_runs_from_the_first_start_of_a_member_on() -> None:
    array = replace(job(), array=ArrayInfo(count=3, indices="0-2"))
    for started, looks in ((None, ["waits"]), (150.0, ["waits", "runs"])):
        spans = life_of(replace(array, first_started_at=started), RUN[:1], [], 200.0)
        assert [span.look for span in spans] == looks
        assert spans[-1].since == (started or 100.0)


def test_a_suspended_job_rests_until_it_goes_on() -> None:
    more = [happened(180, "Suspend", id=8), happened(182, "Confirmed", decision=8), happened(190, "Resume", id=9)]
    more.append(happened(191, "Confirmed", decision=9))
    assert seen(None, RUN + more)[2:] == [("runs", 170, 182), ("rests", 182, 191), ("runs", 191, 200)]


def test_between_two_attempts_it_waits_and_behind_its_end_there_is_nothing() -> None:
    again = [happened(180, "Ended"), happened(185, "Start", id=8), happened(186, "Confirmed", decision=8)]
    end = [happened(195, "Stop", id=9), happened(199, "Ended")]
    spans = seen(199, RUN + again + end, now=1_000.0)
    assert spans[2:] == [
        ("runs", 170, 180),
        ("waits", 180, 185),
        ("starts", 185, 186),
        ("runs", 186, 195),
        ("ends", 195, 199),
    ]


def test_a_wait_tells_its_reasons_once_each() -> None:
    waits = [
        WaitInfo(cause="no-room", summary="no room", since=100, until=130),
        WaitInfo(cause="behind", summary="behind others", since=130, until=150),
        WaitInfo(cause="no-room", summary="no room", since=150, until=160),
    ]
    assert life_of(job(), RUN, waits, 200.0)[0].text == "no room; behind others"


def test_the_line_is_full_and_even_the_shortest_span_is_seen() -> None:
    spans = life_of(job(), RUN, [], 1_000_000.0)
    assert sum(span.width for span in spans) == pytest.approx(100, abs=0.1)
    assert min(span.width for span in spans) > 0.3
    assert [span.begin for span in spans] == sorted(span.begin for span in spans)
