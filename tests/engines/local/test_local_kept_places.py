"""The place of a task whose program has failed is kept for a look inside, with and without a sandbox."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_bench import Bench, eventually
from test_local_sessions import SessionClient

from millpond.model.events import Confirmed, Ended, Event, Kept
from millpond.model.states import Outcome
from millpond.node.host import controllers
from millpond.node.host.identities import numbered
from millpond.node.sandbox.detection import SandboxMode, find_sandbox, trouble_with_identities
from millpond.node.task.kept_place import ANNOUNCEMENTS
from millpond.node.task.records import TaskFiles, TaskId, read_record
from millpond.node.task.workspace import Workspace

pytestmark = pytest.mark.end_to_end

JOB = TaskId("job", 1, 0)


@pytest.fixture(params=["sandbox", "open"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    sandbox, trouble = None, ""
    if request.param == "sandbox":
        sandbox, trouble = find_sandbox(SandboxMode.PREFERRED, (tmp_path / "state",))
        if sandbox is None:
            pytest.skip(f"no sandbox here: {trouble}")
    bench = Bench(tmp_path, sandbox)
    yield bench
    bench.end_all()


def define(bench: Bench, command: str | tuple[str, ...], keep_s: float = 600.0, **settings: Any) -> None:
    workspace = Workspace(str(bench.state_dir / "blobs"), str(bench.state_dir / "datasets"))
    bench.define("job", command, keep_s=keep_s, workspace=workspace, **settings)


def run(bench: Bench, command: str | tuple[str, ...], keep_s: float = 600.0, **settings: Any) -> Event:
    """What comes of a job that is started now, after its start."""
    define(bench, command, keep_s, **settings)
    bench.start("job")
    confirmed, event = bench.events(2)
    assert isinstance(confirmed, Confirmed)
    return event


def kept(bench: Bench, command: str | tuple[str, ...], keep_s: float = 600.0, **settings: Any) -> Kept:
    event = run(bench, command, keep_s, **settings)
    assert isinstance(event, Kept), event
    return event


def released(bench: Bench) -> Ended:
    """How it ends when its place is given back."""
    bench.stop("job", grace_s=60.0)
    confirmed, end = bench.events(2)
    assert isinstance(confirmed, Confirmed)
    assert isinstance(end, Ended)
    return end


def supervisor_of(bench: Bench) -> int:
    record = read_record(TaskFiles.of(bench.state_dir, JOB))
    assert record is not None
    return record.supervisor_pid


def test_a_client_finds_what_the_program_has_left_and_the_job_ends_by_the_programs_exit_code(place: Bench) -> None:
    before = time.time()
    event = kept(place, "echo last words; echo model > /tmp/left-by-$MILLPOND_ATTEMPT-$$; echo $$ > own; exit 7")
    assert (event.outcome, event.exit_code, event.detail) == (Outcome.USER_ERROR, 7, "exit code 7")
    assert 590.0 < event.until - before < 660.0
    assert place.log("job") == b"last words\n", "what it wrote is all there when its failure is told"
    own = (place.workdir / "own").read_text().strip()
    left = f"/tmp/left-by-1-{own}"
    streams, end = SessionClient(
        place, "job", argv=["sh", "-c", f"cat {left}; rm {left}; echo $MILLPOND_JOB_ID; pwd"]
    ).hear()
    assert (streams[1].decode().split(), end) == (["model", "job", str(place.workdir)], {"exit": 0})
    over = released(place)
    assert (over.outcome, over.exit_code, over.detail) == (Outcome.USER_ERROR, 7, "exit code 7")
    assert place.quiet()


def test_an_engine_that_ends_leaves_no_socket_in_the_state_directory(place: Bench) -> None:
    assert (place.state_dir / ANNOUNCEMENTS).is_socket()
    place.engine.close()
    assert not (place.state_dir / ANNOUNCEMENTS).exists()


def test_what_the_program_has_left_running_ends_with_the_place(place: Bench) -> None:
    kept(place, f"sleep {place.own_sleep} & exit 1")
    released(place)
    assert place.nothing_runs_like(place.own_sleep)
    assert not TaskFiles.of(place.state_dir, JOB).failure.exists()


@pytest.mark.parametrize(
    ("command", "code", "detail"),
    [
        ("kill -SEGV $$", 139, "exit code 139: ended by SIGSEGV"),
        (("sh", "-c", "exit 255"), 255, "exit code 255"),
        ("no-such-program", 127, "exit code 127: a command was not found"),
    ],
)
def test_exit_codes_are_those_of_a_shell(place: Bench, command: str, code: int, detail: str) -> None:
    event = kept(place, command)
    assert (event.exit_code, event.detail) == (code, detail)
    assert released(place).exit_code == code


def test_a_program_killed_by_the_kernel_for_want_of_memory_says_so(
    place: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = place.workdir / "memory.events"
    counter.write_text("oom_kill 4\n")
    monkeypatch.setattr(controllers, "own_kill_counter", lambda: counter)
    event = kept(place, "echo oom_kill 5 > memory.events; kill -KILL $$")
    assert (event.outcome, event.exit_code) == (Outcome.OUT_OF_MEMORY, 137)


def test_a_program_that_succeeds_leaves_nothing_to_keep(place: Bench) -> None:
    event = run(place, "true")
    assert isinstance(event, Ended)
    assert (event.outcome, event.exit_code) == (Outcome.SUCCESS, 0)


def test_a_program_that_cannot_be_started_leaves_nothing_to_keep(place: Bench) -> None:
    define(place, ("/no/such/program",))
    place.start("job")
    (refused,) = place.events(1)
    assert "was not found" in getattr(refused, "reason", "")


@pytest.mark.parametrize("notice", ["", "SIGUSR1", "SIGRTMIN"])
def test_a_program_that_is_told_to_end_hears_it_and_its_place_is_not_kept(place: Bench, notice: str) -> None:
    number = signal.SIGTERM if not notice else getattr(signal, notice)
    define(place, f"trap 'echo bye; exit 5' {int(number)}; touch ready; while :; do sleep 0.05; done",
           checkpoint_signal=notice)  # fmt: skip
    place.start("job")
    place.events(1)
    assert place.appears("ready")
    end = released(place)
    assert (end.outcome, end.exit_code) == (Outcome.STOPPED, 5)
    assert place.log("job").endswith(b"bye\n")


def test_a_signal_of_its_own_reaches_the_program_alone(place: Bench) -> None:
    event = kept(place, "trap 'exit 9' USR1; kill -USR1 $$; sleep 60")
    assert event.exit_code == 9


def test_the_place_is_given_back_at_its_time_though_no_engine_lives(place: Bench) -> None:
    kept(place, "exit 4", keep_s=1.0)
    pid = supervisor_of(place)
    place.engine.close()
    assert place.gone(pid)
    place.new_engine().adopt([JOB], [])
    (end,) = place.events(1)
    assert isinstance(end, Ended)
    assert (end.outcome, end.exit_code) == (Outcome.USER_ERROR, 4)


def test_another_engine_finds_that_a_place_is_kept(place: Bench) -> None:
    define(place, "while ! test -e go; do sleep 0.02; done; exit 4")
    place.start("job")
    place.events(1)
    place.engine.close()
    (place.workdir / "go").touch()

    def noted() -> bool:
        record = read_record(TaskFiles.of(place.state_dir, JOB))
        return record is not None and record.kept_at is not None

    assert eventually(noted)
    place.new_engine().adopt([JOB], [])
    (event,) = place.events(1)
    assert isinstance(event, Kept)
    assert event.exit_code == 4
    assert released(place).exit_code == 4


def test_a_start_that_is_repeated_tells_of_a_place_that_is_kept_after_its_answer(place: Bench) -> None:
    define(place, "exit 4")
    start = place.undelivered_start("job")
    place.apply(start)
    place.events(2)
    engine = place.restart()
    engine.adopt([JOB], [start])
    confirmed, event = place.events(2)
    assert (type(confirmed), type(event)) == (Confirmed, Kept)


def test_a_supervisor_that_is_killed_takes_the_place_with_it_and_its_failure_stays_known(place: Bench) -> None:
    kept(place, f"sleep {place.own_sleep} & exit 4")
    os.kill(supervisor_of(place), signal.SIGKILL)
    (end,) = place.events(1)
    assert isinstance(end, Ended)
    assert (end.outcome, end.exit_code) == (Outcome.USER_ERROR, 4)
    assert place.nothing_runs_like(place.own_sleep)


@pytest.mark.parametrize(
    ("tampering", "code"),
    [
        ('rm "$report"; exit 4', 4),
        ('rm "$report"; mkdir "$report"; exit 4', 4),
        ('rm "$report"; ln -s /etc/passwd "$report"; exit 4', 4),
    ],
)
def test_whoever_takes_the_pipe_away_has_nothing_kept(place: Bench, tampering: str, code: int) -> None:
    report = TaskFiles.of(place.state_dir.resolve(), JOB).failure
    event = run(place, f"report={report}; {tampering}")
    assert isinstance(event, Ended)
    assert event.exit_code == code


@pytest.mark.parametrize("told", ["rubbish", "0", "999", "-1", "x" * 5_000])
def test_nonsense_in_the_pipe_counts_as_a_failure(place: Bench, told: str) -> None:
    report = TaskFiles.of(place.state_dir.resolve(), JOB).failure
    event = kept(place, f"echo {told} > {report}; exit 4")
    assert event.exit_code in (1, 4)
    assert released(place).exit_code == event.exit_code


def test_a_task_with_an_account_of_its_own_is_kept_too(tmp_path: Path) -> None:
    sandbox, trouble = find_sandbox(SandboxMode.PREFERRED, (tmp_path / "state",))
    trouble = trouble or trouble_with_identities(sandbox)
    if sandbox is None or trouble:
        pytest.skip(f"no accounts of their own here: {trouble}")
    bench = Bench(tmp_path, sandbox)
    try:
        event = kept(bench, "id -u; exit 3", identity=numbered("mia", 265_001, bench.state_dir), workdir=Path("/"))
        assert (event.exit_code, bench.log("job")) == (3, b"265001\n")
        streams, _ = SessionClient(bench, "job", argv=["id", "-u"]).hear()
        assert streams[1] == b"265001\n"
        assert released(bench).exit_code == 3
    finally:
        bench.end_all()
