"""The order of a list of jobs in a real Chromium: kept while the list lives, and under the cursor rows stand still."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from portal_visit import PHONE, Visit, base_of, chromium, expect, pond, submit, visit
from real_pond import Pond

pytestmark = pytest.mark.long

__all__ = ["chromium", "pond", "visit"]
"""Fixtures."""


def rows(page: Any) -> list[str]:
    """The jobs of the list from above."""
    return [
        each.removeprefix("job-")
        for each in page.locator("table.jobs tbody tr").evaluate_all("(all) => all.map((each) => each.id)")
    ]


def running_row(page: Any, job: str) -> Any:
    """The row of a job once it runs: from then on its own words, and so its size, stay."""
    row = page.locator(f"#job-{job}")
    row.locator(".s-running").wait_for()
    return row


@pytest.mark.parametrize(
    ("order", "first", "second", "late"),
    [
        ("cards", ("--gpus", "2"), ("--gpus", "1"), ("--gpus", "4")),
        ("priority", ("--priority", "normal"), ("--priority", "low"), ("--priority", "high")),
    ],
)
def test_the_chosen_order_survives_changes_and_rows_stay_under_the_cursor(
    pond: Pond, visit: Visit, order: str, first: tuple[str, str], second: tuple[str, str], late: tuple[str, str]
) -> None:
    name = f"by-{order}"
    one, other = submit(pond, "sleep 600", "--name", name, *first), submit(pond, "sleep 600", "--name", name, *second)
    page = visit.enter(pond)
    page.goto(f"{base_of(page)}/portal/jobs?name={name}")
    page.get_by_label("Order").select_option(order)
    page.get_by_role("button", name="Show").click()
    page.wait_for_url(f"**order={order}**")
    assert rows(page) == [one, other], "though the other one is newer"
    _, row = (running_row(page, each) for each in (one, other))
    row.hover()
    before = row.bounding_box()
    newest = submit(pond, "sleep 600", "--name", name, *late)
    page.locator("button.waiting").wait_for()
    expect(page.locator("#changes-wait")).to_have_text(page.locator("button.waiting").inner_text())
    assert rows(page) == [one, other]
    assert row.bounding_box() == pytest.approx(before, abs=1), "the button above does not push rows down"
    page.mouse.move(5, 5)
    page.locator(f"#job-{newest}").wait_for()
    assert rows(page) == [newest, one, other]
    expect(page.locator("#changes-wait")).to_be_empty()
    row.hover()
    assert pond("stop", newest).returncode == 0
    expect(page.locator(f"#job-{newest}")).to_have_class("gone")
    assert rows(page) == [newest, one, other], "what has ended stays, paler, until the cursor has left"
    page.mouse.move(5, 5)
    page.locator(f"#job-{newest}").wait_for(state="detached")
    assert rows(page) == [one, other]
    assert parse_qs(urlsplit(page.url).query)["order"] == [order]
    assert page.get_by_label("Order").input_value() == order
    pond.printed("stop", one, other)


def test_a_row_stays_under_the_cursor_where_one_above_it_grows(pond: Pond, visit: Visit) -> None:
    above, below = [submit(pond, "sleep 600", "--name", "grows", "--gpus", "1") for _ in range(2)]
    page = visit.enter(pond)
    page.set_viewport_size({"width": 1280, "height": 320})
    page.goto(f"{base_of(page)}/portal/jobs?name=grows&order=oldest")
    over, row = (running_row(page, each) for each in (above, below))
    over.evaluate("(row) => row.replaceChildren()")  # the next look fills it again
    row.hover()
    before = row.bounding_box()
    late = submit(pond, "sleep 600", "--name", "grows", "--gpus", "1")
    page.locator("button.waiting").wait_for()
    expect(page.locator(f"#job-{above} .state")).to_be_visible()
    assert row.bounding_box() == pytest.approx(before, abs=1)
    pond.printed("stop", above, below, late)


A_MINUTE_LATER = """new Promise((done) => requestAnimationFrame(() => {
  const now = performance.now.bind(performance);
  performance.now = () => now() + 61000;
  done();
}))"""
"""Of what has scrolled the page hears before it draws its next picture."""


@pytest.fixture
def phone(chromium: Any, pond: Pond) -> Iterator[Any]:
    """A page on a phone."""
    held = Visit(chromium, has_touch=True, is_mobile=True)
    page = held.enter(pond)
    page.set_viewport_size({**PHONE, "height": 700})
    yield page
    complaints = held.complaints()
    held.context.close()
    assert not complaints


def test_on_a_phone_rows_stay_while_one_has_scrolled_into_a_list(pond: Pond, phone: Any) -> None:
    jobs = [submit(pond, "sleep 600", "--name", "touched", "--gpus", "1") for _ in range(4)]
    phone.goto(f"{base_of(phone)}/portal/jobs?name=touched")
    for job in jobs:
        running_row(phone, job)
    phone.locator(f"#job-{jobs[0]}").scroll_into_view_if_needed()
    assert phone.evaluate("document.getElementById('jobs').getBoundingClientRect().top") < 0
    late = submit(pond, "sleep 600", "--name", "touched", "--gpus", "1")
    phone.locator("button.waiting:visible").wait_for()
    phone.evaluate(A_MINUTE_LATER)
    phone.evaluate("settleUnused()")
    assert rows(phone) == jobs[::-1]
    phone.evaluate("scrollTo(0, 0)")
    phone.evaluate(A_MINUTE_LATER)
    phone.locator(f"#job-{late}").wait_for()
    assert rows(phone) == [late, *jobs[::-1]]
    pond.printed("stop", *jobs, late)


def test_on_a_phone_no_row_of_a_list_in_view_moves_before_one_asks_or_leaves_it_alone(pond: Pond, phone: Any) -> None:
    first = submit(pond, "sleep 600", "--name", "tapped", "--gpus", "1")
    phone.goto(f"{base_of(phone)}/portal/jobs?name=tapped")
    row = running_row(phone, first)
    before = row.bounding_box()
    assert 0 < before["y"] < 700
    second = submit(pond, "sleep 600", "--name", "tapped", "--gpus", "1")
    waiting = phone.locator("button.waiting:visible")
    waiting.wait_for()
    assert rows(phone) == [first]
    assert row.bounding_box() == pytest.approx(before, abs=1)
    waiting.tap()
    phone.locator(f"#job-{second}").wait_for()
    assert rows(phone) == [second, first]
    third = submit(pond, "sleep 600", "--name", "tapped", "--gpus", "1")
    waiting.wait_for()
    assert rows(phone) == [second, first]
    phone.evaluate(A_MINUTE_LATER)
    phone.locator(f"#job-{third}").wait_for()
    assert rows(phone) == [third, second, first]
    pond.printed("stop", first, second, third)
