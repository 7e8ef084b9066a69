"""Training curves of any runs together: charts by metric, a table, the best so far, and a sweep's parameters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from millpond.model.states import JobState
from millpond.server.api.permits import JobLister, ServiceOf
from millpond.server.api.routes.curves import CurveMetrics, FirstStep, LastStep
from millpond.server.jobs.curves.service import MOST_RUNS, POINTS, CurvesRequest
from millpond.server.views.visibility import reader_of
from millpond.server.web.charts.line_charts import COLOURS, DASHES, Chart, Frame, Line, draw
from millpond.server.web.charts.parallel_coordinates import parallel_of
from millpond.server.web.pages import PageRoute, VisitOf
from millpond.server.web.rendering import show
from millpond.specs.api.jobs.curves import CurveInfo, CurveRun, CurvesInfo

POINTS_IN_ALL: Final = 6_000
"""In one chart: a page of many runs has fewer of each."""
_MOST_NAMES: Final = 200

JobNames = Annotated[tuple[Annotated[str, Query(max_length=4_000)], ...], Query(alias="job", max_length=MOST_RUNS)]
"""Each may be several, as a form has one field for all of them."""

router = APIRouter(prefix="/portal", include_in_schema=False, route_class=PageRoute)


class Across(StrEnum):
    """The horizontal axis."""

    STEP = "step"
    TIME = "time"


class VerticalScale(StrEnum):
    """The vertical axis."""

    LINEAR = "linear"
    LOG = "log"


class MetricGoal(StrEnum):
    """Which values are better."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


_HIGHER_IS_BETTER: Final = frozenset(
    ("acc", "accuracy", "auc", "bleu", "f1", "iou", "map", "precision", "psnr", "r2", "recall", "return", "returns")
) | frozenset(("reward", "rewards", "rouge", "score", "scores", "ssim", "throughput", "top1", "top5"))
"""Parts of names of metrics that people want high."""
_UNITS_S: Final = {"hours": 3_600, "minutes": 60, "seconds": 1}


@dataclass(frozen=True, slots=True)
class CurvesView:
    """How curves are shown; ``begin`` and ``end`` are the part of the horizontal axis."""

    across: Across
    scale: VerticalScale
    goal: MetricGoal
    begin: float | None
    end: float | None


@router.get("/curves")
async def curves(
    request: Request,
    service: ServiceOf,
    access: JobLister,
    visit: VisitOf,
    jobs: JobNames = (),
    metrics: CurveMetrics = (),
    across: Annotated[Across, Query(alias="x")] = Across.STEP,
    scale: VerticalScale = VerticalScale.LINEAR,
    goal: Annotated[str, Query(pattern="^(minimize|maximize)?$")] = "",
    begin: FirstStep = None,
    end: LastStep = None,
) -> Response:
    """Curves of the jobs that the address names."""
    names = tuple(name for each in jobs for name in each.replace(",", " ").split())[:_MOST_NAMES]
    reader = reader_of(access.caller)
    span = (begin, end) if across is Across.STEP else (None, None)
    asked = CurvesRequest(names, metrics, 4 * POINTS, POINTS_IN_ALL, *span)

    def made() -> Response:
        found = service.curves.compare(asked, reader) if names else CurvesInfo()
        view = CurvesView(across, scale, MetricGoal(goal or found.goal or goal_by_name(found.shown)), begin, end)
        labels = labels_of(found.runs)
        looks = {run.job: index for index, run in enumerate(found.runs)}
        best = best_so_far(found, view) if found.shown and len(found.runs) > 1 else None
        twin = [("job", name) for name in names] + [("metric", name) for name in found.shown]
        return show(
            "charts/curves.html",
            visit,
            found=found,
            view=view,
            names=names,
            labels=labels,
            looks=looks,
            colours=COLOURS,
            charts=[(metric, metric_chart(found, metric, view)) for metric in found.shown],
            best=best,
            best_of=lambda run, metric: best_of(found, run, metric, view.goal),
            range_of=lambda run, metric: range_of(found, run, metric),
            counts_of=lambda run: counts_of(found, run),
            parallel=parallel_of(found, view.goal.value, looks) if len(found.runs) > 1 else None,
            is_live=not found.whole or any(not JobState(run.state).ended for run in found.runs),
            twin=urlencode(twin),
        )

    answers = service.long_answers
    return await answers.answer(request, access.caller.user, lambda: answers.in_thread(made))


def goal_by_name(shown: Sequence[str]) -> MetricGoal:
    """Which values of the first metric are better, as far as its name says it: those of a loss are the lower ones."""
    parts = set(re.findall("[a-z]+[0-9]*", shown[0].lower())) if shown else set()
    return MetricGoal.MAXIMIZE if parts & _HIGHER_IS_BETTER else MetricGoal.MINIMIZE


