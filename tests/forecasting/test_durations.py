"""Forecasts learn from what ended, lean on wider history where the narrow one is short, and are measured."""

from __future__ import annotations

import math
import random

import pytest

from millpond.forecasting.durations import DurationPredictor, Forecast
from millpond.model.resources import TaskRequest
from millpond.model.workloads import Job, Role
from millpond.simulation.queueing import accuracy


def job(user: str = "ada", name: str = "train", gpus: int = 1) -> Job:
    return Job("job", (Role.rigid(TaskRequest(devices=gpus), 1),), user=user, name=name)


def test_nothing_is_forecast_before_anything_has_ended() -> None:
    assert DurationPredictor().predict(job()) is None


def test_a_repeated_job_is_forecast_from_its_own_history_rather_than_from_others() -> None:
    predictor = DurationPredictor()
    for _ in range(40):
        predictor.observe(job("ada", "train"), 1000)
        predictor.observe(job("bob", "probe"), 10)
    mine, theirs = predictor.predict(job("ada", "train")), predictor.predict(job("bob", "probe"))
    assert mine is not None
    assert theirs is not None
    assert mine.expected_s == pytest.approx(1000, rel=0.5)
    assert theirs.expected_s == pytest.approx(10, rel=0.5)


def test_a_first_job_of_a_known_user_is_forecast_from_that_users_others() -> None:
    predictor = DurationPredictor()
    for _ in range(30):
        predictor.observe(job("ada", "train"), 1000)
        predictor.observe(job("bob", "probe"), 10)
    fresh = predictor.predict(job("ada", "something new"))
    assert fresh is not None
    assert fresh.expected_s > 400


def test_numbers_in_names_do_not_make_another_job() -> None:
    predictor = DurationPredictor()
    for run in range(30):
        predictor.observe(job("ada", f"train-{run}"), 1000)
        predictor.observe(job("ada", "probe"), 10)
    forecast = predictor.predict(job("ada", "train-99"))
    assert forecast is not None
    assert forecast.expected_s == pytest.approx(1000, rel=0.5)


def test_old_runs_are_forgotten() -> None:
    predictor = DurationPredictor(window=10)
    for duration in [10.0] * 50 + [1000.0] * 10:
        predictor.observe(job(), duration)
    forecast = predictor.predict(job())
    assert forecast is not None
    assert forecast.expected_s == pytest.approx(1000)


def test_the_cautious_length_covers_nine_in_ten() -> None:
    draws = random.Random(3)
    predictor = DurationPredictor()
    forecasts, actual = [], []
    for _ in range(1500):
        duration = math.exp(draws.gauss(6, 1.2))
        forecast = predictor.predict(job())
        if forecast is not None:
            forecasts.append(forecast)
            actual.append(duration)
        predictor.observe(job(), duration)
    result = accuracy(forecasts, actual)
    assert result is not None
    assert result.coverage == pytest.approx(0.9, abs=0.04)


def test_accuracy_of_forecasts_computed_by_hand() -> None:
    forecasts = [Forecast(10, 20), Forecast(40, 50), Forecast(80, 100)]
    result = accuracy(forecasts, [20, 40, 400])
    assert result is not None
    assert result.count == 3
    assert result.mean_log2_error == pytest.approx((1 + 0 + math.log2(5)) / 3)
    assert result.rank_correlation == pytest.approx(1)
    assert result.coverage == pytest.approx(2 / 3)


def test_equal_forecasts_share_their_rank() -> None:
    result = accuracy([Forecast(10, 10), Forecast(10, 10), Forecast(30, 30)], [1, 2, 3])
    assert result is not None
    assert result.rank_correlation == pytest.approx(math.sqrt(0.75))


def test_there_is_no_accuracy_without_forecasts() -> None:
    assert accuracy([], []) is None
