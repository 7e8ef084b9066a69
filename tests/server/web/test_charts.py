"""What a page's script is given to draw of lines: gaps, spans, shared places, what has no logarithm, short numbers."""

from __future__ import annotations

import json
import math
from importlib.resources import files
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millpond.server.catalogues import ENGLISH
from millpond.server.web.charts.history_pages import MOST_CHARTS, charts_of, pool_chart
from millpond.server.web.charts.line_charts import COLOURS, DASHES, Frame, Line, draw, look_of, number_text
from millpond.server.web.rendering import PageReader, show, static_file
from millpond.specs.api.reports.time_series import NamedSeries, TimeSeriesInfo


def given_of(frame: Frame, *lines: Line) -> Any:
    return json.loads(draw(lines, frame).points)


def test_a_line_is_broken_where_nothing_is_known_and_where_nobody_looked() -> None:
    line = Line("held", "held", [0, 60, 120, 180, 600], [1.0, 2.0, None, 2.0, 1.0])
    frame = Frame(0, 600, is_time=True, gap=90, from_zero=True)
    assert given_of(frame, line)["tables"] == [[[0, 60, 120, 180, 225, 600], [1, 2, None, 2, None, 1]]]
    assert draw([line], frame).lines[0].last == 1.0


def test_a_part_of_a_line_leaves_its_frame_towards_the_points_beyond() -> None:
    shown = given_of(Frame(15, 25), Line("a", "o1", [0, 10, 20, 30, 40], [0, 1, 2, 3, 4]))
    assert shown["tables"] == [[[10, 20, 30], [1, 2, 3]]]
    assert (shown["begin"], shown["end"]) == (15, 25)


def test_charts_of_each_figure_stand_in_the_same_order_and_are_those_of_the_highest() -> None:
    names = [f"m{number:02}" for number in range(MOST_CHARTS + 1)]
    series = [
        NamedSeries(name=name, figures={"power_w": [1.0 + n], "heat": [99.0 - n]}) for n, name in enumerate(names)
    ]
    history = TimeSeriesInfo(subject="models", begin=0, end=60, step_s=60, at=[0], series=series)
    assert [each.name for each in charts_of(history, [("power_w", "", "o1")])] == names[1:]
    assert [each.name for each in charts_of(history, [("heat", "", "o1")])] == names[:-1]


def test_nothing_is_known_of_a_span_in_which_no_line_has_a_value() -> None:
    line = Line("a", "o1", [0, 1, 2], [1.0, None, None])
    assert not draw([line], Frame(0, 2)).is_empty
    assert draw([line], Frame(4, 5)).is_empty
    assert draw([], Frame(0, 1)).is_empty


def test_the_history_of_a_pool_without_cards_is_drawn_and_said_to_be_unknown() -> None:
    words = {"cards": "all", "held": "held", "computing": "computing"}
    history = TimeSeriesInfo(subject="models", begin=0, end=60, step_s=60, at=[30], series=[])
    assert pool_chart(history, words).is_empty


def test_what_has_no_logarithm_is_left_out_by_powers_of_ten() -> None:
    line = Line("loss", "o1", [0, 1, 2, 3], [100.0, 0.0, 0.01, -5.0])
    assert given_of(Frame(0, 3, is_log=True), line)["tables"] == [[[0, 1, 2, 3], [100, None, 0.01, None]]]


def test_places_that_lines_share_are_given_once() -> None:
    lines = [Line(name, "o1", [1, 2], [n, n]) for n, name in enumerate("ab")] + [Line("c", "o2", [1.5], [7])]
    assert given_of(Frame(1, 2), *lines)["tables"] == [[[1, 2], [0, 0], [1, 1]], [[1.5], [7]]]


def test_a_single_place_has_a_span_around_it() -> None:
    shown = given_of(Frame(5, 5), Line("a", "o1", [5], [1.0]))
    assert shown["begin"] == 5 < shown["end"]


def test_names_of_users_stay_text_in_a_page() -> None:
    name = "</script><b>&\"'"
    chart = draw([Line(name, "o1", [0, 1], [1, 2])], Frame(0, 1))
    page = show("charts/curves.html", PageReader(None, language=ENGLISH), **_curves_of(name, chart)).body.decode()
    assert '<b>&"' not in page
    assert page.count("&lt;/script&gt;&lt;b&gt;&amp;") == 2  # the title and the legend


def _curves_of(name: str, chart: Any) -> dict[str, Any]:
    """What the page of curves shows, without runs."""
    return {
        "charts": [(name, chart)], "names": ("j",), "best": None, "parallel": None, "is_live": False, "twin": "",
        "found": {"whole": True, "missing": [], "left_out": 0, "runs": [], "metrics": [], "shown": []},
        "view": {"across": "step", "scale": "linear", "goal": "minimize"},
    }  # fmt: skip


def test_the_library_that_draws_is_served_from_here_and_its_licence_is_kept() -> None:
    assert static_file("0" * 16, "uPlot.iife.min.js") is None
    page = show("charts/curves.html", PageReader(None, language=ENGLISH), **_curves_of("a", draw([], Frame(0, 1)))).body
    (address,) = [part for part in page.decode().split('"') if part.endswith("/uPlot.iife.min.js")]
    digest, name = address.split("/")[-2:]
    found = static_file(digest, name)
    assert found is not None
    assert b"uPlot" in found.body[:100]
    vendored = files("millpond.server.web") / "static" / "vendor"
    assert all("Permission" in (folder / "LICENSE").read_text() for folder in vendored.iterdir())


def test_each_of_many_lines_looks_different() -> None:
    assert len({look_of(index) for index in range(COLOURS * DASHES)}) == COLOURS * DASHES


def test_numbers_are_short() -> None:
    assert [number_text(value) for value in (None, 0.0, 3.14159, 1234567.0, 0.000012345)] == [
        "\N{EN DASH}",
        "0",
        "3.142",
        "1.23e+06",
        "1.23e-05",
    ]


_NUMBERS = st.none() | st.floats(-1e12, 1e12)


@given(st.lists(_NUMBERS, min_size=1, max_size=50), st.booleans(), st.none() | st.floats(0.1, 3.0))
def test_whatever_is_drawn_is_a_table_of_ascending_places(
    values: list[float | None], is_log: bool, gap: float | None
) -> None:
    frame = Frame(0, max(len(values) - 1, 1), is_log=is_log, gap=gap)
    ((xs, ys),) = given_of(frame, Line("a", "o1", list(range(len(values))), values))["tables"]
    assert len(xs) == len(ys)
    assert all(one < other for one, other in pairwise(xs))
    known = [value for value in values if value is not None and (value > 0 or not is_log)]
    shown = [y for y in ys if y is not None]
    assert all(math.isclose(y, value, rel_tol=1e-4) for y, value in zip(shown, known, strict=True))
