"""The core is told what a kWh should cost or emit, once an hour and when the rates have changed."""

from __future__ import annotations

import logging

import pytest

from millpond.model.energy import EnergyRates, RateHours, RateMeasure, RateSeries
from millpond.model.events import EnergyRatePredicted
from millpond.model.windows import Window
from millpond.server.monitoring.rate_watch import RateWatch

TARIFF = RateHours(0.31, ((Window(22 * 60, 6 * 60), 0.19),))


class Watched:
    def __init__(self, **rates: object) -> None:
        self.rates = EnergyRates(**rates)  # type: ignore[arg-type]
        self.now = 10 * 86_400.0 + 60.0
        self.told: list[EnergyRatePredicted] = []
        self.watch = RateWatch(lambda: self.rates, self.told.extend, lambda: self.now)

    def look(self, later_s: float = 0.0) -> list[EnergyRatePredicted]:
        """What is told then."""
        self.now += later_s
        self.told.clear()
        self.watch.look()
        return list(self.told)


def test_the_hours_are_told_once_an_hour_and_when_the_rates_change() -> None:
    watched = Watched(price=TARIFF)
    assert [each.measure for each in watched.look()] == [RateMeasure.PRICE]
    assert watched.look(30.0) == []
    assert [each.begins_at for each in watched.look(3_600.0)] == [10 * 86_400.0 + 3_600.0]
    watched.rates = EnergyRates(price=RateHours(0.4, TARIFF.hours))
    assert [each.values[0] for each in watched.look(30.0)] == [0.19]


def test_rates_that_are_the_same_at_all_hours_are_not_told_but_for_the_change_to_them() -> None:
    watched = Watched(price=RateSeries.constant(0.3))
    assert watched.look() == []
    watched.rates = EnergyRates(price=TARIFF)
    assert len(watched.look(30.0)) == 1
    watched.rates = EnergyRates(price=RateSeries.constant(0.3))
    assert len(watched.look(30.0)) == 1
    assert watched.look(3_600.0) == []


def test_carbon_counts_where_it_is_asked_for_or_there_is_no_price() -> None:
    both = {"price": TARIFF, "carbon": RateHours(380.0, ((Window(0, 60), 90.0),))}
    assert [each.measure for each in Watched(**both, flexible_by=RateMeasure.CARBON).look()] == [RateMeasure.CARBON]
    assert [each.measure for each in Watched(**both).look()] == [RateMeasure.PRICE]
    assert [each.measure for each in Watched(carbon=both["carbon"]).look()] == [RateMeasure.CARBON]


def test_a_series_that_ended_is_told_once_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(price=TARIFF)
    watched.look()
    watched.rates = EnergyRates(price=RateSeries((0.0,), (0.3,), 9 * 86_400.0 - 3_600.0))
    with caplog.at_level(logging.WARNING):
        (told,) = watched.look(30.0)
        assert watched.look(3_600.0) == []
    assert (told.values, told.missing) == ((), "the latest price of its series is of 1970-01-09 22:00 UTC")
    assert len(caplog.records) == 1


def test_a_series_that_had_ended_before_the_server_began_is_told_too() -> None:
    watched = Watched(carbon=RateSeries((0.0,), (380.0,), 86_400.0))
    assert len(watched.look()) == 1


def test_nothing_is_told_where_nothing_is_configured() -> None:
    assert Watched().look() == []
