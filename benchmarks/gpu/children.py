"""Programs on a card as children of a measurement: they do what they are told, an order and an answer a line of JSON.

A child ends when its input does, when its parent dies, or by its id; never by a name.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_ROOM = Path(__file__).resolve().parents[2]
_TORCH = {False: "benchmarks.gpu.driver_worker", True: "benchmarks.gpu.torch_worker"}


class ChildError(Exception):
    """A child could not do what it was told.

    Attributes:
        name: the driver's name for the error, or that of the exception.
    """

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


class ChildEndedError(ChildError):
    """A child is gone."""


class Child:
    """One program; it ends with the block.

    Args:
        env: all of its environment.
        torch: computes with PyTorch, not by calls of the driver.
        user: whom it runs as; None: as we do.
    """

    def __init__(self, env: Mapping[str, str], *, torch: bool = False, user: int | None = None) -> None:
        path = str(_ROOM) if "PYTHONPATH" not in env else f"{_ROOM}:{env['PYTHONPATH']}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", _TORCH[torch], str(os.getpid())],
            env={**env, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            user=user,
        )
        self.pid = self._process.pid

    def send(self, order: str, **arguments: Any) -> None:
        """Tell it to do something, without waiting for the answer.

        Raises:
            ChildEndedError: it is gone.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"order": order, "arguments": arguments}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None

    def answer(self, timeout_s: float | None = None) -> Any:
        """What it says to the oldest order that it has not answered.

        Raises:
            ChildError: it could not, or not in time.
        """
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            raise ChildError("no answer", f"the child {self.pid} did not answer within {timeout_s:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        told = json.loads(line)
        if "error" in told:
            raise ChildError(told["error"], told["text"])
        return told["value"]

    def ask(self, order: str, **arguments: Any) -> Any:
        """Tell it to do something, and wait for the answer."""
        self.send(order, **arguments)
        return self.answer()

    def signal(self, number: signal.Signals) -> int:
        """Send it a signal; when that was, in nanoseconds of the monotonic clock."""
        self._process.send_signal(number)
        return time.monotonic_ns()

    def exit_code(self, timeout_s: float) -> int | None:
        """How it ended by itself; None when it does not within that time."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _ended(self) -> ChildEndedError:
        return ChildEndedError("ended", f"the child {self.pid} ended with {self._process.wait()}")


def exported(library: Path) -> list[str]:
    """The names that a library gives to programs, by nm(1); empty where that is not installed."""
    try:
        done = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=False)
    except OSError:
        return []
    return sorted({line.split()[-1].partition("@")[0] for line in done.stdout.splitlines() if line.strip()})
