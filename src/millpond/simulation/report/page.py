"""The page itself: gathers table, charts and parameters, and fills the template."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from millpond.simulation.comparison import Replay
from millpond.simulation.report.axes import elapsed, linear, log_time, percent, within
from millpond.simulation.report.figures import Points
from millpond.simulation.report.svg import Dots, Series, dot_chart, gantt_chart, line_chart
from millpond.simulation.report.table import PACKING_METRICS, QUEUEING_METRICS, table_rows
from millpond.simulation.results.summaries import flat

COLOURS = 10
CROWDED_PERCENT = 75.0


def render(title: str, replays: Sequence[Replay], source: str) -> str:
    """The page as HTML text, with nothing to load from elsewhere.

    Args:
        replays: runs by policy, then by seed; the first seed of a policy is the one that is drawn.
        source: the trace and the cluster, in a few words.
    """
    labels = list(dict.fromkeys(replay.label for replay in replays))
    by_policy = [[replay for replay in replays if replay.label == label] for label in labels]
    drawn = [(index % COLOURS, runs[0]) for index, runs in enumerate(by_policy)]
    packs = bool(replays[0].figures.packing)
    metrics = PACKING_METRICS if packs else QUEUEING_METRICS
    environment = Environment(
        loader=PackageLoader("millpond.simulation.report", "."), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("page.html.j2").render(
        title=title,
        source=source,
        labels=labels,
        seeds=[", ".join(str(run.seed) for run in runs) for runs in by_policy],
        several=any(len(runs) > 1 for runs in by_policy),
        rows=table_rows(metrics, [[run.summary for run in runs] for runs in by_policy]),
        charts=_packing_charts(drawn) if packs else _queueing_charts(drawn),
        dots=None if packs else _fairness(drawn),
        gantts=[] if packs else _gantts(drawn),
        parameters=_parameters([runs[0].summary["parameters"] for runs in by_policy]),
        skipped=replays[0].skipped,
    )


def _packing_charts(drawn: list[tuple[int, Replay]]) -> list[dict[str, Any]]:
    """The last stretch of the curves, where policies part."""
    known = [Series(run.label, style, _crowded(run.figures.packing)) for style, run in drawn]
    learnt = [Series(run.label, style, _crowded(run.figures.packing_learnt)) for style, run in drawn]
    points = [point for one in (*known, *learnt) for point in one.points]
    asked = within(min(x for x, _ in points), max(x for x, _ in points), " %")
    held = within(min(y for _, y in points), 100, " %")
    note = "percent of all GPUs, over the percent asked for"
    return [
        _chart("GPUs allocated, shapes known", note, known, asked, held, "percent", "percent"),
        _chart("GPUs allocated, shapes learnt", note, learnt, asked, held, "percent", "percent"),
    ]


def _crowded(curve: Points) -> Points:
    return [point for point in curve if point[0] >= CROWDED_PERCENT] or curve


def _queueing_charts(drawn: list[tuple[int, Replay]]) -> list[dict[str, Any]]:
    waiting = [Series(run.label, style, run.figures.queue) for style, run in drawn]
    held = [Series(run.label, style, run.figures.allocation) for style, run in drawn]
    taken = [Series(run.label, style, run.figures.completion) for style, run in drawn]
    time = elapsed(max(run.figures.span_s for _, run in drawn) or 1.0)
    most = linear([y for one in waiting for _, y in one.points])
    durations = log_time([x for one in taken for x, _ in one.points])
    return [
        _chart("Jobs waiting", "mean of each interval", waiting, time, most, "time", "count"),
        _chart("GPUs allocated", "percent of the cluster", held, time, percent(), "time", "percent"),
        _chart(
            "Completion times", "percent of jobs that took no longer", taken, durations, percent(), "time", "percent"
        ),
    ]


def _chart(
    title: str, note: str, series: list[Series], across: Any, up: Any, across_form: str, up_form: str
) -> dict[str, Any]:
    points = [{"label": one.label, "style": one.style, "points": one.points} for one in series]
    return {
        "title": title,
        "note": note,
        "svg": line_chart(title, series, across, up),
        "data": Markup(json.dumps(points, separators=(",", ":")).replace("<", "\\u003c")),
        "across": across_form,
        "up": up_form,
    }


def _fairness(drawn: list[tuple[int, Replay]]) -> Markup:
    rows = [Dots(run.label, style, run.figures.fairness) for style, run in drawn]
    return dot_chart("Finish-time fairness", rows)


def _gantts(drawn: list[tuple[int, Replay]]) -> list[dict[str, Any]]:
    return [
        {
            "label": run.label,
            "shown": len(run.figures.gantt),
            "nodes": run.figures.node_count,
            "svg": gantt_chart(f"Who ran where under {run.label}", run.figures.gantt, elapsed(run.figures.span_s)),
        }
        for _, run in drawn
        if run.figures.gantt
    ]


def _parameters(given: Sequence[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Every parameter with its value under each policy, or one value where all agree. The seed has its own row."""
    rows = []
    named = [flat(parameters) for parameters in given]
    for key in named[0]:
        values = [str(parameters[key]) for parameters in named]
        if key != "seed" and any(value != "" for value in values):
            rows.append((key, values[:1] if len(set(values)) == 1 else values))
    return rows
