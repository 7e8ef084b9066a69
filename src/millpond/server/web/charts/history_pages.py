"""How the pool was used over time: charts of cards, queues and nodes, from the server's own history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from millpond.server.api.permits import ClusterReader, ServiceOf
from millpond.server.api.routes.time_series import Begin, End
from millpond.server.api.service import Service
from millpond.server.monitoring.telemetry.job_cards import FIGURES
from millpond.server.monitoring.time_series.fairness import fairness_of
from millpond.server.monitoring.time_series.figures import Subject
from millpond.server.monitoring.time_series.reader import TimeSpan
from millpond.server.web.charts.line_charts import COLOURS, DASHES, Chart, Frame, Line, draw, look_of
from millpond.server.web.pages import PageRoute, VisitOf
from millpond.server.web.rendering import show
from millpond.specs.api.reports.fairness import FairnessInfo, SiblingFairness
from millpond.specs.api.reports.time_series import NamedSeries, TimeSeriesInfo

MOST_CARDS: Final = COLOURS * DASHES
"""In one chart: further lines would look like the first ones."""
MOST_CHARTS: Final = 12
_POINTS: Final = 240
"""So many stand in one chart at the most, about; more are finer than what is seen."""
_STEPS: Final = (60, 120, 300, 600, 1_200, 3_600, 7_200, 14_400)
SPANS: Final[Mapping[str, float]] = {"day": 86_400.0, "week": 7 * 86_400.0, "month": 30 * 86_400.0}
_SHORTEST_S: Final = 3_600.0

Back = Annotated[str, Query(pattern="^(day|week|month)?$")]

router = APIRouter(prefix="/portal", include_in_schema=False, route_class=PageRoute)


@dataclass(frozen=True, slots=True)
class NamedChart:
    """A chart, and of which model, queue or node it is; empty: of all."""

    name: str
    drawn: Chart


@dataclass(frozen=True, slots=True)
class QueueDivision:
    """A row of the table of fairness: how many cards a queue got and was due, on the mean."""

    name: str
    weight: float
    got: float
    due: float


def series_of(
    service: Service, subject: Subject, begin: float | None, end: float | None, names: Collection[str] | None
) -> TimeSeriesInfo:
    """The history of a span in as many points as a chart shows.

    Args:
        begin: None: a day before the end or, where less is known, when it begins.
        names: of which series; None: all.
    """
    until = time.time() if end is None else end
    since = until - SPANS["day"] if begin is None else begin

    def read(since: float) -> TimeSeriesInfo:
        wanted = (until - since) / _POINTS
        step = next((step for step in _STEPS if step >= wanted), _STEPS[-1])
        return service.time_series.of(subject, TimeSpan(since, until, step), names)

    found = read(since)
    is_new = begin is None and found.at and found.at[0] - since > SPANS["day"] / 4
    return read(max(min(found.at[0], until - _SHORTEST_S), since)) if is_new else found


def span_of(back: str, begin: float | None, end: float | None) -> tuple[float | None, float | None]:
    """The span that an address names: ``back`` from now, or between two instants."""
    if not back:
        return begin, end
    now = time.time()
    return now - SPANS[back], now


def pool_chart(history: TimeSeriesInfo, words: Mapping[str, str]) -> Chart:
    """All cards together: how many there were, how many were held, and how many computed.

    Args:
        words: the names of the lines, by figure.
    """
    looks = (("cards", "all"), ("held", "held"), ("computing", "computing"))
    lines = [Line(words[figure], look, history.at, _sums(history, figure)) for figure, look in looks]
    return draw(lines, _frame(history))


def charts_of(history: TimeSeriesInfo, lines: Sequence[tuple[str, str, str]]) -> list[NamedChart]:
    """One chart for each of the series with the highest figures, in the order of their names.

    Args:
        lines: of each line its figure, its name and its look; series that lack the figure have no such line.
    """
    figures = [figure for figure, _, _ in lines]
    shown = [each for each in history.series if _highest(each, figures) > 0]
    shown.sort(key=lambda each: (-_highest(each, figures), each.name))

    def drawn(series: NamedSeries) -> Chart:
        found = [(series.figures.get(figure), name, look) for figure, name, look in lines]
        return draw([Line(name, look, history.at, ys) for ys, name, look in found if ys is not None], _frame(history))

    return [NamedChart(each.name, drawn(each)) for each in sorted(shown[:MOST_CHARTS], key=lambda each: each.name)]


def with_due(history: TimeSeriesInfo, fairness: FairnessInfo) -> TimeSeriesInfo:
    """The history of queues with ``due`` as a further figure of those that have siblings."""
    due = {queue.name: queue.due for division in fairness.siblings for queue in division.queues}
    return replace(
        history,
        series=[
            replace(each, figures={**each.figures, "due": due[each.name]}) if each.name in due else each
            for each in history.series
        ],
    )


def index_chart(fairness: FairnessInfo) -> Chart:
    """Jain's index over time, with a line for the queues below each queue."""
    lines = [
        Line(each.parent, look_of(number), fairness.at, each.index)
        for number, each in enumerate(fairness.siblings[: COLOURS * DASHES])
    ]
    return draw(lines, _frame(fairness))


