"""The body about the pool's own history; units and instants as in ``specs.api.base``."""

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
