"""What a server asks of an engine besides what the core does (``model.engine.Engine``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from millpond.engines.task_access import TaskAccess
from millpond.model.decisions import Decision
from millpond.model.engine import Engine
from millpond.model.hardware.telemetry import SliceReading
from millpond.node.task.records import RunRecord, TaskId


class AdoptingEngine(Engine, Protocol):
    """An engine that finds its tasks again after the server was killed."""

    def adopt(self, expected: Mapping[TaskId, str], unanswered: Sequence[Decision]) -> None:
        """Report what became of the expected tasks, carry the unanswered decisions out, end everything else.

        To be called once, before the first ``apply``.

        Args:
            expected: with the nodes that they are on.
        """


class ServerEngine(AdoptingEngine, Protocol):
    """An engine as a server uses it."""

    @property
    def running(self) -> Sequence[RunRecord]:
        """The tasks that run on this machine."""

    @property
    def access(self) -> TaskAccess:
        """The ways into running tasks."""

    def slice_readings(self) -> Iterable[SliceReading]:
        """What tasks make of their parts of devices, as far as that is counted."""

    def card_loads(self) -> Mapping[str, int]:
        """The mean use of cards of other machines as measured there, in milli, by UUID."""

    def why_nothing_is_shared(self, pool: str = "") -> str:
        """Why slices are refused in a pool, or in all; empty where they are not."""

    def why_nothing_is_halted(self) -> str:
        """Why jobs are neither halted nor swapped; empty where they can be."""

    def why_no_card_is_closed(self) -> str:
        """Why single cards cannot be closed; empty where they can."""

    def close(self) -> None:
        """End the engine. What runs goes on."""
