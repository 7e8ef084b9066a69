"""What the engine has to say: filled by its threads, emptied by the server's."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from millpond.engines.task_ends import EndVerdict, Refusal
from millpond.model.confinement import UNTOLD, Confinement
from millpond.model.contents import Content
from millpond.model.decisions import Decision
from millpond.model.errors import InconsistentStateError, LeadershipLostError
from millpond.model.events import (
    CardLayoutChanged,
    Confirmed,
    DeviceHealthChanged,
    DeviceReported,
    Ended,
    Event,
    Kept,
    NodeContents,
    NodeJoined,
    NodeLost,
    Noted,
    Refused,
    StopRequested,
    SuspendRequested,
)
from millpond.model.hardware.card_layouts import LayoutChange
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.node.task.records import TaskId

_log = logging.getLogger(__name__)


class Outbox:
    """Events in their order, each stamped when it is put in.

    Args:
        wake: called after each event, from the thread that put it in.
        name: of the engine, for messages.
    """

    def __init__(self, wake: Callable[[], None], name: str = "local") -> None:
        self._wake = wake
        self._name = name
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._defect: BaseException | None = None

    def confirm(self, decision: Decision, confinement: Confinement = UNTOLD) -> None:
        """A decision was carried out.

        Args:
            confinement: of a start: that of its tasks.
        """
        self._put(lambda at: Confirmed(at, decision.id, confinement))

    def refuse(self, decision: Decision, refusal: Refusal) -> None:
        """A decision could not be carried out, and nothing of it remains."""
        self._put(lambda at: Refused(at, decision.id, refusal.reason, refusal.device_fault, refusal.exit_code))

    def kept(self, task: TaskId, verdict: EndVerdict, until: float) -> None:
        """A task's program has failed, and its place is kept up to an instant."""
        outcome, code = verdict.outcome, verdict.exit_code
        self._put(lambda at: Kept(at, task.job, task.attempt, task.task, outcome, until, code, verdict.detail))

    def ended(self, task: TaskId, verdict: EndVerdict) -> None:
        """A task is over."""
        outcome, code = verdict.outcome, verdict.exit_code
        self._put(
            lambda at: Ended(
                at, task.job, task.attempt, outcome, task.task, code, verdict.detail, service_s=verdict.service_s
            )
        )

    def ask_to_suspend(self, job: str) -> None:
        """A job should leave its devices until it is resumed on request."""
        self._put(lambda at: SuspendRequested(at, job, by="the rule for escapes from slices"))

    def ask_to_stop(self, job: str, why: str) -> None:
        """A job should end, as what it stands for was ended by somebody else."""
        self._put(lambda at: StopRequested(at, job, by="Kubernetes", reason=why))

    def health(self, node: str, device: Device, needs_person: bool) -> None:
        """A device became usable or unusable."""
        health, detail = device.health, device.health_detail
        self._put(lambda at: DeviceHealthChanged(at, node, device.uuid, health, detail, needs_person))

    def reported(self, node: str, device: Device, text: str) -> None:
        """A driver reported something of a device that leaves it in use."""
        self._put(lambda at: DeviceReported(at, node, device.uuid, text))

    def joined(self, node: Node) -> None:
        """A node is described anew."""
        self._put(lambda at: NodeJoined(at, node))

    def holds(self, node: str, contents: Sequence[Content], fetch_rate: int) -> None:
        """What a node that has joined holds, all of it."""
        self._put(lambda at: NodeContents(at, node, tuple(contents), fetch_rate))

    def divided(self, card: str, change: LayoutChange) -> None:
        """The change of a card's layout is over; its node has joined before."""
        self._put(
            lambda at: CardLayoutChanged(
                at, change.node, card, change.state, change.layout, change.for_job, change.detail
            )
        )

    def lost(self, node: str) -> None:
        """A node is gone, with all that ran there."""
        self._put(lambda at: NodeLost(at, node))

    def note(self, job: str, text: str) -> None:
        """A note for a job's history."""
        self._put(lambda at: Noted(at, job, text))

    def fail(self, defect: BaseException) -> None:
        """The engine cannot go on; the next request for events raises."""
        if isinstance(defect, LeadershipLostError):
            _log.error("the %s engine ends: %s", self._name, defect)
        else:
            _log.error("the %s engine failed", self._name, exc_info=defect)
        self._defect = self._defect or defect
        self._wake()

    def drain(self) -> list[Event]:
        """Everything put in since the last call.

        Raises:
            InconsistentStateError: the engine failed.
            LeadershipLostError: another server has taken over.
        """
        if isinstance(self._defect, LeadershipLostError):
            raise self._defect
        if self._defect is not None:
            raise InconsistentStateError(
                f"the {self._name} engine failed: {self._defect}", "restart the server; tasks go on and are found again"
            ) from self._defect
        with self._lock:
            events, self._events = self._events, []
        return events

    def _put(self, event: Callable[[float], Event]) -> None:
        with self._lock:
            self._events.append(event(time.time()))
        self._wake()
