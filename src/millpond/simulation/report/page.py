"""The page itself: gathers table, charts and parameters, and fills the template."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from millpond.simulation.comparison import Replay
from millpond.simulation.report.axes import elapsed, linear, log_time, percent
from millpond.simulation.report.svg import Series, dot_chart, gantt_chart, line_chart
from millpond.simulation.report.table import PACKING_METRICS, QUEUEING_METRICS, table_rows

COLOURS = 8


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
    series = [Series(run.label, style, run.figures.packing) for style, run in drawn]
    asked = linear([x for one in series for x, _ in one.points], unit=" %")
    return [
        _chart(
            "GPUs allocated", "percent of all, over percent asked for", series, asked, percent(), "percent", "percent"
        )
    ]


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


def _fairness(drawn: list[tuple[int, Replay]]) -> Markup | None:
    """Finish-time fairness of each tenant; None where there is only one to compare."""
    if any(len(run.figures.tenants) < 2 for _, run in drawn):
        return None
    rows = [Series(run.label, style, [(rho, 0.0) for _, rho in run.figures.tenants]) for style, run in drawn]
    return dot_chart("Finish-time fairness of each tenant", rows)


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
    flat = [_flat(parameters) for parameters in given]
    for key in flat[0]:
        values = [parameters[key] for parameters in flat]
        if key != "seed" and any(value != "" for value in values):
            rows.append((key, values[:1] if len(set(values)) == 1 else values))
    return rows


def _flat(parameters: dict[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in parameters.items():
        flat.update(_flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: str(value)})
    return flat
