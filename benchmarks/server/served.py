"""A real server as a child process of a benchmark: started, killed without warning, started again, measured."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2

from millpond.client.sdk import Client
from millpond.client.sdk.transport.discovery import Address, read_server_file
from millpond.client.sdk.transport.trust import trust
from millpond.model.errors import ConflictError
from millpond.server.runtime.kernel_compilation import COMPILED_WITHIN_S
from millpond.specs.api.server import STANDBY_FILE

READY_WITHIN_S = 120.0
KERNELS_SETTLED = ("compiled kernels are in use", "goes on with interpreted kernels")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ServedPond:
    """A state directory and the server that works on it at the moment.

    Args:
        options: of the server, beside the state directory and a free port.
    """

    def __init__(self, state_dir: Path, options: Sequence[str]) -> None:
        self.state_dir = state_dir
        self._arguments = ["--state-dir", str(state_dir), "--port", "0", *options]
        self._process: subprocess.Popen[bytes] | None = None
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.down()

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None, "no server was started"
        return self._process.pid

    def launch(self) -> None:
        """Start a server; returns at once."""
        with (self.state_dir / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "millpond.server", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def up(self) -> float:
        """Start a server and wait until it takes work; returns how many seconds that took."""
        began = time.monotonic()
        self.launch()
        self.await_ready()
        return time.monotonic() - began

    def await_ready(self) -> None:
        """Wait until the server takes work."""
        self._await(self._is_ready)

    def await_standby(self) -> None:
        """Wait until the server stands by."""
        self._await(
            lambda: (left := read_server_file(self.state_dir, STANDBY_FILE)) is not None and left.pid == self.pid
        )

    def _await(self, is_so: Callable[[], bool], within_s: float = READY_WITHIN_S) -> None:
        give_up_at = time.monotonic() + within_s
        while not is_so():
            assert self._process is not None, "no server was started"
            if self._process.poll() is not None:
                raise SystemExit(f"the server ended with code {self._process.returncode}:\n{self._log()[-4000:]}")
            if time.monotonic() > give_up_at:
                self.abandon()
                raise SystemExit(f"the server was not ready within {within_s:g} s")
            time.sleep(0.01)

    def await_kernels(self) -> None:
        """Wait until compiled kernels are in use, or will not be; a cluster of few nodes does without."""
        self._await(lambda: any(words in self._log() for words in KERNELS_SETTLED), COMPILED_WITHIN_S + READY_WITHIN_S)

    def kill(self) -> None:
        """End the server without a chance to tidy up; its jobs go on."""
        assert self._process is not None, "no server was started"
        self._process.kill()
        self._process.wait()

    def abandon(self) -> None:
        """End the server without a chance to tidy up, and with it what is left of its jobs here."""
        if self._process is not None:
            self.kill()
        self._process = None

    def down(self) -> None:
        """End the server and all its jobs."""
        if self._process is None:
            return
        if self._process.poll() is None:
            with self.client() as client:
                for job in client.jobs(limit=10_000).jobs:
                    with contextlib.suppress(ConflictError):  # it ended by itself
                        client.stop(job.id)
                while client.jobs(limit=1).jobs:
                    time.sleep(0.1)
            self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        self._process = None

    def client(self, timeout_s: float = 60.0) -> Client:
        """A connection of its own."""
        return Client(state_dir=self.state_dir, timeout_s=timeout_s)

    def metric(self, name: str) -> float:
        """A figure that the server tells of itself; 0 where it has none of that name.

        Args:
            name: with its labels, as Prometheus writes it.
        """
        left = read_server_file(self.state_dir)
        assert left is not None, "no server was started"
        trusted = trust(Address(left.url, "", certificate=left.certificate))
        token = Path(left.token_path).read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx2.get(f"{left.url}/metrics", headers=headers, timeout=60.0, trust_env=False, verify=trusted)
        answer.raise_for_status()
        named = (line.rpartition(" ") for line in answer.text.splitlines())
        return next((float(value) for key, _, value in named if key == name), 0.0)

    def cpu_s(self) -> float:
        """CPU seconds that the server's process has used."""
        return cpu_s(self.pid)

    def memory_mib(self) -> float:
        """Memory of the server's process that no other shares (proportional set size)."""
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024

    def peak_mib(self) -> float:
        """The most memory that the server's process has had by itself, by the kernel's own account."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def _log(self) -> str:
        return (self.state_dir / "server.log").read_text(errors="replace")

    def _is_ready(self) -> bool:
        left = read_server_file(self.state_dir)
        if left is None or left.pid != self.pid:
            return False
        trusted = trust(Address(left.url, "", certificate=left.certificate))
        try:
            return httpx2.get(f"{left.url}/readyz", timeout=5.0, trust_env=False, verify=trusted).is_success
        except httpx2.TransportError:
            return False


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
