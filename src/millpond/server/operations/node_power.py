"""Switches nodes off and on: asks the core what waits and what is empty, plans, runs hooks, and reports each step.

A hook only says that something was sent. A node is on again when its engine reports that it joined, and off when its
engine has lost it; a hook that fails leaves the node as it was, and says so.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import Final, Protocol

from sqlalchemy.exc import DBAPIError

from millpond.model.errors import MillpondError
from millpond.model.events import NodePowerChanged
from millpond.model.hardware.node_power import NodePower, NodePowerState
from millpond.node.host.periodic_worker import EXPECTED, Periodic, PeriodicWorker
from millpond.scheduling.nodes.power_planner import PowerCandidate, PowerPlanner, PowerStep
from millpond.server.operations.spare_nodes import SpareNodes
from millpond.server.runtime.loop import ANSWER_WITHIN_S, Loop
from millpond.specs.config.power_saving import PowerHook, PowerSaving

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 5.0
MOST_AT_ONCE: Final = 16
"""Hooks that run at the same time; the others follow."""


LONGEST_OUTPUT: Final = 300
_KEPT: Final = 4 * LONGEST_OUTPUT
"""Bytes; a character takes four at most."""
_PIECE: Final = 2**16
_CLOSES_WITHIN_S: Final = 0.2
_WAKE_PORT: Final = 9
_MAC_REPEATS: Final = 16


class PowerHooks:
    """Runs what switches a node, on any threads, until it is closed: a command of the admin, or a Wake-on-LAN packet.

    Both know only whether they could be sent.
    """

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = Lock()
        self._is_closed = False

    def switch(self, hook: PowerHook, node: str) -> str:
        """Switch a node; returns what went wrong, empty if nothing did."""
        if hook.command:
            return self.run_command(hook.command, node, hook.within_s)
        address = hook.mac_addresses.get(node)
        if address is None:
            return f"no MAC address of {node} is configured"
        return send_magic_packet(address, hook.broadcast)

    def close(self) -> None:
        """End the commands that run; the next server runs them again."""
        with self._lock:
            self._is_closed = True
            for process in self._running:
                _end(process)

    def run_command(self, line: str, node: str, within_s: float) -> str:
        """Run a line of sh with the node's name as ``NODE``; all that it started is ended with it.

        Its output is read to its end, so a child that keeps it open counts as the command. One that also leaves its
        group of processes outlives it, and is not waited for.
        """
        with self._lock:
            if self._is_closed:
                return "the server ends"
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
        if self._is_closed:
            return "the server ends"
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
        while (left_s := deadline - time.monotonic()) > 0 and not self._is_closed:
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


class NodeSwitch(Protocol):
    """What runs hooks."""

    def switch(self, hook: PowerHook, node: str) -> str:
        """Switch a node; returns what went wrong, empty if nothing did."""

    def close(self) -> None:
        """End the hooks that run."""


class NodePowerWorker(Periodic):
    """Looks after the power of all nodes of pools that save energy.

    Args:
        savings: by pool, as configured now.
        spares: how many empty nodes stay on.
        hooks: run them, on threads of this worker.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        loop: Loop,
        savings: Callable[[], Mapping[str, PowerSaving]],
        spares: SpareNodes,
        clock: Callable[[], float] = time.time,
        hooks: NodeSwitch | None = None,
    ) -> None:
        self._loop = loop
        self._savings = savings
        self._spares = spares
        self._clock = clock
        self._hooks = hooks or PowerHooks()
        self._planner = PowerPlanner()
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="power-hook")
        self._running: dict[str, Future[str]] = {}
        self._begun: dict[str, NodePowerState] = {}
        self._worker = PeriodicWorker(
            "node-power", self.look, LOOK_EVERY_S, "nodes keep their power", (*EXPECTED, DBAPIError)
        )

    def close(self) -> None:
        """End, and the hooks that run; the next server runs these again."""
        self._worker.close()
        self._hooks.close()
        self._threads.shutdown(cancel_futures=True)
        self._spares.save(self._clock())

    def look(self) -> None:
        """Report what hooks came to, and begin what the plan says."""
        savings = self._savings()
        if not savings and not self._running:
            self._spares.latest = ()
            return
        self._report_hooks()
        overview = self._loop.query(lambda core: core.scheduler.power_overview(), is_long=True).result(ANSWER_WITHIN_S)
        now = self._clock()
        for node in overview.nodes:
            saving = savings.get(node.pool)
            if saving is not None and node.power is not None:
                self._go_on(node, node.power, saving, now)
        configured = {pool: saving.rule for pool, saving in savings.items()}
        rules = self._spares.rules(now, configured, overview.demands(configured))
        pools = {node.name: node.pool for node in overview.nodes}
        for step in self._planner.plan(now, overview.nodes, overview.wanted, rules):
            if step.node not in self._running:
                self._begin(step, savings[pools[step.node]])

    def _begin(self, step: PowerStep, saving: PowerSaving) -> None:
        ready_at = self._clock() + saving.rule.boot_s if step.on else None
        state = NodePowerState.BOOTING if step.on else NodePowerState.DRAINING
        if self._tell(step.node, state, step.why, ready_at):
            self._run(step.node, state, saving)

    def _run(self, node: str, state: NodePowerState, saving: PowerSaving) -> None:
        hook = saving.on if state is NodePowerState.BOOTING else saving.off
        self._begun[node] = state
        self._running[node] = self._threads.submit(self._hooks.switch, hook, node)

    def _go_on(self, node: PowerCandidate, power: NodePower, saving: PowerSaving, now: float) -> None:
        """See to a node between on and off: one whose hook an earlier server began is switched again."""
        name, late = node.name, now - power.since > saving.rule.longest_boot_s
        if name in self._running:
            return
        match power.state:
            case NodePowerState.DRAINING | NodePowerState.BOOTING if self._begun.get(name) is not power.state:
                self._run(name, power.state, saving)
            case NodePowerState.OFF if late and not power.is_gone:
                self._tell(name, NodePowerState.ON, "it was switched off and did not go down")
            case NodePowerState.BOOTING if late:
                self._tell(name, NodePowerState.FAILED, "it was switched on and did not join")

    def _report_hooks(self) -> None:
        for node, done in [each for each in self._running.items() if each[1].done()]:
            del self._running[node]
            failure = _failure_of(done)
            if self._begun[node] is NodePowerState.DRAINING:
                self._tell(node, NodePowerState.ON if failure else NodePowerState.OFF, failure)
            elif failure:
                self._tell(node, NodePowerState.FAILED, failure)

    def _tell(self, node: str, state: NodePowerState, detail: str, ready_at: float | None = None) -> bool:
        """Have the core take a step; false if it refuses, as when work has come to a node that was empty."""
        changed = self._loop.change_setting(lambda now: NodePowerChanged(now, node, state, detail, ready_at))
        try:
            changed.result(ANSWER_WITHIN_S)
        except MillpondError as error:
            log.info("node %s stays as it is: %s", node, error)
            return False
        return True


def _failure_of(done: Future[str]) -> str:
    error = done.exception()
    return done.result() if error is None else f"the hook could not be run ({error})"
