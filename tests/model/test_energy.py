"""Prices and carbon intensities over time: what is charged, and what is named as unknown."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.energy import J_PER_KWH, DeclaredPower, EnergyRates, RateHours, RateSeries, regular_steps
from millpond.model.windows import Window

HOUR = 3600.0


def test_energy_is_charged_by_the_price_of_each_part_of_its_span() -> None:
    price = RateSeries((0.0, HOUR), (0.2, 0.4), 2 * HOUR)
    charged = EnergyRates(price).charge((HOUR / 2, 1.5 * HOUR), HOUR, J_PER_KWH)
    assert charged.cost == pytest.approx(0.3)
    assert charged.priced_j == J_PER_KWH


def test_energy_in_a_gap_has_no_price_and_the_gap_is_named() -> None:
    price = RateSeries((0.0, HOUR, 2 * HOUR), (0.2, None, 0.4), 3 * HOUR)
    charged = EnergyRates(price, RateSeries.constant(500.0)).charge((0.0, 2 * HOUR), 1.0, 2 * J_PER_KWH)
    assert (charged.cost, charged.priced_j) == pytest.approx((0.2, J_PER_KWH))
    assert (charged.co2_g, charged.carbon_j) == pytest.approx((1000.0, 2 * J_PER_KWH))
    assert price.gaps(-HOUR, 4 * HOUR) == [(-HOUR, 0.0), (HOUR, 2 * HOUR), (3 * HOUR, 4 * HOUR)]


def test_a_missing_line_of_an_hourly_series_is_a_gap_and_irregular_hours_are_a_tariff() -> None:
    hours = [hour * HOUR for hour in range(24) if hour != 7]
    assert regular_steps(hours, [1.0] * 23).gaps(0.0, 24 * HOUR) == [(7 * HOUR, 8 * HOUR)]
    days = [day * 24 * HOUR + hour * HOUR for day in range(3) for hour in (7, 22)]
    tariff = regular_steps(days, [0.4, 0.2] * 3)
    assert tariff.gaps(7 * HOUR, 70 * HOUR) == []
    assert tariff.mean(21 * HOUR, 23 * HOUR) == pytest.approx((0.3, 1.0))


def test_a_tariff_by_the_hours_has_no_gaps_and_the_first_window_that_is_open_counts() -> None:
    """Thursday, 1 January 1970: dear by day, cheap from 22 to 6, and a free hour in the night."""
    tariff = RateHours(0.3, ((Window(3 * 60, 4 * 60), 0.0), (Window(22 * 60, 6 * 60), 0.1)))
    assert tariff.mean(0.0, 24 * HOUR) == pytest.approx(((16 * 0.3 + 7 * 0.1) / 24, 1.0))
    assert tariff.mean(5.5 * HOUR, 6.5 * HOUR) == pytest.approx((0.2, 1.0))
    assert tariff.mean(3.25 * HOUR, 3.5 * HOUR) == pytest.approx((0.0, 1.0))
    assert tariff.gaps(-HOUR, 400 * 24 * HOUR) == []
    assert EnergyRates(tariff).charge((HOUR, 2 * HOUR), HOUR, J_PER_KWH).cost == pytest.approx(0.1)


def test_hours_of_a_tariff_follow_the_clock_of_their_place() -> None:
    """In summer, 6 o'clock in Berlin is 4 o'clock UTC."""
    tariff = RateHours(0.3, ((Window(22 * 60, 6 * 60, (), "Europe/Berlin"), 0.1),))
    begin = 19_905 * 24 * HOUR  # 1 July 2024, UTC
    steps = list(tariff.steps(begin, begin + 24 * HOUR))
    assert [((since - begin) / HOUR, value) for since, _, value in steps] == [(0.0, 0.1), (4.0, 0.3), (20.0, 0.1)]


@pytest.mark.parametrize(
    ("day", "charged"),
    [
        ("2026-03-29", [0, 1, 3, 4, 5, 6]),  # 02:00 is 03:00
        ("2026-10-25", [0, 1, 2, 2, 3, 4]),  # 03:00 is 02:00
        ("2026-06-01", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_a_tariff_by_each_hour_charges_the_hour_that_its_clock_shows_when_that_is_put(
    day: str, charged: list[int]
) -> None:
    hours = tuple((Window(60 * hour, 60 * (hour + 1), (), "Europe/Berlin"), float(hour)) for hour in range(24))
    midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    for listed in (hours, hours[::-1]):
        tariff = RateHours(99.0, listed)
        spans = [(midnight + hour * HOUR, midnight + (hour + 1) * HOUR) for hour in range(6)]
        assert [tariff.mean(*span)[0] for span in spans] == pytest.approx(charged)


def test_declared_power_follows_use_and_is_told_apart_from_measured() -> None:
    assert DeclaredPower(50.0, 250.0).drawn_w(0.25) == 100.0
    charged = EnergyRates().charge((0.0, 1.0), 1.0, 30.0, 70.0)
    assert (charged.energy_j, charged.declared_j, charged.priced_j, charged.carbon_j) == (100.0, 70.0, 0.0, 0.0)


@given(
    st.lists(st.one_of(st.none(), st.floats(-1, 5)), min_size=1, max_size=8),
    st.lists(st.floats(-HOUR, 10 * HOUR), min_size=3, max_size=3, unique=True),
)
def test_two_parts_of_a_span_cost_what_the_whole_costs_and_gaps_fill_what_is_not_known(
    values: list[float | None], instants: list[float]
) -> None:
    series = RateSeries(tuple(hour * HOUR for hour in range(len(values))), tuple(values), len(values) * HOUR)
    begin, middle, end = sorted(instants)
    rates = EnergyRates(series)

    def charged(since: float, until: float) -> tuple[float, float]:
        found = rates.charge((since, until), 1.0, (until - since) * 1000.0)
        return found.cost, found.priced_j

    first, second = charged(begin, middle), charged(middle, end)
    assert tuple(map(sum, zip(first, second, strict=True))) == pytest.approx(charged(begin, end), abs=1e-3)
    unknown_s = sum(until - since for since, until in series.gaps(begin, end))
    assert charged(begin, end)[1] == pytest.approx((end - begin - unknown_s) * 1000.0, abs=1e-2)
