"""What pages say in Chinese of what is stored in English, and the addresses of their JSON twins."""

from __future__ import annotations

from typing import Any

import pytest
from auth_world import API, AuthWorld
from portal_browser import VISIT, browser_of

from millpond.server.notifications.notices import TRIAL, Notice
from millpond.server.notifications.settings import NotificationContext
from millpond.server.store.deliveries import CHAT, MAIL, WEBHOOK, NewDelivery, Target
from millpond.specs.api.notifications import Topic

CHINESE = {"accept-language": "zh-CN"}


def deliver(world: AuthWorld, topic: Topic, **fields: Any) -> None:
    notice = Notice(topic, 0.0, "train-1", "", "max", "vision", 1, **fields)
    channels = [(WEBHOOK, "room"), (MAIL, "max"), (CHAT, "max")]
    world.store.deliveries.add(
        [NewDelivery(Target(*target), 0.0, notice.plain(), notice.sentence) for target in channels]
    )


def test_what_was_sent_is_shown_in_the_language_of_the_reader_and_to_programs_in_english(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(world, Topic.STARTED)
    deliver(world, Topic.FAILED, exit_code=3)
    test = "a test message, sent by olga: nothing has happened"
    world.store.deliveries.add([NewDelivery(Target(WEBHOOK, "room"), 0.0, {"topic": TRIAL, "user": "olga"}, test)])
    page = browser_of(world, "olga", **CHINESE).get("/portal/admin/webhooks").text
    for words in ("max 的 train-1 已启动", "max 的 train-1 失败", "olga 发送的测试消息"):
        assert words in page
    assert "started" not in page.partition('id="sent"')[2].partition("</main")[0]
    monkeypatch.setattr(NotificationContext, "offers", lambda _context, _channel: True)
    assert "max 的 train-1 已启动" in browser_of(world, "max", **CHINESE).get("/portal/notifications").text
    assert "train-1 of max started" in browser_of(world, "max").get("/portal/notifications").text
    texts = [each["text"] for each in world.client("olga").get(f"{API}/webhooks/deliveries").json()["deliveries"]]
    assert {"train-1 of max started", "train-1 of max failed: exit code 3", test} == set(texts)


@pytest.mark.parametrize(
    ("page", "asked"),
    [
        ("reports/waits/jobs?since=2026-11-01&until=2026-11-15&user=max", ["since=", "user=max"]),
        ("reports?since=2026-11-01&until=2026-11-15&by=model&user=lea&group=", ["by=model", "until=", "user=lea"]),
        ("reports/waits?month=2026-10&queue=a+%26b", ["by=group", "since=", "queue=a+%26b"]),
        ("reports/mine?days=7", ["by=model", "since=", "user=lea"]),
        ("admin/audit?by=max&object=x%26y&since=2026-11-01", ["by=max", "object=x%26y", "since="]),
        ("jobs?state=queued&user=max", ["state=queued", "user=max"]),
    ],
)
def test_the_twin_of_a_page_is_named_with_what_the_page_was_asked_for(
    shared: AuthWorld, page: str, asked: list[str]
) -> None:
    text = browser_of(shared, "lea").get(f"/portal/{page}").text
    twin = text.partition('class="twin">GET ')[2].partition("</code>")[0].replace("&amp;", "&")
    assert [each for each in asked if each not in twin] == []
    answer = shared.client("lea").get(twin)
    assert answer.status_code == 200, answer.text


def test_pages_that_ask_for_nothing_yet_name_how_they_would(shared: AuthWorld) -> None:
    assert "GET /api/v1/curves?job=ID" in browser_of(shared, "max").get("/portal/curves").text
    assert "POST /api/v1/login" in shared.client(**VISIT).get("/portal/login").text
