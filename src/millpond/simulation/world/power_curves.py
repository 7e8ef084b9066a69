"""How fast jobs really are, and what their cards draw, at power caps: a part of the simulated world.

The simulated engine and the meter alone read this. A policy learns of it what it measures (``ProgressMeasured``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from millpond.model.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """One kind of job on one model of cards. Between two caps the time of a step and the power lie on a line.

    Attributes:
        caps_w: ascending; the last stands for no cap.
        step_s: how long a step takes at each.
        power_w: what each card draws at each.
    """

    caps_w: tuple[float, ...]
    step_s: tuple[float, ...]
    power_w: tuple[float, ...]

    @classmethod
    def of(cls, measured: Iterable[tuple[float, float, float]]) -> PowerCurve:
        """From (cap, seconds of a step, power of a card).

        Raises:
            InvalidInputError: there is none, or a figure is not above 0.
        """
        rows = sorted(measured)
        if not rows or min(map(min, rows)) <= 0.0:
            raise InvalidInputError("a power curve without figures above 0", "give a cap, a time and a power each")
        caps_w, step_s, power_w = zip(*rows, strict=True)
        return cls(caps_w, step_s, power_w)

    @property
    def steps_per_s(self) -> float:
        """Without a cap."""
        return 1.0 / self.step_s[-1]

    def speed(self, cap_w: float) -> float:
        """The speed at a cap, 0 for none, as a part of that without one."""
        return self.step_s[-1] / self._at(cap_w, self.step_s)

    def drawn_w(self, cap_w: float) -> float:
        """What a card draws at a cap; 0 for none."""
        return self._at(cap_w, self.power_w)

    def _at(self, cap_w: float, values: tuple[float, ...]) -> float:
        caps = self.caps_w
        if not cap_w or cap_w >= caps[-1]:
            return values[-1]
        index = bisect_left(caps, cap_w)
        if index == 0:
            return values[0]
        part = (cap_w - caps[index - 1]) / (caps[index] - caps[index - 1])
        return values[index - 1] + (values[index] - values[index - 1]) * part
