"""The contract between the core and whatever carries its decisions out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from millpond.model.confinement import Confinement
from millpond.model.decisions import Decision
from millpond.model.events import Event
from millpond.model.hardware.nodes import Node


@dataclass(frozen=True, slots=True)
class Observed:
    """What an engine finds when it looks: one task that exists out there.

    Attributes:
        confinement: how well it is kept apart, and kept to its amounts.
    """

    job: str
    attempt: int
    task: int
    node: str
    confinement: Confinement = Confinement()


@dataclass(frozen=True, slots=True)
class Inventory:
    """All machines and all tasks that an engine sees."""

    nodes: tuple[Node, ...]
    tasks: tuple[Observed, ...] = ()


class Engine(Protocol):
    """Carries decisions out and reports what happens; never chooses."""

    def apply(self, decisions: Sequence[Decision]) -> None:
        """Take decisions on. Returns soon; results arrive as events. Applying one twice is harmless."""

    def events(self) -> list[Event]:
        """Everything that happened since the last call, oldest first. Does not block."""

    def inventory(self) -> Inventory:
        """Look at what is really there, for settling after a crash."""
