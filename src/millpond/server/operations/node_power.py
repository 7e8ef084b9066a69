"""Switches nodes off and on: asks the core what waits and what is empty, plans, runs hooks, and reports each step.

A hook only says that something was sent. A node is on again when its engine reports that it joined, and off when its
engine has lost it; a hook that fails leaves the node as it was, and says so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol

from sqlalchemy.exc import DBAPIError

from millpond.model.errors import MillpondError, UnavailableError
from millpond.model.events import NodePowerChanged
from millpond.model.hardware.node_power import NodePower, NodePowerState
from millpond.node.host.clocks import WallClock
from millpond.node.host.periodic_worker import EXPECTED, Periodic, PeriodicWorker
from millpond.scheduling.nodes.power_planner import PowerCandidate, PowerPlanner, PowerStep
from millpond.server.operations.power_hooks import PowerHooks
from millpond.server.operations.spare_nodes import SpareNodes
from millpond.server.runtime.loop import Loop
from millpond.specs.config.power_saving import PowerHook, PowerSaving

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 5.0
MOST_AT_ONCE: Final = 16
"""Hooks that run at the same time; the others follow."""


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
    """

    def __init__(
        self,
        loop: Loop,
        savings: Callable[[], Mapping[str, PowerSaving]],
        spares: SpareNodes,
        clock: WallClock = time.time,
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
        overview = self._loop.look_up(lambda core: core.scheduler.power_overview(), is_long=True)
        now = self._clock()
        for node in overview.nodes:
            saving = savings.get(node.pool)
            if saving is not None and node.power is not None:
                self._go_on(node, node.power, saving, now)
        configured = {pool: saving.rule for pool, saving in savings.items()}
        rules = self._spares.rules(now, configured, overview.demands(configured))
        pools = {node.name: node.pool for node in overview.nodes}
        nodes = [node for node in overview.nodes if _may_be_switched(node, savings.get(node.pool))]
        for step in self._planner.plan(now, nodes, overview.wanted, rules):
            if step.node not in self._running:
                self._begin(step, savings[pools[step.node]])

    def _begin(self, step: PowerStep, saving: PowerSaving) -> None:
        ready_at = self._clock() + saving.rule.boot_s if step.on else None
        state = NodePowerState.BOOTING if step.on else NodePowerState.DRAINING
        self._begun.pop(step.node, None)  # a step whose answer is lost may be taken: the next look then runs its hook
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
            case NodePowerState.DRAINING if power.is_gone:
                self._tell(name, NodePowerState.OFF, "")
            case NodePowerState.DRAINING | NodePowerState.BOOTING if self._begun.get(name) is not power.state:
                self._run(name, power.state, saving)
            case NodePowerState.OFF if late and not power.is_gone:
                self._tell(name, NodePowerState.ON, "it was switched off and did not go down")
            case NodePowerState.BOOTING if late:
                self._tell(name, NodePowerState.FAILED, "it was switched on and did not join")

    def _report_hooks(self) -> None:
        for node, done in [each for each in self._running.items() if each[1].done()]:
            failure = _failure_of(done)
            if self._begun[node] is NodePowerState.DRAINING:
                self._tell(node, NodePowerState.ON if failure else NodePowerState.OFF, failure)
            elif failure:
                self._tell(node, NodePowerState.FAILED, failure)
            del self._running[node]

    def _tell(self, node: str, state: NodePowerState, detail: str, ready_at: float | None = None) -> bool:
        """Have the core take a step; false if it refuses, as when work has come to a node that was empty.

        Raises:
            UnavailableError: nothing can be accepted now, as when the disk is full; the next look says it again.
        """
        changed = self._loop.change_setting(lambda now: NodePowerChanged(now, node, state, detail, ready_at))
        try:
            self._loop.wait_for(changed)
        except UnavailableError:
            raise
        except MillpondError as error:
            log.info("node %s stays as it is: %s", node, error)
            return False
        return True


def _may_be_switched(node: PowerCandidate, saving: PowerSaving | None) -> bool:
    """Whether it is down already, or could be woken again."""
    return saving is not None and (saving.on.reaches(node.name) or (node.power is not None and node.power.is_closed))


def _failure_of(done: Future[str]) -> str:
    error = done.exception()
    return done.result() if error is None else f"the hook could not be run ({error})"
