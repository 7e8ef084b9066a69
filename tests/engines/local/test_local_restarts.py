"""A server that goes away while its tasks run: the next engine finds them, and every end is told exactly once."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from queue import Queue

import pytest
from local_bench import UNSANDBOXED, Bench, eventually

from millpond.engines.local import background, executor, live_tasks, starts
from millpond.model.decisions import Start
from millpond.model.events import Confirmed, Ended
from millpond.model.states import Outcome
from millpond.node.host.procfs import start_ticks
from millpond.node.task.records import RunRecord, TaskFiles, TaskId, read_record
from millpond.node.task.runner import attach, running_under

pytestmark = pytest.mark.end_to_end

FIRST = TaskId("job", 1, 0)


def released(name: str) -> str:
    """A shell command that waits for a file."""
    return f"while ! test -e {name}; do sleep 0.02; done"


def over(bench: Bench, task: TaskId) -> bool:
    record = read_record(TaskFiles.of(bench.state_dir, task))
    return record is not None and record.over


def test_a_task_that_runs_through_a_restart_is_reported_once(bench: Bench) -> None:
    bench.start("job", f"{released('go')}; exit 4")
    bench.events(1)
    bench.restart().adopt([FIRST], [])
    (bench.workdir / "go").touch()
    (end,) = bench.events(1)
    assert isinstance(end, Ended)
    assert (end.outcome, end.exit_code) == (Outcome.USER_ERROR, 4)
    assert bench.quiet()


class Scarcity:
    """Records that cannot be read, as when too many files are open, until there is relief."""

    def __init__(self) -> None:
        self.refused = threading.Event()
        self.relieved = False

    def read(self, files: TaskFiles) -> RunRecord | None:
        if self.relieved:
            return read_record(files)
        self.refused.set()
        raise OSError(errno.EMFILE, "Too many open files")


@pytest.fixture
def files_run_out(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Scarcity]]:
    scarcity = Scarcity()

    def begin() -> Scarcity:
        monkeypatch.setattr(background, "AGAIN_S", 0.01)
        for module in (executor, live_tasks, starts):
            monkeypatch.setattr(module, "read_record", scarcity.read)
        return scarcity

    yield begin
    scarcity.relieved = True


def test_an_end_while_too_many_files_are_open_is_reported_once_they_are_not(
    bench: Bench, files_run_out: Callable[[], Scarcity]
) -> None:
    bench.start("job", f"{released('go')}; exit 4")
    bench.events(1)
    scarcity = files_run_out()
    (bench.workdir / "go").touch()
    assert scarcity.refused.wait(60)
    scarcity.relieved = True
    (end,) = bench.events(1)
    assert isinstance(end, Ended)
    assert (end.outcome, end.exit_code) == (Outcome.USER_ERROR, 4)


def test_a_start_while_too_many_files_are_open_is_answered_once_they_are_not(
    bench: Bench, files_run_out: Callable[[], Scarcity]
) -> None:
    scarcity = files_run_out()
    start = bench.start("job", "echo ran >> ran")
    assert scarcity.refused.wait(60)
    scarcity.relieved = True
    confirmed, end = bench.events(2)
    assert confirmed == Confirmed(confirmed.at, start.id, UNSANDBOXED)
    assert isinstance(end, Ended)
    assert (bench.workdir / "ran").read_text() == "ran\n"


def test_an_engine_that_starts_while_too_many_files_are_open_finds_its_tasks_once_they_are_not(
    bench: Bench, files_run_out: Callable[[], Scarcity]
) -> None:
    bench.start("job", f"{released('go')}; exit 4")
    bench.events(1)
    scarcity = files_run_out()
    bench.define("next", "echo ran >> ran")
    next_start = bench.undelivered_start("next", tasks=(1,))
    engine = bench.restart()
    engine.adopt([FIRST], [])
    bench.apply(next_start)
    assert scarcity.refused.wait(60)
    assert bench.quiet()
    scarcity.relieved = True
    assert [type(event) for event in bench.events(2)] == [Confirmed, Ended]
    (bench.workdir / "go").touch()
    (end,) = bench.events(1)
    assert isinstance(end, Ended)
    assert (end.job, end.exit_code) == ("job", 4)


def test_a_task_of_another_server_is_neither_adopted_nor_ended(bench: Bench) -> None:
    bench.start("job", f"{released('go')}; echo over > over")
    bench.events(1)
    bench.servers = ("another",)
    engine = bench.restart()
    engine.adopt([], [])
    assert bench.quiet()
    assert engine.inventory().tasks == ()
    bench.servers = ("successor", "own")
    bench.restart().adopt([FIRST], [])
    (bench.workdir / "go").touch()
    (end,) = bench.events(1)
    assert isinstance(end, Ended)
    assert end.outcome is Outcome.SUCCESS


def test_ends_while_no_engine_looks_are_each_reported_once(bench: Bench) -> None:
    bench.start("job", f'{released("go")}; exit "$RANK"', tasks=(0, 1))
    bench.events(1)
    bench.engine.close()
    (bench.workdir / "go").touch()
    tasks = [FIRST, TaskId("job", 1, 1)]
    assert eventually(lambda: all(over(bench, task) for task in tasks))
    bench.new_engine().adopt(tasks, [])
    ends = [end for end in bench.events(2) if isinstance(end, Ended)]
    assert {(end.task, end.outcome, end.exit_code) for end in ends} == {
        (0, Outcome.SUCCESS, 0),
        (1, Outcome.USER_ERROR, 1),
    }
    assert bench.quiet()


def test_an_end_the_core_knows_already_is_not_reported_again(bench: Bench) -> None:
    bench.start("job", ("true",))
    bench.events(2)
    bench.restart().adopt([], [])
    assert bench.quiet()


def test_a_start_without_an_answer_is_answered_by_the_next_engine_and_not_run_again(bench: Bench) -> None:
    start = bench.start("job", f"echo ran >> ran; {released('go')}")
    assert eventually(lambda: (bench.workdir / "ran").exists())
    bench.restart().adopt([FIRST], [start])
    (confirmed,) = bench.events(1)
    assert confirmed == Confirmed(confirmed.at, start.id, UNSANDBOXED)
    (bench.workdir / "go").touch()
    (end,) = bench.events(1)
    assert isinstance(end, Ended)
    assert end.outcome is Outcome.SUCCESS
    assert (bench.workdir / "ran").read_text() == "ran\n"


def test_a_start_whose_tasks_ended_unseen_is_confirmed_before_their_ends(bench: Bench) -> None:
    start = bench.start("job", "echo ran >> ran")
    assert eventually(lambda: over(bench, FIRST))
    bench.restart().adopt([FIRST], [start])
    confirmed, end = bench.events(2)
    assert confirmed == Confirmed(confirmed.at, start.id, UNSANDBOXED)
    assert isinstance(end, Ended)
    assert end.outcome is Outcome.SUCCESS
    assert (bench.workdir / "ran").read_text() == "ran\n"


def test_a_start_whose_tasks_ended_unseen_leaves_its_card_to_others(bench: Bench) -> None:
    def whole_card(job: str) -> Start:
        start = bench.undelivered_start(job)
        [placed] = start.placements
        [grant] = placed.grants
        return replace(start, placements=(replace(placed, grants=(replace(grant, memory_mib=32 * 1024),)),))

    for job in ("job", "next"):
        bench.define(job, "true")
    unseen = whole_card("job")
    bench.apply(unseen)
    bench.events(2)
    bench.restart().adopt([FIRST], [unseen])
    assert [type(event) for event in bench.events(2)] == [Confirmed, Ended]
    bench.apply(whole_card("next"))
    assert [type(event) for event in bench.events(2)] == [Confirmed, Ended]


def test_a_start_that_was_decided_and_never_begun_is_carried_out(bench: Bench) -> None:
    bench.engine.close()
    bench.define("job", ("true",))
    start = bench.undelivered_start("job")
    bench.new_engine().adopt([FIRST], [start])
    assert [type(event) for event in bench.events(2)] == [Confirmed, Ended]


def test_a_stop_without_an_answer_is_given_again(bench: Bench) -> None:
    bench.start("job", ("sleep", "60"))
    bench.events(1)
    bench.engine.close()
    stop = bench.undelivered_stop("job")
    bench.new_engine().adopt([FIRST], [stop])
    confirmed, end = bench.events(2)
    assert confirmed == Confirmed(confirmed.at, stop.id)
    assert isinstance(end, Ended)
    assert end.outcome is Outcome.STOPPED


def test_a_task_that_left_no_trace_is_lost(bench: Bench) -> None:
    bench.engine.adopt([TaskId("ghost", 1, 0)], [])
    (end,) = bench.events(1)
    assert isinstance(end, Ended)
    assert end.outcome is Outcome.NODE_LOST


@pytest.mark.parametrize("left", [b"", bytes(700), None], ids=["emptied", "zeroed", "removed"])
def test_a_running_task_whose_record_was_lost_goes_on(bench: Bench, left: bytes | None) -> None:
    bench.start("job", f"{released('go')}; exit 4")
    bench.events(1)
    bench.engine.close()
    record = TaskFiles.of(bench.state_dir, FIRST).record
    record.unlink()
    if left is not None:
        record.write_bytes(left)
    bench.new_engine().adopt([FIRST], [])
    assert bench.quiet()
    (bench.workdir / "go").touch()
    (end,) = bench.events(1)
    assert isinstance(end, Ended)
    assert (end.outcome, end.exit_code) == (Outcome.USER_ERROR, 4)


def test_what_a_killed_supervisor_left_is_ended_although_its_record_was_lost_too(bench: Bench) -> None:
    bench.start("job", "echo $$ > pid; exec sleep 60")
    bench.events(1)
    bench.engine.close()
    files = TaskFiles.of(bench.state_dir, FIRST)
    pid, record = bench.pid_in("pid"), read_record(files)
    assert record is not None
    os.kill(record.supervisor_pid, signal.SIGKILL)
    files.record.write_bytes(b"")
    bench.new_engine().adopt([FIRST], [])
    (end,) = bench.events(1)
    assert isinstance(end, Ended)
    assert end.outcome is Outcome.NODE_LOST
    assert bench.gone(pid)


def test_a_task_from_before_a_reboot_is_lost_even_if_its_number_lives_again(bench: Bench) -> None:
    bench.start("job", ("true",))
    bench.events(2)
    files = TaskFiles.of(bench.state_dir, FIRST)
    record = json.loads(files.record.read_bytes())
    unfinished = {key: record[key] for key in record if key not in ("ended_at", "exit_code")}
    own = {"supervisor_pid": os.getpid(), "supervisor_start": start_ticks(os.getpid()), "boot_id": "an earlier boot"}
    files.record.write_text(json.dumps({**unfinished, **own}))
    bench.restart().adopt([FIRST], [])
    (end,) = bench.events(1)
    assert isinstance(end, Ended)
    assert end.outcome is Outcome.NODE_LOST


def test_a_running_task_that_nobody_expects_is_ended_without_a_word(bench: Bench) -> None:
    bench.start("job", ("sleep", "60"))
    bench.events(1)
    bench.restart().adopt([], [])
    assert eventually(lambda: over(bench, FIRST))
    assert bench.quiet()


def test_what_a_task_puts_among_the_marks_of_running_tasks_keeps_no_engine_from_starting(bench: Bench) -> None:
    bench.start("job", f"{released('go')}; exit 4")
    bench.events(1)
    for name in ("a@b@c@d", "..@..@x", "job@attempt-9@task-0"):
        (bench.state_dir / "running" / name).touch()
    bench.restart().adopt([FIRST], [])
    (bench.workdir / "go").touch()
    (end,) = bench.events(1)
    assert isinstance(end, Ended)
    assert end.exit_code == 4


def test_what_earlier_tasks_hold_is_known_before_there_is_an_engine(bench: Bench) -> None:
    bench.start("job", ("sleep", "60"))
    bench.events(1)
    bench.engine.close()
    record = read_record(TaskFiles.of(bench.state_dir, FIRST))
    ours = running_under(bench.state_dir)
    assert record is not None
    assert record.pid in ours.pids
    assert ours.devices == {"FAKE-fake-1-0"}


def test_a_forkserver_that_is_killed_is_replaced_and_nothing_starts_twice(bench: Bench) -> None:
    bench.start("before", "echo ran >> before; sleep 60")
    bench.events(1)
    forkserver = bench.engine._executor.forkserver.process
    assert forkserver is not None
    forkserver.kill()
    forkserver.wait()
    bench.start("after", "echo ran >> after; sleep 60")
    (confirmed,) = bench.events(1)
    assert isinstance(confirmed, Confirmed)
    assert eventually(lambda: (bench.workdir / "after").exists() and (bench.workdir / "after").read_text())
    assert [(bench.workdir / name).read_text() for name in ("before", "after")] == ["ran\n", "ran\n"]
    assert bench.alive() == 2


def test_only_what_runs_is_looked_at_after_a_restart(bench: Bench) -> None:
    bench.start("over", ("true",))
    bench.events(2)
    bench.start("killed", ("sleep", "60"))
    bench.events(1)
    record = read_record(TaskFiles.of(bench.state_dir, TaskId("killed", 1, 0)))
    assert record is not None
    assert [task.job for task in bench.engine.inventory().tasks] == ["killed"]
    bench.engine.close()
    os.kill(record.supervisor_pid, signal.SIGKILL)
    engine = bench.new_engine()
    assert eventually(lambda: not bench.alive())
    assert len(engine.inventory().tasks) == 1, "its end is not told yet"
    engine.adopt([TaskId("killed", 1, 0)], [])
    (end,) = bench.events(1)
    assert isinstance(end, Ended)
    assert end.outcome is Outcome.NODE_LOST
    assert engine.inventory().tasks == ()


SERVER = """
import os, signal, sys, threading
from pathlib import Path
from millpond.engines.local.engine import LocalEngine
from millpond.engines.local.options import EngineOptions
from millpond.model.decisions import Placement, Start
from millpond.model.reasons import Cause
from millpond.node.task.launch import LaunchSpec
from millpond.node.host.machine import describe_machine

