"""How the tasks of a gang must lie towards each other: together, apart or evenly over places.

Nodes with the same value of a label are one place. Source: the Kubernetes API reference, PodAffinityTerm and
TopologySpreadConstraint, for what each kind means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from millpond.model.hardware.nodes import CLUSTER_LABEL


class SpacingKind(StrEnum):
    """What a rule asks for."""

    TOGETHER = "together"
    """All of its tasks lie in one place."""
    APART = "apart"
    """No place has one of its tasks and another one of those that it keeps off."""
    EVEN = "even"
    """No place of its tasks has too many more of those that count than the place with the fewest."""


@dataclass(frozen=True, slots=True)
class SpacingRule:
    """One rule for the tasks of a job that start together.

    Attributes:
        label: of nodes. A node without it is no place: tasks that lie together or evenly do not go there. Where there
            is one cluster, all nodes are of that.
        roles: the names of the roles whose tasks are meant.
        others: of a rule that keeps apart, the roles of the tasks that are kept off; of one that spreads, the roles
            that count.
        most: of one that spreads, so many more a place may have than the one with the fewest.
        counted: of one that spreads, what counts beside the job: places with how many they have, none with 0.
        empty: of one that spreads, how many more places there are, with none.
        least_places: of one that spreads: with fewer places than this, the fewest is none.
    """

    kind: SpacingKind
    label: str
    roles: tuple[str, ...]
    others: tuple[str, ...] = ()
    most: int = 1
    counted: tuple[tuple[str, int], ...] = ()
    empty: int = 0
    least_places: int = 1

    @property
    def of_its_own(self) -> SpacingRule:
        """The same where nothing lies anywhere but the tasks of the job."""
        return replace(self, counted=(), empty=len(self.counted) + self.empty)

    @property
    def text(self) -> str:
        """In words, after "its tasks must"."""
        match self.kind:
            case SpacingKind.TOGETHER if self.label == CLUSTER_LABEL:
                return "lie in one cluster"
            case SpacingKind.TOGETHER:
                return f"lie together, by {self.label}"
            case SpacingKind.APART:
                return f"lie apart, by {self.label}"
            case SpacingKind.EVEN:
                return f"lie evenly, by {self.label}, at most {self.most} more in a place than in another"


def spacing_text(rules: Sequence[SpacingRule]) -> str:
    """What is asked of a gang's tasks, in words."""
    return ", and ".join(dict.fromkeys(rule.text for rule in rules))
