"""Servers are killed under load, each is followed by one of another version: nothing is lost, nothing runs twice."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from real_pond import FAKE_GPUS, PATIENCE_S, Pond, alive, until

from millpond.client.sdk import Client
from millpond.model.errors import MillpondError

pytestmark = pytest.mark.long

JOBS = 60
NEXT_VERSION = Path(__file__).with_name("next_version.py")
POLICIES = (("--ordering", "fifo"), ("--ordering", "default", "--preempt"), ("--ordering", "sjf", "--no-preempt"))


def up(pond: Pond, number: int) -> subprocess.Popen[bytes]:
    """A server of this version and of the next in turns, each with other policies."""
    program = [sys.executable, str(NEXT_VERSION)] if number % 2 else [str(Path(sys.executable).with_name("pond"))]
    options = ("--fake-gpus", FAKE_GPUS, *POLICIES[number % len(POLICIES)])
    log = (pond.state_dir.parent / f"server-{number}").open("wb")
    server = subprocess.Popen(
        [*program, "up", *options], env=pond.env, stdout=log, stderr=log, cwd=pond.state_dir.parent
    )
    until(lambda: server.poll() is not None or pond.server_pid == server.pid)
    assert server.poll() is None, Path(log.name).read_text()
    return server


def test_servers_killed_under_load_are_followed_by_others_that_decide_otherwise(pond: Pond, tmp_path: Path) -> None:
    draws = random.Random(5)
    (tmp_path / "ran").mkdir()
    accepted: list[str] = []

    def submit() -> None:
        for number in range(JOBS):
            script = f"echo {number} >> ran/{number}; sleep {draws.choice((0.1, 0.3, 1.0))}"
            fields = {
                "command": script,
                "gpus": 1 + number % 4,
                "workdir": str(tmp_path),
                "idempotency_key": f"k{number}",
            }
            give_up_at = time.monotonic() + PATIENCE_S
            while time.monotonic() < give_up_at:
                try:
                    with Client(state_dir=pond.state_dir) as client:
                        accepted.append(client.submit({**fields, "time_limit": f"{300 + number}s"}).id)
                    break
                except MillpondError:
                    time.sleep(0.1)

    server = up(pond, 0)
    users = threading.Thread(target=submit)
    users.start()
    for number in range(1, 5):
        accepted_by_then = draws.randint((number - 1) * JOBS // 5, number * JOBS // 5)
        until(lambda least=accepted_by_then: len(accepted) >= least)
        server.kill()
        server.wait()
        server = up(pond, number)
    users.join(PATIENCE_S)
    assert len(accepted) == JOBS
    with Client(state_dir=pond.state_dir) as client:
        until(lambda: {client.job(job).state for job in accepted} == {"succeeded"})
        attempts = Counter(client.job(job).attempt for job in accepted)
    assert attempts == {1: JOBS}
    assert all((tmp_path / "ran" / str(number)).read_text() == f"{number}\n" for number in range(JOBS))
    assert pond("down").returncode == 0
    until(lambda: not alive(server.pid))
    server.wait()


def test_the_log_of_a_killed_server_is_verified(running: Pond) -> None:
    for _ in range(3):
        assert running("run", "--", "true").returncode == 0
    refused = running("verify")
    assert (refused.returncode, "pond down" in refused.stderr) == (2, True)
    running.kill_server()
    verified = running("verify")
    assert (verified.returncode, verified.stderr) == (0, "")
    assert verified.stdout == "the log leads to the stored decisions: 3 decisions taken again alike\n"
