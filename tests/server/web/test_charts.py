"""What is drawn of lines: gaps, spans, scales, labels, and the values that a page's script reads."""

from __future__ import annotations

import json
import math
import re

from hypothesis import given
from hypothesis import strategies as st

from millpond.server.web.charts.svg_charts import (
    COLOURS,
    DASHES,
    HEIGHT,
    WIDTH,
    Frame,
    Line,
    draw,
    look_of,
    number_text,
)

DAY = 86_400


def places(path: str) -> list[tuple[int, int]]:
    return [(int(x), int(y)) for x, y in re.findall(r"[ML](-?\d+),(-?\d+)", path)]


def test_a_line_is_broken_where_nothing_is_known_and_where_nobody_looked() -> None:
    line = Line("held", "held", [0, 60, 120, 180, 600], [1.0, 2.0, None, 2.0, 1.0])
    drawn = draw([line], Frame(0, 600, gap=90, from_zero=True)).lines[0]
    assert drawn.path.count("M") == 3
    assert places(drawn.path)[1][0] == WIDTH / 10
    assert drawn.last == 1.0


def test_a_part_of_a_line_leaves_its_frame_towards_the_points_beyond() -> None:
    drawn = draw([Line("a", "o1", [0, 10, 20, 30, 40], [0, 1, 2, 3, 4])], Frame(15, 25)).lines[0]
    assert [x for x, _ in places(drawn.path)] == [-WIDTH / 2, WIDTH / 2, 1.5 * WIDTH]


def test_powers_of_ten_stand_at_equal_distances_and_what_has_no_logarithm_is_left_out() -> None:
    chart = draw([Line("loss", "o1", [0, 1, 2, 3], [100.0, 1.0, 0.01, -5.0])], Frame(0, 3, is_log=True))
    heights = [y for _, y in places(chart.lines[0].path)]
    assert len(heights) == 3
    assert abs((heights[1] - heights[0]) - (heights[2] - heights[1])) <= 1
    assert [tick.text for tick in chart.y_ticks] == ["0.01", "0.1", "1", "10", "100"]


def test_hours_are_labelled_within_a_day_and_dates_beyond() -> None:
    begin = 20_000 * DAY
    within = draw([], Frame(begin, begin + DAY, is_time=True)).x_ticks
    assert [tick.text for tick in within] == ["06:00", "12:00", "18:00"]
    beyond = draw([], Frame(begin, begin + 7 * DAY, is_time=True)).x_ticks
    assert all(re.fullmatch(r"\d\d-\d\d", tick.text) for tick in beyond)
    assert len(beyond) <= 6


def test_names_of_users_cannot_end_the_script_that_holds_the_values() -> None:
    chart = draw([Line("</script><b>", "o1", [0, 1], [1, 2])], Frame(0, 1))
    assert "<" not in chart.points
    assert json.loads(chart.points)["lines"][0]["name"] == "</script><b>"


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


@given(st.lists(_NUMBERS, min_size=1, max_size=50), st.booleans(), st.booleans())
def test_whatever_is_drawn_lies_in_the_plane(values: list[float | None], from_zero: bool, is_log: bool) -> None:
    frame = Frame(0, max(len(values) - 1, 1), from_zero=from_zero and not is_log, is_log=is_log)
    chart = draw([Line("a", "o1", list(range(len(values))), values)], frame)
    assert all(0 <= x <= WIDTH and -1 <= y <= HEIGHT + 1 for x, y in places(chart.lines[0].path))
    assert all(0 <= tick.place <= 100 and math.isfinite(tick.value) for tick in chart.y_ticks)
    assert len(chart.y_ticks) <= 14
