"""How much of a device slices use now: their holds count device time up, so it takes two looks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, Generic, TypeVar

from millpond.model.resources import CARD_MILLI

_NS_PER_S: Final = 1_000_000_000

Key = TypeVar("Key", bound=Hashable)


class DeviceTimes(Generic[Key]):
    """The device time of each slice at the look before."""

    def __init__(self) -> None:
        self._at = 0.0
        self._busy_ns: Mapping[Key, int] = {}

    def look(self, busy_ns: Mapping[Key, int], now: float) -> dict[Key, int]:
        """Parts of the time since the look before, 0 to 1000; none of a slice that was not there, or counts anew.

        Args:
            busy_ns: device time so far.
            now: seconds, of any beginning.
        """
        before, passed_ns = self._busy_ns, (now - self._at) * _NS_PER_S
        self._at, self._busy_ns = now, dict(busy_ns)
        return {
            key: min(CARD_MILLI, round((counted - before[key]) * CARD_MILLI / passed_ns))
            for key, counted in busy_ns.items()
            if passed_ns > 0 and counted >= before.get(key, counted + 1)
        }
