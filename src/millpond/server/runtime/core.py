"""The scheduler with its place in the log, a clock that never runs back, and the decisions that are not answered yet.

After a crash events are handled as before, and what was decided is carried out again (``redo``), not decided again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millpond.model import events
from millpond.model.codec import from_plain, to_plain
from millpond.model.decisions import Decision
from millpond.model.errors import InconsistentStateError, MillpondError
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.scheduling.scheduler import Scheduler


class Core:
    """One scheduler and its place in the log.

    Attributes:
        seq: number of the last log entry that was handled.
        now: instant of the latest event; later ones are never earlier.
        unanswered: decisions that the engine has neither confirmed nor refused, by id.
        devices: every device of every node, by UUID.
        clusters: the cluster of each node; empty where there is one.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.seq = 0
        self.now = 0.0
        self.unanswered: dict[int, Decision] = {}
        self.devices: dict[str, Device] = {}
        self.clusters: dict[str, str] = {}
        self._cards: dict[str, tuple[Device, ...]] = {}
        """By node, as it was described last."""

    def job_of(self, event: events.Event) -> str:
        """The job that an event concerns; empty when none."""
        match event:
            case events.JobSubmitted(job=job):
                return job.id
            case events.Confirmed(decision=number) | events.Refused(decision=number):
                decision = self.unanswered.get(number)
                return decision.job if decision else ""
            case _:
                return getattr(event, "job", "")

    def handle(self, event: events.Event) -> set[str] | MillpondError:
        """Handle the next event of the log; returns the jobs it may have changed, or why it was turned down."""
        self.seq += 1
        self.now = max(self.now, event.at)
        touched = {name} if (name := self.job_of(event)) else set()
        node = self._node_of(event)
        touched |= self._jobs_on(node)
        try:
            self.scheduler.handle(event)
        except InconsistentStateError:
            raise
        except MillpondError as error:
            return error
        match event:
            case events.Confirmed(decision=number) | events.Refused(decision=number):
                self.unanswered.pop(number, None)
            case events.NodeJoined(node=joined):
                self._know(joined)
        return touched | self._jobs_on(node)

    def decide(self, tick: events.Tick) -> list[Decision]:
        """Run one cycle at the log's next entry."""
        self.seq += 1
        self.now = max(self.now, tick.at)
        decisions = self.scheduler.decide(tick.at)
        for decision in decisions:
            self.unanswered[decision.id] = decision
        return decisions

    def redo(
        self, turn: Sequence[events.Event], tick: events.Tick, decided: Sequence[Decision], claims: Sequence[Any] | None
    ) -> None:
        """Handle the next events of the log, and carry out what was decided at the tick behind them.

        Raises:
            InconsistentStateError: a decision is about what is not there.
        """
        self.scheduler.expect(decided, claims)
        for event in turn:
            self.handle(event)
        self.seq += 1
        self.now = max(self.now, tick.at)
        self.scheduler.redo(tick.at, decided, claims)
        self.unanswered.update((decision.id, decision) for decision in decided)

    def forget(self, job: str) -> None:
        """Drop a job that has ended, and what was still open about it."""
        self.scheduler.forget(job)
        for number in [number for number, decision in self.unanswered.items() if decision.job == job]:
            del self.unanswered[number]

    def snapshot(self) -> dict[str, Any]:
        """Everything, as JSON-able data."""
        return {
            "scheduler": self.scheduler.snapshot(),
            "now": self.now,
            "unanswered": [to_plain(decision) for decision in self.unanswered.values()],
        }

    @classmethod
    def restore(cls, seq: int, data: dict[str, Any]) -> Core:
        """The core as it was after log entry ``seq``."""
        core = cls(Scheduler.restore(data["scheduler"]))
        core.seq, core.now = seq, data["now"]
        core.unanswered = {decision.id: decision for decision in map(from_plain, data["unanswered"])}
        for view in core.scheduler.node_views():
            core._know(view.node)
        return core

    def _know(self, node: Node) -> None:
        self._cards[node.name] = node.devices
        self.clusters[node.name] = node.cluster
        self.devices.update((device.uuid, device) for device in node.devices)

    def _node_of(self, event: events.Event) -> str:
        """The node whose cards are others, or otherwise, after an event; empty: none."""
        match event:
            case events.NodeJoined(node=node):
                return node.name if self._cards.get(node.name) != node.devices else ""
            case events.NodeLost(node=name) | events.DeviceHealthChanged(node=name):
                return name
            case _:
                return ""

    def _jobs_on(self, node: str) -> set[str]:
        return self.scheduler.jobs_on(node) if node else set()
