"""Means in which older looks count less."""

from __future__ import annotations

import pytest

from millpond.node.devices.decayed_averages import HALF_LIFE_S, LONGEST_SPAN_S, SETTLE_S, DecayedAverages


def looked(means: DecayedAverages, figure: float, begin: float, end: float, every_s: float = 10.0) -> dict[str, int]:
    """Look regularly from one instant to another; what the last look says."""
    said: dict[str, int] = {}
    while begin < end:
        begin += every_s
        said = means.look({"a": figure}, begin)
    return said


def test_nothing_is_said_of_a_device_before_it_was_looked_at_for_a_while() -> None:
    means = DecayedAverages()
    assert looked(means, 800.0, 0.0, SETTLE_S) == {}
    assert looked(means, 800.0, SETTLE_S, SETTLE_S + 10.0) == {"a": 800}


@pytest.mark.parametrize("every_s", [1.0, 10.0, 60.0])
def test_what_was_before_counts_half_after_the_half_life_however_often_it_is_looked_at(every_s: float) -> None:
    means = DecayedAverages()
    looked(means, 0.0, 0.0, 50 * HALF_LIFE_S, every_s)
    said = looked(means, 1_000.0, 50 * HALF_LIFE_S, 51 * HALF_LIFE_S, every_s)
    assert said == {"a": 500}
    assert looked(means, 1_000.0, 51 * HALF_LIFE_S, 53 * HALF_LIFE_S, every_s) == {"a": 875}


def test_a_device_that_is_new_has_the_mean_of_what_was_seen_of_it() -> None:
    means = DecayedAverages()
    assert looked(means, 700.0, 0.0, 3 * SETTLE_S) == {"a": 700}
    said = [means.look({"a": 700.0, "b": 100.0}, 3 * SETTLE_S + 10.0 * look) for look in range(1, 7)]
    assert said[0] == {"a": 700}
    assert said[-1] == {"a": 700, "b": 100}


def test_a_device_that_is_left_out_of_a_look_keeps_its_mean() -> None:
    means = DecayedAverages()
    looked(means, 600.0, 0.0, 200.0)
    assert means.look({}, 210.0) == {}
    assert means.look({"a": 600.0}, 220.0) == {"a": 600}


@pytest.mark.parametrize("at", [200.0 + LONGEST_SPAN_S + 1.0, 100.0])
def test_after_a_sleep_or_a_clock_that_was_set_back_all_is_measured_anew(at: float) -> None:
    means = DecayedAverages()
    looked(means, 600.0, 0.0, 200.0)
    assert means.look({"a": 0.0}, at) == {}
    assert looked(means, 50.0, at, at + SETTLE_S) == {"a": 50}
