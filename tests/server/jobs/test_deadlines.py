"""Deadlines at the server: what is refused, what is said of the rest, and what stands in the history."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from server_world import Clock, Server, World

from millpond.forecasting.durations import Forecast
from millpond.model.errors import InvalidInputError
from millpond.model.windows import Window
from millpond.model.workloads import Job
from millpond.server.jobs.monitors.deadlines import DeadlineWatch, check_deadline, foreseen
from millpond.server.views.events import story
from millpond.specs.job.job_spec import check_job

NOW = 1_000.0


def due(left_s: float) -> Job:
    return replace(check_job({"command": "work"}).job, deadline_s=NOW + left_s)


def test_a_job_that_is_expected_to_run_longer_than_is_left_is_refused_with_both_numbers() -> None:
    with pytest.raises(
        InvalidInputError, match=r"it should run for 2.0 h, as its like did, and its deadline leaves 1.0 h"
    ):
        check_deadline(due(3_600.0), Forecast(7_200.0, 9_000.0), NOW)


def test_a_forecast_that_says_little_refuses_nothing() -> None:
    check_deadline(due(3_600.0), Forecast(7_200.0, 90_000.0), NOW)
    check_deadline(due(3_600.0), None, NOW)
    check_deadline(due(3_600.0), Forecast(3_000.0, 9_000.0), NOW)


def test_a_window_that_opens_behind_the_deadline_is_named() -> None:
    with pytest.raises(InvalidInputError, match="its window opens"):
        check_deadline(replace(due(60.0), windows=(Window(600, 660),)), None, NOW)


def test_a_job_shows_its_deadline_and_a_missed_one_stands_in_its_history(tmp_path: Path) -> None:
    clock = Clock()
    server = Server(tmp_path, World(), clock)
    watch = DeadlineWatch(server.loop, lambda: clock.now)
    server.submit("job", deadline="1970-01-01 00:20:00 UTC", time_limit="60s")
    server.turn(2)
    info = foreseen(server.core, server.loop.job_cache.newest_first()[0])
    assert info.deadline is not None
    assert (info.deadline.at, info.deadline.verdict) == (1_200.0, "accept")
    server.submit("late", deadline="1970-01-01 00:18:00 UTC", time_limit="600s")
    server.turn(2)
    late = foreseen(server.core, server.loop.job_cache.newest_first()[0])
    assert late.deadline is not None
    assert late.deadline.verdict == "at-risk"
    clock.now = 1_090.0
    watch.look()
    server.turn(2)
    told = story(*server.store.histories.of_job("late"))
    (note,) = [line.text for line in told if "deadline" in line.text]
    assert note.endswith("has passed, and it has not ended")
