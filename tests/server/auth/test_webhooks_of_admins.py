"""Webhooks over the API and the page: who may add and remove them, what is noted, and that no address is shown."""

from __future__ import annotations

from auth_world import API, AuthWorld, error_of
from portal_browser import browser_of
from test_audit import audit

ROOM = {"name": "room", "url": "https://hooks.slack.com/services/very-secret", "format": "slack"}
PAGE = "/portal/admin/webhooks"


def test_what_an_admin_adds_is_listed_on_the_page_and_noted_without_its_address(world: AuthWorld) -> None:
    amy = world.client("amy")
    added = amy.post(f"{API}/webhooks", json={**ROOM, "on": ["job.failed"], "queues": ["vision"]})
    assert added.status_code == 201, added.text
    listed = amy.get(f"{API}/webhooks").json()["webhooks"]
    assert listed == [added.json()]
    assert (listed[0]["url"], listed[0]["by"]) == ("https://hooks.slack.com/(hidden)", "amy")
    page = browser_of(world, "amy").get(PAGE).text
    assert "https://hooks.slack.com/(hidden)" in page
    assert f'hx-delete="{API}/webhooks/room"' in page
    removed = amy.delete(f"{API}/webhooks/room")
    assert removed.status_code == 200
    assert amy.get(f"{API}/webhooks").json()["webhooks"] == []
    gone, come = audit(world, object="room")
    assert (come["user"], come["kind"], come["verb"], come["status"]) == ("amy", "webhook", "change-cluster", 201)
    assert come["after"] == "slack to https://hooks.slack.com/(hidden): job.failed of vision"
    assert (gone["before"], gone["after"]) == (come["after"], "removed")
    for answer in (added.text, page, removed.text, str([gone, come])):
        assert "very-secret" not in answer


def test_who_is_no_admin_neither_sees_nor_changes_them_and_that_is_noted(world: AuthWorld) -> None:
    world.client("amy").post(f"{API}/webhooks", json=ROOM)
    for user in ("lea", "max", "vic"):
        client = world.client(user)
        for answer in (
            client.get(f"{API}/webhooks"),
            client.post(f"{API}/webhooks", json={**ROOM, "name": "mine"}),
            client.delete(f"{API}/webhooks/room"),
        ):
            assert (answer.status_code, error_of(answer).code) == (403, "forbidden")
        assert browser_of(world, user).get(PAGE).status_code == 403
    assert [each["name"] for each in world.client("amy").get(f"{API}/webhooks").json()["webhooks"]] == ["room"]
    assert {entry["user"] for entry in audit(world) if entry["status"] == 403} == {"lea", "max", "vic"}


def test_what_is_wrong_is_said_in_the_language_of_the_page(world: AuthWorld) -> None:
    amy = world.client("amy", **{"accept-language": "zh-CN"})
    amy.post(f"{API}/webhooks", json=ROOM)
    again = error_of(amy.post(f"{API}/webhooks", json=ROOM))
    assert (again.code, again.cause) == ("conflict", "已有名为 'room' 的 webhook")
    unsigned = error_of(amy.post(f"{API}/webhooks", json={**ROOM, "name": "b", "secret": "TRACKER"}))
    assert (unsigned.code, unsigned.cause) == ("not-found", "服务器没有密钥 'TRACKER'")
    unknown = error_of(amy.post(f"{API}/webhooks", json={**ROOM, "name": "c", "secret_file": "/etc/passwd"}))
    assert unknown.code == "request"
    wrong = error_of(amy.post(f"{API}/webhooks", json={**ROOM, "name": "d", "on": ["job.exploded"]}))
    assert (wrong.code, wrong.cause, wrong.details[0].loc) == ("invalid", "该 webhook 无效", "on.0")
