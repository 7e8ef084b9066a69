"""What switches a node: a command of the admin, Redfish, or a Wake-on-LAN packet. All know only whether it was sent."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from functools import partial
from threading import Lock, Thread
from typing import Final

from millpond.server.operations.redfish import reset_system
from millpond.specs.config.power_saving import PowerHook

LONGEST_OUTPUT: Final = 300
_KEPT: Final = 4 * LONGEST_OUTPUT
"""Bytes; a character takes four at most."""
_PIECE: Final = 2**16
_CLOSES_WITHIN_S: Final = 0.2
_WAKE_PORT: Final = 9
_MAC_REPEATS: Final = 16
_THE_SERVER_ENDS: Final = "the server ends"


class PowerHooks:
    """Runs hooks, on any threads, until it is closed."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = Lock()
        self._end: Future[str] = Future()

    def switch(self, hook: PowerHook, node: str) -> str:
        """Switch a node; returns what went wrong, empty if nothing did."""
        if hook.command:
            return self.run_command(hook.command, node, hook.within_s)
        if hook.redfish is not None:
            return self._or_end(partial(reset_system, hook.redfish, node, hook.within_s))
        if not hook.reaches(node):
            return f"no MAC address of {node} is configured"
        return send_magic_packet(hook.mac_addresses[node], hook.broadcast)

    def close(self) -> None:
        """End the commands that run, and await no request; the next server runs all these again."""
        with self._lock:
            self._end.set_result(_THE_SERVER_ENDS)
            for process in self._running:
                _end(process)

    def _or_end(self, ask: Callable[[], str]) -> str:
        """What a request comes to, on a thread that a server which ends does not wait for."""
        answer: Future[str] = Future()

        def run() -> None:
            try:
                answer.set_result(ask())
            except BaseException as error:
                answer.set_exception(error)

        Thread(target=run, name="power-request", daemon=True).start()
        done, _ = wait((answer, self._end), return_when=FIRST_COMPLETED)
        return done.pop().result()

    def run_command(self, line: str, node: str, within_s: float) -> str:
        """Run a line of sh with the node's name as ``NODE``; all that it started is ended with it.

        Its output is read to its end, so a child that keeps it open counts as the command. One that also leaves its
        group of processes outlives it, and is not waited for.
        """
        with self._lock:
            if self._end.done():
                return _THE_SERVER_ENDS
            process = subprocess.Popen(
                ["sh", "-c", line],
                env=os.environ | {"NODE": node},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(process)
        with process:
            try:
                said = self._await_end(process, within_s)
            finally:
                with self._lock:
                    self._running.discard(process)
                _end(process)
        if self._end.done():
            return _THE_SERVER_ENDS
        if said is None:
            return f"the command was ended after {within_s:g} s"
        if process.returncode == 0:
            return ""
        return f"the command ended with {process.returncode}" + (f": {said}" if said else "")

    def _await_end(self, process: subprocess.Popen[bytes], within_s: float) -> str | None:
        """The last that a command says, once its output is closed and it has ended; None if that takes too long."""
        assert process.stdout is not None
        output, deadline = process.stdout.fileno(), time.monotonic() + within_s
        readable, said = select.poll(), b""
        readable.register(output, select.POLLIN)
        while (left_s := deadline - time.monotonic()) > 0 and not self._end.done():
            if not readable.poll(min(left_s, _CLOSES_WITHIN_S) * 1_000):
                continue
            if piece := os.read(output, _PIECE):
                said = (said + piece)[-_KEPT:]
                continue
            with suppress(subprocess.TimeoutExpired):
                process.wait(left_s)
                return said.decode("utf-8", "replace").strip()[-LONGEST_OUTPUT:]
        return None


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def send_magic_packet(mac_address: str, broadcast: str, port: int = _WAKE_PORT) -> str:
    """Send a Wake-on-LAN packet: six bytes of ones, then the address sixteen times (AMD, Magic Packet, 1995)."""
    octets = bytes.fromhex(mac_address.replace(":", "").replace("-", ""))
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            sender.sendto(b"\xff" * 6 + octets * _MAC_REPEATS, (broadcast, port))
    except OSError as error:
        return f"the packet could not be sent to {broadcast} ({error.strerror})"
    return ""
