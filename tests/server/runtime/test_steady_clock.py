"""Time for the scheduler when somebody sets the machine's clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_world import Clock, Server, World

from millpond.server.runtime.clock import (
    BELIEVED_AFTER_S,
    LEAPT_FROM_S,
    SLOWER_BY,
    TOLERATED_S,
    KeptOffset,
    SteadyClock,
    on_wall_clock,
)
from millpond.server.runtime.loop_dependencies import LoopDependencies


class Machine:
    """A machine whose clock can be set, while real time passes."""

    def __init__(self) -> None:
        self.set_by_s = 0.0
        self.passed_s = 0.0

    def clock(self, since: float = 0.0, kept: KeptOffset | None = None) -> SteadyClock:
        return SteadyClock(since, lambda: 1_000.0 + self.passed_s + self.set_by_s, lambda: self.passed_s, kept)


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
        assert clock() == pytest.approx(1_000.0 + (1.0 - SLOWER_BY) * machine.passed_s)
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
    machine.set_by_s = LEAPT_FROM_S
    assert clock() == 4_600.0
    assert [record.getMessage() for record in caplog.records] == [
        "the clock was set forward by 3600 s; windows follow it, time limits do not count them"
    ]
    assert (clock.skipped(), clock.skipped()) == (3_600.0, 0.0)


def test_a_clock_that_was_years_ahead_for_a_while_and_is_set_right_changes_nothing() -> None:
    machine = Machine()
    clock = machine.clock()
    clock()
    machine.set_by_s = 10 * 365 * 86_400.0
    for machine.passed_s in (5.0, BELIEVED_AFTER_S - 1.0):
        assert clock() == 1_000.0 + machine.passed_s
    for machine.set_by_s in (0.0, 1e8):  # set right, and wrong once more: the ten minutes begin anew
        machine.passed_s += 30.0
        assert clock() == 1_000.0 + machine.passed_s
    machine.set_by_s = 0.0
    assert clock() == 1_000.0 + machine.passed_s
    assert clock.skipped() == 0.0


def test_a_clock_that_leaps_far_and_stays_there_is_followed_after_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    clock = machine.clock()
    clock()
    machine.passed_s, machine.set_by_s = 5.0, 7_200.0
    assert (clock(), clock.skipped()) == (1_005.0, 0.0)
    machine.passed_s += BELIEVED_AFTER_S
    assert (clock(), clock.skipped()) == (8_205.0 + BELIEVED_AFTER_S, 7_200.0)
    assert [record.getMessage() for record in caplog.records] == [
        "the clock was set forward by 7200 s; it is followed in 600 s, unless it is set right before",
        "the clock was set forward by 7200 s; windows follow it, time limits do not count them",
    ]


def test_a_leap_while_the_server_was_down_is_doubted_too(tmp_path: Path) -> None:
    machine = Machine()
    last = machine.clock(kept=KeptOffset(tmp_path / "clock.json", lambda: "boot-1"))()
    machine.passed_s, machine.set_by_s = 100.0, 1e8
    after = machine.clock(last, KeptOffset(tmp_path / "clock.json", lambda: "boot-1"))
    assert after() == 1_100.0


@given(st.floats(0.0, 1e5), st.floats(0.0, 1e6))
def test_it_is_foretold_what_the_wall_clock_shows_at_an_instant_of_schedulers(back_s: float, ahead_s: float) -> None:
    machine = Machine()
    clock = machine.clock()
    clock()
    machine.set_by_s = -back_s
    now, wall = clock(), 1_000.0 - back_s
    shown = on_wall_clock(now + ahead_s, now, wall)
    machine.passed_s = shown - wall
    assert clock() == pytest.approx(now + ahead_s, abs=TOLERATED_S + 0.01)


def test_a_server_that_starts_behind_the_log_goes_on_from_its_end() -> None:
    machine = Machine()
    clock = machine.clock(since=1_000_000.0)
    assert clock() == 1_000_000.0
    machine.passed_s = 10.0
    assert clock() == pytest.approx(1_000_009.0)


def test_a_time_limit_ends_a_job_although_the_clock_was_set_back(tmp_path: Path) -> None:
    """An hour back; the job may run for a minute."""
    machine, world = Machine(), World()
    clock = machine.clock(since=1_000.0)
    server = Server(tmp_path, world, Clock(), dependencies=LoopDependencies(clock=clock))
    server.submit("a", time_limit="60s")
    server.scheduler.turn(0.0)
    server.scheduler.turn(0.0)
    assert world.running
    machine.set_by_s = -3_600.0
    for machine.passed_s in (30.0, 60.0, 67.0):
        server.scheduler.turn(0.0)
    server.scheduler.turn(0.0)
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
        assert now >= before + (1.0 - SLOWER_BY) * passed_s - 1.1
        assert now >= before
        before = now


def test_what_was_lost_while_the_clock_was_behind_is_no_skipped_time_when_it_is_set_right_again() -> None:
    machine = Machine()
    clock = machine.clock()
    clock()
    machine.set_by_s = -3_600.0
    machine.passed_s = 1_000.0
    clock()
    machine.set_by_s = 0.0
    assert clock() == 2_000.0
    assert clock.skipped() == 0.0
    machine.set_by_s = 500.0
    clock()
    assert clock.skipped() == 500.0


def test_over_a_restart_within_one_boot_it_is_known_what_truly_passed(tmp_path: Path) -> None:
    file = tmp_path / "clock.json"
    machine = Machine()
    before = machine.clock(kept=KeptOffset(file, lambda: "boot-1"))
    last = before()
    machine.passed_s, machine.set_by_s = 100.0, 3_000.0
    after = machine.clock(last, KeptOffset(file, lambda: "boot-1"))
    assert after() == 4_100.0
    assert after.skipped() == 3_000.0
    machine.passed_s, machine.set_by_s = 200.0, 0.0
    again = machine.clock(4_150.0, KeptOffset(file, lambda: "boot-1"))
    assert again() == 4_200.0, "set back meanwhile: it goes on from where it would be"
    machine.set_by_s = 9_000.0
    other_boot = machine.clock(4_200.0, KeptOffset(file, lambda: "boot-2"))
    assert other_boot() == 10_200.0
    assert other_boot.skipped() == 0.0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot_id": "boot-1"}', '{"boot_id": "boot-1", "offset_s": "x"}'])
def test_a_file_that_says_nothing_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "clock.json"
    file.write_text(text)
    assert KeptOffset(file, lambda: "boot-1").offset_s is None


def test_it_is_written_down_only_when_it_has_changed_and_a_full_disk_is_no_trouble(tmp_path: Path) -> None:
    kept = KeptOffset(tmp_path / "clock.json", lambda: "boot-1")
    kept.keep(1_000.0)
    written = kept._path.stat().st_mtime_ns, kept._path.stat().st_ino
    kept.keep(1_000.3)
    assert (kept._path.stat().st_mtime_ns, kept._path.stat().st_ino) == written
    kept.keep(1_002.0)
    assert KeptOffset(tmp_path / "clock.json", lambda: "boot-1").offset_s == 1_002.0
    KeptOffset(tmp_path / "nowhere" / "clock.json", lambda: "boot-1").keep(1.0)


def test_a_process_that_is_halted_between_its_looks_at_two_clocks_skips_nothing() -> None:
    instants = iter([0.0, 0.0, 0.0, 0.0, 50.0, 50.0, 50.0])  # it is halted for 50 s between two reads
    passed = [0.0]

    def steady() -> float:
        passed[0] = next(instants)
        return passed[0]

    clock = SteadyClock(0.0, lambda: 1_000.0 + passed[0], steady)
    assert clock() == 1_000.0
    assert clock() == 1_050.0
    assert clock.skipped() == 0.0


def test_a_clock_that_is_set_forward_ends_no_job_at_its_limit_and_books_no_time(tmp_path: Path) -> None:
    """An hour forward; the job may run for a minute."""
    machine, world = Machine(), World()
    clock = machine.clock(since=1_000.0)
    dependencies = LoopDependencies(clock=clock, clock_jump=clock.skipped)
    server = Server(tmp_path, world, Clock(), dependencies=dependencies)
    server.submit("a", time_limit="60s", gpus=1)
    server.scheduler.turn(0.0)
    server.scheduler.turn(0.0)
    machine.passed_s, machine.set_by_s = 30.0, LEAPT_FROM_S
    server.scheduler.turn(0.0)
    server.scheduler.turn(0.0)
    info = server.loop.job_cache.get("a")
    assert info is not None
    assert info.state == "running"
    assert info.ran_s(clock()) == pytest.approx(30.0)
    machine.passed_s = 60.5
    server.scheduler.turn(0.0)
    server.scheduler.turn(0.0)
    assert not world.running
    (used,) = server.store.books.sums("job", 0.0, 1e9)
    assert used.gpu_seconds == pytest.approx(60.5)
