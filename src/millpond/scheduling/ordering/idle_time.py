"""How long cards have stood idle, by pool: what work that waited meanwhile could have had.

Between two cycles so much is idle as the first of them left free. Cards of closed nodes and unhealthy cards are not
idle, nor is anything while nothing may start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class IdleTime:
    """Milli-card-seconds since the beginning, by pool."""

    __slots__ = ("_idle_milli", "_since", "_total")

    def __init__(self) -> None:
        self._since = 0.0
        """Up to when ``_total`` is counted."""
        self._total: dict[str, float] = {}
        self._idle_milli: Mapping[str, int] = {}

    def of(self, pool: str, now: float) -> float:
        """All of a pool up to now."""
        return self._total.get(pool, 0.0) + self._idle_milli.get(pool, 0) * max(now - self._since, 0.0)

    def advance(self, now: float) -> None:
        """A cycle begins: what was idle has been so up to now."""
        passed = now - self._since
        if passed > 0.0:
            for pool, idle in self._idle_milli.items():
                self._total[pool] = self._total.get(pool, 0.0) + idle * passed
            self._since = now

    def set_idle(self, idle_milli: Mapping[str, int]) -> None:
        """A cycle ends: so much is idle from now on."""
        self._idle_milli = {pool: idle for pool, idle in idle_milli.items() if idle}

    def snapshot(self) -> list[Any]:
        """Plain data."""
        return [self._since, dict(self._total), dict(self._idle_milli)]

    def restore(self, plain: Sequence[Any]) -> None:
        """Take over what ``snapshot`` returned."""
        self._since, self._total, self._idle_milli = plain[0], dict(plain[1]), dict(plain[2])