def divisions_of(siblings: SiblingFairness) -> list[QueueDivision]:
    """What each of them got and was due, those with most due first; queues that had no demand at all are left out."""
    rows = [QueueDivision(each.name, each.weight, _mean(each.got), _mean(each.due)) for each in siblings.queues]
    return sorted([row for row in rows if row.got or row.due], key=lambda row: (-row.due, row.name))


@router.get("/history")
async def history(
    service: ServiceOf,
    access: ClusterReader,
    visit: VisitOf,
    subject: Subject = Subject.MODELS,
    begin: Begin = None,
    end: End = None,
    back: Back = "",
) -> Response:
    """Charts of cards, queues or nodes in a span."""
    begin, end = span_of(back, begin, end)
    is_of_queues = subject is Subject.QUEUES
    names = service.queues.names_for(access.caller) if is_of_queues else None
    queues = await service.queues.seen_by(access.caller) if is_of_queues else []

    def drawn() -> Response:
        found = series_of(service, subject, begin, end, names)
        fairness = fairness_of(found, queues, whole=names is None) if is_of_queues else None
        return show(
            "charts/history.html",
            visit,
            subject=subject.value,
            history=found if fairness is None else with_due(found, fairness),
            fairness=fairness,
            index_chart=index_chart,
            divisions_of=divisions_of,
            back=back or ("day" if begin is None else ""),
            is_chosen=begin is not None and not back,
            most=MOST_CHARTS,
            pool_chart=pool_chart,
            charts_of=charts_of,
        )

    return await asyncio.to_thread(drawn)


def card_charts(cards: TimeSeriesInfo) -> dict[str, Chart]:
    """Charts of what the cards of a job did, by figure, with a line for each card; figures that nothing measured are
    left out."""
    shown = cards.series[:MOST_CARDS]
    return {
        figure: draw(
            [Line(each.name, look_of(index), cards.at, each.figures[figure]) for index, each in enumerate(shown)],
            _frame(cards),
        )
        for figure in FIGURES
        if any(value is not None for each in shown for value in each.figures[figure])
    }


def _frame(history: TimeSeriesInfo | FairnessInfo) -> Frame:
    return Frame(history.begin, history.end, is_time=True, gap=1.5 * history.step_s, from_zero=True)


def _sums(history: TimeSeriesInfo, figure: str) -> list[float | None]:
    """The sum of what is known at each instant; of a pool without cards nothing is."""
    columns = [each.figures[figure] for each in history.series]
    values = ([column[index] for column in columns] for index in range(len(history.at)))
    rows = ([value for value in row if value is not None] for row in values)
    return [sum(known) if known else None for known in rows]


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else 0.0


def _highest(series: NamedSeries, figures: Sequence[str]) -> float:
    columns = [series.figures[figure] for figure in figures if figure in series.figures]
    return max((value for column in columns for value in column if value is not None), default=0.0)
