"""What the driver says of a device against what the gates count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millpond.model.decisions import Grant
from millpond.model.hardware.telemetry import DeviceSample, ProcessSample
from millpond.model.sharing import ShareClass
from millpond.node.sharing.backend import SliceUsage
from millpond.node.sharing.escapes import EscapeHistory, EscapeKind, WatchedSlice
from millpond.node.task.records import TaskId

TASK = TaskId("job", 1, 0)


def held(*gated: int, limit_milli: int = 1000, **usage: bool) -> WatchedSlice:
    """A slice of 1000 MiB of a task with the processes 1 to 3, of which some have the gate."""
    counted = SliceUsage(frozenset(gated), **usage)
    return WatchedSlice(TASK, Grant("gpu", 250, limit_milli, 1000), frozenset({1, 2, 3}), counted)


def sample(**used_mib: int) -> list[DeviceSample]:
    rows = tuple(ProcessSample(int(pid[1:]), mib) for pid, mib in used_mib.items())
    return [DeviceSample("gpu", processes=rows)]


def kinds(watch: EscapeHistory, rows: list[DeviceSample], part: WatchedSlice) -> list[EscapeKind]:
    return [escape.kind for escape in watch.look(rows, [part], 0.0)]


def test_a_process_without_the_gate_is_told_at_the_second_look_and_once() -> None:
    watch = EscapeHistory()
    job_views = [kinds(watch, sample(p1=100, p2=100), held(1)) for _ in range(4)]
    assert job_views == [[], [EscapeKind.UNGATED], [], []]


def test_one_that_was_only_starting_is_not_told() -> None:
    watch = EscapeHistory()
    assert kinds(watch, sample(p1=100), held()) == []
    assert kinds(watch, sample(p1=100), held(1)) == []
    assert kinds(watch, sample(p1=100), held(1)) == []


def test_more_memory_than_the_slice_is_told_however_it_was_had() -> None:
    watch = EscapeHistory()
    job_views = [kinds(watch, sample(p1=1600), held(1)) for _ in range(2)]
    assert job_views == [[], [EscapeKind.OVERDRAWN]]


def test_what_the_driver_takes_beside_allocations_is_no_escape() -> None:
    watch = EscapeHistory()
    assert [kinds(watch, sample(p1=900, p2=900), held(1, 2)) for _ in range(2)] == [[], []]


def test_strangers_and_devices_that_do_not_tell_are_nobodys_escape() -> None:
    watch = EscapeHistory()
    assert [kinds(watch, sample(p9=5000), held(1)) for _ in range(2)] == [[], []]
    assert [kinds(watch, [DeviceSample("gpu")], held(1)) for _ in range(2)] == [[], []]


def test_changed_words_of_the_gate_are_told_at_once() -> None:
    assert kinds(EscapeHistory(), sample(p1=1), held(1, tampered=True)) == [EscapeKind.TAMPERED]


def used(*milli: int) -> list[DeviceSample]:
    """The processes 1, 2, … computed for such parts of the last moment."""
    rows = tuple(ProcessSample(pid, 100, use) for pid, use in enumerate(milli, 1))
    return [DeviceSample("gpu", processes=rows)]


def seconds_until_overrun(limit_milli: int, *looks: list[DeviceSample]) -> float | None:
    """When a task whose gate counts nothing is found to use more than its limit, at looks that come around."""
    watch, part = EscapeHistory(), held(1, 2, limit_milli=limit_milli)
    for number in range(200):
        now = number * 0.8
        if watch.look(looks[number % len(looks)], [part], now):
            return now
    return None


def test_who_computes_beyond_its_limit_is_told_by_the_drivers_figures_whatever_its_gate_counts() -> None:
    assert seconds_until_overrun(250, used(910)) == pytest.approx(9.6)
    assert seconds_until_overrun(250, used(400, 510)) == pytest.approx(9.6)
    assert seconds_until_overrun(250, used(300)) is None
    assert seconds_until_overrun(1000, used(1000)) is None
    assert seconds_until_overrun(250, sample(p1=100)) is None  # of whom the driver does not tell


def seconds_until_unfair(
    uses: tuple[int, int], guarantees: tuple[int, int], waits: float, **other: object
) -> float | None:
    """When it is said that the first of two slices has more than its share; the second's launches are held back."""
    watch = EscapeHistory()
    first, second = (
        WatchedSlice(
            TaskId(name, 1, 0), Grant("gpu", milli, 1000, 1000), frozenset({pid}), SliceUsage(frozenset({pid}))
        )
        for pid, (name, milli) in enumerate(zip(("first", "second"), guarantees, strict=True), 1)
    )
    second = replace(second, **other)  # type: ignore[arg-type]
    for number in range(200):
        now = number * 0.8
        waited = replace(second, usage=replace(second.usage, waited_ns=round(now * waits * 1e9)))
        if found := watch.look(used(*uses), [first, waited], now):
            assert [(escape.task.job, escape.kind) for escape in found] == [("first", EscapeKind.UNFAIR)]
            return now
    return None


def test_who_has_far_more_than_its_share_while_another_waits_is_told() -> None:
    assert seconds_until_unfair((840, 170), (100, 900), 0.5) == pytest.approx(8.0)
    assert seconds_until_unfair((560, 480), (100, 900), 0.5) == pytest.approx(15.2)


def test_what_others_leave_or_may_not_have_is_nobodys_loss() -> None:
    assert seconds_until_unfair((840, 170), (100, 900), 0.0) is None  # it wants no more
    assert seconds_until_unfair((120, 880), (100, 900), 0.5) is None
    assert seconds_until_unfair((650, 350), (500, 500), 0.5) is None  # not by far
    limited = Grant("gpu", 900, 200, 1000)
    assert seconds_until_unfair((800, 200), (100, 900), 0.5, grant=limited) is None
    assert seconds_until_unfair((900, 100), (100, 900), 0.5, share_class=ShareClass.BACKFILL) is None


def test_a_long_kernel_after_which_a_slice_rests_is_no_overrun() -> None:
    looks = [used(1000)] * 5 + [used(0)] * 15  # four seconds of every sixteen
    assert seconds_until_overrun(250, *looks) is None


def test_words_that_slices_share_are_one_ones_doing_only_where_it_is_alone() -> None:
    other = replace(held(4), task=TaskId("other", 1, 0), pids=frozenset({4}))
    assert kinds(EscapeHistory(), sample(p1=1), held(1, disturbed=True)) == [EscapeKind.TAMPERED]
    both = EscapeHistory().look(sample(p1=1), [held(1, disturbed=True), other], 0.0)
    assert [escape.kind for escape in both] == [EscapeKind.DISTURBED]
