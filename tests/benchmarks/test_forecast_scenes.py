"""What the benchmark of forecasts plays: boots are paid for, what is missing counts, peers do as published."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.forecasting.power_off_peers import ces, time_out
from benchmarks.forecasting.powered_pool import PoweredPool, score
from benchmarks.forecasting.replicas_ahead import PlayedService
from millpond.model.hardware.node_power import PowerSavingRule

RULE = PowerSavingRule(idle_s=600.0, spare=1, least_on_s=0.0, least_off_s=0.0, boot_s=300.0)


def test_a_node_that_boots_draws_power_and_takes_no_work_until_it_is_there() -> None:
    pool = PoweredPool(10, RULE)
    assert [pool.look(60.0 * minute, 2) for minute in range(12)] == [(10, 10)] * 10 + [(10, 3), (3, 3)]
    looks = [pool.look(720.0 + 60.0 * minute, 5) for minute in range(8)]
    assert looks == [(3, 6)] * 5 + [(6, 6)] * 3  # five at work and the spare one
    assert pool.woken == 3


def test_what_is_missing_counts_once_for_each_ten_minutes_and_a_gap_counts_for_nothing() -> None:
    needs = np.array([5.0] * 10 + [3.0] * 5 + [np.nan] * 5)
    on = np.array([3.0, 4.0] + [5.0] * 18)
    found = score(needs, on, on, 10, 7)
    assert (found.steps_short, found.short_a_day) == (50.0, 2.0 * 72)
    assert found.off == pytest.approx(100 * (7 + 6 + 13 * 5) / (10 * 5 + 5 * 7))
    assert found.woken_a_day == 7 * 72


def test_ces_wakes_to_its_buffer_when_short_and_lets_go_when_demand_falls_and_stays_down() -> None:
    needs = np.array([100.0] * 3 + [130.0] + [120.0] * 3 + [90.0] * 12)
    on, woken = ces(needs, np.full(len(needs), 80.0), 420)
    assert on[:5].tolist() == [120.0, 120.0, 120.0, 120.0, 150.0]
    assert woken == 30
    assert set(on[5:]) == {150.0}  # it rests for ten steps after it was short, and then nothing falls


def test_a_time_out_keeps_the_most_of_its_span_and_the_spare() -> None:
    on, woken = time_out(np.array([5.0, 9.0, 4.0, 4.0, 4.0, 8.0, 2.0]), 2, 2, 1, 9)
    assert (on.tolist(), woken) == ([9.0, 9.0, 5.0, 5.0, 9.0], 4)


def test_a_replica_serves_one_request_at_a_time_once_it_is_ready() -> None:
    service = PlayedService(600.0)
    assert service.serve(0.0, [(0.0, 50.0), (0.0, 700.0)]) == [0.0]
    service.scale(0.0, 0)
    assert service.starting == [600.0]
    assert service.serve(50.0, [(50.0, 700.0)]) == [50.0]
    assert service.serve(595.0, []) == []
    assert service.serve(600.0, []) == [550.0]
