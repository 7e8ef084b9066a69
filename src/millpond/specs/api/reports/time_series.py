"""The bodies about the pool's own history, and how fair cards were divided; units and instants as in
``specs.api.base``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSeries:
    """One model of cards, queue or node.

    Attributes:
        figures: by their names, a value for each instant; null where it is unknown. Of models and nodes: ``cards``,
            ``held`` by jobs, ``unhealthy`` (faulty), ``measured``, of these ``computing`` (cards times the part of the
            time in which they computed), ``power_w`` together, ``temperature_c`` of the hottest. Of queues, in cards:
            ``guaranteed``, ``used``, ``borrowed``, ``lent``, ``waiting``; and ``waiting_jobs``.
    """

    name: str
    figures: dict[str, list[float | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSeriesInfo:
    """The history of a subject; where the server did not run there is no instant.

    Attributes:
        begin, end: the span, widened to whole steps.
        step_s: the time that each point stands for: as was asked for, or as coarse as is still kept.
        at: the begin of each point.
    """

    subject: str
    begin: float
    end: float
    step_s: int
    at: list[float] = field(default_factory=list)
    series: list[NamedSeries] = field(default_factory=list)


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
