"""What the server says of the length of a job's run: by runs of such jobs alone, and nothing without any."""

from __future__ import annotations

from dataclasses import replace

import pytest
from server_world import Clock

from millpond.forecasting.durations import Forecast
from millpond.model.workloads import Job
from millpond.server.runtime.active_jobs.job_cache import view_before_start
from millpond.server.runtime.forecasts import Forecaster
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.job_spec import check_job


def job(name: str = "", kind: str = "train", user: str = "ada") -> Job:
    return check_job(
        {"command": "work", "name": name, "kind": kind} if name else {"command": "work", "kind": kind}
    ).to_job("j", user)


def ended(of: Job, ran_s: float) -> JobInfo:
    now = Clock().now
    ended = {"state": "succeeded", "attempt": 1, "started_at": now, "ended_at": now + ran_s}
    return replace(view_before_start(of, now), **ended)


def told(of: Job, *past: JobInfo) -> Forecast | None:
    forecaster = Forecaster(lambda most: past[::-1])
    assert forecaster.predict(of) == forecaster.predict_at_once(of)
    return forecaster.predict(of)


def runs(of: Job, ran_s: float, count: int = 50) -> list[JobInfo]:
    return [ended(of, ran_s)] * count


def test_jobs_without_a_name_tell_nothing_of_each_other() -> None:
    assert told(job(), *runs(job(), 1.0)) is None


@pytest.mark.parametrize("other", [job("probe"), job("train-9", user="bob"), job("train-9", "dev"), job()])
def test_other_jobs_tell_nothing_of_one_that_never_ran(other: Job) -> None:
    assert told(job("train-1"), *runs(other, 1.0)) is None


def test_a_notebook_is_not_expected_to_end_like_a_job_of_its_name() -> None:
    assert told(job("lab", "dev"), *runs(job("lab"), 1.0)) is None


def test_nothing_is_said_of_services() -> None:
    assert told(job("api", "service"), *runs(job("api", "service"), 10.0)) is None


def test_runs_of_such_jobs_tell_the_length_and_other_jobs_do_not_shorten_it() -> None:
    for count in (1, 2, 50):
        guess = told(job("train-1"), *runs(job(), 1.0), *runs(job("train-2"), 200.0, count))
        assert guess is not None
        assert guess.expected_s == pytest.approx(200.0)
        assert guess.cautious_s == pytest.approx(200.0 * (1 + 1 / count)), "equal lengths would claim to be certain"
