"""Flexible jobs on a server: what is said of their hours, and how they get to start now."""

from __future__ import annotations

from typing import Any

import pytest
from api_world import JOBS, Api, error_of

from millpond.model.energy import RateMeasure
from millpond.model.events import EnergyRatePredicted
from millpond.node.task.records import TaskId
from millpond.server.wording import local_time

HOUR_S = 3_600.0


def predicted(api: Api, *values: float, missing: str = "") -> float:
    """The core is told the hours to come; when the present one begins."""
    now = api.clock()
    begin = now // HOUR_S * HOUR_S
    api.loop.notify([EnergyRatePredicted(now, RateMeasure.PRICE, begin, values, missing)])
    api.settled()
    return begin


def history(api: Api, job: str) -> list[str]:
    entries: list[dict[str, Any]] = api.client.get(f"{JOBS}/{job}/events").json()["events"]
    return [entry["text"] for entry in entries]


def test_why_says_when_a_flexible_job_lines_up_and_resuming_it_starts_it_now(api: Api) -> None:
    begin = predicted(api, 0.4, 0.4, 0.1, 0.4)
    job = api.submit(flexible="3h", time_limit="30m")
    assert api.job(job.id).state == "queued"
    reason = api.client.get(f"{JOBS}/{job.id}/why").json()
    by = local_time(job.submitted_at + 2.25 * HOUR_S)
    assert reason["summary"] == (
        f"it waits for cheaper hours until {local_time(begin + 2 * HOUR_S)}; it lines up by {by} at the latest"
    )
    assert reason["cause"] == "cheaper-hours"
    assert reason["start"]["earliest_at"] == begin + 2 * HOUR_S
    assert reason["remedy"]["change"] == f"let it start now: `pond resume {job.id}`"
    answer = api.client.post(f"{JOBS}/{job.id}/resume")
    assert answer.status_code == 202, answer.text
    assert api.job(job.id).state == "running"


def test_the_history_says_why_a_flexible_job_is_not_held(api: Api) -> None:
    first = api.submit(flexible="3h")
    predicted(api, missing="the latest price of its series is of 2026-01-01 00:00 UTC")
    second = api.submit(flexible="3h")
    assert {api.job(each.id).state for each in (first, second)} == {"running"}
    assert any("not configured" in text for text in history(api, first.id))
    assert any("2026-01-01" in text for text in history(api, second.id))


def test_so_says_the_history_of_an_array_and_of_a_job_that_waited_for_others(api: Api) -> None:
    array = api.submit(flexible="3h", array="1-2")
    later = api.submit(flexible="3h", after=array.id)
    assert any("not configured" in text for text in history(api, array.id))
    assert not any("not configured" in text for text in history(api, later.id))
    for member in (1, 2):
        api.engine.finish(TaskId(f"{array.id}.{member}", 1, 0))
    api.settled()
    assert api.job(later.id).state == "running"
    assert any("not configured" in text for text in history(api, later.id))


def test_resuming_an_array_starts_its_flexible_members_now(api: Api) -> None:
    predicted(api, 0.4, 0.4, 0.1, 0.4)
    array = api.submit(flexible="3h", time_limit="30m", array="1-2")
    assert api.job(f"{array.id}[2]").state == "queued"
    answer = api.client.post(f"{JOBS}/{array.id}/resume")
    assert answer.status_code == 202, answer.text
    assert {api.job(f"{array.id}[{member}]").state for member in (1, 2)} == {"running"}


@pytest.mark.parametrize("fields", [{"kind": "service", "flexible": "1h"}, {"reservation": "r", "flexible": "1h"}])
def test_what_has_agreed_hours_or_is_wanted_at_once_is_not_flexible(api: Api, fields: dict[str, str]) -> None:
    answer = api.client.post(JOBS, json={"command": "work", **fields})
    assert answer.status_code == 422
    assert "leave" in str(error_of(answer))
