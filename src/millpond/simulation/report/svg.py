"""Charts as SVG text. Colours are left to the page's style sheet, so that one drawing serves light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from millpond.simulation.report.axes import Axis, log_ratio
from millpond.simulation.report.figures import GANTT_BINS, GanttNode, Points

WIDTH, HEIGHT = 640, 300
GANTT_WIDTH = 1100
LEFT, RIGHT, TOP, BOTTOM = 56, 24, 12, 34
LANE_HEIGHT, LANE_GAP, NODE_GAP, NODE_LABEL = 4, 1, 5, 90
ROW_HEIGHT, ROW_LABEL = 26, 130


@dataclass(frozen=True, slots=True)
class Series:
    """A curve.

    Attributes:
        style: number of its colour, from 0.
    """

    label: str
    style: int
    points: Points


def line_chart(title: str, series: Sequence[Series], across: Axis, up: Axis) -> Markup:
    """Curves over common axes. The page's script finds the axes and points in data attributes."""
    body = [_frame(across, up)]
    for one in series:
        path = " ".join(f"{_x(across, x):.1f},{_y(up, y):.1f}" for x, y in one.points)
        body.append(f'<polyline class="line s{one.style}" points="{path}"/>')
    body.append(f'<line class="cursor" y1="{TOP}" y2="{HEIGHT - BOTTOM}" visibility="hidden"/>')
    kind = "log" if across.logarithmic else "linear"
    return Markup(
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" '
        f'data-low="{across.low}" data-high="{across.high}" data-kind="{kind}" '
        f'data-left="{LEFT}" data-right="{WIDTH - RIGHT}">{"".join(body)}</svg>'
    )


@dataclass(frozen=True, slots=True)
class Dots:
    """A row of named ratios."""

    label: str
    style: int
    ratios: Sequence[tuple[str, float]]


def dot_chart(title: str, rows: Sequence[Dots]) -> Markup:
    """One row of dots for each policy on a logarithmic axis; a rule marks 1. Pointing at a dot names it."""
    across = log_ratio([ratio for row in rows for _, ratio in row.ratios])
    height = TOP + BOTTOM + ROW_HEIGHT * len(rows)

    def place(ratio: float) -> float:
        return ROW_LABEL + across.part(ratio) * (WIDTH - RIGHT - ROW_LABEL)

    body = []
    for value, label in across.ticks:
        x, kind = place(value), "rule" if value == 1 else "grid"
        body.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>')
        body.append(f'<text class="tick" x="{x:.1f}" y="{height - BOTTOM + 18}" text-anchor="middle">{label}</text>')
    for index, row in enumerate(rows):
        y = TOP + ROW_HEIGHT * (index + 0.5)
        body.append(f'<text class="row" x="{ROW_LABEL - 12}" y="{y + 4}" text-anchor="end">{escape(row.label)}</text>')
        body.extend(
            f'<circle class="dot s{row.style}" cx="{place(ratio):.1f}" cy="{y}" r="5">'
            f"<title>{escape(name)}: {ratio:.3g}</title></circle>"
            for name, ratio in row.ratios
        )
    return Markup(
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"{''.join(body)}</svg>"
    )


def gantt_chart(title: str, nodes: Sequence[GanttNode], across: Axis) -> Markup:
    """A lane for each card, grouped by node; bars are coloured by the size of their job."""
    inner = GANTT_WIDTH - NODE_LABEL - RIGHT
    per_bin = inner / GANTT_BINS
    paths: dict[int, list[str]] = {}
    body: list[str] = []
    top = TOP
    for node in nodes:
        height = len(node.lanes) * (LANE_HEIGHT + LANE_GAP)
        body.append(f'<text class="tick" x="{NODE_LABEL - 8}" y="{top + height / 2 + 4:.1f}" text-anchor="end">')
        body.append(f"{escape(node.name)}</text>")
        body.append(f'<rect class="ground" x="{NODE_LABEL}" y="{top}" width="{inner}" height="{height}"/>')
        for index, lane in enumerate(node.lanes):
            y = top + index * (LANE_HEIGHT + LANE_GAP) + LANE_HEIGHT / 2
            for first, bins, size in lane.bars:
                length = max(bins * per_bin - 0.6, 0.4)
                paths.setdefault(size, []).append(f"M{NODE_LABEL + first * per_bin:.1f} {y:g}h{length:.1f}")
        top += height + NODE_GAP
    body.extend(f'<path class="bar z{size}" d="{"".join(parts)}"/>' for size, parts in sorted(paths.items()))
    for value, label in across.ticks:
        x = NODE_LABEL + across.part(value) * inner
        body.append(f'<text class="tick" x="{x:.1f}" y="{top + 12}" text-anchor="middle">{label}</text>')
    return Markup(
        f'<svg class="gantt" viewBox="0 0 {GANTT_WIDTH} {top + 20}" role="img" aria-label="{escape(title)}">'
        f"{''.join(body)}</svg>"
    )


def _frame(across: Axis, up: Axis) -> str:
    """Grid lines and tick labels."""
    parts = []
    for value, label in up.ticks:
        y = _y(up, value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for value, label in across.ticks:
        x = _x(across, value)
        parts.append(
            f'<line class="notch" x1="{x:.1f}" x2="{x:.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}"/>'
        )
        parts.append(f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label}</text>')
    return "".join(parts)


def _x(axis: Axis, value: float) -> float:
    return LEFT + axis.part(value) * (WIDTH - LEFT - RIGHT)


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - axis.part(value) * (HEIGHT - TOP - BOTTOM)
