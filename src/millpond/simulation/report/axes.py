"""Axes: where ticks stand and how they are labelled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_TIMES = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_LOG_TICKS = (
    (1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3600.0, "1 h"), (36000.0, "10 h"),
    (345600.0, "4 d"), (3456000.0, "40 d"), (31536000.0, "1 y"), (315360000.0, "10 y"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of values with labelled ticks.

    Attributes:
        ticks: (value, label), rising.
        logarithmic: equal factors take equal lengths.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool = False

    def part(self, value: float) -> float:
        """Where a value lies, from 0 to 1; beyond the range it stops at the edge."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(max(value, self.low))
        return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.0


def linear(values: Sequence[float]) -> Axis:
    """From 0 to a round number that none of ``values`` exceeds."""
    top = max(values, default=1.0)
    step = _round_step(max(top, 1e-9) / 4)
    count = max(math.ceil(top / step - 1e-9), 1)
    ticks = tuple((index * step, f"{index * step:,.10g}") for index in range(count + 1))
    return Axis(0.0, ticks[-1][0], ticks)


def within(low: float, high: float, unit: str = "") -> Axis:
    """Exactly from ``low`` to ``high``, with ticks at round numbers in between."""
    step = _round_step(max(high - low, 1e-9) / 5)
    first = math.ceil(low / step - 1e-9)
    ticks = (index * step for index in range(first, first + 12))
    return Axis(low, high, tuple((tick, f"{tick:,.10g}{unit}") for tick in ticks if tick <= high + 1e-9))


def percent() -> Axis:
    """0 to 100 %."""
    return Axis(0.0, 100.0, tuple((float(value), f"{value} %") for value in (0, 25, 50, 75, 100)))


def elapsed(span_s: float) -> Axis:
    """From 0 to a span of time, in the unit that suits it; the axis ends where the data ends."""
    size, unit = next(((size, unit) for size, unit in _TIMES if span_s >= 3 * size), (1.0, "s"))
    step = _round_step(span_s / size / 5)
    count = int(span_s / size / step)
    return Axis(0.0, span_s, tuple((index * step * size, f"{index * step:,.10g} {unit}") for index in range(count + 1)))


def log_time(values: Sequence[float]) -> Axis:
    """Durations on a logarithmic axis that covers ``values``; below one second counts as one."""
    low, high = max(min(values, default=1.0), 1.0), max(max(values, default=10.0), 10.0)
    ticks = tuple((value, label) for value, label in _LOG_TICKS if low <= value <= high)
    return Axis(low, high, ticks, logarithmic=True)


def log_ratio(values: Sequence[float]) -> Axis:
    """Ratios on a logarithmic axis that covers ``values`` and 1."""
    low, high = min([1.0, *values]), max([1.0, *values])
    low, high = max(low, 1e-3) / 1.15, high * 1.15
    factors = (1, 2, 5) if high / low < 200 else (1,)
    values_at = (factor * 10.0**power for power in range(-3, 10) for factor in factors)
    return Axis(low, high, tuple((value, f"{value:g}") for value in values_at if low <= value <= high), True)


def _round_step(rough: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is not below ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))
