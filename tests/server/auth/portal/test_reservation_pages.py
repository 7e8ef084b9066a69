"""The portal's page of reservations: who sees which, and who is offered to make, change and cancel them."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace

import pytest
from auth_world import API, AuthWorld
from portal_browser import browser_of

from millpond.server.auth.roles import Caller
from millpond.specs.api.pool.reservations import ReservationInfo


@pytest.fixture
def world(world: AuthWorld) -> AuthWorld:
    """With guarantees for both groups, and a reservation of one person of each."""
    for queue in ("vision", "speech"):
        answer = world.client("amy").patch(f"{API}/queues/{queue}", json={"fields": {"guarantee": 2}})
        assert answer.status_code == 200, answer.text
    for user, queue in (("max", "vision"), ("sam", "speech")):
        body = {"queue": queue, "cards": 1, "begin": world.clock.now + 3600, "until": world.clock.now + 7200}
        answer = world.client(user).put(f"{API}/reservations/of-{user}", json=body)
        assert answer.status_code == 200, answer.text
    return world


def offers(world: AuthWorld, user: str) -> dict[str, bool]:
    """The reservations that a user sees, each with whether it is offered to change it."""
    page = browser_of(world, user).get("/portal/reservations").text
    rows = re.findall(r'<tr id="reservation-([^"]+)"(.*?)</tr>', page, re.DOTALL)
    return {name: "hx-delete=" in row and "data-edit=" in row for name, row in rows}


def test_each_sees_those_of_their_groups_and_changes_those_they_may(world: AuthWorld) -> None:
    assert offers(world, "max") == {"of-max": True}
    assert offers(world, "lea") == {"of-max": True}
    assert offers(world, "mia") == {"of-max": False}
    assert offers(world, "sam") == {"of-sam": True}
    assert offers(world, "olga") == {"of-max": True, "of-sam": True}


def test_a_form_is_for_those_who_may_submit_and_names_their_queues(world: AuthWorld) -> None:
    page = browser_of(world, "mia").get("/portal/reservations").text
    assert re.findall(r"<option>([^<]+)</option>", page) == ["vision"]
    assert "beyond_guarantee" not in page.partition('id="reserve"')[2]
    assert 'id="reserve"' not in browser_of(world, "vic").get("/portal/reservations").text
    assert "beyond_guarantee" in browser_of(world, "olga").get("/portal/reservations").text.partition('id="reserve"')[2]


def test_the_form_is_filled_with_what_was_agreed(world: AuthWorld) -> None:
    page = browser_of(world, "max").get("/portal/reservations").text
    found = re.search(r'data-edit="([^"]+)"', page)
    assert found is not None
    known = json.loads(html.unescape(found[1]))
    assert (known["name"], known["queue"], known["cards"], known["until"]) == ("of-max", "vision", 1, 1_007_200.0)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("days=1&from=2026-02-28", 200),
        ("from=9999-12-31", 200),
        ("from=0001-01-01", 200),
        ("days=5", 422),
        ("from=x", 422),
    ],
)
def test_the_calendar_is_of_days_that_there_are(world: AuthWorld, query: str, status: int) -> None:
    answer = browser_of(world, "max").get(f"/portal/reservations?{query}")
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")


def test_the_nodes_of_a_large_reservation_are_folded(world: AuthWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    agreed = world.service.reservations.seen_by

    async def placed(caller: Caller) -> list[ReservationInfo]:
        return [replace(each, nodes={f"m{number}": 8 for number in range(500)}) for each in await agreed(caller)]

    monkeypatch.setattr(world.service.reservations, "seen_by", placed)
    page = browser_of(world, "max").get("/portal/reservations").text
    (folded,) = re.findall(r"<details><summary>500 nodes</summary>(.*?)</details>", page, re.DOTALL)
    assert len(re.findall(r'href="/portal/nodes/m\d+"', folded)) == page.count('href="/portal/nodes/m') == 500
