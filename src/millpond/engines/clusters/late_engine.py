"""Stands for the engine of a cluster that does not answer when the server starts, until it does.

The core goes on with the nodes that it knew there: what ran on them goes on by its account, and nothing new starts.
What is asked meanwhile is kept, and done when the cluster has come.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final, Protocol

from millpond.engines.clusters.routed_access import NoAccess
from millpond.engines.kubernetes.adoption.gangs import Adoption, FoundGang, GangKey
from millpond.engines.server_engine import ServerEngine
from millpond.engines.task_access import TaskAccess
from millpond.model.decisions import Decision, Start
from millpond.model.engine import Inventory
from millpond.model.events import Event, NodeJoined, NodeLost
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.telemetry import SliceReading
from millpond.node.host.periodic_worker import UNTIL_WOKEN, PeriodicWorker
from millpond.node.task.records import RunRecord, TaskId

TRIES_EVERY_S: Final = 5.0


class ClusterEngine(ServerEngine, Adoption, Protocol):
    """The engine of a cluster, in which there may be pods of others."""


class LateEngine:
    """An engine that may not be there yet.

    Args:
        cluster: its name.
        open_engine: makes the engine; raises a MillpondError while the cluster is away.
        known: the nodes of the cluster that the core knows.
        wake: called when there are new events.
    """

    def __init__(
        self, cluster: str, open_engine: Callable[[], ClusterEngine], known: Iterable[Node], wake: Callable[[], None]
    ) -> None:
        self._why = f"cluster {cluster} has not answered since the server started"
        self._open, self._wake = open_engine, wake
        reason = f"{self._why}: what runs there goes on, and nothing new starts"
        self._known = tuple(
            replace(node, schedulable=False, unschedulable_reason=reason, is_silent=True) for node in known
        )
        self._lock = threading.Lock()
        self._engine: ClusterEngine | None = None
        self._said: list[Event] = []
        self._expected: Mapping[TaskId, str] = {}
        self._decisions: list[Decision] = []
        self._unanswered: tuple[Decision, ...] = ()
        self._withdrawn: list[str] = []
        self._found: Callable[[], None] = lambda: None
        self._worker = PeriodicWorker(
            f"cluster-{cluster}", self._try, TRIES_EVERY_S, f"cluster {cluster} is waited for"
        )

    def inventory(self) -> Inventory:
        """The nodes as the core knows them, closed, until the cluster answers."""
        return Inventory(self._known) if self._engine is None else self._engine.inventory()

    def adopt(self, expected: Mapping[TaskId, str], unanswered: Sequence[Decision]) -> None:
        """Go on where an earlier engine stopped, as soon as the cluster answers."""
        self._expected, self._unanswered = expected, tuple(unanswered)
        self._worker.start(TRIES_EVERY_S)

    def apply(self, decisions: Sequence[Decision]) -> None:
        """Take decisions on."""
        with self._lock:
            if self._engine is None:
                self._decisions += decisions
            else:
                self._engine.apply(decisions)

    def events(self) -> list[Event]:
        """Everything that happened since the last call."""
        with self._lock:
            said, self._said = self._said, []
            return said if self._engine is None else [*said, *self._engine.events()]

    def _try(self) -> float:
        engine = self._open()
        with ExitStack() as unless_kept:  # the next try opens another
            unless_kept.callback(engine.close)
            if self._worker.closing:
                return UNTIL_WOKEN
            nodes = engine.inventory().nodes
            there = {node.name for node in nodes}
            lost = [node.name for node in self._known if node.name not in there]
            now = time.time()
            with self._lock:
                self._said += [NodeLost(now, name) for name in lost]
                self._said += [NodeJoined(now, node) for node in nodes]
                engine.adopt(
                    {task: node for task, node in self._expected.items() if node in there},
                    [decision for decision in self._unanswered if not _is_lost(decision, there)],
                )
                engine.apply(self._decisions)
                engine.when_found(self._found)
                for job in self._withdrawn:
                    engine.withdraw(job)
                self._engine = engine
            unless_kept.pop_all()
        self._wake()
        self._found()
        return UNTIL_WOKEN

    # ---- pods of others (``adoption.gangs.Adoption``): none are seen while the cluster is away --------------------

    def when_found(self, call: Callable[[], None]) -> None:
        """Have a function called when there is a gang to be lined up, from when the cluster answers."""
        with self._lock:
            self._found = call
            if self._engine is not None:
                self._engine.when_found(call)

    def gangs(self) -> Sequence[FoundGang]:
        """All gangs of which pods wait to be bound and that no run of a job has taken."""
        return () if self._engine is None else self._engine.gangs()

    def entrust(self, jobs: Mapping[str, GangKey]) -> None:
        """From now on these jobs stand for these gangs, which have been seen."""
        if self._engine is not None:
            self._engine.entrust(jobs)

    def withdraw(self, job: str) -> None:
        """A job stands for nothing any more."""
        with self._lock:
            if self._engine is None:
                self._withdrawn.append(job)
            else:
                self._engine.withdraw(job)

    def answer(self, key: GangKey, text: str) -> None:
        """Why the pods of a gang wait."""
        if self._engine is not None:
            self._engine.answer(key, text)

    @property
    def access(self) -> TaskAccess:
        """The ways into running tasks."""
        return NoAccess(self._why) if self._engine is None else self._engine.access

    @property
    def running(self) -> Sequence[RunRecord]:
        """The tasks that run on this machine."""
        return () if self._engine is None else self._engine.running

    def slice_readings(self) -> Iterable[SliceReading]:
        """What tasks make of their parts of devices, as far as that is counted."""
        return () if self._engine is None else self._engine.slice_readings()

    def card_loads(self) -> Mapping[str, int]:
        """The mean use of cards of other machines as measured there, in milli, by UUID."""
        return {} if self._engine is None else self._engine.card_loads()

    def why_nothing_is_shared(self, pool: str = "") -> str:
        """Why slices are refused; empty where they are not."""
        return self._why if self._engine is None else self._engine.why_nothing_is_shared(pool)

    def why_nothing_is_halted(self) -> str:
        """Why jobs are neither halted nor swapped; empty where they can be."""
        return self._why if self._engine is None else self._engine.why_nothing_is_halted()

    def why_no_card_is_closed(self) -> str:
        """Why single cards cannot be closed; empty where they can."""
        return self._why if self._engine is None else self._engine.why_no_card_is_closed()

    def close(self) -> None:
        """End the engine, or stop waiting for the cluster."""
        self._worker.close()
        if self._engine is not None:
            self._engine.close()


def _is_lost(decision: Decision, there: set[str]) -> bool:
    """Whether a decision starts work on a node that is gone."""
    return isinstance(decision, Start) and any(placed.node not in there for placed in decision.placements)
