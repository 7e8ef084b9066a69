"""The portal's pages of queues: what they show, and an edit that is looked at before it is made."""

from __future__ import annotations

import html
import json
import re
import time
from typing import Any

import pytest
from auth_world import API, AuthWorld
from portal_browser import browser_of, csrf_in

from millpond.model.events import QueueChanged
from millpond.model.tenancy.tenants import Limit, Queue
from millpond.scheduling.tenancy.queue_views import QueueStatus
from millpond.server.jobs import reasons
from millpond.server.runtime.core import Core
from millpond.server.store.statistics.time_series import SeriesRow
from millpond.server.views import queues
from millpond.server.web.queues import queue_pages

HOSTILE = "<script>alert(1)</script>"


def set_queue(world: AuthWorld, name: str, **fields: Any) -> None:
    answer = world.client("amy").patch(f"{API}/queues/{name}", json={"fields": fields})
    assert answer.status_code == 200, answer.text


def button_in(page: str) -> dict[str, str]:
    """What the button of a preview sends."""
    found = re.search(r'<button[^>]* id="apply"([^>]*)>', page)
    assert found is not None, page
    return {name: html.unescape(value) for name, value in re.findall(r'(?:hx|data)-(\w+)="([^"]*)"', found[1])}


def test_a_queue_shows_who_holds_what_and_who_waits(world: AuthWorld) -> None:
    set_queue(world, "vision", guarantee=2, limit={"gpus": 4, "cpus": 32})
    runs, waits = world.submit("max", gpus=4), world.submit("mia", gpus=1, name="patient")
    world.settled()
    page = browser_of(world, "lea").get("/portal/queues/vision").text
    for text in (f'id="held-{runs}"', f'id="waits-{waits}"', "patient", "limit 32", ">max<", ">mia<"):
        assert text in page, text
    assert "/edit" not in page
    assert browser_of(world, "sam").get("/portal/queues/vision").status_code == 404
    assert browser_of(world, "lea").get("/portal/queues/vision/edit").status_code == 403
    assert "/portal/queues/vision/edit" in browser_of(world, "olga").get("/portal/queues/vision").text
    assert browser_of(world, "olga").get("/portal/queues/root").status_code == 200


