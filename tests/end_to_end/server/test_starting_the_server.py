"""Starting and stopping the server: what is in the way is told in one line."""

from __future__ import annotations

import signal
import socket
import subprocess

import pytest
from real_pond import FAKE_GPUS, PATIENCE_S, Pond, alive, complaints, until

pytestmark = pytest.mark.long

WAYS = pytest.mark.parametrize("way", [["--detach"], []], ids=["detached", "in the foreground"])


def refused(done) -> str:
    """The one line of a server that did not start."""
    assert done.returncode == 2, done.stderr
    (line,) = complaints(done)
    assert line.startswith("pond: ")
    return line


@WAYS
def test_a_second_server_on_one_state_directory_is_refused(running, way):
    assert str(running.state_dir) in refused(running("up", *way))
    assert running("ps").returncode == 0


@WAYS
def test_a_port_in_use_is_named(pond, way):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert port in refused(pond("up", *way, "--port", port))


@WAYS
def test_a_state_directory_that_cannot_be_made_is_named(tmp_path, way):
    (tmp_path / "file").write_text("")
    inside = tmp_path / "file" / "state"
    assert str(inside) in refused(Pond(inside)("up", *way))


@WAYS
def test_a_wrong_description_of_cards_is_told_with_its_form(pond, way):
    done = pond("up", *way, "--fake-gpus", "many")
    assert done.returncode == 2
    assert "many" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_a_server_in_the_foreground_without_a_traceback(pond):
    process = pond.start("up", "--fake-gpus", FAKE_GPUS)
    until(lambda: pond.server_pid == process.pid and pond("ps").returncode == 0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "http://127.0.0.1:" in out
    assert "Traceback" not in out + err
    assert not pond.server_pid


def test_a_start_in_the_background_says_that_requests_from_elsewhere_are_not_encrypted(pond):
    said = pond.printed("up", "--detach", "--fake-gpus", FAKE_GPUS, "--host", "0.0.0.0")
    assert "requests from elsewhere are not encrypted" in said


def test_down_stops_the_server_and_its_jobs(running):
    running("run", "--detach", "--", "sleep", "300")
    waiting = [running("run", "--detach", "--gpus", "4", "--tasks", "2", "--", "sleep", "300") for _ in range(2)]
    assert all(done.returncode == 0 for done in waiting)
    pid = running.server_pid
    done = running("down")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "stopping 3 jobs"
    assert not alive(pid)
    assert running("down").stdout.startswith("no server is running")
    assert running("ps").returncode == 2


def test_down_can_leave_jobs_to_the_next_server(running, tmp_path):
    script = f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; echo done"
    job_id = running.printed("run", "--detach", "--", "sh", "-c", script)
    until(lambda: running.job(job_id)["state"] == "running")
    assert running("down", "--keep-jobs").returncode == 0
    running.up()
    assert running.job(job_id)["state"] == "running"
    (tmp_path / "go").touch()
    assert running("logs", "-f", job_id).stdout == "done\n"
    assert running("wait", job_id).returncode == 0


def test_a_restart_remembers_its_machines_and_one_that_takes_them_away_names_the_jobs_that_lose_theirs(pond):
    config = pond.state_dir.parent / "pond.yaml"
    config.write_text("queues: [{name: vision}]\n")
    pond.up("--config", str(config))
    lock = pond.state_dir.parent / "lock"
    job = pond.printed("run", "-d", "--gpus", "4", "--queue", "vision", "--", f"flock {lock.name} sleep 600")
    until(lambda: pond.job(job)["state"] == "running")
    assert pond("down", "--keep-jobs").returncode == 0
    done = pond("up", "--detach")
    assert f"as at the last start: --fake-gpus {FAKE_GPUS} --config {config}" in done.stdout
    assert pond.job(job)["state"] == "running"
    assert pond("down", "--keep-jobs").returncode == 0
    done = pond("up", "--detach", "--fake-gpus", "1x2:V100-32GB")
    assert f"warning: {job} runs or ran, and could not start again" in done.stdout
    until(lambda: subprocess.run(["flock", "--nonblock", lock, "true"], check=False).returncode == 0)  # it has ended
    until(lambda: pond.job(job)["state"] == "queued")


def test_a_power_cut_that_emptied_the_servers_address_keeps_it_from_nothing(running):
    running.kill_server()
    for name in ("server.json", "standby.json"):
        (running.state_dir / name).write_bytes(b"")
    running.up()
    assert running("ps").returncode == 0
    done = running("down")
    assert done.returncode == 0, done.stderr
