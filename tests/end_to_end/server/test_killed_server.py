"""The server is killed without warning: jobs go on, nothing is lost, nothing comes twice."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading

import pytest
from real_pond import PATIENCE_S, until

pytestmark = pytest.mark.long


def test_a_followed_job_outlives_its_server(running, tmp_path):
    script = f"echo one; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; echo two; exit 5"
    job_id = running.printed("run", "--detach", "--", "sh", "-c", script)
    follower = running.start("logs", "-f", job_id)
    assert follower.stdout.readline() == "one\n"
    running.kill_server()
    (tmp_path / "go").touch()
    running.up()
    out, err = follower.communicate(timeout=PATIENCE_S)
    assert (follower.returncode, out, err) == (0, "two\n", "")
    assert running("wait", job_id).returncode == 5
    assert running("logs", job_id).stdout == "one\ntwo\n"
    assert running.job(job_id)["attempt"] == 1


def test_standard_input_arrives_whole_and_once_although_its_server_is_killed(running, tmp_path):
    script = f"head -c 4; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; sha256sum"
    process = running.start("run", "--", "sh", "-c", script, stdin=subprocess.PIPE)
    rest = "".join(f"{number}\n" for number in range(600_000))  # more than ring and pipes hold
    writer = threading.Thread(target=lambda: (process.stdin.write(f"one\n{rest}"), process.stdin.close()))
    writer.start()
    assert process.stdout.readline() == "one\n"
    running.kill_server()
    (tmp_path / "go").touch()
    running.up()
    writer.join(PATIENCE_S)
    assert process.wait(PATIENCE_S) == 0, process.stderr.read()
    assert process.stdout.read().split()[0] == hashlib.sha256(rest.encode()).hexdigest()


def test_a_job_that_ended_while_no_server_ran_keeps_its_exit_code(running, tmp_path):
    script = f"echo begun; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; touch {tmp_path}/gone; exit 9"
    job_id = running.printed("run", "--detach", "--", "sh", "-c", script)
    until(lambda: running.job(job_id)["state"] == "running")
    running.kill_server()
    (tmp_path / "go").touch()
    until((tmp_path / "gone").exists)
    assert running("ps").returncode == 2
    running.up()
    ended = running("wait", job_id)
    assert (ended.returncode, ended.stdout) == (9, f"{job_id}: failed\n")
    assert running.job(job_id)["attempt"] == 1


def test_waiting_jobs_are_still_in_line_after_a_kill(running):
    holder = running.printed("run", "--detach", "--gpus", "4", "--tasks", "2", "--", "sleep", "300")
    until(lambda: running.job(holder)["state"] == "running")
    process = running.start("run", "--gpus", "1", "--", "echo", "late")
    job_id = process.stderr.readline().split()[-1]
    assert "waits" in process.stderr.readline()
    running.kill_server()
    running.up()
    assert running.job(job_id)["state"] == "queued"
    assert running("stop", holder).returncode == 0
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "late\n")


def test_commands_to_a_killed_server_say_pond_up_in_one_line(running):
    running.kill_server()
    done = running("ps")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "pond up" in done.stderr


def test_a_queue_that_was_changed_just_before_a_kill_is_changed(running):
    for count, (act, *fields) in enumerate((("add", "guarantee=2"), ("set", "guarantee=1", "weight=3"), ("delete",))):
        done = running("queue", act, "lab", *fields)
        running.kill_server()
        assert done.returncode == 0, done.stderr
        running.up()
        shown = running("queue", "show", "lab", "-o", "json")
        if act == "delete":
            assert shown.returncode == 4
        else:
            detail = json.loads(shown.stdout)
            assert detail["version"] == count + 1
            assert detail["queue"]["guarantee_gpu_milli"] == (2000 if act == "add" else 1000)
    assert "was deleted" in running("events").stdout
