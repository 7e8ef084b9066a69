"""Charts of lines over time or over steps: what uPlot draws of them in the browser, and the values of their legends.

How a line looks is a word for the style sheet; the script takes colours, dashes and widths from the chart's legend.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

COLOURS: Final = 8
DASHES: Final = 3


@dataclass(frozen=True, slots=True)
class Line:
    """What is drawn: places in order and their values; None is a gap."""

    name: str
    look: str
    xs: Sequence[float]
    ys: Sequence[float | None]

    @property
    def last(self) -> float | None:
        """Its last known value."""
        return next((value for value in reversed(self.ys) if value is not None), None)


@dataclass(frozen=True, slots=True)
class Frame:
    """The plane that lines are drawn in.

    Attributes:
        begin, end: what is shown of the horizontal axis.
        is_time: it is seconds since 1970.
        gap: places further apart are not joined; None: all are.
        from_zero: the vertical axis begins with zero.
        is_log: it is by powers of ten; values that are not above zero are left out then.
        is_stepped: a value holds up to the next place.
    """

    begin: float
    end: float
    is_time: bool = False
    gap: float | None = None
    from_zero: bool = False
    is_log: bool = False
    is_stepped: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, for its template; ``points`` is all that is drawn, as JSON."""

    lines: list[Line]
    points: str

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of the span."""
        return all(line.last is None for line in self.lines)


def look_of(index: int) -> str:
    """A look for the line of this number: colours first, then dashes."""
    return f"o{index % COLOURS + 1} dash{index // COLOURS % DASHES}"


def draw(lines: Sequence[Line], frame: Frame) -> Chart:
    """Draw lines in a frame; what lies outside its span is left out."""
    shown = [_within(line, frame) for line in lines]
    plain = {
        "begin": frame.begin,
        "end": frame.end if frame.end > frame.begin else frame.begin + 1,
        "time": frame.is_time,
        "zero": frame.from_zero,
        "log": frame.is_log,
        "stepped": frame.is_stepped,
        "tables": [_table(list(group), frame) for _, group in groupby(shown, lambda line: line.xs)],
    }
    return Chart(shown, json.dumps(plain, separators=(",", ":")))


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


def _table(lines: Sequence[Line], frame: Frame) -> list[list[float | int | None]]:
    """The places of lines that share them, and the values of each; a row without values is where none is joined."""
    rows: list[tuple[float | None, ...]] = []
    for row in zip(lines[0].xs, *(line.ys for line in lines), strict=True):
        before = rows[-1][0] if rows else None
        if frame.gap is not None and before is not None and row[0] - before > frame.gap:
            rows.append((before + frame.gap / 2, *(None for _ in lines)))
        rows.append(row)
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in (None, *lines)]
    xs = [int(x) for x in columns[0] if x is not None] if frame.is_time else columns[0]
    return [xs if frame.is_time else [_short(x) for x in xs], *([_short(y) for y in ys] for ys in columns[1:])]


def _short(value: float | None) -> float | int | None:
    """A number in few digits: a page with 20 curves has 20,000 of them."""
    if value is None or (value == int(value) and abs(value) < 1e15):
        return None if value is None else int(value)
    return float(f"{value:.5g}")
