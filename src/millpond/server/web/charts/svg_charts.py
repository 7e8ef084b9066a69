"""Charts as SVG, drawn by the server: lines over time or over steps, with what a script needs to read values from them.

Text keeps its size at any width: lines are drawn in a plane of ``WIDTH`` by ``HEIGHT`` that is stretched over the room
there is, labels are placed beside it in percent. Nothing is styled inline; a line's look is a word for the style sheet.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup

WIDTH: Final = 2_000
HEIGHT: Final = 1_000
COLOURS: Final = 8
DASHES: Final = 3
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_TIME_STEPS: Final = (
    *(count * _MINUTE for count in (1, 2, 5, 10, 15, 30)),
    *(count * _HOUR for count in (1, 2, 3, 6, 12)),
    *(count * _DAY for count in (1, 2, 5, 7, 10)),
)
_MOST_X_TICKS: Final = 5
_MOST_Y_TICKS: Final = 5


@dataclass(frozen=True, slots=True)
class Line:
    """What is drawn: places in order and their values; None is a gap."""

    name: str
    look: str
    xs: Sequence[float]
    ys: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Frame:
    """The plane that lines are drawn in.

    Attributes:
        begin, end: what is shown of the horizontal axis.
        is_time: it is seconds since 1970.
        gap: places further apart are not joined; None: all are.
        from_zero: the vertical axis begins with zero.
        is_log: it is by powers of ten; values that are not above zero are left out then.
    """

    begin: float
    end: float
    is_time: bool = False
    gap: float | None = None
    from_zero: bool = False
    is_log: bool = False


@dataclass(frozen=True, slots=True)
class ChartTick:
    """A label of an axis; ``place`` is in percent of it, from the left or the top."""

    place: float
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """A line as the path of an SVG; ``last`` is its last known value."""

    name: str
    look: str
    path: str
    last: float | None


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, for its template.

    Attributes:
        points: all that is drawn, as JSON that may stand in a page.
    """

    frame: Frame
    lines: list[DrawnLine]
    x_ticks: list[ChartTick]
    y_ticks: list[ChartTick]
    points: Markup

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of the span."""
        return not any(line.path for line in self.lines)


def look_of(index: int) -> str:
    """A look for the line of this number: colours first, then dashes."""
    return f"o{index % COLOURS + 1} dash{index // COLOURS % DASHES}"


def draw(lines: Sequence[Line], frame: Frame) -> Chart:
    """Draw lines in a frame; what lies outside its span is cut off."""
    shown = [_within(line, frame) for line in lines]
    values = [value for line in shown for value in line.ys if value is not None]
    low, high, y_ticks = _vertical(values, frame)
    span = frame.end - frame.begin or 1.0

    def across(x: float) -> int:
        return round(WIDTH * (x - frame.begin) / span)

    def down(y: float) -> int:
        return round(HEIGHT * (high - _scaled(y, frame)) / (high - low))

    drawn = [
        DrawnLine(
            line.name,
            line.look,
            "".join(_pieces([(x, y) for x, y in zip(line.xs, line.ys, strict=True)], frame.gap, across, down)),
            next((value for value in reversed(line.ys) if value is not None), None),
        )
        for line in shown
    ]
    return Chart(frame, drawn, list(_x_ticks(frame)), y_ticks, _points(shown, frame))


def number_text(value: float | None) -> str:
    """A value in few characters; a dash where it is unknown."""
    if value is None:
        return "\N{EN DASH}"
    if abs(value) >= 1e6 or 0 < abs(value) < 1e-3:
        return f"{value:.3g}"
    return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def _within(line: Line, frame: Frame) -> Line:
    """The part of a line in the span, with the points on either side of it, by which it leaves."""
    if line.xs and frame.begin <= min(line.xs) and max(line.xs) <= frame.end and not frame.is_log:
        return line
    inside = [frame.begin <= x <= frame.end for x in line.xs]
    kept = [index for index in range(len(line.xs)) if any(inside[max(index - 1, 0) : index + 2])]
    ys = [line.ys[index] for index in kept]
    if frame.is_log:
        ys = [value if value is not None and value > 0 else None for value in ys]
    return Line(line.name, line.look, [line.xs[index] for index in kept], ys)


def _pieces(
    points: Sequence[tuple[float, float | None]],
    gap: float | None,
    across: Callable[[float], int],
    down: Callable[[float], int],
) -> Iterator[str]:
    """The commands of a path; a point alone is a line of no length, which its round ends show."""
    before: float | None = None
    for x, y in points:
        if y is None:
            before = None
            continue
        is_joined = before is not None and (gap is None or x - before <= gap)
        yield f"L{across(x)},{down(y)}" if is_joined else f"M{across(x)},{down(y)}h0"
        before = x


def _scaled(value: float, frame: Frame) -> float:
    return math.log10(value) if frame.is_log else value


def _vertical(values: Sequence[float], frame: Frame) -> tuple[float, float, list[ChartTick]]:
    """The lower and upper end of the vertical axis, scaled, and its labels."""
    scaled = [_scaled(value, frame) for value in values] or [0.0, 1.0]
    low, high = min(scaled), max(scaled)
    if frame.from_zero:
        low = min(low, 0.0)
    if high == low:
        around = 0.5 if frame.is_log else abs(low) / 2 or 0.5
        low, high = (low, high + 1.0) if frame.from_zero else (low - around, high + around)
    step = _nice((high - low) / _MOST_Y_TICKS)
    if frame.is_log:
        step = max(1.0, math.ceil(step))
    high += 0.04 * (high - low)
    low -= 0.0 if frame.from_zero and low == 0.0 else 0.04 * (high - low)
    ticks, at = [], math.ceil(low / step) * step
    while at <= high:
        value = 10.0**at if frame.is_log else round(at, 12)
        ticks.append(ChartTick(round(100 * (high - at) / (high - low), 2), value, number_text(value)))
        at += step
    return low, high, ticks


def _nice(least: float) -> float:
    """The smallest of 1, 2, 5, 10 … that is not less."""
    if least <= 0 or not math.isfinite(least):
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * 0.999)


def _x_ticks(frame: Frame) -> Iterator[ChartTick]:
    span = frame.end - frame.begin
    if span <= 0 or not math.isfinite(span):
        return
    least = span / _MOST_X_TICKS
    step = next((step for step in _TIME_STEPS if step >= least), _nice(least)) if frame.is_time else _nice(least)
    at = math.ceil(frame.begin / step) * step
    while at <= frame.end:
        place = round(100 * (at - frame.begin) / span, 2)
        if 4 <= place <= 96:
            yield ChartTick(place, at, _time_text(at, span) if frame.is_time else number_text(at))
        at += step


def _time_text(at: float, span: float) -> str:
    """Short, as UTC; the script replaces it by the reader's own time."""
    return f"{datetime.fromtimestamp(at, UTC):{'%H:%M' if span <= 1.5 * _DAY else '%m-%d'}}"


def _points(lines: Sequence[Line], frame: Frame) -> Markup:
    shared = lines[0].xs if lines and all(line.xs == lines[0].xs for line in lines) else None
    plain = {
        "begin": frame.begin,
        "end": frame.end,
        "time": frame.is_time,
        "xs": None if shared is None else [_short(x) for x in shared],
        "lines": [
            {
                "name": line.name,
                "xs": None if shared is not None else [_short(x) for x in line.xs],
                "ys": [None if y is None else _short(y) for y in line.ys],
            }
            for line in lines
        ],
    }
    return Markup(json.dumps(plain, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c"))


def _short(value: float) -> float | int:
    """A number in few digits: a page with 20 curves has 20,000 of them."""
    if value == int(value) and abs(value) < 1e15:
        return int(value)
    return float(f"{value:.5g}")
