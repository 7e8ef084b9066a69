"""The body about how fair cards were divided between queues; units and instants as in ``specs.api.base``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFairness:
    """A queue among its siblings.

    Attributes:
        weight: its weight of today, which is taken for the past too.
        got: the cards that it held, a value for each instant; null where it is unknown.
        due: the cards that were due to it of those that its siblings and it held together: its guarantee as far as it
            demanded so much, and by its weight a part of the rest.
    """

    name: str
    weight: float = 1.0
    got: list[float | None] = field(default_factory=list)
    due: list[float | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiblingFairness:
    """The queues below one queue.

    Attributes:
        index: Jain's index of got / due of those with a demand, a value for each instant: 1 is fair, and of n queues
            1/n is the least; null where fewer than two had a demand. A ratio counts as 2 at the most, as does that of a
            queue that held cards while none were due to it.
    """

    parent: str
    index: list[float | None] = field(default_factory=list)
    queues: list[QueueFairness] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class FairnessInfo:
    """How cards were divided between queues; where the server did not run there is no instant.

    Attributes:
        begin, end, step_s, at: as in ``TimeSeriesInfo``.
        whole: all queues are counted; else only those that the reader may see, as if there were no others.
    """

    begin: float
    end: float
    step_s: int
    whole: bool = True
    at: list[float] = field(default_factory=list)
    siblings: list[SiblingFairness] = field(default_factory=list)
