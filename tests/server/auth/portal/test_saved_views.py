"""Lists of jobs that people name: for themselves, which nobody else sees, and by a lead for a group."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from auth_world import API, AuthWorld, error_of
from portal_browser import browser_of

from millpond.server.jobs.saved_views import MOST_VIEWS
from millpond.specs.api.jobs.saved_views import SavedViewRequest

HOSTILE = "<script>alert(1)</script>\"'"


def save(world: AuthWorld, user: str, name: str = "waits", query: str = "state=queued", **fields: Any) -> Any:
    return world.client(user).post(f"{API}/views", json={"name": name, "query": query, **fields})


def seen(world: AuthWorld, user: str) -> list[str]:
    return [each["name"] for each in world.client(user).get(f"{API}/views").json()["views"]]


def test_ones_own_are_nobody_elses_and_those_of_a_group_are_its_members(world: AuthWorld) -> None:
    assert save(world, "max").status_code == 201
    assert save(world, "lea", "ours", "queue=vision", group="vision").json()["by"] == "lea"
    assert {user: seen(world, user) for user in ("max", "lea", "vic", "sam", "nob")} == {
        "max": ["waits", "ours"],
        "lea": ["ours"],
        "vic": ["ours"],
        "sam": [],
        "nob": [],
    }
    assert save(world, "max", "more", group="vision").status_code == 403
    assert save(world, "sam", "more", group="vision").status_code == 404


def test_a_view_for_a_group_that_does_not_exist_is_refused_with_where_groups_are_listed(world: AuthWorld) -> None:
    answer = save(world, "amy", "ours", group="vison")
    assert (answer.status_code, error_of(answer).cause) == (404, "no group 'vison'")
    assert "pond group ls" in error_of(answer).remedy
    assert save(world, "amy", "ours", group="vision").status_code == 201


def test_a_list_that_cannot_be_kept_has_neither_the_form_nor_its_script(world: AuthWorld) -> None:
    array = world.submit("max", array="0-1")
    world.settled()
    browser = browser_of(world, "max")
    for address, is_kept in (("/portal/jobs", True), (f"/portal/jobs?members={array}", False)):
        page = browser.get(address).text
        assert ('id="keep"' in page, "saved_views.js" in page) == (is_kept, is_kept), address


@pytest.mark.parametrize("view", ["nope", "%00", "a%00b"])
def test_an_address_of_no_view_is_answered_with_a_page(world: AuthWorld, view: str) -> None:
    answer = browser_of(world, "max").get(f"/portal/views/{view}")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "<h1" in answer.text


def test_a_view_is_an_address_that_leads_to_its_filters(world: AuthWorld) -> None:
    query = "order=oldest&all=true&behind=x&queue=vision&evil=%2F%2Fx&state=failed"
    view = save(world, "lea", "ours", query, group="vision").json()
    assert view["query"] == "state=failed&queue=vision&all=true&order=oldest"
    answer = browser_of(world, "vic").get(f"/portal/views/{view['id']}")
    assert (answer.status_code, answer.url.path, answer.url.query) == (200, "/portal/jobs", view["query"].encode())
    assert f'href="/portal/views/{view["id"]}" aria-current="true"' in answer.text
    assert browser_of(world, "sam").get(f"/portal/views/{view['id']}").status_code == 404
    again = save(world, "lea", "ours", "state=queued", group="vision").json()
    assert again["id"] == view["id"], "the address stays when the view is saved anew"


def test_one_that_is_saved_twice_at_the_same_time_is_one(world: AuthWorld) -> None:
    lea = world.accounts.caller_named("lea")
    assert lea is not None
    with ThreadPoolExecutor(8) as threads:
        views = list(
            threads.map(lambda _: world.service.saved_views.save(SavedViewRequest(name="ours"), lea), range(16))
        )
    assert len({view.id for view in views}) == 1
    assert seen(world, "lea") == ["ours"]


@pytest.mark.parametrize(
    ("query", "current"),
    [
        ("", ["Active"]),
        ("user=max", ["Mine"]),
        ("state=running", ["Running"]),
        ("order=cards&state=running", ["Running"]),
        ("all=true", ["All"]),
        ("state=running&user=max", []),
        ("state=failed&name=train-*", []),
        ("user=lea", []),
        ("all=true&user=max", ["everything of mine"]),
    ],
)
def test_one_list_is_the_one_that_is_shown_or_none(world: AuthWorld, query: str, current: list[str]) -> None:
    save(world, "max", "everything of mine", "all=true&user=max")
    page = browser_of(world, "max").get(f"/portal/jobs?{query}").text
    tabs = page.partition('class="tabs"')[2].partition("</nav>")[0]
    assert re.findall(r'aria-current="true"[^>]*>(?:<bdi>)?([^<]*)<', tabs) == current


def test_a_view_of_ones_own_jobs_is_shown_and_not_mine_beside_it(world: AuthWorld) -> None:
    save(world, "max", "my work", "user=max")
    page = browser_of(world, "max").get("/portal/jobs?user=max").text
    assert page.partition('class="tabs"')[2].partition("</nav>")[0].count("aria-current") == 1


def test_a_view_is_forgotten_by_those_who_may_keep_it(world: AuthWorld) -> None:
    mine = save(world, "max").json()["id"]
    ours = save(world, "lea", "ours", group="vision").json()["id"]
    assert world.client("vic").delete(f"{API}/views/{ours}").status_code == 403
    assert world.client("lea").delete(f"{API}/views/{mine}").status_code == 404
    assert world.client("lea").delete(f"{API}/views/{ours}").status_code == 204
    assert world.client("max").delete(f"{API}/views/{mine}").status_code == 204
    assert seen(world, "max") == []


def test_hostile_names_are_text(world: AuthWorld) -> None:
    assert save(world, "max", HOSTILE, f"name={HOSTILE}").status_code == 201
    assert save(world, "max", "n" * 100).status_code == 201
    page = browser_of(world, "max").get("/portal/jobs").text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, "a\nb", "a\u202eb"])
def test_names_that_cannot_stand_in_a_line_are_refused(shared: AuthWorld, name: str) -> None:
    assert save(shared, "max", name).status_code == 422


@pytest.mark.long
def test_too_many_views_and_too_many_filters_are_refused(world: AuthWorld) -> None:
    for number in range(MOST_VIEWS):
        assert save(world, "max", f"v{number}").status_code == 201
    assert error_of(save(world, "max", "more")).cause == f"there are {MOST_VIEWS} saved views already"
    assert save(world, "max", "v1", "user=max").status_code == 201, "one that is there is replaced"
    assert save(world, "mia", "many", "&".join(["user=a"] * 101)).status_code == 422
