"""The page of notifications in a real Chromium: an address confirmed, events chosen, in either language."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from portal_visit import PHONE, Visit, base_of, chromium, visit
from real_pond import Pond

from mail_catcher import MailCatcher, catching

pytestmark = pytest.mark.long

__all__ = ["chromium", "visit"]
"""Fixtures."""


@pytest.fixture(scope="module")
def catcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MailCatcher]:
    with catching(MailCatcher()) as made:
        yield made


class Room(BaseHTTPRequestHandler):
    """A webhook that takes what comes."""

    def do_POST(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *said: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def room() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Room) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory, catcher: MailCatcher, room: str) -> Iterator[Pond]:
    folder: Path = tmp_path_factory.mktemp("notifications")
    mail = f"{{host: 127.0.0.1, port: {catcher.port}, encryption: none, sender: pond@example.org}}"
    config = folder / "cluster.yaml"
    hooks = f"[{{name: room, url: '{room}'}}, {{name: away, url: 'http://127.0.0.1:9/'}}]"
    config.write_text(f"notifications: {{mail: {mail}, chat: ['http://127.0.0.1:9']}}\nwebhooks: {hooks}\n")
    made = Pond(folder / "state")
    made.up("--config", str(config))
    made.printed("group", "add", "vision")
    yield made
    made.printed("down")


def test_an_address_is_confirmed_and_events_are_chosen_in_either_language(
    pond: Pond, visit: Visit, catcher: MailCatcher
) -> None:
    page = visit.enter(pond)
    page.get_by_role("link", name="Notifications").click()
    page.wait_for_url("**/portal/notifications")
    page.get_by_label("Address", exact=True).fill("ada@example.org")
    page.get_by_role("button", name="Send a code there").click()
    code = page.get_by_label("The code that came to ada@example.org")
    code.wait_for()
    code.fill("1")
    page.get_by_role("button", name="Confirm").click()
    page.get_by_text("this is another code").wait_for()
    visit.forgive_refusals()
    sent = re.search(r"\b\d{8}\b", catcher.texts()[-1])
    assert sent is not None
    code.fill(sent[0])
    page.get_by_role("button", name="Confirm").click()
    page.locator("b", has_text="ada@example.org").wait_for()
    page.get_by_role("link", name="简体中文").click()
    page.get_by_role("heading", name="通知", exact=True).wait_for()
    page.get_by_label("作业失败: 邮件").first.check()
    page.get_by_label("作业长时间等待首次启动: 邮件").first.check()
    page.locator("tr[data-topic='job.waiting'][data-queue=''] [data-span]").fill("90")
    page.locator("summary").click()
    page.locator("tr[data-topic='job.failed'][data-queue='vision'] [data-channel=mail]").check()
    page.get_by_role("button", name="保存").click()
    page.get_by_text("已保存。").wait_for()
    shown = json.loads(pond.printed("notify", "-o", "json"))
    assert shown["language"] == "zh-CN"
    assert {(rule["topic"], rule["queue"], rule["span_s"]) for rule in shown["rules"]} == {
        ("job.failed", "", None),
        ("job.waiting", "", 5_400.0),
        ("job.failed", "vision", None),
    }
    page.get_by_role("button", name="发送测试").click()
    page.get_by_text("已发送。").wait_for()
    assert "测试" in catcher.mails[-1]["Subject"]
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_webhook_that_may_not_be_is_refused_where_it_was_typed(pond: Pond, visit: Visit) -> None:
    page = visit.enter(pond)
    page.goto(f"{base_of(page)}/portal/notifications")
    page.get_by_label("Address of the webhook").fill("https://elsewhere.example.org/1")
    page.get_by_role("button", name="Set", exact=True).click()
    page.get_by_text("webhooks of users may not lead there").wait_for()
    visit.forgive_refusals()
    page.get_by_label("Address of the webhook").fill("http://127.0.0.1:9/<b>hook</b>")
    page.get_by_role("button", name="Set", exact=True).click()
    page.get_by_text("Messages go to your webhook").wait_for()
    page.get_by_role("button", name="Remove").click()
    page.get_by_text("You have set no webhook.").wait_for()


def test_an_admin_tries_a_webhook_and_sees_whether_it_took_the_message(pond: Pond, visit: Visit) -> None:
    page = visit.enter(pond)
    page.goto(f"{base_of(page)}/portal/admin/webhooks")
    page.get_by_role("button", name="Send a test message room").click()
    page.get_by_text("room has taken it.").wait_for()
    sent = page.locator("#sent tr", has_text="a test message, sent by")
    sent.filter(has_text="room").filter(has_text="delivered").wait_for()
    page.get_by_role("button", name="Send a test message away").click()
    page.locator("#notice", has_text="away: ConnectError").wait_for()
    sent.filter(has_text="away").filter(has_text="given up").wait_for()
    assert [sent.filter(has_text=name).count() for name in ("room", "away")] == [1, 1]


def test_an_admin_adds_a_webhook_tries_it_and_removes_it(pond: Pond, visit: Visit, room: str) -> None:
    page = visit.enter(pond)
    page.goto(f"{base_of(page)}/portal/admin/webhooks")
    page.locator("#receivers tr", has_text="room").get_by_text("the configuration").wait_for()
    assert page.get_by_role("button", name="Remove room").count() == 0
    page.get_by_label("Name").fill("den")
    page.get_by_label("Address of the webhook").fill("ftp://chat.example.org/")
    page.get_by_label("Format").select_option("slack")
    page.get_by_label("Events").select_option(["job.failed", "job.preempted"])
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_text("no address of a webhook").wait_for()
    visit.forgive_refusals()
    page.get_by_label("Address of the webhook").fill(room)
    page.get_by_role("button", name="Add", exact=True).click()
    den = page.locator("#receivers tr", has_text="den")
    den.get_by_text("job.preempted, job.failed").wait_for()
    page.get_by_role("button", name="Send a test message den").click()
    page.get_by_text("den has taken it.").wait_for()
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Remove den").click()
    den.wait_for(state="detached")
