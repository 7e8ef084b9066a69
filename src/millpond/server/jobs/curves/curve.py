"""One curve in bounded memory: all of it while it is short, later the lowest and highest of each stretch.

Peaks and dips stay, which a mean would hide. How many points there were is never forgotten, so what is shown of them
can always be declared.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Final

from millpond.specs.api.base import LATEST

LARGEST: Final = 1e100
"""Numbers beyond are no measurements; their differences and squares would be none."""


KEPT: Final = 8_192
"""Points of one curve; twice as many are thinned to that."""


@dataclass(slots=True)
class CurvePoints:
    """Points in the order of their steps; ``at`` is in seconds since 1970."""

    steps: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))
    at: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.steps)

    def picked(self, indices: list[int]) -> CurvePoints:
        """Those at these places."""
        return CurvePoints(*(array("d", [column[index] for index in indices]) for column in self._columns()))

    def part(self, first: int, last: int) -> CurvePoints:
        """Those from one place up to, and without, another."""
        return CurvePoints(*(column[first:last] for column in self._columns()))

    def _columns(self) -> tuple[array[float], array[float], array[float]]:
        return self.steps, self.values, self.at


@dataclass(slots=True)
class Curve:
    """A metric of one run.

    Attributes:
        count: finite values that were ever reported and still count.
        not_finite: values that were none, such as NaN, or beyond ``LARGEST``.
    """

    points: CurvePoints = field(default_factory=CurvePoints)
    count: int = 0
    not_finite: int = 0
    _is_ordered: bool = True

    def add(self, step: float | None, value: float | None, at: float) -> None:
        """The next value; without a step, values are counted."""
        if value is None or not -LARGEST <= value <= LARGEST:
            self.not_finite += 1
            return
        self.count += 1
        points = self.points
        place = float(self.count) if step is None or not -LARGEST <= step <= LARGEST else step
        if points.steps and place < points.steps[-1]:
            self._is_ordered = False
        points.steps.append(place)
        points.values.append(value)
        points.at.append(at if 0 <= at <= LATEST else 0.0)
        if len(points) >= 2 * KEPT:
            self.points = thinned(self.ordered(), KEPT)

    def rewind(self, step: float) -> None:
        """A new attempt goes on from here: what was reported at this step or later counts no more."""
        points = self.ordered()
        kept = [index for index, place in enumerate(points.steps) if place < step]
        self.count = round(self.count * len(kept) / max(len(points), 1))
        self.points = points.picked(kept)

    def ordered(self) -> CurvePoints:
        """What is kept, by step."""
        if not self._is_ordered:
            places = sorted(range(len(self.points)), key=self.points.steps.__getitem__)
            self.points = self.points.picked(places)
            self._is_ordered = True
        return self.points


def thinned(points: CurvePoints, most: int) -> CurvePoints:
    """At most so many of the points: the lowest and the highest of each stretch, and both ends.

    Args:
        most: at least 4.
    """
    count = len(points)
    if count <= most:
        return points
    stretches = (most - 2) // 2
    kept = {0, count - 1}
    for number in range(stretches):
        begin, end = count * number // stretches, count * (number + 1) // stretches
        part = points.values[begin:end]
        kept.add(begin + part.index(min(part)))
        kept.add(begin + part.index(max(part)))
    return points.picked(sorted(kept))
