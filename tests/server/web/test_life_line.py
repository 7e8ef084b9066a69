"""A job's life as a line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from job_infos import job_info
from millpond.server.web.jobs.life_line import LifeLine, life_of
from millpond.specs.api.events import EventInfo
from millpond.specs.api.jobs.jobs import ArrayInfo, JobInfo
from millpond.specs.api.jobs.reasons import ReasonInfo, WaitInfo


def job(ended_at: float | None = None) -> JobInfo:
    return job_info(id="a", submitted_at=100.0, ended_at=ended_at)


def happened(at: float, what: str, **data: Any) -> EventInfo:
    decided = what in ("Start", "Stop", "Suspend", "Resume")
    return EventInfo(seq=1, at=at, what=what, decided=decided, text="", data=data)


RUN = [happened(100, "JobSubmitted"), happened(160, "Start", id=7), happened(170, "Confirmed", decision=7)]


def life(
    one: JobInfo, events: list[EventInfo], now: float = 200.0, *, why: ReasonInfo | None = None,
    after: tuple[str, ...] = (),
) -> LifeLine:  # fmt: skip
    reason = ReasonInfo(job="a", state=one.state, cause="fits", summary="it runs")
    return life_of(one, after, events, why or reason, now)


def seen(ended_at: float | None, events: list[EventInfo], now: float = 200.0) -> list[tuple[str, float, float]]:
    return [
        (span.look, span.since, span.until)
        for span in life(replace(job(ended_at), eligible_at=100.0), events, now).spans
    ]


def test_a_job_waits_starts_and_runs_until_now() -> None:
    assert seen(None, RUN) == [("waits", 100, 160), ("starts", 160, 170), ("runs", 170, 200)]
    assert seen(None, RUN[:1]) == [("waits", 100, 200)]


def test_an_array_runs_from_the_first_start_of_a_member_on() -> None:
    array = replace(job(), array=ArrayInfo(count=3, indices="0-2"), eligible_at=100.0)
    for started, looks in ((None, ["waits"]), (150.0, ["waits", "runs"])):
        spans = life(replace(array, first_started_at=started), RUN[:1]).spans
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


def test_a_service_runs_while_one_of_its_replicas_does() -> None:
    def placed(*tasks: int) -> list[dict[str, int]]:
        return [{"task": task} for task in tasks]

    started = [RUN[0], happened(160, "Start", id=7, attempt=1, placements=placed(0, 1)), RUN[2]]
    fewer = [happened(180, "Stop", id=8, tasks=[1]), happened(181, "Ended", task=1)]
    more = [happened(185, "Start", id=9, attempt=1, placements=placed(1)), happened(186, "Confirmed", decision=9)]
    assert seen(None, started + fewer + more) == [("waits", 100, 160), ("starts", 160, 170), ("runs", 170, 200)]
    over = [happened(190, "Stop", id=10), happened(191, "Ended", task=0), happened(193, "Ended", task=1)]
    assert seen(None, started + fewer + more + over)[2:] == [
        ("runs", 170, 190),
        ("ends", 190, 193),
        ("waits", 193, 200),
    ]


def test_a_gang_waits_once_its_last_task_has_ended_and_begins_anew_with_all_of_them() -> None:
    both = [{"task": 0}, {"task": 1}]
    started = [RUN[0], happened(160, "Start", id=7, attempt=1, placements=both), RUN[2]]
    failed = [happened(180, "Ended", task=1), happened(180, "Stop", id=8, tasks=[0]), happened(183, "Ended", task=0)]
    again = [happened(190, "Start", id=9, attempt=2, placements=both), happened(191, "Confirmed", decision=9)]
    spans = seen(None, started + failed + again)
    assert spans[2:] == [
        ("runs", 170, 180), ("ends", 180, 183), ("waits", 183, 190), ("starts", 190, 191), ("runs", 191, 200),
    ]  # fmt: skip


def test_a_wait_tells_its_reasons_once_each() -> None:
    waits = [
        WaitInfo(cause="no-room", summary="no room", since=100, until=130),
        WaitInfo(cause="behind", summary="behind others", since=130, until=150),
        WaitInfo(cause="no-room", summary="no room", since=150, until=160),
    ]
    why = ReasonInfo(job="a", state="running", cause="fits", summary="it runs", waits=waits)
    assert life(replace(job(), eligible_at=100.0), RUN, why=why).spans[0].text == "no room; behind others"


def test_the_line_is_full_and_even_the_shortest_span_is_seen() -> None:
    spans = life(replace(job(), eligible_at=100.0), RUN, 1_000_000.0).spans
    assert sum(span.width for span in spans) == pytest.approx(100, abs=0.1)
    assert min(span.width for span in spans) > 0.3
    assert [span.begin for span in spans] == sorted(span.begin for span in spans)


BEHIND = ReasonInfo(job="a", state="queued", cause="dependency", summary="it waits for job b to succeed")


def test_a_job_that_comes_after_others_could_not_start_before_it_was_handed_on() -> None:
    line = life(replace(job(), eligible_at=140.0), RUN, after=("b",))
    assert (line.submitted_at, line.eligible_at) == (100.0, 140.0)
    assert [(span.look, span.since, span.until) for span in line.spans[:2]] == [
        ("blocked", 100, 140),
        ("waits", 140, 160),
    ]
    assert [span.after for span in line.spans[:2]] == [("b",), ()]


def test_a_job_that_still_waits_for_others_says_for_which_and_is_not_eligible() -> None:
    for one in (job(), replace(job(), array=ArrayInfo(count=3, indices="0-2"))):
        line = life(one, [], why=BEHIND, after=("b",))
        assert line.eligible_at is None
        assert [(span.look, span.text, span.after) for span in line.spans] == [("blocked", BEHIND.summary, ("b",))]


def test_an_array_that_comes_after_others_is_eligible_when_these_have_ended() -> None:
    array = replace(job(), array=ArrayInfo(count=3, indices="0-2"), eligible_at=150.0, first_started_at=170.0)
    line = life(array, [], after=("b",))
    assert line.eligible_at == 150.0
    assert [span.look for span in line.spans] == ["blocked", "waits", "runs"]
