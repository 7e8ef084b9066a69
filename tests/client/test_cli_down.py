"""``pond down``: whoever would take over goes first, however slow it is to say so."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from millpond.client.cli.commands.server import background, down
from millpond.specs.api.jobs import JobList
from millpond.specs.api.server import STANDBY_FILE, HealthInfo, ServerFile


@pytest.fixture
def standby(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is said to stand by."""
    with subprocess.Popen(["sleep", "600"]) as process:
        left = ServerFile(url="http://127.0.0.1:1", pid=process.pid, token_path="t", version="1")
        (tmp_path / STANDBY_FILE).write_text(json.dumps(asdict(left)))
        yield process
        process.kill()


def test_a_standby_that_is_slow_to_answer_is_ended_all_the_same(
    standby: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [None, None, HealthInfo(status="ok", standby=True)]
    monkeypatch.setattr(background, "health_of", lambda _: answers.pop(0))
    monkeypatch.setattr(down, "_LOOK_EVERY_S", 0.0)
    down._end_standby(tmp_path)
    assert standby.wait() == -15


def test_waiting_jobs_are_stopped_many_at_a_time_and_running_ones_after_them(make_job) -> None:
    jobs = [
        make_job("runs-abcde"),
        *(make_job(f"waits-{number:05}", "queued") for number in range(down._STOPS_AT_ONCE)),
    ]
    together, stopped = threading.Barrier(down._STOPS_AT_ONCE), []

    class Server:
        """Answers no waiting job's stop before all of them were asked for."""

        def jobs(self, limit: int) -> JobList:
            return JobList(jobs=jobs[:limit] if not stopped else [])

        def stop(self, job: str) -> None:
            if job.startswith("waits"):
                together.wait(timeout=60)
            stopped.append(job)

    down._stop_jobs(Server(), within_s=0.0)
    assert len(stopped) == len(jobs)
    assert stopped[-1] == "runs-abcde"


def test_what_is_left_of_one_that_was_killed_keeps_nobody_waiting(
    standby: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standby.kill()
    standby.wait()
    answers = [None]
    monkeypatch.setattr(background, "health_of", lambda _: answers.pop(0))
    down._end_standby(tmp_path)
    assert answers == []
