"""``pond down``: whoever would take over goes first, however slow it is to say so."""

from __future__ import annotations

import fcntl
import json
import math
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from millpond.client.cli.commands.server import background, down
from millpond.client.cli.main import cli
from millpond.model.errors import MillpondError, UnavailableError
from millpond.specs.api.jobs.jobs import JobInfo, JobList, TaskInfo
from millpond.specs.api.server import LOCK_FILE, SERVER_FILE, STANDBY_FILE, HealthInfo, ServerFile


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


def test_jobs_that_others_submit_meanwhile_are_stopped_too(
    make_job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped: list[str] = []

    class Server:
        """When some jobs are stopped, their owner submits another."""

        def __init__(self) -> None:
            self.left = ["a-00001", "a-00000"]
            self.later = {"a-00000": "b-00000", "b-00000": "c-00000"}

        def jobs(self, limit: int) -> JobList:
            return JobList(jobs=[make_job(each) for each in self.left[:limit]])

        def stop(self, job: str) -> None:
            stopped.append(job)
            self.left.remove(job)
            if job in self.later:
                self.left.insert(0, self.later[job])

    monkeypatch.setattr(down.time, "sleep", lambda _: None)
    down._stop_jobs(Server(), within_s=60.0)
    assert sorted(stopped) == ["a-00000", "a-00001", "b-00000", "c-00000"]
    assert capsys.readouterr().out == "stopping 2 jobs\n"


def test_what_is_left_of_one_that_was_killed_keeps_nobody_waiting(
    standby: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standby.kill()
    standby.wait()
    answers = [None]
    monkeypatch.setattr(background, "health_of", lambda _: answers.pop(0))
    down._end_standby(tmp_path)
    assert answers == []


def test_a_server_that_cannot_stop_jobs_can_be_stopped_without_them() -> None:
    class Server:
        """Its database is damaged."""

        def jobs(self, limit: int) -> JobList:
            raise UnavailableError("the store cannot be read or written", "see its log")

    with pytest.raises(UnavailableError, match=r"cannot be stopped .*the store cannot be read") as refused:
        down._stop_jobs_or_say(Server(), within_s=0.0)
    assert refused.value.remedy == "see its log; `pond down --keep-jobs` stops the server alone"


class Unending:
    """A server of which a job does not end, and time passes by itself."""

    def __init__(self, job: JobInfo, monkeypatch: pytest.MonkeyPatch, interrupted_after_s: float = math.inf) -> None:
        self.now, self._job, self._interrupted_at = 0.0, job, interrupted_after_s
        monkeypatch.setattr(down.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(down.time, "sleep", self.pass_time)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self._interrupted_at:
            self._interrupted_at = math.inf
            raise KeyboardInterrupt

    def jobs(self, limit: int) -> JobList:
        return JobList(jobs=[self._job] * min(limit, 7))

    def stop(self, job: str) -> None:
        pass


@pytest.fixture
def stuck(make_job) -> JobInfo:
    return make_job("stuck-abcde", tasks=[TaskInfo(task=task, role="", state="stopping", node="n1") for task in (0, 1)])


def test_jobs_that_do_not_end_are_named_while_they_are_waited_for_and_at_the_end(
    stuck: JobInfo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Unending(stuck, monkeypatch)
    with pytest.raises(
        MillpondError, match=r"7 jobs \(stuck-abcde on n1, .*, 2 more\) did not end within 90 s"
    ) as told:
        down._stop_jobs(server, within_s=90.0)
    assert "--keep-jobs" in told.value.remedy
    assert server.now == pytest.approx(90.0, abs=1.0)
    said = capsys.readouterr().out
    assert "waiting for 7 jobs (stuck-abcde on n1" in said
    assert "up to 90 s; Ctrl-C stops waiting" in said


def test_ctrl_c_stops_the_wait_for_jobs_and_says_what_goes_on(
    stuck: JobInfo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Unending(stuck, monkeypatch, interrupted_after_s=10.0)
    with pytest.raises(KeyboardInterrupt):
        down._stop_jobs(server, within_s=90.0)
    assert server.now == pytest.approx(10.0, abs=1.0)
    said = capsys.readouterr().err
    assert "not ended yet: 7 jobs (stuck-abcde on n1" in said
    assert "the server goes on" in said
    assert "`pond down --keep-jobs` leaves them running" in said


@pytest.fixture
def unanswering(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has locked the state directory, answers nobody and is deaf to SIGTERM."""
    with (tmp_path / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(
            ["sh", "-c", "trap '' TERM; echo; exec sleep 600"], stdin=lock, stdout=subprocess.PIPE
        )
    assert process.stdout is not None
    process.stdout.readline()
    left = ServerFile(url="http://127.0.0.1:1", pid=process.pid, token_path=str(tmp_path / "token"), version="1")
    (tmp_path / SERVER_FILE).write_text(json.dumps(asdict(left)))
    (tmp_path / "token").write_text("t")
    with process:
        yield process
        process.kill()


@pytest.mark.parametrize("options", [[], ["--keep-jobs"]])
def test_a_server_that_does_not_answer_is_ended_and_its_jobs_are_said_to_go_on(
    unanswering: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setattr(down, "_ENDS_BY_ITSELF_WITHIN_S", 0.0)
    done = CliRunner().invoke(cli, ["down", *options, "--state-dir", str(tmp_path)])
    assert unanswering.wait(60) == -9
    assert "which did not answer" in done.output
    assert ("those that run go on" in str(done.exception)) == (not options)


def test_a_process_that_does_not_use_the_state_directory_is_never_ended(
    unanswering: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    (tmp_path / LOCK_FILE).unlink()
    (tmp_path / LOCK_FILE).touch()
    done = CliRunner().invoke(cli, ["down", "--state-dir", str(tmp_path)])
    assert "it is another program" in str(done.exception)
    assert unanswering.poll() is None
