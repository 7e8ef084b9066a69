"""The agent's end of the process that talks to the CUDA driver about other processes (``helper_process``).

There is one for the whole node, started when it is first needed, and it stays: it initialises the driver once, which
takes longer than many a move. It is a process of its own because a driver can hang, and nothing but a kill helps then;
the next call gets a new one. Any number of threads may call.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from enum import StrEnum
from typing import IO, Any

from millpond.node.sharing import helper_process
from millpond.node.sharing.backend import STAYS


class ProcessState(StrEnum):
    """A process as the driver knows it."""

    RUNNING = "running"
    LOCKED = "locked"
    CHECKPOINTED = "checkpointed"
    FAILED = "failed"
    MOVING = "moving"
    """It is being checkpointed or restored at this moment (newer drivers report it)."""


class DriverError(Exception):
    """The driver refused.

    Attributes:
        name: its own name for the error, such as ``CUDA_ERROR_NOT_READY``.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class DriverHungError(Exception):
    """The driver did not answer in time; what has become of the process has to be looked up."""


class DriverMissingError(Exception):
    """There is no driver that could be asked; the text says why."""


_START_S = 60.0
"""Without persistence the driver sets up every device anew."""
_MARGIN_S = 2.0
"""Beyond the time that the driver itself was given."""
_STATES = {
    "CU_PROCESS_STATE_RUNNING": ProcessState.RUNNING,
    "CU_PROCESS_STATE_LOCKED": ProcessState.LOCKED,
    "CU_PROCESS_STATE_CHECKPOINTED": ProcessState.CHECKPOINTED,
    "CU_PROCESS_STATE_FAILED": ProcessState.FAILED,
}
_NO_CUDA = "CUDA_ERROR_NOT_INITIALIZED"
_HIDING = "CUDA_VISIBLE_DEVICES"


class CheckpointHelper:
    """Asks the driver about other processes, in time.

    Its calls raise ``DriverError``, ``DriverHungError`` and ``DriverMissingError``.

    Args:
        env: of the helper; by default the agent's own, with every device visible.
    """

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        own = os.environ if env is None else env
        self._env = {name: value for name, value in own.items() if name != _HIDING}
        self._guard = threading.Lock()
        self._connection: _Connection | None = None
        self._is_closed = False

    def why_not(self) -> str:
        """Why the driver can move no processes at all; empty when it can."""
        try:
            self._connect()
        except DriverMissingError as error:
            return str(error)
        except DriverHungError as error:
            return f"the driver hangs ({error})"
        return ""

    def state(self, pid: int, timeout_s: float) -> ProcessState | None:
        """What a process is to the driver; None: it uses no device."""
        try:
            answered = self._call("state", pid, timeout_s)
        except DriverError as error:
            if error.name == _NO_CUDA:
                return None
            raise
        return _STATES.get(str(answered), ProcessState.MOVING)

    def lock(self, pid: int, timeout_s: float) -> None:
        """Wait for what it has submitted, and have its further calls wait."""
        self._call("lock", pid, timeout_s)

    def checkpoint(self, pid: int, timeout_s: float) -> None:
        """Move its device memory to the host."""
        self._call("checkpoint", pid, timeout_s)

    def restore(self, pid: int, timeout_s: float, moves: Mapping[str, str] = STAYS) -> None:
        """And back; what was taken off some devices comes back on others, by UUID."""
        self._call("restore", pid, timeout_s, moves)

    def unlock(self, pid: int, timeout_s: float) -> None:
        """Let its calls go on."""
        self._call("unlock", pid, timeout_s)

    def close(self) -> None:
        """End the helper; there is none from then on."""
        with self._guard:
            self._is_closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.end()

    def _call(self, name: str, pid: int, timeout_s: float, moves: Mapping[str, str] = STAYS) -> Any:
        connection = self._connect()
        order = {"call": name, "pid": pid, "timeout_ms": max(1, int(timeout_s * 1000))}
        answer = connection.ask({**order, "moves": dict(moves)} if moves else order)
        try:
            answered = answer.result(timeout_s + _MARGIN_S)
        except FutureTimeoutError:
            connection.end()
            raise DriverHungError(f"no answer within {timeout_s:.0f} s") from None
        if "error" in answered:
            raise DriverError(answered["error"])
        return answered.get("value")

    def _connect(self) -> _Connection:
        with self._guard:
            if self._is_closed:
                raise DriverMissingError("the engine is closed")
            if self._connection is None or self._connection.is_over:
                self._connection = None
                self._connection = _Connection(self._env)
            return self._connection


class _Connection:
    """One helper process, from its start to its end.

    Raises:
        DriverMissingError: it found no driver.
        DriverHungError: it did not come up in time.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._numbers = itertools.count(1)
        self._guard = threading.Lock()
        self._waiting: dict[int, Future[dict[str, Any]]] = {0: Future()}
        self._silent = False
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-s", "-m", helper_process.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(env),
            text=True,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders: IO[str] = self._process.stdin
        first = self._waiting[0]
        threading.Thread(target=self._listen, args=(self._process.stdout,), name="helper", daemon=True).start()
        try:
            hello = first.result(_START_S)
        except FutureTimeoutError:
            self.end()
            raise DriverHungError(f"it did not initialise within {_START_S:.0f} s") from None
        if "error" in hello:
            self.end()
            raise DriverMissingError(hello["error"])

    @property
    def is_over(self) -> bool:
        """Whether it answers no more."""
        return self._silent or self._process.poll() is not None

    def ask(self, order: Mapping[str, Any]) -> Future[dict[str, Any]]:
        """Send one order; the answer comes, or a ``DriverHungError`` when the helper ends before."""
        number, answer = next(self._numbers), Future[dict[str, Any]]()
        with self._guard:
            self._waiting[number] = answer
            try:
                if self._silent:
                    raise BrokenPipeError
                self._orders.write(json.dumps({"number": number, **order}) + "\n")
                self._orders.flush()
            except (OSError, ValueError):
                self._waiting.pop(number).set_exception(DriverHungError("the helper ended"))
        return answer

    def end(self) -> None:
        """Kill it: what waits for it raises that it hung."""
        self._process.kill()
        with contextlib.suppress(OSError, ValueError):
            self._orders.close()
        self._process.wait()

    def _listen(self, answers: IO[str]) -> None:
        # What is no whole line is its last, as it was killed.
        with answers, contextlib.suppress(ValueError):
            for line in answers:
                answered = json.loads(line)
                with self._guard:
                    waiting = self._waiting.pop(answered["number"], None)
                if waiting is not None:
                    waiting.set_result(answered)
        with self._guard:
            self._silent = True
            left, self._waiting = self._waiting, {}
        for answer in left.values():
            answer.set_exception(DriverHungError("the helper ended"))
