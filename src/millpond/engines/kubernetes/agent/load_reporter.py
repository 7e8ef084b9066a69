"""When the mean use of a node's cards is worth telling: its agent writes it on its pod, a write for the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from millpond.model.hardware.telemetry import DeviceSample
from millpond.node.devices.decayed_averages import DecayedAverages

STEP_MILLI: Final = 50
"""By so much the mean of a card has changed, or it is not told anew."""


class LoadReporter:
    """Means of the use of the cards of one node, and what was told of them last."""

    def __init__(self) -> None:
        self._means = DecayedAverages()
        self._told: dict[str, int] = {}

    def look(self, samples: Iterable[DeviceSample], now: float) -> dict[str, int] | None:
        """Count a look; returns the means by UUID where they are worth telling."""
        uses = {each.device: float(each.use_milli) for each in samples if each.use_milli is not None}
        means, told = self._means.look(uses, now), self._told
        if means.keys() == told.keys() and all(abs(means[card] - told[card]) < STEP_MILLI for card in means):
            return None
        self._told = means
        return means
