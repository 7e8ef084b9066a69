"""Parallel coordinates: an axis for each parameter of a sweep and one for the result, a line for each run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millpond.server.web.charts.line_charts import look_of, number_text
from millpond.specs.api.jobs.curves import CurvesInfo

WIDTH: Final = 2_000
HEIGHT: Final = 1_000
"""Of the plane that lines are drawn in, which is stretched over the room there is."""
MOST_AXES: Final = 9
MOST_WORDS: Final = 12
_FAR: Final = 50.0
"""Numbers above zero whose largest is so many times the smallest stand by powers of ten."""
Value = int | float | str | bool


@dataclass(frozen=True, slots=True)
class AxisTick:
    """A label of an axis; ``place`` is in percent from its top."""

    place: float
    text: str


@dataclass(frozen=True, slots=True)
class ParameterAxis:
    """One axis; ``place`` is in percent from the left."""

    name: str
    place: float
    ticks: list[AxisTick]


@dataclass(frozen=True, slots=True)
class RunPath:
    """A run as a line through the axes."""

    job: str
    look: str
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Parallel:
    """What is drawn; ``left_out`` parameters have no axis."""

    axes: list[ParameterAxis]
    paths: list[RunPath]
    left_out: int


def parallel_of(found: CurvesInfo, goal: str, looks: Mapping[str, int]) -> Parallel | None:
    """The runs by their parameters and their best value of the first metric; None where no parameter differs."""
    rows = [(run.job, run.parameters) for run in found.runs if run.parameters]
    names = list(dict.fromkeys(name for _, parameters in rows for name in parameters))
    differing = [name for name in names if len({str(parameters.get(name)) for _, parameters in rows}) > 1]
    if not differing or len(rows) < 2:
        return None
    shown = differing[: MOST_AXES - 1]
    columns: list[tuple[str, list[Value | None]]] = [
        (name, [parameters.get(name) for _, parameters in rows]) for name in shown
    ]
    if found.shown:
        columns.append((found.shown[0], [_best(found, job, goal) for job, _ in rows]))
    scales = [_Scale(values) for _, values in columns]
    places = [4 + 92 * index / max(len(columns) - 1, 1) for index in range(len(columns))]
    axes = [
        ParameterAxis(name, round(place, 2), scale.ticks)
        for (name, _), place, scale in zip(columns, places, scales, strict=True)
    ]
    paths = []
    for row, (job, _) in enumerate(rows):
        points = [
            f"{round(WIDTH * place / 100)},{round(HEIGHT * scale.place(values[row]))}"
            for (_, values), place, scale in zip(columns, places, scales, strict=True)
            if values[row] is not None
        ]
        text = ", ".join(f"{name} {_text(values[row])}" for name, values in columns)
        paths.append(RunPath(job, look_of(looks[job]), "M" + "L".join(points) if points else "", text))
    return Parallel(axes, paths, len(differing) - len(shown))


def _best(found: CurvesInfo, job: str, goal: str) -> float | None:
    own = [curve for curve in found.curves if curve.job == job and curve.metric == found.shown[0]]
    if goal == "maximize":
        return max((curve.most for curve in own if curve.most is not None), default=None)
    return min((curve.least for curve in own if curve.least is not None), default=None)


class _Scale:
    """Where values stand on an axis, from its top: numbers by size, words by their order."""

    def __init__(self, values: Sequence[Value | None]) -> None:
        known = [value for value in values if value is not None]
        numbers = [float(value) for value in known if isinstance(value, (int, float)) and not isinstance(value, bool)]
        self._words = sorted({_text(value) for value in known}) if len(numbers) < len(known) or not numbers else None
        if self._words is None:
            low, high = min(numbers), max(numbers)
            self._is_log = low > 0 and high / low >= _FAR
            self._low, self._high = self._scaled(low), self._scaled(high)
            steps = [low, high] if low < high else [low]
        else:
            steps = []
        self.ticks = [AxisTick(round(100 * self.place(value), 2), number_text(value)) for value in steps] or [
            AxisTick(round(100 * self.place(word), 2), word[:24]) for word in (self._words or [])[:MOST_WORDS]
        ]

    def place(self, value: Value | None) -> float:
        """0 at the top, 1 at the bottom."""
        if self._words is not None:
            return self._words.index(_text(value)) / max(len(self._words) - 1, 1) * 0.92 + 0.04
        assert isinstance(value, (int, float))
        if self._high == self._low:
            return 0.5
        return 0.96 - 0.92 * (self._scaled(float(value)) - self._low) / (self._high - self._low)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self._is_log else value


def _text(value: Value | None) -> str:
    if isinstance(value, (bool, str)):
        return str(value)
    return number_text(None if value is None else float(value))
