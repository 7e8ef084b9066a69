"""Time for the scheduler when somebody sets the machine's clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_world import Clock, Server, World

from millpond.server.steady_clock import PACE, SteadyClock


class Machine:
    """A machine whose clock can be set, while real time passes."""

    def __init__(self) -> None:
        self.set_by_s = 0.0
        self.passed_s = 0.0

    def clock(self, since: float = 0.0) -> SteadyClock:
        return SteadyClock(since, lambda: 1_000.0 + self.passed_s + self.set_by_s, lambda: self.passed_s)


def test_as_long_as_nobody_sets_it_the_clock_is_the_machines() -> None:
    machine = Machine()
    clock = machine.clock()
    for machine.passed_s in (0.0, 1.0, 500.0):
        assert clock() == 1_000.0 + machine.passed_s


def test_a_clock_that_is_set_back_goes_on_slowly_until_the_machines_has_caught_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine()
    clock = machine.clock()
    clock()
    machine.set_by_s = -90.0
    for machine.passed_s in (50.0, 100.0):
        assert clock() == pytest.approx(1_000.0 + PACE * machine.passed_s)
    machine.passed_s = 1_000.0
    clock()
    machine.passed_s = 1_001.0
    assert clock() == pytest.approx(1_911.0, abs=1.0)
    assert [record.getMessage() for record in caplog.records] == [
        "the clock was set back by 90 s; scheduling goes on until it has caught up"
    ]


def test_a_clock_that_is_set_forward_is_followed_and_told_but_not_that_of_a_server_that_was_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine()
    clock = machine.clock(since=10.0)
    assert clock() == 1_000.0
    assert not caplog.records
    machine.set_by_s = 7_200.0
    assert clock() == 8_200.0
    assert [record.getMessage() for record in caplog.records] == [
        "the clock was set forward by 7200 s; time limits and windows count them"
    ]


def test_a_server_that_starts_behind_the_log_goes_on_from_its_end() -> None:
    machine = Machine()
    clock = machine.clock(since=1_000_000.0)
    assert clock() == 1_000_000.0
    machine.passed_s = 10.0
    assert clock() == pytest.approx(1_000_009.0)


def test_a_time_limit_ends_a_job_although_the_clock_was_set_back(tmp_path: Path) -> None:
    """An hour back; the job may run for a minute."""
    machine, world = Machine(), World()
    server = Server(tmp_path, world, Clock())
    server.loop.clock = machine.clock(since=server.clock.now)
    server.submit("a", time_limit="60s")
    server.loop.turn(0.0)
    server.loop.turn(0.0)
    assert world.running
    machine.set_by_s = -3_600.0
    for machine.passed_s in (30.0, 60.0, 67.0):
        server.loop.turn(0.0)
    server.loop.turn(0.0)
    assert not world.running


@given(st.lists(st.tuples(st.floats(0.0, 1e4), st.floats(-1e6, 1e6)), max_size=30))
def test_whatever_is_set_the_clock_never_runs_back_and_never_stops(steps: list[tuple[float, float]]) -> None:
    machine = Machine()
    clock = machine.clock()
    before = clock()
    for passed_s, set_by_s in steps:
        machine.passed_s += passed_s
        machine.set_by_s = set_by_s
        now = clock()
        assert now >= before + PACE * passed_s - 1.1
        assert now >= before
        before = now
