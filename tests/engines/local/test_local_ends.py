"""How tasks end on this machine: by themselves, by notice, by force, and what the engine says about it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from local_bench import UNSANDBOXED, Bench, eventually, state_letter

from millpond.model.decisions import Resume, Stop, Suspend
from millpond.model.events import Confirmed, Ended
from millpond.model.reasons import Cause
from millpond.model.states import Outcome
from millpond.node.host import controllers
from millpond.node.host.procfs import start_ticks
from millpond.node.task import supervisor
from millpond.node.task.launch import LONGEST_SHUTDOWN_GRACE_S, LaunchSpec
from millpond.node.task.records import TaskFiles, TaskId, read_record

pytestmark = pytest.mark.end_to_end


def end_of(bench: Bench) -> Ended:
    (event,) = bench.events(1)
    assert isinstance(event, Ended)
    return event


@pytest.mark.parametrize(
    ("command", "outcome", "exit_code", "detail"),
    [
        ("exit 0", Outcome.SUCCESS, 0, ""),
        ("exit 3", Outcome.USER_ERROR, 3, "exit code 3"),
        ("kill -SEGV $$", Outcome.USER_ERROR, 139, "exit code 139: ended by SIGSEGV"),
        ("kill -KILL $$", Outcome.USER_ERROR, 137, "exit code 137: ended by SIGKILL"),
        ("no-such-program", Outcome.USER_ERROR, 127, "exit code 127: a command was not found"),
    ],
)
def test_exit_codes_are_those_of_a_shell(
    bench: Bench, command: str, outcome: Outcome, exit_code: int, detail: str
) -> None:
    bench.start("job", command)
    bench.events(1)
    end = end_of(bench)
    assert (end.job, end.attempt, end.task) == ("job", 1, 0)
    assert (end.outcome, end.exit_code, end.detail) == (outcome, exit_code, detail)


@pytest.mark.parametrize("put", ["mkdir", "mkfifo", "echo {} >"])
def test_a_task_that_spoils_its_own_record_harms_no_other(bench: Bench, put: str) -> None:
    record = TaskFiles.of(bench.state_dir, TaskId("spoils", 1, 0)).record
    others = " ".join(str(record.with_suffix(suffix)) for suffix in (".away", ".home", ".stop", ".escape"))
    spoil = f"rm {record}; {put} {record}; mkdir {others}; kill -KILL $PPID"
    bench.start("spoils", f"while [ ! -e go ]; do sleep 0.01; done; {spoil}")
    bench.events(1)
    (bench.workdir / "go").touch()
    assert end_of(bench).outcome is Outcome.NODE_LOST
    bench.start("other", "exit 0")
    bench.events(1)
    assert end_of(bench).outcome is Outcome.SUCCESS


def test_a_task_killed_by_the_kernel_for_want_of_memory_says_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = bench.workdir / "memory.events"
    counter.write_text("oom_kill 4\n")
    monkeypatch.setattr(controllers, "own_kill_counter", lambda: counter)
    bench.start("has_capacity", "echo oom_kill 5 > memory.events; kill -KILL $$")
    bench.events(1)
    end = end_of(bench)
    assert (end.outcome, end.exit_code) == (Outcome.OUT_OF_MEMORY, 137)


def test_what_a_task_leaves_behind_ends_with_it(bench: Bench) -> None:
    bench.start("untidy", "sleep 60 & echo $! > child; setsid sh -c 'echo $$ > stray; exec sleep 60' & exit 0")
    bench.events(1)
    assert end_of(bench).outcome is Outcome.SUCCESS
    child = bench.workdir / "child"
    assert start_ticks(int(child.read_text())) is None
    stray = bench.workdir / "stray"
    assert not stray.exists() or start_ticks(int(stray.read_text() or 0)) is None


def test_a_task_that_heeds_the_notice_ends_at_once_and_counts_as_stopped(bench: Bench) -> None:
    bench.start("polite", "trap 'echo bye; exit 0' TERM; echo $$ > pid; while :; do sleep 0.05; done")
    bench.events(1)
    bench.pid_in("pid")
    stop = bench.stop("polite", grace_s=60)
    confirmed, end = bench.events(2)
    assert confirmed == Confirmed(confirmed.at, stop.id)
    assert isinstance(end, Ended)
    assert (end.outcome, end.exit_code, end.service_s) == (Outcome.STOPPED, 0, None)
    assert bench.log("polite").endswith(b"bye\n")


def test_a_task_that_ignores_the_notice_is_killed_with_all_its_children_after_the_grace(bench: Bench) -> None:
    stubborn = "import os, signal, time; signal.signal(15, signal.SIG_IGN); "
    child = stubborn + "os.setsid(); print(os.getpid(), file=open('child', 'w')); time.sleep(60)"
    parent = stubborn + f"import subprocess; subprocess.Popen([{sys.executable!r}, '-c', {child!r}]); time.sleep(60)"
    bench.start("stubborn", (sys.executable, "-c", parent))
    bench.events(1)
    pid = bench.pid_in("child")
    bench.stop("stubborn", grace_s=0.2)
    bench.events(1)
    end = end_of(bench)
    assert (end.outcome, end.exit_code) == (Outcome.STOPPED, 137)
    assert end.detail == "killed, as it was not over within the grace after SIGTERM"
    assert start_ticks(pid) is None


def test_children_that_outlive_their_parent_have_the_grace_too(bench: Bench) -> None:
    saver = "trap 'sleep 0.3; echo saved; exit 0' TERM; echo $$ > saver; while :; do sleep 0.05; done"
    bench.define("family", ("sh", "-c", 'sh saver.sh & trap "exit 0" TERM; while :; do sleep 0.05; done'))
    (bench.workdir / "saver.sh").write_text(saver)
    bench.start("family")
    bench.events(1)
    bench.pid_in("saver")
    bench.stop("family", grace_s=60)
    bench.events(1)
    assert end_of(bench).outcome is Outcome.STOPPED
    assert bench.log("family").endswith(b"saved\n")


def test_a_task_hears_signals_that_the_server_was_started_deaf_to(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does to what it runs in the background
    try:
        bench = Bench(tmp_path)
        bench.start("hearing", "trap 'echo heard > heard; exit' INT; kill -INT $$; sleep 60")
        bench.events(1)
        end_of(bench)
        bench.end_all()
    finally:
        signal.signal(signal.SIGINT, before)
    assert (bench.workdir / "heard").read_text() == "heard\n"


def test_a_second_stop_can_only_shorten_the_grace(bench: Bench) -> None:
    bench.start("slow", "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done")
    bench.events(1)
    bench.pid_in("pid")
    bench.stop("slow", grace_s=3600)
    bench.stop("slow", grace_s=0)
    bench.events(2)
    assert end_of(bench).exit_code == 137


def test_a_checkpoint_that_was_taken_counts_as_kept_work(bench: Bench) -> None:
    bench.define(
        "saves",
        "trap 'exit 0' USR1; echo $$ > pid; while :; do sleep 0.05; done",
        checkpoint_signal="SIGUSR1",
    )
    bench.start("saves")
    bench.events(1)
    bench.pid_in("pid")
    bench.stop("saves")
    bench.events(1)
    end = end_of(bench)
    record = read_record(TaskFiles.of(bench.state_dir, TaskId("saves", 1, 0)))
    assert record is not None
    assert record.notice_at is not None
    assert record.started_at is not None
    assert end.service_s == record.notice_at - record.started_at


def test_a_program_below_the_shell_of_its_line_has_its_grace_and_its_exit_code_counts(bench: Bench) -> None:
    saving = "trap 'sleep 0.1; touch saved; exit 0' USR1; echo $$ > pid; while :; do sleep 0.02; done"
    (bench.workdir / "saving.sh").write_text(saving)
    bench.define("saves", "cd .; sh saving.sh", checkpoint_signal="SIGUSR1")
    bench.start("saves")
    bench.events(1)
    bench.pid_in("pid")
    bench.stop("saves")
    bench.events(1)
    end = end_of(bench)
    assert (end.exit_code, (bench.workdir / "saved").exists()) == (0, True)
    assert end.service_s is not None


def test_a_program_that_dies_of_the_checkpoint_signal_has_kept_nothing(bench: Bench) -> None:
    bench.define("naive", ("sleep", "60"), checkpoint_signal="SIGUSR1")
    bench.start("naive")
    bench.events(1)
    bench.stop("naive")
    bench.events(1)
    end = end_of(bench)
    assert (end.outcome, end.exit_code, end.service_s) == (Outcome.STOPPED, 128 + signal.SIGUSR1, None)


def test_a_stop_reaches_the_task_even_when_nothing_can_be_written(bench: Bench) -> None:
    bench.start("job", ("sleep", "60"))
    bench.events(1)
    wish = TaskFiles.of(bench.state_dir, TaskId("job", 1, 0)).stop
    wish.mkdir()  # in the way of the file
    bench.stop("job")
    confirmed, end = bench.events(2)
    assert isinstance(confirmed, Confirmed)
    assert isinstance(end, Ended)
    assert end.exit_code == 143


def test_single_tasks_of_a_gang_can_be_stopped(bench: Bench) -> None:
    bench.start("gang", ("sleep", "60"), tasks=(0, 1, 2))
    bench.events(1)
    bench.stop("gang", tasks=(1,))
    bench.events(1)
    assert end_of(bench).task == 1
    assert bench.alive() == 2


def test_a_stop_right_behind_the_start_comes_after_its_answer(bench: Bench) -> None:
    start = bench.start("brief", ("sleep", "60"))
    stop = bench.stop("brief")
    first, second, end = bench.events(3)
    assert (first, second) == (Confirmed(first.at, start.id, UNSANDBOXED), Confirmed(second.at, stop.id))
    assert isinstance(end, Ended)
    assert end.outcome is Outcome.STOPPED


def test_stopping_what_has_ended_is_confirmed(bench: Bench) -> None:
    bench.start("short", ("true",))
    bench.events(2)
    stop = bench.stop("short")
    (confirmed,) = bench.events(1)
    assert confirmed == Confirmed(confirmed.at, stop.id)


def test_a_task_of_an_older_run_is_not_stopped_for_a_newer_one(bench: Bench) -> None:
    bench.start("job", ("sleep", "60"), attempt=1)
    bench.events(1)
    bench.apply(Stop(bench.next_id(), "job", 2, Cause.PREEMPTED))
    bench.events(1)
    assert bench.alive() == 1


def test_a_task_whose_supervisor_is_killed_is_over_and_counts_as_lost(bench: Bench) -> None:
    bench.start("orphan", "sleep 60 & echo $! > child; wait")
    bench.events(1)
    child = bench.pid_in("child")
    record = read_record(TaskFiles.of(bench.state_dir, TaskId("orphan", 1, 0)))
    assert record is not None
    assert record.pid is not None
    os.kill(record.supervisor_pid, signal.SIGKILL)
    assert end_of(bench).outcome is Outcome.NODE_LOST
    assert bench.gone(record.pid)
    assert bench.gone(child)


def test_a_task_that_has_halted_its_supervisor_can_be_stopped(bench: Bench) -> None:
    bench.start("bold", "until [ -e go ]; do sleep 0.02; done; kill -STOP $PPID; echo $$ > pid; exec sleep 600")
    bench.events(1)
    (bench.workdir / "go").touch()
    pid = bench.pid_in("pid")
    bench.stop("bold")
    bench.events(1)
    assert end_of(bench).outcome is Outcome.STOPPED
    assert bench.gone(pid)


def test_a_task_ended_from_outside_with_its_supervisor_is_not_blamed(bench: Bench) -> None:
    bench.start("shutdown", "trap 'exit 0' TERM; echo $$ > pid; while :; do sleep 0.05; done")
    bench.events(1)
    bench.pid_in("pid")
    record = read_record(TaskFiles.of(bench.state_dir, TaskId("shutdown", 1, 0)))
    assert record is not None
    os.kill(record.supervisor_pid, signal.SIGTERM)
    assert end_of(bench).outcome is Outcome.NODE_LOST


def test_a_task_ended_from_outside_has_the_grace_of_its_own_job(bench: Bench) -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); open('deaf', 'w').close(); time.sleep(600)"
    bench.define("shutdown", (sys.executable, "-c", deaf), grace_s=0.2)
    bench.start("shutdown")
    bench.events(1)
    assert eventually((bench.workdir / "deaf").exists)
    files = TaskFiles.of(bench.state_dir, TaskId("shutdown", 1, 0))
    record = read_record(files)
    assert record is not None
    os.kill(record.supervisor_pid, signal.SIGTERM)
    assert end_of(bench).outcome is Outcome.NODE_LOST
    ended = read_record(files)
    assert ended is not None
    assert ended.forced
    assert ended.notice_at is not None
    assert ended.ended_at is not None
    assert ended.ended_at - ended.notice_at < LaunchSpec(("true",), bench.workdir).grace_s


def test_that_grace_has_a_bound_as_the_machine_waits_for_it(bench: Bench) -> None:
    graces = [
        LaunchSpec(("true",), bench.workdir, grace_s=grace_s).shutdown_grace_s for grace_s in (5.0, 120.0, 3_600.0)
    ]
    assert graces == [5.0, 120.0, LONGEST_SHUTDOWN_GRACE_S]


def test_a_task_that_fell_just_before_its_supervisor_was_told_is_not_blamed(bench: Bench) -> None:
    """As when a machine that shuts down tells all processes at once."""
    for attempt in range(1, 100):
        bench.start("shutdown", ("sleep", "600"), attempt=attempt)
        bench.events(1)
        record = read_record(TaskFiles.of(bench.state_dir, TaskId("shutdown", attempt, 0)))
        assert record is not None
        assert record.pid is not None
        fell = time.monotonic()
        os.kill(record.pid, signal.SIGTERM)
        assert bench.gone(record.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.supervisor_pid, signal.SIGTERM)
        told = time.monotonic()
        end = end_of(bench)
        if told - fell < supervisor.SECOND_SIGNAL_WITHIN_S:  # else it was told too late, as the machine held us up
            assert end.outcome is Outcome.NODE_LOST
            return
    raise AssertionError("the machine never lets a second process be told within a second")


def test_a_frozen_task_halts_with_its_children_and_goes_on_where_it_was(bench: Bench) -> None:
    bench.start("frozen", "echo $$ > parent; sh -c 'echo $$ > child; while :; do :; done'; exit 0")
    bench.events(1)
    pids = [bench.pid_in("parent"), bench.pid_in("child")]
    bench.apply(Suspend(bench.next_id(), "frozen", 1, Cause.SUSPEND_REQUESTED))
    bench.events(1)
    assert eventually(lambda: [state_letter(pid) for pid in pids] == ["T", "T"])
    bench.apply(Resume(bench.next_id(), "frozen", 1, Cause.RESUME_REQUESTED))
    bench.events(1)
    assert eventually(lambda: state_letter(pids[1]) == "R")


def test_a_frozen_task_heeds_the_notice(bench: Bench) -> None:
    bench.start("frozen", "trap 'exit 0' TERM; echo $$ > pid; while :; do sleep 0.05; done")
    bench.events(1)
    bench.pid_in("pid")
    bench.apply(Suspend(bench.next_id(), "frozen", 1, Cause.SUSPEND_REQUESTED))
    bench.events(1)
    bench.stop("frozen", grace_s=60)
    bench.events(1)
    assert (end := end_of(bench)).outcome is Outcome.STOPPED
    assert end.exit_code == 0


def test_a_task_that_is_told_to_end_while_it_is_being_frozen_heeds_the_notice(bench: Bench) -> None:
    bench.start("frozen", "trap 'exit 0' TERM; echo $$ > pid; while :; do sleep 0.05; done")
    bench.events(1)
    bench.pid_in("pid")
    bench.apply(Suspend(bench.next_id(), "frozen", 1, Cause.SUSPEND_REQUESTED))
    bench.stop("frozen", grace_s=60)
    (end,) = [event for event in bench.events(3) if isinstance(event, Ended)]
    assert (end.outcome, end.exit_code) == (Outcome.STOPPED, 0)
