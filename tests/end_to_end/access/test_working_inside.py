"""``pond exec``, ``attach`` and ``forward`` with a real server and a real terminal."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_pond import PATIENCE_S, POND, Pond, until
from screen import Screen

pytestmark = pytest.mark.long

PROGRAM = Path(__file__).with_name("serving_program.py")


@pytest.fixture(scope="module")
def job(shared: Pond) -> Iterator[str]:
    folder = shared.state_dir.parent
    path = folder / "job.yaml"
    program = shutil.copy(PROGRAM, folder)
    env = "env: {COLOUR: blue, SHELL: /bin/sh}"
    path.write_text(f"kind: dev\ngpus: 1\n{env}\ncommand: [{sys.executable}, {program}]\n")
    name = shared.printed("submit", str(path))
    until(lambda: shared.has_begun(name))
    yield name
    assert shared("stop", name).returncode == 0


def test_a_command_runs_in_the_place_of_the_task_and_its_exit_code_is_ours(shared: Pond, job: str) -> None:
    done = shared("exec", job, "--", "sh", "-c", "echo $COLOUR $MILLPOND_JOB_ID; echo bad >&2; pwd; exit 7")
    assert (done.returncode, done.stderr) == (7, "bad\n")
    assert done.stdout.splitlines() == [f"blue {job}", str(shared.state_dir.parent)]


def test_standard_input_is_carried_to_its_end_whatever_its_size(shared: Pond, job: str) -> None:
    data = os.urandom(3_000_000)
    done = subprocess.run(
        [POND, "exec", job, "cat"], env=shared.env, input=data, capture_output=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0
    assert done.stdout == data


def test_what_cannot_be_run_says_why(shared: Pond, job: str) -> None:
    done = shared("exec", job, "no-such-program")
    assert (done.returncode, done.stderr) == (127, "no-such-program: No such file or directory\n")
    done = shared("exec", job, "--task", "3", "true")
    assert (done.returncode, "has no task 3" in done.stderr) == (5, True)
    waiting = shared.printed("run", "-d", "true")
    assert shared("wait", waiting).returncode == 0
    done = shared("exec", waiting, "true")
    assert "is succeeded" in done.stderr


def test_an_attached_shell_has_this_window_hears_ctrl_c_and_leaves_the_job_alone(shared: Pond, job: str) -> None:
    screen = Screen([POND, "attach", job], shared.env)
    screen.shows_a_shell_of_its_own_window()
    screen.type("echo code $?\n")
    screen.shows(r"code 130\s+[$#] ")
    screen.type("exit 3\n")
    assert screen.exit_code() == 3
    assert shared.job(job)["state"] == "running"


def test_an_attached_shell_that_is_asked_to_end_gives_the_terminal_back_as_it_was(shared: Pond, job: str) -> None:
    screen = Screen([POND, "attach", job], shared.env)
    screen.shows(r"[$#] ")
    os.kill(screen.pid, signal.SIGTERM)
    assert screen.exit_code() == 130
    assert termios.tcgetattr(screen.terminal)[3] & (termios.ICANON | termios.ECHO) == termios.ICANON | termios.ECHO


def test_who_is_in_the_shell_of_a_job_that_ends_is_told(shared: Pond) -> None:
    brief = shared.printed("run", "-d", "--", "sleep", "600")
    until(lambda: shared.job(brief)["state"] == "running")
    screen = Screen([POND, "attach", brief], shared.env)
    screen.shows(r"[$#] ")
    assert shared("stop", brief).returncode == 0
    screen.shows(r"the task ends, and what runs beside it\r\n")


def test_a_client_that_is_killed_ends_its_command_and_is_no_defect_in_the_servers_log(shared: Pond, job: str) -> None:
    own = f"6177.{os.getpid()}"  # others may run these tests on this machine
    client = shared.start("exec", job, "--", "sh", "-c", f"echo begun; exec sleep {own}")
    assert client.stdout is not None
    assert client.stdout.readline() == "begun\n"
    until(lambda: runs(own))
    client.kill()
    client.wait(PATIENCE_S)
    until(lambda: not runs(own))
    assert shared("exec", job, "true").returncode == 0
    assert "Traceback" not in (shared.state_dir / "server.log").read_text()


def runs(seconds: str) -> bool:
    """Whether somebody sleeps for so long."""
    return subprocess.run(["pgrep", "-f", f"^sleep {seconds}$"], stdout=subprocess.DEVNULL).returncode == 0


def test_attach_needs_a_terminal(shared: Pond, job: str) -> None:
    done = shared("attach", job)
    assert (done.returncode, "pond exec" in done.stderr) == (2, True)


def test_a_port_of_a_task_is_reached_from_here(shared: Pond, job: str) -> None:
    forward = shared.start("forward", job)
    assert forward.stderr is not None
    found = re.search(r"127\.0\.0\.1:(\d+) leads to", forward.stderr.readline())
    assert found
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", int(found[1])), timeout=PATIENCE_S) as connection:
            connection.sendall(b"GET /here HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b""
            while data := connection.recv(4096):
                answer += data
        assert b'"path": "/here"' in answer
    forward.send_signal(signal.SIGINT)
    assert forward.wait(PATIENCE_S) == 130


def test_nothing_leads_to_a_job_that_has_ended(shared: Pond) -> None:
    ended = shared("run", "--name", "gone", "--", "true").stderr.split()[2]
    done = shared("forward", ended)
    assert (done.returncode, f"job {ended} has ended (succeeded)" in done.stderr) == (5, True)


def test_a_port_that_nobody_listens_on_says_so(shared: Pond, job: str) -> None:
    forward = shared.start("forward", job, "0:1")
    assert forward.stderr is not None
    port = int(forward.stderr.readline().split()[1].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        assert connection.recv(10) == b""
    assert "no program listens on port 1" in forward.stderr.readline()
    forward.send_signal(signal.SIGINT)
    assert forward.wait(PATIENCE_S) == 130


def test_what_has_failed_is_kept_for_a_look_inside_and_ends_by_its_own_exit_code(shared: Pond) -> None:
    done = shared("run", "--keep", "30m", "--", "sh", "-c", "echo model > /tmp/left; exit 3")
    job = done.stderr.split()[2]
    assert done.returncode == 3
    assert f"`pond attach {job}` looks inside, `pond stop {job}` gives it back" in done.stderr
    assert shared("exec", job, "cat", "/tmp/left").stdout == "model\n"
    row = next(line for line in shared("ps").stdout.splitlines() if line.startswith(job))
    assert "failed (exit code 3), kept until" in row
    assert "its place on" in shared("why", job).stdout
    assert "its place is kept until" in " ".join(shared("get", job).stdout.split())
    waited = shared("wait", job)
    assert (waited.returncode, waited.stdout) == (3, f"{job}: failed\n")
    refused = shared("suspend", job)
    assert "its place is kept for a look inside" in refused.stderr
    assert shared("stop", job).returncode == 0
    until(lambda: shared.job(job)["state"] == "failed")
    assert shared.job(job)["exit_code"] == 3
