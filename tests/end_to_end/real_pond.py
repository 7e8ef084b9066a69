"""The real command line, a state directory of its own, and waiting for what real processes do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from millpond.client.sdk import Client

POND = Path(sys.executable).with_name("pond")
REPOSITORY = Path(__file__).resolve().parents[2]
FAKE_GPUS = "2x4:V100-32GB"
PATIENCE_S = 180.0
"""With what comes about sooner or later, on a machine that has much else to do."""


def until(condition: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Wait until something is so; fail when it is not so in time."""
    give_up_at = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < give_up_at, "it did not come about in time"
        time.sleep(0.05)


def asked(pond: Pond, service: str) -> tuple[int, bytes]:
    """What a job answers through the proxy of its server: the status, and the body."""
    url = json.loads((pond.state_dir / "server.json").read_text())["url"]
    token = (pond.state_dir / "token").read_text().strip()
    request = urllib.request.Request(f"{url}/proxy/{service}/", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What a command has said on standard error, but for what a start in the background says where that takes long."""
    return [line for line in done.stderr.splitlines() if not line.startswith("pond: the server is still starting: ")]


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class EndedCommand(subprocess.CompletedProcess[str]):
    """A command that has ended; where a test fails, pytest shows what it said."""

    def __repr__(self) -> str:
        return f"`pond {' '.join(self.args[1:])}` ended with {self.returncode}: {self.stderr.strip()[-1000:]}"


class Pond:
    """The command line, talking to the server of one state directory, by default from the directory around it."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self._home = state_dir.parent if state_dir.parent.is_dir() else None
        drop = ("MILLPOND_URL", "MILLPOND_TOKEN", "MILLPOND_DEBUG", "PYTHONPATH")
        kept = {name: value for name, value in os.environ.items() if name not in drop}
        self.env = kept | {"MILLPOND_STATE": str(state_dir), "MILLPOND_PORT": "0", "COLUMNS": "80"}

    def __call__(
        self, *arguments: str, cwd: Path | None = None, timeout_s: float = PATIENCE_S, given: str | None = None
    ) -> EndedCommand:
        """Run a command to its end.

        Args:
            given: what it reads from a pipe; None: its standard input is empty.
        """
        try:
            done = subprocess.run(
                [POND, *arguments],
                env=self.env,
                cwd=cwd or self._home,
                timeout=timeout_s,
                capture_output=True,
                text=True,
                **({"stdin": subprocess.DEVNULL} if given is None else {"input": given}),
            )
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{error}; it said {error.stderr!r}") from error
        return EndedCommand(**vars(done))

    def printed(self, *arguments: str, cwd: Path | None = None) -> str:
        """What a command prints that has to succeed, such as the id of a job; fails with what it complains about."""
        done = self(*arguments, cwd=cwd)
        assert done.returncode == 0, done.stderr
        return str(done.stdout).strip()

    def start(self, *arguments: str, cwd: Path | None = None, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        """Start a command and leave it running."""
        return subprocess.Popen(
            [POND, *arguments],
            env=self.env,
            cwd=cwd or self._home,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def up(self, *options: str) -> None:
        """Start the server."""
        self.printed("up", "--detach", "--fake-gpus", FAKE_GPUS, *options)

    @property
    def server_pid(self) -> int:
        """The server's process, 0 when none is there."""
        try:
            return json.loads((self.state_dir / "server.json").read_text())["pid"]
        except FileNotFoundError:
            return 0

    def kill_server(self) -> None:
        """End the server without a chance to tidy up."""
        pid = self.server_pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(pid))

    def job(self, job_id: str) -> dict[str, Any]:
        """A job as it is now.

        Asked from this process, as is what it wrote: tests wait for both, and a command that is started again and again
        takes more CPU than what is waited for.
        """
        with Client(state_dir=self.state_dir) as client:
            return asdict(client.job(job_id))

    def is_idle(self) -> bool:
        """Whether no job is left; those that an earlier test has stopped may be ending still."""
        with Client(state_dir=self.state_dir) as client:
            return client.jobs().jobs == []

    def output(self, job_id: str) -> str:
        """What the tasks of a job wrote so far."""
        with Client(state_dir=self.state_dir) as client:
            return "".join(chunk.data for chunk in client.logs(job_id))

    def runs(self, job_id: str) -> bool:
        """Whether a job runs by the server's word, which may come after what its tasks do."""
        return self.job(job_id)["state"] == "running"

    def has_begun(self, job_id: str) -> bool:
        """Whether a job runs and has written something."""
        return self.runs(job_id) and self.output(job_id) != ""