state, work = Path(sys.argv[1]), Path(sys.argv[2])
woken = threading.Event()
launch = LaunchSpec("echo ran >> ran; while ! test -e go; do sleep 0.02; done; exit 5", work)
machine = describe_machine("2x8:V100-32GB")
engine = LocalEngine(machine, state, lambda job: launch, EngineOptions(wake=woken.set, servers=("own",)))
engine.apply([Start(1, "job", 1, Cause.FITS, (Placement(0, "worker", "fake-1"),))])
woken.wait(60)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_server_killed_by_force_leaves_its_tasks_to_the_next(bench: Bench) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SERVER), str(bench.state_dir), str(bench.workdir)]
    server = subprocess.run(command, timeout=120, check=False)
    assert server.returncode == -signal.SIGKILL
    assert (len(bench.engine.inventory().tasks), bench.alive()) == (1, 1)
    bench.engine.adopt([FIRST], [])
    (bench.workdir / "go").touch()
    (end,) = bench.events(1)
    assert isinstance(end, Ended)
    assert (end.outcome, end.exit_code) == (Outcome.USER_ERROR, 5)
    assert (bench.workdir / "ran").read_text() == "ran\n"


def test_a_task_whose_number_came_round_as_that_of_a_thread_is_over(bench: Bench) -> None:
    bench.start("job", ("true",))
    bench.events(2)
    record = read_record(TaskFiles.of(bench.state_dir, FIRST))
    assert record is not None
    release, known = threading.Event(), Queue[int]()

    def live() -> None:
        known.put(threading.get_native_id())
        release.wait()

    thread = threading.Thread(target=live)
    thread.start()
    try:
        assert attach(replace(record, supervisor_pid=known.get())) is None
    finally:
        release.set()
        thread.join()
