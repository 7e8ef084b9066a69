"""What the engine and the server tell each other of pods that others made. The standard library and the model alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from millpond.model.hardware.node_selection import NodeSelection
from millpond.model.resources import TaskRequest
from millpond.model.task_spacing import SpacingRule

ANNOTATION_PREFIX = "millpond.io/"
QUEUE_LABEL = "millpond.io/queue"
"""Of pods: the queue in which they line up."""
POD = "Pod"
"""The kind of a gang that is one pod by itself."""


@dataclass(frozen=True, slots=True, order=True)
class GangKey:
    """What pods that start together have in common.

    Attributes:
        kind: of what groups them: an owner's kind, a kind of group, or ``POD``.
        uid: of that; empty where pods do not tell it.
        part: which of the owner's gangs, where it has several.
        cluster: the one of several that has the pods; empty where there is one.
    """

    namespace: str
    kind: str
    name: str
    uid: str = ""
    part: str = ""
    cluster: str = ""

    @property
    def text(self) -> str:
        """In words."""
        part = f", part {self.part}" if self.part else ""
        cluster = f" of cluster {self.cluster}" if self.cluster else ""
        return f"{self.kind} {self.namespace}/{self.name}{part}{cluster}"


@dataclass(frozen=True, slots=True)
class PodRole:
    """Pods of a gang that ask for the same.

    Attributes:
        least: so many are enough to begin with.
    """

    name: str
    request: TaskRequest
    count: int
    least: int


@dataclass(frozen=True, slots=True)
class GangTerms:
    """What the pods of a gang say about the gang as a whole.

    Attributes:
        account: the service account that they run as.
        queue: that their label names; empty: none.
        priority, priority_class: of their PriorityClass; an empty name: they have none.
        fields: of the job file, by their names, as annotations have them: YAML.
        selection: the nodes that they may have; empty: any.
        grace_s: seconds between notice and the end by force.
        spacing: how the pods must lie towards each other.
        contents: their images, as nodes report those that they hold.
    """

    account: str = "default"
    queue: str = ""
    priority: int = 0
    priority_class: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    selection: NodeSelection = ()
    grace_s: float = 30.0
    spacing: tuple[SpacingRule, ...] = ()
    contents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundGang:
    """Pods that wait to be bound.

    Attributes:
        trouble: why they cannot be lined up as they are; empty when they can.
        size: so many pods start together, as their PodGroup says now; 0: it says nothing, or there is none.
    """

    key: GangKey
    terms: GangTerms
    roles: tuple[PodRole, ...] = ()
    trouble: str = ""
    size: int = 0


class Adoption(Protocol):
    """The engine's side: thread-safe, returns at once."""

    def when_found(self, call: Callable[[], None]) -> None:
        """Have a function called when there is a gang to be lined up; it must return at once."""

    def gangs(self) -> Sequence[FoundGang]:
        """All gangs of which pods wait to be bound and that no run of a job has taken."""

    def entrust(self, jobs: Mapping[str, GangKey]) -> None:
        """From now on these jobs stand for these gangs; said before the scheduler has them."""

    def withdraw(self, job: str) -> None:
        """A job stands for nothing any more: it was refused, or has ended."""

    def answer(self, key: GangKey, text: str) -> None:
        """Why the pods of a gang wait: for their conditions and events, as often as it changes."""
