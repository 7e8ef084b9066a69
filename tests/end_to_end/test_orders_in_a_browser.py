"""The order of a list of jobs in a real Chromium: kept while the list lives, and under the cursor rows stand still."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from portal_visit import Visit, base_of, chromium, expect, pond, submit, visit
from real_pond import Pond

pytestmark = [pytest.mark.end_to_end, pytest.mark.long]

__all__ = ["chromium", "pond", "visit"]
"""Fixtures."""


def rows(page: Any) -> list[str]:
    """The jobs of the list from above."""
    return [
        each.removeprefix("job-")
        for each in page.locator("table.jobs tbody tr").evaluate_all("(all) => all.map((each) => each.id)")
    ]


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
    row = page.locator(f"#job-{other}")
    row.hover()
    before = row.bounding_box()
    newest = submit(pond, "sleep 600", "--name", name, *late)
    page.locator("button.waiting").wait_for()
    assert rows(page) == [one, other]
    assert row.bounding_box() == pytest.approx(before, abs=1), "the button above does not push rows down"
    page.mouse.move(5, 5)
    page.locator(f"#job-{newest}").wait_for()
    assert rows(page) == [newest, one, other]
    row.hover()
    assert pond("stop", newest).returncode == 0
    expect(page.locator(f"#job-{newest}")).to_have_class("gone")
    assert rows(page) == [newest, one, other], "what has ended stays, paler, until the cursor has left"
    page.mouse.move(5, 5)
    page.locator(f"#job-{newest}").wait_for(state="detached")
    assert rows(page) == [one, other]
    assert parse_qs(urlsplit(page.url).query)["order"] == [order]
    assert page.get_by_label("Order").input_value() == order
    pond("stop", one, other)