def labels_of(runs: Sequence[CurveRun]) -> dict[str, str]:
    """A short name for each run by its job: its number where all are of one array, its own where no other has it."""
    if len(runs) > 1 and runs[0].parent and len({run.parent for run in runs}) == 1:
        return {run.job: f"#{run.job.removeprefix(f'{run.parent}.')}" for run in runs}
    often = Counter(run.name for run in runs)
    return {run.job: run.name if run.name and often[run.name] == 1 else run.job for run in runs}


def metric_chart(found: CurvesInfo, metric: str, view: CurvesView) -> Chart:
    """All curves of a metric; those of one run have its colour, and differ in their dashes."""
    labels = labels_of(found.runs)
    numbers = {run.job: index for index, run in enumerate(found.runs)}
    seen: Counter[str] = Counter()
    lines = []
    for curve in found.curves:
        if curve.metric != metric:
            continue
        number, nth = numbers[curve.job], seen[curve.job]
        seen[curve.job] += 1
        dash = (nth or number // COLOURS) % DASHES
        where = [part for part in (curve.folder, f"task {curve.task}" if curve.task else "") if part and part != "."]
        name = " ".join([labels[curve.job], *where])
        lines.append(Line(name, f"o{number % COLOURS + 1} dash{dash}", _places(curve, view), curve.values))
    places = [x for line in lines for x in line.xs]
    begin = view.begin if view.begin is not None else min(places, default=0.0)
    end = view.end if view.end is not None else max(places, default=1.0)
    return draw(lines, Frame(begin, max(end, begin), is_log=view.scale is VerticalScale.LOG))


def best_so_far(found: CurvesInfo, view: CurvesView) -> tuple[Chart, str] | None:
    """The best value of the first metric that any run had reached by then, and in which unit time is counted."""
    metric = found.shown[0]
    reports = sorted(
        (at, value)
        for curve in found.curves
        if curve.metric == metric
        for at, value in zip(curve.at, curve.values, strict=True)
        if at > 0
    )
    if not reports:
        return None
    begin, span_s = reports[0][0], reports[-1][0] - reports[0][0]
    unit = next((unit for unit, unit_s in _UNITS_S.items() if span_s >= 2 * unit_s), "seconds")
    xs: list[float] = []
    ys: list[float] = []
    for at, value in reports:
        if not ys or _is_better(value, ys[-1], view.goal):
            xs.append((at - begin) / _UNITS_S[unit])
            ys.append(value)
    end = span_s / _UNITS_S[unit]
    line = Line(metric, "held", [*xs, end], [*ys, ys[-1]])
    frame = Frame(0.0, max(end, 1e-6), is_log=view.scale is VerticalScale.LOG, is_stepped=True)
    return draw([line], frame), unit


def best_of(found: CurvesInfo, run: CurveRun, metric: str, goal: MetricGoal) -> tuple[CurveInfo, float, float] | None:
    """The curve of a run's best value of a metric, the value, and its step; None without any."""
    best = None
    for curve in found.curves:
        if curve.job != run.job or curve.metric != metric:
            continue
        value, step = (curve.least, curve.least_step) if goal is MetricGoal.MINIMIZE else (curve.most, curve.most_step)
        if value is not None and step is not None and (best is None or _is_better(value, best[1], goal)):
            best = curve, value, step
    return best


def range_of(found: CurvesInfo, run: CurveRun, metric: str) -> tuple[float, float, float] | None:
    """The lowest, the highest and the last value of a metric of a run; None without any."""
    own = [curve for curve in found.curves if curve.job == run.job and curve.metric == metric]
    lows = [curve.least for curve in own if curve.least is not None]
    highs = [curve.most for curve in own if curve.most is not None]
    lasts = [curve.last for curve in own if curve.last is not None]
    return (min(lows), max(highs), lasts[-1]) if lows else None


def counts_of(found: CurvesInfo, run: CurveRun) -> tuple[int, int, int]:
    """Points of a run's curves that are drawn, that there are, and that were not finite."""
    own = [curve for curve in found.curves if curve.job == run.job]
    return sum(len(each.steps) for each in own), sum(each.count for each in own), sum(each.not_finite for each in own)


def _places(curve: CurveInfo, view: CurvesView) -> list[float]:
    if view.across is Across.STEP:
        return curve.steps
    begin = next((at for at in curve.at if at > 0), 0.0)
    return [(at - begin) / 3_600 for at in curve.at]


def _is_better(value: float, other: float, goal: MetricGoal) -> bool:
    return value < other if goal is MetricGoal.MINIMIZE else value > other
