"""Forecasts of loads: who speaks, what the bound is worth, what is refused, and that nothing but the past is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.forecasting.boosted_trees import boosted_trees
from millpond.forecasting.forecasters import DAY, FORECASTERS, NAIVE, RIDGE, WEEK, LoadForecaster, Repeated
from millpond.forecasting.outlook import MEDIAN, LoadForecast, forecast_load, roll
from millpond.forecasting.scores import coverage
from millpond.forecasting.series import LoadSeries, NoForecast

HOUR_S = 3_600.0


def by_the_day(days: int, noise: float = 1.0) -> LoadSeries:
    """A load by the hour with a day's shape."""
    hours = np.arange(days * 24)
    shape = 20.0 - 15.0 * np.cos(hours % 24 / 24 * 2 * np.pi)
    return LoadSeries(0.0, HOUR_S, np.maximum(0.0, shape + np.random.default_rng(3).normal(0.0, noise, len(hours))))


def walk(days: int) -> LoadSeries:
    """A load without any shape."""
    return LoadSeries(0.0, HOUR_S, 500.0 + np.cumsum(np.random.default_rng(5).normal(0.0, 1.0, days * 24)))


def served(load: LoadSeries, ahead_s: float = 6 * HOUR_S) -> LoadForecast:
    found = forecast_load(load, ahead_s, 0.9, FORECASTERS)
    assert isinstance(found, LoadForecast)
    return found


def test_a_load_with_a_shape_is_forecast_by_it_and_the_bound_holds_as_often_as_it_should() -> None:
    found = served(by_the_day(28))
    assert found.by != NAIVE.name
    assert found.skill > 0.8
    assert 0.85 <= found.coverage <= 0.95
    assert found.likely < found.upper


def test_a_load_without_a_shape_stays_as_it_is() -> None:
    load = walk(28)
    found = forecast_load(load, 6 * HOUR_S, 0.9, (NAIVE, DAY, WEEK))
    assert isinstance(found, LoadForecast)
    assert (found.by, found.likely, found.skill) == (NAIVE.name, load.values[-1], 0.0)


def test_a_bursty_load_is_learnt_better_by_its_roots() -> None:
    """The root of a square is the load itself, so that is how it would be learnt without roots."""
    hours, begin = np.arange(28 * 24), 21 * 24
    shape = 2.0 - 1.8 * np.cos(hours % 24 / 24 * 2 * np.pi)
    values = shape * np.random.default_rng(0).gamma(0.5, 2.0, len(hours))
    by_roots = RIDGE.forecasts(LoadSeries(0.0, HOUR_S, values), 6, begin)[:-6]
    plain = np.sqrt(RIDGE.forecasts(LoadSeries(0.0, HOUR_S, values**2), 6, begin)[:-6])
    error, plain_error = (np.abs(values - each)[begin:].sum() for each in (by_roots, plain))
    assert error < 0.95 * plain_error


def assert_knows_the_past_alone(forecaster: LoadForecaster, end: int, seed: int) -> None:
    whole = by_the_day(16).values
    shuffled = np.concatenate([whole[:end], np.random.default_rng(seed).permutation(whole[end:])])
    begin, steps = end - 24, 6
    truncated = forecaster.forecasts(LoadSeries(0.0, HOUR_S, whole[:end].copy()), steps, begin)
    assert not np.isnan(truncated[begin:]).any()
    said = forecaster.forecasts(LoadSeries(0.0, HOUR_S, shuffled), steps, begin)
    np.testing.assert_array_equal(said[begin : end + steps], truncated[begin:])


@pytest.mark.parametrize("forecaster", FORECASTERS, ids=lambda each: each.name)
@settings(max_examples=20)
@given(end=st.integers(14 * 24 + 1, 16 * 24), seed=st.integers(0, 2**32 - 1))
def test_what_comes_later_changes_no_bit_of_a_forecast(forecaster: LoadForecaster, end: int, seed: int) -> None:
    assert_knows_the_past_alone(forecaster, end, seed)


