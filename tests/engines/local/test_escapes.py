"""What the driver says of a device against what the gates count."""

from __future__ import annotations

from millpond.engines.local.escapes import EscapeHistory, EscapeKind, WatchedSlice
from millpond.model.telemetry import DeviceSample, ProcessSample
from millpond.node.sharing.backend import SliceUsage
from millpond.node.task.records import TaskId

TASK = TaskId("job", 1, 0)


def held(*gated: int, tampered: bool = False) -> WatchedSlice:
    """A slice of 1000 MiB of a task with the processes 1 to 3, of which some have the gate."""
    return WatchedSlice(TASK, "gpu", 1000, frozenset({1, 2, 3}), SliceUsage(frozenset(gated), tampered=tampered))


def sample(**used_mib: int) -> list[DeviceSample]:
    rows = tuple(ProcessSample(int(pid[1:]), mib) for pid, mib in used_mib.items())
    return [DeviceSample("gpu", processes=rows)]


def kinds(watch: EscapeHistory, rows: list[DeviceSample], part: WatchedSlice) -> list[EscapeKind]:
    return [escape.kind for escape in watch.look(rows, [part])]


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
