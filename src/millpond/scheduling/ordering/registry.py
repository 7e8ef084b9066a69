"""Orderings by name."""

from __future__ import annotations

from millpond.model.policies import learned_weights
from millpond.scheduling.ordering import named
from millpond.scheduling.ordering.base import Ordering
from millpond.scheduling.ordering.default import Default
from millpond.scheduling.ordering.learned import Learned
from millpond.scheduling.settings import Settings

_BY_NAME: dict[str, type[Ordering]] = {
    "default": Default,
    "fifo": named.Fifo,
    "sjf": named.ShortestJobFirst,
    "srtf": named.ShortestRemainingTime,
    "srsf": named.SmallestRemainingService,
    "ssf": named.SmallestServiceFirst,
    "tiresias": named.Tiresias,
    "edf": named.EarliestDeadline,
    "fair": named.FairShare,
}


def make_ordering(name: str, settings: Settings) -> Ordering:
    """The ordering of this name."""
    if name in _BY_NAME:
        return _BY_NAME[name](settings)
    return Learned(settings, learned_weights(name))
