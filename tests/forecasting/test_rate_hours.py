"""What a kWh should cost or emit in the hours to come."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from millpond.forecasting.rate_hours import AHEAD_HOURS, predict_rate
from millpond.model.energy import Rate, RateHours, RateMeasure, RateSeries
from millpond.model.units import DAY_S, HOUR_S
from millpond.model.windows import Window

NOW = 20 * DAY_S
PRICE, CARBON = RateMeasure.PRICE, RateMeasure.CARBON


def daily(hour: float) -> float:
    return 200.0 + 100.0 * math.sin(hour * math.tau / 24.0)


def series(until: float, since: float = 0.0, **changed: float | None) -> RateSeries:
    """A series by the hour that is the same each day, but for hours by number (``h12=None``)."""
    hours = range(int(since // HOUR_S), int(until // HOUR_S))
    values = tuple(changed[f"h{hour}"] if f"h{hour}" in changed else daily(hour % 24) for hour in hours)
    return RateSeries(tuple(HOUR_S * hour for hour in hours), values, until)


def said(rate: Rate, now: float = NOW) -> list[float | None]:
    return list(predict_rate(rate, CARBON, now).values)


def test_hours_that_the_series_has_are_taken_as_they_are() -> None:
    found = predict_rate(series(NOW + 30 * DAY_S), CARBON, NOW + 600.0)
    assert (found.at, found.begins_at, found.measure, found.missing) == (NOW + 600.0, NOW, CARBON, "")
    assert found.values == pytest.approx([daily(hour % 24) for hour in range(AHEAD_HOURS)], abs=1e-5)


def test_a_tariff_by_the_hour_is_known_at_all_times() -> None:
    tariff = RateHours(0.31, ((Window(22 * 60, 6 * 60), -0.05),))
    assert said(tariff)[:24] == [-0.05] * 6 + [0.31] * 16 + [-0.05] * 2


def test_later_hours_are_as_those_of_the_days_before() -> None:
    assert said(series(NOW)) == pytest.approx([daily(hour % 24) for hour in range(AHEAD_HOURS)], abs=1e-5)


def test_by_how_far_the_last_hours_lie_from_theirs_fades_over_a_day() -> None:
    number = int(NOW // HOUR_S)
    lifted = {f"h{number - back}": daily((number - back) % 24) + 50.0 for back in (1, 2, 3)}
    above = np.array(said(series(NOW, **lifted))) - np.array([daily(hour % 24) for hour in range(AHEAD_HOURS)])
    assert above[0] == pytest.approx(50.0 * 13 / 14 * math.exp(-1 / 24), rel=0.1)
    assert above[24] == pytest.approx(above[0] * math.exp(-1), rel=0.2)


def test_what_lies_ahead_changes_nothing_that_is_said_before_it_is_known() -> None:
    whole = series(NOW + 5 * DAY_S, **{f"h{int(NOW // HOUR_S) + 3}": 9_999.0})
    assert said(whole.before(NOW)) == said(series(NOW))


def test_gaps_behind_leave_the_other_days_to_speak() -> None:
    number = int(NOW // HOUR_S)
    gaps = {f"h{number - 24 * day - hour}": None for day in (1, 4) for hour in range(5)}
    assert said(series(NOW, **gaps)) == pytest.approx([daily(hour % 24) for hour in range(AHEAD_HOURS)], abs=1e-5)


def test_an_hour_that_no_day_knows_is_not_known() -> None:
    number = int(NOW // HOUR_S)
    gaps = {f"h{number - 24 * day + 7}": None for day in range(1, 15)}
    found = said(series(NOW, **gaps))
    assert [hour for hour, value in enumerate(found) if value is None] == list(range(7, AHEAD_HOURS, 24))


def test_a_gap_in_the_hours_ahead_is_filled_from_before() -> None:
    known = series(NOW + DAY_S, **{f"h{int(NOW // HOUR_S) + 2}": None})
    assert said(known)[2] == pytest.approx(daily(2))


def test_nothing_is_said_of_a_series_that_has_ended_and_the_reason_names_the_day() -> None:
    assert said(series(NOW - DAY_S + HOUR_S)) != []
    found = predict_rate(series(NOW - DAY_S - HOUR_S), PRICE, NOW)
    assert found.values == ()
    assert found.missing == "the latest price of its series is of 1970-01-19 22:00 UTC"


@pytest.mark.parametrize("until", [NOW - 20 * DAY_S + HOUR_S, NOW + 3 * DAY_S], ids=["long over", "yet to begin"])
def test_nothing_is_said_of_a_series_without_a_value_of_late(until: float) -> None:
    found = predict_rate(series(until, until - HOUR_S), PRICE, NOW)
    assert (found.values, found.missing) == ((), "its series has no price of the last 14 days")


def test_nothing_is_said_where_no_day_knows_the_present_hour_or_nothing_is_configured() -> None:
    number = int(NOW // HOUR_S)
    unknown = series(NOW, **{f"h{number - 24 * day}": None for day in range(1, 15)})
    assert "for this hour" in predict_rate(unknown, CARBON, NOW).missing
    assert predict_rate(None, CARBON, NOW).missing == "no carbon intensity of energy is configured"


def test_the_part_of_a_series_before_an_instant_ends_there() -> None:
    whole = series(NOW)
    part = whole.before(DAY_S + 1_800.0)
    assert part.mean(DAY_S, DAY_S + HOUR_S)[1] == pytest.approx(0.5)
    assert part.mean(0.0, DAY_S) == whole.mean(0.0, DAY_S)
    assert replace(whole, until=NOW).before(NOW + 1.0) == whole
