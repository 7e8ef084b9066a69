"""Averages of the use of devices in which older looks count less, so that bursts of seconds are no load that lasts.

The weight of a look falls by half in ``HALF_LIFE_S``. A mean is divided by the weights that there are, so that of a
device which was not looked at for long is neither too low nor follows a single look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HALF_LIFE_S: Final = 600.0
SETTLE_S: Final = 60.0
"""Before a device was looked at for so long, its mean says nothing."""
LONGEST_SPAN_S: Final = 120.0
"""A longer time since the last look is one in which this machine slept: nothing is known of it."""


class DecayedAverages:
    """The means of one figure of some devices, each look being worth the time since the one before."""

    def __init__(self) -> None:
        self._means: dict[str, tuple[float, float]] = {}
        """By device: the weighted sum, and the sum of the weights."""
        self._looked_at: float | None = None

    def look(self, figures: Mapping[str, float], now: float) -> dict[str, int]:
        """Count a look; returns the means, rounded, of the devices in it that were looked at for long enough.

        Args:
            figures: by device. One that is left out keeps its mean for as long as this is not longer than
                ``LONGEST_SPAN_S``.
            now: in seconds, of any origin.
        """
        span_s = 0.0 if self._looked_at is None else now - self._looked_at
        self._looked_at = now
        if not 0.0 <= span_s <= LONGEST_SPAN_S:
            self._means.clear()
            return {}
        kept = 0.5 ** (span_s / HALF_LIFE_S)
        for device, figure in figures.items():
            total, weight = self._means.get(device, (0.0, 0.0))
            self._means[device] = total * kept + figure * (1.0 - kept), weight * kept + 1.0 - kept
        return {
            device: round(total / weight)
            for device in figures
            for total, weight in (self._means[device],)
            if weight >= _SETTLED
        }


_SETTLED: Final = (1.0 - 0.5 ** (SETTLE_S / HALF_LIFE_S)) * (1.0 - 1e-9)