def test_where_a_queue_has_nothing_to_show_its_pages_say_so(world: AuthWorld) -> None:
    world.store.time_series.write([SeriesRow("queues", 60, int(time.time()) // 60 * 60, 1, {"vision": (0.0,) * 6})])
    olga = browser_of(world, "olga")
    for page in ("/portal/queues/vision", "/portal/history?subject=queues"):
        assert "No card was guaranteed, used or asked for in that time." in olga.get(page).text, page
    assert "Nothing is set; all is as usual." in olga.get("/portal/queues/vision").text
    set_queue(world, "vision", guarantee=2)
    assert "Nothing is set" not in olga.get("/portal/queues/vision").text


def test_forms_offer_the_queues_of_the_reader_that_take_jobs(world: AuthWorld) -> None:
    world.loop.notify([QueueChanged(world.clock.now, Queue("maps", "vision"))])
    world.settled()
    for user, offered in (("sam", {"speech"}), ("amy", {"default", "maps", "speech"})):
        for page in ("/portal/jobs", "/portal/submit"):
            text = browser_of(world, user).get(page).text
            listed = text[text.index('<datalist id="queue-names">') :]
            assert set(re.findall(r'<option value="([^"]+)">', listed[: listed.index("</datalist>")])) == offered, page


def test_jobs_of_queues_are_counted_anew_where_something_happened_alone(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses, counted = queues._statuses, list[Core]()

    def noted(core: Core) -> list[tuple[QueueStatus, Limit]]:
        counted.append(core)
        return statuses(core)

    monkeypatch.setattr(queues, "_statuses", noted)
    for user in ("max", "amy"):
        assert browser_of(world, user).get("/portal/queues").status_code == 200
    assert len(counted) == 1
    world.submit("max", gpus=1)
    world.settled()
    assert world.client("max").get(f"{API}/queues").json()["queues"][0]["running"] == 1
    assert len(counted) == 2


def test_an_edit_is_seen_before_it_is_made_and_made_by_the_request_of_the_api(world: AuthWorld) -> None:
    set_queue(world, "vision", guarantee=4)
    world.submit("max", gpus=4)
    world.settled()
    browser = browser_of(world, "amy")
    page = browser.get("/portal/queues/vision/edit", params={"preview": 1, "guarantee.gpus": "1"}).text
    assert "3 of 4 cards that vision holds are borrowed now" in page
    assert 'name="guarantee.gpus" value="1"' in page
    assert world.client("amy").get(f"{API}/queues/vision").json()["settings"] == {"parent": "root", "guarantee": 4}
    button = button_in(page)
    assert json.loads(button["vals"]) == {"fields": {"parent": None, "guarantee": 1}, "version": 1}
    sent = {"content": button["vals"], "headers": {"X-CSRF-Token": csrf_in(page), "Content-Type": "application/json"}}
    assert browser.request(button["method"], button["action"], **sent).status_code == 200
    assert world.client("amy").get(f"{API}/queues/vision").json()["settings"] == {"guarantee": 1}
    assert browser.request(button["method"], button["action"], **sent).status_code == 409, "the version was seen"


def test_a_preview_names_what_gains_room_and_what_cannot_be(world: AuthWorld) -> None:
    set_queue(world, "vision", guarantee=2)
    browser = browser_of(world, "amy")
    page = browser.get(
        "/portal/queues/vision/edit", params={"preview": 1, "parent": "root", "guarantee.gpus": "3"}
    ).text
    assert re.search(r'id="room-2"><td data-label="Queue">vision</td><td [^>]*>2 → <b class="up">3</b>', page)
    wrong = {"preview": 1, "guarantee.gpus": "5", "limit.gpus": "4", "weight": HOSTILE}
    page = browser.get("/portal/queues/vision/edit", params=wrong).text
    assert "vision.weight" in page
    assert HOSTILE not in page
    assert 'id="apply"' not in page
    page = browser.get("/portal/queues/vision/edit", params={**wrong, "weight": ""}).text
    assert "at most 4 GPUs, but it is guaranteed 5 GPUs" in page
    same = {"preview": 1, "parent": "root", "guarantee.gpus": "2"}
    assert "No field is changed." in browser.get("/portal/queues/vision/edit", params=same).text


def test_a_queue_is_added_below_another_by_the_form(world: AuthWorld) -> None:
    browser = browser_of(world, "amy")
    assert 'name="parent" value="org"' in browser.get("/portal/new-queue?parent=org").text
    page = browser.get("/portal/new-queue", params={"preview": 1, "name": "lab", "guarantee.gpus": "1"}).text
    button = button_in(page)
    assert json.loads(button["vals"]) == {"name": "lab", "fields": {"guarantee": 1}}
    assert (button["method"], button["action"], button["then"]) == ("POST", "/api/v1/queues", "/portal/queues/lab")
    page = browser.get("/portal/new-queue", params={"preview": 1, "name": f"../{HOSTILE}"}).text
    assert "characters that are not allowed here" in page
    assert HOSTILE not in page
    assert browser_of(world, "lea").get("/portal/new-queue").status_code == 403


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"guarantee.gpus": "0"}, "Who waits less, and who longer"),
        ({"guarantee.gpus": "0"}, "What such an answer cannot know"),
        ({"guarantee.gpus": "2"}, "No field is changed."),
        ({"guarantee.gpus": "2", "data": "/data"}, "vision.data is not about when and where jobs run"),
    ],
)
def test_who_would_wait_less_is_played(world: AuthWorld, fields: dict[str, str], text: str) -> None:
    set_queue(world, "vision", guarantee=2)
    answer = browser_of(world, "amy").get(
        "/portal/queues/vision/play", params={"preview": 1, "parent": "root"} | fields
    )
    assert answer.status_code == 200
    assert text in answer.text


def test_cells_are_drawn_and_those_of_other_groups_are_not_named(world: AuthWorld) -> None:
    assert "No queue is owed cells." in browser_of(world, "max").get("/portal/cells").text
    set_queue(world, "vision", guarantee=4, cells={"node": 1})
    world.submit("max", gpus=1)
    world.settled()
    for user, name in (("max", "vision"), ("sam", "queues of other groups"), ("olga", "vision")):
        (chain,) = world.client(user).get(f"{API}/cells").json()["chains"]
        assert [(each["queue"], each["level"], each["bound"]) for each in chain["owed"]] == [(name, "node", 1)]
        assert [part["queue"] for node in chain["nodes"] for part in node["parts"]] == [name, name]
        page = browser_of(world, user).get("/portal/cells").text
        assert f'aria-label="n1/0: in use · {name} · whole node"' in page
        assert ("vision" in page) is (name == "vision")


def test_machines_that_are_too_many_for_their_cards_are_drawn_by_the_legend_too(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_pages, "MOST_IN_DETAIL", 0)
    set_queue(world, "vision", guarantee=4, cells={"node": 1})

    def drawn() -> list[tuple[str, str]]:
        world.settled()
        return re.findall(r'<i class="([^"]+)" title="([^"]+)"', browser_of(world, "olga").get("/portal/cells").text)

    theirs = world.submit("sam", gpus=1)
    assert drawn() == [("k-visited", "n1: other work, which leaves when needed · bound to no queue")]
    world.client("sam").post(f"{API}/jobs/{theirs}/stop")
    world.submit("max", gpus=1)
    assert drawn() == [("k-in-use c-o1", "n1: in use · vision · whole node")]


def test_where_a_list_has_no_reason_for_a_waiting_job_it_leads_to_the_page_that_has(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reasons, "REASONS_IN_A_LIST", 1)
    world.submit("max", gpus=4)
    waiting = {world.submit("max", gpus=4) for _ in range(2)}
    world.settled()
    page = browser_of(world, "lea").get("/portal/queues/vision").text
    (led,) = re.findall(r'<a href="/portal/jobs/([^"]+)">Why it waits</a>', page)
    assert led in waiting
