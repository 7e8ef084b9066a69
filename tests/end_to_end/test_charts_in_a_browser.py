"""Charts in a real Chromium: values under the pointer and by the keyboard, a span as the view, curves that grow."""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import sqlalchemy as sa
from real_pond import Pond
from test_portal_in_a_browser import DESKTOP, PHONE, Visit, chromium, pond, submit, visit

from millpond.client.sdk import Client
from millpond.server.state_dir import DATABASE_FILE
from millpond.server.store.statistics.time_series import SeriesRow, TimeSeriesStore

__all__ = ["chromium", "pond", "visit"]  # fixtures

pytestmark = [pytest.mark.end_to_end, pytest.mark.long]
MINUTE, HOUR = 60, 3_600

REPORTS = """
report() { printf '{"at": %s, "step": %s, "values": {"loss": %s}}\\n' "$(date +%s)" "$1" "$2" >> "$MILLPOND_METRICS"; }
for step in 0 1 2 3 4 5 6 7; do report $step 0.$((9 - step)); done
until [ -e "$MILLPOND_OUTPUT/more" ]; do sleep 0.1; [ $((n = n + 1)) -lt 30 ] || touch "$MILLPOND_OUTPUT/more"; done
report 8 0.05; sleep 600
"""

TWIN = """async (index) => {
  const token = document.querySelector("meta[name=csrf-token]").content;
  const path = document.querySelectorAll(".twin")[index].textContent.replace("GET ", "");
  return (await fetch(path, { headers: { "X-CSRF-Token": token } })).json();
}"""


@pytest.fixture(scope="module")
def past(pond: Pond) -> float:
    """Three hours in which the cards of the pool were held more and more; returns when they begin."""
    engine = sa.create_engine(f"sqlite:///{pond.state_dir / DATABASE_FILE}")
    now = int(time.time()) // HOUR * HOUR
    store = TimeSeriesStore(engine)
    rows = []
    for minute in range(-180, 0):
        held = (minute + 180) / 45
        cards = (4.0, held, 0.0, 4.0, held / 2, 400.0, 50.0)
        queue = (2.0, held, max(0.0, held - 2), 0.0, 0.0, 0.0)
        sibling = (0.0, 4.0 - held, 0.0, 0.0, 1.0, 2.0)
        at = now + minute * MINUTE
        rows.append(SeriesRow("models", MINUTE, at, 1, {"<b>V100</b>": cards}))
        rows.append(SeriesRow("queues", MINUTE, at, 1, {"default": queue, "speech": sibling}))
    store.write(rows)
    engine.dispose()
    return float(now - 3 * HOUR)


def base(page: Any) -> str:
    return str(page.evaluate("location.origin"))


def test_a_chart_of_the_pool_gives_values_and_a_span_of_it_becomes_the_view(
    pond: Pond, visit: Visit, past: float
) -> None:
    page = visit.enter(pond)
    page.locator("#pool-chart .lines .held").wait_for()
    page.goto(f"{base(page)}/portal/history?from={past:.0f}&to={past + 3 * HOUR:.0f}")
    figure = page.locator("#all-cards")
    plot = figure.locator(".plot")
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)
    held = figure.locator(".legend b").nth(1)
    assert 1.9 < float(held.inner_text()) < 2.1
    assert "held by jobs" in figure.locator("output").inner_text()
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 40)
    page.mouse.up()
    page.wait_for_url(lambda url: f"from={past:.0f}" not in url)
    begin, end = (float(parse_qs(urlsplit(page.url).query)[name][0]) - past for name in ("from", "to"))
    assert 1.4 * HOUR < begin < 1.6 * HOUR
    assert 2.1 * HOUR < end < 2.4 * HOUR
    assert page.get_by_text("<b>V100</b>").count() >= 1
    page.goto(f"{base(page)}/portal/history?subject=queues&from={past:.0f}&to={past + 3 * HOUR:.0f}")
    page.locator("#queue-chart-1 .lines .promised").wait_for(state="attached")


def test_fairness_over_time_is_drawn_with_its_rule_and_with_what_each_queue_was_due(
    pond: Pond, visit: Visit, past: float
) -> None:
    assert pond("queue", "add", "speech", "weight=3").returncode == 0
    page = visit.enter(pond)
    page.goto(f"{base(page)}/portal/history?subject=queues&from={past:.0f}&to={past + 3 * HOUR:.0f}")
    page.locator("#fairness-index .lines .line").wait_for(state="attached")
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
    page.goto(f"{base(page)}/portal/history?from={past:.0f}&to={past + 3 * HOUR:.0f}")
    figure = page.locator("#all-cards")
    figure.locator(".plot").focus()
    for key in ["ArrowLeft"] * 10 + ["Enter"] + ["Shift+ArrowLeft"] * 3 + ["Enter"]:
        page.keyboard.press(key)
    page.wait_for_url(lambda url: f"from={past:.0f}" not in url)
    page.locator("#all-cards .lines .held").wait_for()


def test_charts_fit_a_phone_and_a_desk(pond: Pond, visit: Visit, past: float) -> None:
    page = visit.enter(pond)
    for size in (DESKTOP, PHONE):
        page.set_viewport_size(size)
        for path in ("", "history", "history?subject=queues", "history?subject=nodes&back=month", "curves"):
            page.goto(f"{base(page)}/portal/{path}")
            page.locator("h1").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], path


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
    assert page.locator("#curve-1 .lines .line").count() == 2
    page.locator("#best-so-far").wait_for()
    twin = page.evaluate(TWIN, 0)
    assert [curve["count"] for curve in twin["curves"]] == [9, 9]
    pond("stop", first, second)
    page.locator("[data-every]").wait_for(state="detached")
