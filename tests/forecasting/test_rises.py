"""Spare nodes by the rises of late: what is forecast, when nothing is, and that nothing but the past is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.forecasting.rises import SpareForecast, forecast_spare, rises_within
from millpond.forecasting.series import LoadSeries, NoForecast

MINUTES_A_DAY = 1_440
BOOT_S = 300.0


def busy_days(days: int, seed: int = 1) -> LoadSeries:
    """Nodes in demand, each minute: gangs of up to eight nodes come, each for half an hour."""
    draw = np.random.default_rng(seed)
    values = np.full(days * MINUTES_A_DAY, 20.0)
    for begin in draw.integers(0, len(values), days * 24):
        values[begin : begin + 30] += draw.integers(1, 9)
    return LoadSeries(0.0, 60.0, values)


def forecast(series: LoadSeries, fixed: int = 1) -> SpareForecast:
    found = forecast_spare(series, BOOT_S, 0.98, fixed)
    assert isinstance(found, SpareForecast)
    return found


def test_the_spare_meets_the_part_of_the_rises_that_was_asked_for_and_does_better_than_the_fixed_number() -> None:
    found = forecast(busy_days(14))
    assert found.nodes == 7  # one minute in eight comes before a gang, of which one in eight has eight nodes
    assert found.coverage >= 0.975
    assert found.skill > 0.5
    assert found.tested_days == 7


@settings(max_examples=20)
@given(st.integers(3 * MINUTES_A_DAY + 10, 9 * MINUTES_A_DAY), st.integers(0, 2**32 - 1))
def test_what_comes_later_changes_nothing(end: int, seed: int) -> None:
    whole = busy_days(10).values
    shuffled = np.concatenate([whole[:end], np.random.default_rng(seed).permutation(whole[end:])])
    for values in (whole, shuffled):
        assert forecast(LoadSeries(0.0, 60.0, values[:end])) == forecast(LoadSeries(0.0, 60.0, whole[:end].copy()))


@settings(max_examples=20)
@given(st.integers(1, MINUTES_A_DAY))
def test_the_test_of_a_day_knows_nothing_of_that_day(cut: int) -> None:
    series = busy_days(10)
    calm = LoadSeries(0.0, 60.0, series.values.copy())
    calm.values[-cut:] = 20.0
    before, after = rises_within(series, BOOT_S), rises_within(calm, BOOT_S)
    known = len(before) - cut - 5
    np.testing.assert_array_equal(before[:known], after[:known])
    assert np.isnan(before[-5:]).all()  # not over yet


def test_rises_that_touch_a_gap_are_not_known() -> None:
    series = LoadSeries(600.0, 60.0, np.array([1.0, 2.0, np.nan, np.nan, 5.0, 6.0, np.nan]))
    np.testing.assert_array_equal(np.isnan(rises_within(series, 60.0)), [False, True, True, True, False, True, True])


@pytest.mark.parametrize(
    ("series", "within_s", "fixed", "reason"),
    [
        (busy_days(2), BOOT_S, 1, "the history is too short: 2.0 of 3 days"),
        (busy_days(14), 86_400.0, 1, "a node takes a day or more to boot"),
        (busy_days(14), BOOT_S, 40, "no better than 40"),
        (LoadSeries(0.0, 60.0, np.full(14 * MINUTES_A_DAY, 20.0)), BOOT_S, 0, "no better than 0"),
        (LoadSeries(0.0, 60.0, np.array([])), BOOT_S, 0, "the history is too short: 0.0 of 3 days"),
    ],
)
def test_nothing_is_forecast_where_it_would_be_no_use(
    series: LoadSeries, within_s: float, fixed: int, reason: str
) -> None:
    found = forecast_spare(series, within_s, 0.98, fixed)
    assert isinstance(found, NoForecast)
    assert reason in found.reason


def test_days_that_are_gaps_are_not_tested() -> None:
    values = busy_days(14).values.copy()
    values[-7 * MINUTES_A_DAY :] = np.nan
    assert forecast_spare(LoadSeries(0.0, 60.0, values), BOOT_S, 0.98, 1) == NoForecast(
        "the history of the last days has too many gaps to test a forecast"
    )
