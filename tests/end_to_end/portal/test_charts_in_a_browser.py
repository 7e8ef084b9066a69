"""Charts in a real Chromium: values by pointer, finger and keyboard, a span as the view, curves that grow, themes."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import sqlalchemy as sa
from portal_visit import DESKTOP, PHONE, Visit, chromium, expect, pond, submit, visit
from real_pond import Pond

from millpond.client.sdk import Client
from millpond.server.state_dir import DATABASE_FILE
from millpond.server.store.statistics.time_series import SeriesRow, TimeSeriesStore

__all__ = ["chromium", "pond", "visit"]  # fixtures

pytestmark = pytest.mark.long
MINUTE, HOUR = 60, 3_600

REPORTS = """
report() { printf '{"at": %s, "step": %s, "values": {"loss": %s}}\\n' "$(date +%s)" "$1" "$2" >> "$MILLPOND_METRICS"; }
for step in 0 1 2 3 4 5 6 7; do report $step 0.$((9 - step)); done
until [ -e "$MILLPOND_OUTPUT/more" ]; do sleep 0.1; [ $((n = n + 1)) -lt 30 ] || touch "$MILLPOND_OUTPUT/more"; done
report 8 0.05; sleep 600
"""
GROWS = """
while :; do
  printf '{"at": %s, "step": %s, "values": {"loss": %s}}\\n' "$(date +%s)" $((n = n + 1)) 0.5 >> "$MILLPOND_METRICS"
  sleep 0.3
