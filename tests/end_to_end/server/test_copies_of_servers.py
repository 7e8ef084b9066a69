"""A copy of a server's state, restored or copied by hand, leaves the original's jobs alone until told to take over."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from real_pond import Pond, alive, until

pytestmark = pytest.mark.long


def restored(original: Pond, folder: Path) -> Pond:
    assert original("backup", "pond.tar.gz").returncode == 0
    copy = Pond(folder / "copy" / "state")
    copy.state_dir.parent.mkdir()
    done = original("restore", "pond.tar.gz", "--state-dir", str(copy.state_dir))
    assert done.returncode == 0, done.stderr
    assert "--take-over" in done.stdout
    return copy


def copied(original: Pond, folder: Path) -> Pond:
    copy = Pond(folder / "copy" / "state")
    os.kill(original.server_pid, signal.SIGSTOP)  # all files are of one moment
    shutil.copytree(
        original.state_dir, copy.state_dir, symlinks=True, ignore=shutil.ignore_patterns("server.json", "*.sock")
    )
    os.kill(original.server_pid, signal.SIGCONT)
    return copy


@pytest.mark.parametrize("copy_of", [restored, copied])
def test_a_copy_adopts_ends_and_starts_nothing_of_the_original(running, tmp_path, copy_of):
    job = running.printed("run", "-d", "--", "echo begun; sleep 600")
    waits = running.printed("run", "-d", "--after", job, "--", "true")
    array = running.printed("run", "-d", "--after", job, "--array", "0-1", "--", "true")
    until(lambda: running.has_begun(job))
    pid = pid_of(running, job)
    copy = copy_of(running, tmp_path)
    late = running.printed("run", "-d", "--", "sleep 600")
    until(lambda: running.job(late)["state"] == "running")
    done = copy("up", "--detach")
    assert done.returncode == 0, done.stderr
    assert "pond up --take-over" in done.stdout
    assert copy.job(job)["state"] == "unknown"
    assert copy.job(waits)["state"] == "queued"
    assert "copy" in copy("why", job).stdout
    assert copy("logs", job).stdout == "begun\n"
    for each in (job, waits, array, f"{array}.1"):
        assert "ask the original server; if that is gone" in copy("wait", each).stderr
    for each in (job, waits):
        assert "pond up --take-over" in copy("logs", "-f", each).stderr
    assert copy("run", "--", "true").returncode != 0
    assert copy("stop", job).returncode != 0
    down = copy("down")
    assert down.returncode == 0, down.stderr
    assert alive(pid)
    assert running.job(job)["state"] == running.job(late)["state"] == "running"


def test_a_copy_does_not_take_over_while_the_original_serves(running, tmp_path):
    copy = restored(running, tmp_path)
    done = copy("up", "--detach", "--take-over")
    assert done.returncode != 0
    assert "pond down --keep-jobs" in done.stderr


def test_a_copy_that_takes_over_goes_on_with_the_jobs_of_the_original(pond, tmp_path):
    pond.up()
    flag = tmp_path / "flag"
    job = pond.printed("run", "-d", "--", f"echo begun; until [ -e {flag} ]; do sleep 0.1; done; echo over")
    until(lambda: pond.has_begun(job))
    pid = pid_of(pond, job)
    copy = restored(pond, tmp_path)
    assert pond("down", "--keep-jobs").returncode == 0
    copy.up("--take-over")
    assert copy.job(job)["state"] == "running"
    assert pid_of(copy, job) == pid
    copy.kill_server()
    copy.up()
    assert "starts, ends and changes nothing" in pond("up", "--detach").stdout
    assert pond("down").returncode == 0
    flag.touch()
    assert copy.printed("wait", job) == f"{job}: succeeded"
    assert copy("logs", job).stdout == "begun\nover\n"
    assert copy("run", "--", "true").returncode == 0
    assert copy("down").returncode == 0


def test_the_jobs_of_an_original_that_is_gone_run_again_where_its_state_is_taken_over(pond, tmp_path):
    pond.up()
    flag = tmp_path / "flag"
    job = pond.printed("run", "-d", "--", f"echo begun; until [ -e {flag} ]; do sleep 0.1; done")
    until(lambda: pond.has_begun(job))
    copy = restored(pond, tmp_path)
    assert pond("down").returncode == 0
    shutil.rmtree(pond.state_dir)
    flag.touch()
    copy.up("--take-over")
    assert copy.printed("wait", job) == f"{job}: succeeded"
    assert copy("logs", job).stdout == "begun\n"
    assert copy("down").returncode == 0


def pid_of(pond: Pond, job: str) -> int:
    return json.loads((pond.state_dir / "jobs" / job / "attempt-1" / "task-0.json").read_text())["supervisor_pid"]