@pytest.mark.long
@pytest.mark.parametrize("forecaster", boosted_trees(), ids=lambda each: each.name)
def test_what_comes_later_changes_no_bit_of_what_trees_say(forecaster: LoadForecaster) -> None:
    assert_knows_the_past_alone(forecaster, 15 * 24 + 7, 1)


@pytest.mark.long
@settings(max_examples=10)
@given(end=st.integers(18 * 24, 20 * 24))
def test_what_comes_later_changes_neither_who_speaks_nor_the_bound(end: int) -> None:
    load = by_the_day(20, noise=6.0)
    whole = roll(load, 6, 0.9, (FORECASTERS, 17 * 24))
    truncated = roll(LoadSeries(0.0, HOUR_S, load.values[:end].copy()), 6, 0.9, (FORECASTERS, 17 * 24))
    np.testing.assert_array_equal(whole.said[17 * 24 : end + 6], truncated.said[17 * 24 :])
    np.testing.assert_array_equal(whole.upper[17 * 24 : end + 6], truncated.upper[17 * 24 :])


def test_the_median_joins_the_forecasters() -> None:
    load = by_the_day(28, noise=8.0)
    two_days = Repeated("as two days before", 2 * 86_400.0)
    found = roll(load, 24, 0.9, ((NAIVE, two_days, WEEK), 21 * 24))
    came = load.values[21 * 24 :]
    assert MEDIAN in found.by
    naive = NAIVE.forecasts(load, 24, 0)[21 * 24 : -24]
    assert np.abs(came - found.said[21 * 24 : len(load.values)]).sum() < np.abs(came - naive).sum()
    assert coverage(found.upper[21 * 24 : len(load.values)], came) > 0.8


def test_a_gap_in_the_past_is_stepped_over_and_one_at_the_end_is_named() -> None:
    load = by_the_day(28)
    load.values[10 * 24 : 11 * 24] = np.nan
    assert served(load).skill > 0.8
    load.values[-30:] = np.nan
    assert forecast_load(load, HOUR_S, 0.9, (NAIVE,)) == NoForecast("the latest values are a gap, or too few are known")


@pytest.mark.parametrize(
    ("load", "ahead_s", "reason"),
    [
        (by_the_day(28), 8 * 86_400.0, "8.0 days ahead is too far: a week is the farthest"),
        (by_the_day(5), HOUR_S, "the history is too short: 5.0 of 8 days"),
    ],
)
def test_nothing_is_forecast_beyond_a_week_or_from_too_little(load: LoadSeries, ahead_s: float, reason: str) -> None:
    assert forecast_load(load, ahead_s, 0.9, FORECASTERS) == NoForecast(reason)


def test_a_forecast_that_was_worse_than_the_present_value_is_not_served() -> None:
    """Each day's shape is the last one's until the last week, which stands still."""
    load = by_the_day(28, noise=0.2)
    load.values[-4 * 24 :] = load.values[-4 * 24]
    found = forecast_load(load, HOUR_S, 0.9, FORECASTERS)
    assert isinstance(found, NoForecast)
    assert found.reason.startswith("it would be worse than the present value (skill -")


def test_of_a_load_that_has_stood_still_all_the_tested_days_nothing_else_than_its_value_is_served() -> None:
    load = by_the_day(28, noise=0.2)
    load.values[-7 * 24 - 1 :] = load.values[-1]
    found = forecast_load(load, HOUR_S, 0.9, FORECASTERS)
    assert isinstance(found, NoForecast) or (found.likely, found.upper) == (load.values[-1], load.values[-1])


@pytest.mark.parametrize("steps_since", range(1, 6))
def test_a_bound_of_which_nothing_is_tested_yet_is_not_served(steps_since: int) -> None:
    day, gap = np.repeat((1.0, 3.0), 72), np.full(13 * 144, np.nan)
    load = LoadSeries(0.0, 600.0, np.concatenate([np.tile(day, 6), gap, day, day, day[:steps_since]]))
    assert isinstance(forecast_load(load, 1_800.0, 0.7, FORECASTERS), NoForecast)