done
"""
COLOURS = """(name) => {
  const [canvas] = document.getElementById(name).shadowRoot.querySelectorAll("canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height), found = new Set();
  for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) found.add([...data.slice(at, at + 3)].join());
  return [...found];
}"""
LIGHT, DARK = {"11,127,135", "213,220,221"}, {"53,179,187", "48,61,63"}
"""The colours of cards that are held and of the grid, in both themes."""

TWIN = """async (index) => {
  const token = document.querySelector("meta[name=csrf-token]").content;
  const path = document.querySelectorAll(".twin")[index].textContent.replace("GET ", "");
  return (await fetch(path, { headers: { "X-CSRF-Token": token } })).json();
}"""


@pytest.fixture(scope="module")
def past(pond: Pond) -> float:
    """Three hours in which the cards of the pool were held more and more; returns when they begin.

    They are over for so long that the server has written nothing of them.
    """
    engine = sa.create_engine(f"sqlite:///{pond.state_dir / DATABASE_FILE}")
    now = (int(time.time()) // HOUR - 1) * HOUR
    store = TimeSeriesStore(engine)
    rows = []
    for minute in range(-180, 0):
        held = (minute + 180) / 45
        cards = (4.0, held, 0.0, 4.0, held / 2, 400.0, 50.0)
        queue = (2.0, held, max(0.0, held - 2), 0.0, 0.0, 0.0)
        sibling = (0.0, 4.0 - held, 0.0, 0.0, 1.0, 2.0)
        at = now + minute * MINUTE
        models = {"<b>V100</b>": cards} | ({} if -100 <= minute < -80 else {"at times": (1.0, *[0.0] * 6)})
        rows.append(SeriesRow("models", MINUTE, at, 1, models))
        rows.append(SeriesRow("queues", MINUTE, at, 1, {"default": queue, "speech": sibling}))
    store.write(rows)
    engine.dispose()
    return float(now - 3 * HOUR)


def base(page: Any) -> str:
    return str(page.evaluate("location.origin"))


def open_past(page: Any, past: float, more: str = "") -> Any:
    """The chart of all cards in the three hours."""
    page.goto(f"{base(page)}/portal/history?from={past:.0f}&to={past + 3 * HOUR:.0f}{more}")
    page.locator("#all-cards canvas").wait_for()
    return page.locator("#all-cards")


def plot_of(page: Any, name: str, wanted: str) -> Any:
    """Something that uPlot knows of a chart, as an expression of ``plot``."""
    return page.evaluate(f"(name) => {{ const {{ plot }} = document.getElementById(name); return {wanted}; }}", name)


def test_a_chart_of_the_pool_gives_values_and_a_span_of_it_becomes_the_view(
    pond: Pond, visit: Visit, past: float
) -> None:
    page = visit.enter(pond)
    page.locator("#pool-chart canvas").wait_for()
    title = page.locator("#pool-chart figcaption").text_content()
    assert title
    assert (
        page.locator("#pool-chart").get_by_role("img", name=title, exact=True).evaluate("each => each.localName")
        == "canvas"
    )
    figure = open_past(page, past)
    box = figure.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)
    held = figure.locator(".legend b").nth(1)
    assert 1.9 < float(held.inner_text()) < 2.1
    assert "held by jobs" in figure.locator("output").inner_text()
    assert figure.locator(".u-cursor-pt").count() == 3
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] - 60)
    assert held.inner_text() == held.get_attribute("data-last") != "2"
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 40)
    page.mouse.up()
    page.wait_for_url(lambda url: f"from={past:.0f}" not in url)
    begin, end = (float(parse_qs(urlsplit(page.url).query)[name][0]) - past for name in ("from", "to"))
    assert 1.4 * HOUR < begin < 1.6 * HOUR
    assert 2.1 * HOUR < end < 2.4 * HOUR
    assert page.get_by_text("<b>V100</b>").count() >= 1
    page.goto(f"{base(page)}/portal/history?subject=queues&from={past:.0f}&to={past + 3 * HOUR:.0f}")
    page.locator("#queue-chart-1 canvas").wait_for()
    assert page.locator("#queue-chart-1 .legend .promised").count() == 1


def test_time_of_which_nothing_is_known_is_a_gap(pond: Pond, visit: Visit, past: float) -> None:
    page = visit.enter(pond)
    open_past(page, past)
    name = page.locator("figure", has=page.get_by_text("at times")).first.get_attribute("id") + "-plot"
    (part,) = plot_of(page, name, "plot.series[1]._paths.gaps.map(([from, to]) => (to - from) / plot.bbox.width)")
    assert part * 180 == pytest.approx(21, abs=1)  # minutes


def test_instants_are_labelled_in_the_time_zone_of_the_reader(pond: Pond, chromium: Any, past: float) -> None:
    there = Visit(chromium, timezone_id="Asia/Kolkata")
    page = there.enter(pond)
    open_past(page, past)
    labels, places = plot_of(page, "all-cards-plot", "[plot.axes[0]._values, plot.axes[0]._splits]")
    zone = timezone(timedelta(hours=5, minutes=30))
    hours = [datetime.fromtimestamp(at, zone).strftime("%I:%M %p") for at in places]
    assert len(labels) >= 3
    assert all(label == hour or hour == "12:00 AM" for label, hour in zip(labels, hours, strict=True))
    page.goto(f"{base(page)}/portal/history?from={past:.0f}&to={past + 3 * MINUTE:.0f}")
    page.locator("#all-cards canvas").wait_for()
    minutes = [label for label in plot_of(page, "all-cards-plot", "plot.axes[0]._values") if label]
    assert len(set(minutes)) == len(minutes) > 1
    page.goto(f"{base(page)}/portal/history?back=month")
    page.locator("#all-cards canvas").wait_for()
    days = plot_of(page, "all-cards-plot", "plot.axes[0]._values")
    assert all(re.fullmatch(r"\d\d/\d\d", label) for label in days)
    there.context.close()
    assert there.wrong == []


def test_a_finger_gets_values_too(pond: Pond, chromium: Any, past: float) -> None:
    there = Visit(chromium, has_touch=True)
    page = there.enter(pond)
    figure = open_past(page, past)
    box = figure.locator(".u-over").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + 30)
    expect(figure.locator("output")).to_contain_text("held by jobs")
    there.context.close()
    assert there.wrong == []


def test_lines_change_with_the_theme_at_once_and_are_dark_on_paper(pond: Pond, visit: Visit, past: float) -> None:
    page = visit.enter(pond)
    open_past(page, past)
    colours = set(page.evaluate(COLOURS, "all-cards-plot"))
    assert colours >= LIGHT
    assert not colours & DARK
    page.get_by_role("button", name="Light or dark").click()
    for each in DARK:
        page.wait_for_function(f"() => ({COLOURS})('all-cards-plot').includes('{each}')")
    assert not LIGHT & set(page.evaluate(COLOURS, "all-cards-plot"))
    page.emulate_media(media="print")
    for each in LIGHT:
        page.wait_for_function(f"() => ({COLOURS})('all-cards-plot').includes('{each}')")


def test_fairness_over_time_is_drawn_with_its_rule_and_with_what_each_queue_was_due(
    pond: Pond, visit: Visit, past: float
) -> None:
    pond.printed("queue", "add", "speech", "weight=3")
    page = visit.enter(pond)
    page.goto(f"{base(page)}/portal/history?subject=queues&from={past:.0f}&to={past + 3 * HOUR:.0f}")
    page.locator("#fairness-index canvas").wait_for()
    row = page.locator("tr", has=page.get_by_role("link", name="speech"))
    assert re.sub(r"\s+", " ", row.inner_text()) == "speech 3 2.01 cards 2.29 cards 88 %"
    said = re.search(r"The index is (\S+) on the mean and (\S+) at the least", page.locator("#history").inner_text())
    assert said is not None
    assert 0.5 < float(said[2]) < float(said[1]) < 1
    assert page.locator("#queue-chart-1 .legend").get_by_text("due").count() == 1
    (division,) = page.evaluate(TWIN, 1)["siblings"]
    assert {each["name"] for each in division["queues"]} == {"default", "speech"}
    with Client(state_dir=pond.state_dir) as client:
        (same,) = client.charts.fairness(past, past + 3 * HOUR).siblings
    assert [each.name for each in same.queues] == [each["name"] for each in division["queues"]]
    page.get_by_role("link", name="简体中文").click()
    page.get_by_role("heading", name="公平性").wait_for()


def test_a_chart_is_used_by_the_keyboard_alone(pond: Pond, visit: Visit, past: float) -> None:
    page = visit.enter(pond)
    figure = open_past(page, past)
    plot, chosen = page.get_by_role("group", name="All cards"), figure.locator(".u-select")
    plot.focus()
    for key in ["ArrowLeft"] * 10:
        page.keyboard.press(key)
    assert re.search(r": all cards 5 · held by jobs 3\.\d+ · computing 1\.\d+$", figure.locator("output").inner_text())
    for key in ["Enter", "Shift+ArrowLeft"]:
        page.keyboard.press(key)
    assert chosen.bounding_box()["width"] > 50
    page.keyboard.press("Escape")
    assert chosen.bounding_box()["width"] == 0
    for key in ["Enter"] + ["Shift+ArrowLeft"] * 3 + ["Enter"]:
        page.keyboard.press(key)
    page.wait_for_url(lambda url: f"from={past:.0f}" not in url)
    page.locator("#all-cards canvas").wait_for()
    assert 0.5 * HOUR < plot_of(page, "all-cards-plot", "plot.scales.x.max - plot.scales.x.min") < 1.5 * HOUR


def test_charts_fit_a_phone_and_a_desk(pond: Pond, visit: Visit, past: float) -> None:
    page = visit.enter(pond)
    for size in (DESKTOP, PHONE):
        page.set_viewport_size(size)
        for path in ("", "history", "history?subject=queues", "history?subject=nodes&back=month", "curves"):
            page.goto(f"{base(page)}/portal/{path}")
            page.locator("h1").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], path
    figure = open_past(page, past)
    wide = figure.locator("canvas").bounding_box()["width"]
    page.set_viewport_size(DESKTOP)  # while it is open
    expect(figure.locator("canvas")).not_to_have_css("width", f"{wide:g}px")
    assert figure.locator("canvas").bounding_box()["width"] > 2 * wide


def test_curves_of_several_runs_grow_while_they_are_looked_at(pond: Pond, visit: Visit) -> None:
    first, second = (submit(pond, REPORTS, "--name", name) for name in ("first", "second"))
    page = visit.enter(pond, first)
    page.get_by_role("link", name="Training curves").first.click()
    page.locator(f"#run-{first}").get_by_text("of 8").or_(page.locator(f"#run-{first}").get_by_text("of 9")).wait_for()
    page.goto(f"{base(page)}/portal/jobs?user=")
    for job in (first, second):
        page.locator(f"#job-{job} input").check()
    page.get_by_role("button", name="Compare curves").click()
    page.wait_for_url(lambda url: f"job={first}" in url and f"job={second}" in url)
    page.goto(f"{base(page)}/portal/curves?job={first}&job={second}&scale=log")
    page.locator(f"#run-{first}").get_by_text("9 of 9").wait_for()
    page.locator(f"#run-{second}").get_by_text("0.05 at 8").wait_for()
    page.locator("#curve-1 canvas").wait_for()
    assert plot_of(page, "curve-1-plot", "plot.data.length") == 3
    assert "0.1" in plot_of(page, "curve-1-plot", "plot.axes[1]._values")
    page.locator("#best-so-far canvas").wait_for()
    twin = page.evaluate(TWIN, 0)
    assert [curve["count"] for curve in twin["curves"]] == [9, 9]
    pond.printed("stop", first, second)
    page.locator("[data-every]").wait_for(state="detached")


def test_a_growing_curve_goes_on_in_the_chart_that_is_looked_at(pond: Pond, visit: Visit) -> None:
    job = submit(pond, GROWS)
    page = visit.enter(pond)
    page.goto(f"{base(page)}/portal/curves?job={job}")
    figure = page.locator("#curve-1")
    box = figure.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 30)
    expect(figure.locator("output")).to_have_text(re.compile("^1: .* 0.5$"))
    page.evaluate("document.getElementById('curve-1-plot').plot.root.title = 'the same'")
    before = plot_of(page, "curve-1-plot", "plot.data[0].length")
    page.wait_for_function(f"() => document.getElementById('curve-1-plot').plot.data[0].length >= {before + 4}")
    assert plot_of(page, "curve-1-plot", "plot.root.title") == "the same"
    assert plot_of(page, "curve-1-plot", "plot.scales.x.max") >= before + 4
    assert figure.locator("output").inner_text().endswith(" 0.5")
    pond.printed("stop", job)
