"""Webhooks that are added while the server runs, beside those of the configuration."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from notice_world import NoticeWorld
from sqlalchemy import text

from millpond.model.errors import ConflictError, NotFoundError, UnavailableError
from millpond.server.auth.vault.ciphers import Cipher
from millpond.server.auth.vault.secrets import Vault
from millpond.server.notifications import webhook_receivers
from millpond.server.notifications.settings import NotificationContext
from millpond.server.notifications.webhook_carrier import SIGNATURE_HEADER
from millpond.server.notifications.webhook_receivers import WebhookReceivers
from millpond.server.operations.backup import back_up, restore
from millpond.server.store.connection.database import sqlite_url
from millpond.server.store.store import Store
from millpond.specs.api.webhooks import NewWebhookRequest, WebhookInfo
from millpond.specs.config.notifications import NotificationRules
from millpond.specs.config.webhooks import Webhook
from millpond.specs.errors import SpecError

ADDRESS = "https://hooks.slack.com/services/T0/very-secret"
QUEUES = ("vision", "speech")


class Bench(NoticeWorld):
    """A server without HTTP, and a receiver that takes everything."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.requests: list[httpx2.Request] = []
        super().__init__(directory, httpx2.MockTransport(self.take))

    def take(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        return httpx2.Response(200)

    def add(self, name: str = "room", url: str = ADDRESS, **fields: Any) -> WebhookInfo:
        return self.told.receivers.add(NewWebhookRequest(name=name, url=url, **fields), QUEUES, "ada")

    def name_in_file(self, name: str) -> None:
        self.hooks[name] = Webhook(name, "https://file.example.org/x", ("job.failed",))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_one_that_was_added_is_notified_of_what_it_asked_for(bench: Bench) -> None:
    bench.add(format="slack", on=["job.succeeded"])
    bench.run()
    bench.deliver()
    (request,) = bench.requests
    assert (str(request.url), request.content) == (ADDRESS, b'{"text": "a of ada succeeded"}')


def test_a_test_message_reaches_it(bench: Bench) -> None:
    bench.add()
    bench.told.deliveries.try_webhook("room", bench.caller("ada"))
    bench.deliver()
    assert [str(request.url) for request in bench.requests] == [ADDRESS]


def test_its_address_is_nowhere_in_the_clear(bench: Bench) -> None:
    info = bench.add()
    assert info.url == "https://hooks.slack.com/(hidden)"
    with bench.store.database.connect() as connection:
        for table in ("webhooks", "secrets"):
            rows = connection.execute(text(f"SELECT * FROM {table}")).all()
            assert len(rows) == 1
            assert "very-secret" not in str(rows)
    assert bench.vault.all() == [], "it is no secret that one sets or removes as such"


def test_it_is_there_after_a_restart_and_in_a_backup(bench: Bench, tmp_path: Path) -> None:
    added = bench.add(on=["job.failed"], queues=["vision"])
    bench.told = bench.new_notifications()
    assert bench.told.receivers.all() == [added]
    back_up(bench.directory, tmp_path / "b.tar.gz", 1_000.0)
    restore(tmp_path / "b.tar.gz", tmp_path / "fresh")
    store = Store(sqlite_url(tmp_path / "fresh" / "millpond.db"))
    vault = Vault(store.secrets, tmp_path / "fresh", lambda: Cipher.AES_256_GCM, bench.clock)
    context = NotificationContext(NotificationRules, bench.clock, lambda: None)
    assert WebhookReceivers(store.webhooks, dict, vault, context).all() == [added]
    assert vault.value(webhook_receivers.WEBHOOK_ADDRESS, "", "room") == ADDRESS
    store.close()


def test_one_that_was_removed_gets_nothing_more_not_even_what_waits(bench: Bench) -> None:
    bench.add()
    bench.run()
    assert bench.told.receivers.remove("room").name == "room"
    bench.deliver()
    bench.run("b")
    bench.deliver()
    assert bench.requests == []
    assert set(bench.states()) == {"given up"}
    assert bench.told.receivers.all() == []
    assert bench.store.secrets.all() == []
    with pytest.raises(NotFoundError, match="no webhook 'room'") as refused:
        bench.told.receivers.remove("room")
    assert refused.value.remedy == "there are none; `pond webhooks add` adds one"


def test_one_of_the_configuration_is_shown_as_such_and_changed_there_alone(bench: Bench) -> None:
    bench.name_in_file("team")
    bench.add()
    assert [(info.name, info.url, info.in_file, info.by) for info in bench.told.receivers.all()] == [
        ("team", "https://file.example.org/(hidden)", True, ""),
        ("room", "https://hooks.slack.com/(hidden)", False, "ada"),
    ]
    with pytest.raises(ConflictError, match="the configuration names the webhook 'team'") as refused:
        bench.told.receivers.remove("team")
    assert refused.value.remedy == "remove it there"
    with pytest.raises(ConflictError, match="the configuration names a webhook 'team'"):
        bench.add("team")


def test_the_configuration_takes_the_place_of_what_was_added_under_the_same_name(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.add()
    bench.add("other")
    bench.name_in_file("room")
    with caplog.at_level(logging.WARNING):
        bench.told.receivers.take_file()
    assert "the webhook room of the configuration takes the place of the one that was added" in caplog.text
    bench.hooks.clear()
    assert [info.name for info in bench.told.receivers.all()] == ["other"]
    assert [row.name for row in bench.store.secrets.all()] == ["other"]


def test_deliveries_are_signed_with_a_secret_of_the_server_that_has_to_be_there(bench: Bench) -> None:
    with pytest.raises(NotFoundError, match="no secret 'TRACKER' of the server") as refused:
        bench.add(secret="TRACKER")
    assert refused.value.remedy == "set it with `pond secret set TRACKER --server`"
    bench.vault.put("server", "", "TRACKER", "quiet", "ada")
    assert bench.add(secret="TRACKER").signed
    bench.run()
    bench.deliver()
    assert SIGNATURE_HEADER in bench.requests[0].headers


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"url": "ftp://example.org/x"}, "url: no address of a webhook; write it as https://"),
        ({"url": "https:///x"}, "url: no address of a webhook; write it as https://"),
        ({"url": "https://example.org:99999/x"}, "url: no address of a webhook; write it as https://"),
        ({"url": "https://exam ple.org/"}, "url: no address of a webhook; write it as https://"),
        ({"url": ""}, "the field 'url' is missing; add it"),
        ({"name": ""}, "the field 'name' is missing; add it"),
        ({"name": "../x"}, "name: '../x' has characters that are not allowed here; use letters"),
        ({"on": ["job.exploded"]}, "on.0: 'job.exploded' is not allowed; "),
        ({"format": "teams"}, "format: 'teams' is not allowed; allowed: millpond, slack, feishu, wecom"),
        ({"secret": "no-name"}, "secret: 'no-name' has characters that are not allowed here"),
    ],
)
def test_a_wrong_field_is_refused_with_what_to_write(bench: Bench, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as refused:
        bench.add(**fields)
    assert said in str(refused.value)
    assert bench.told.receivers.all() == []


def test_a_queue_that_is_not_there_a_second_of_a_name_and_too_many_are_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFoundError, match="no queue 'vison'") as unknown:
        bench.add(queues=["vison"])
    assert "vision" in unknown.value.remedy
    bench.add()
    with pytest.raises(ConflictError, match="there is a webhook 'room' already"):
        bench.add()
    monkeypatch.setattr(webhook_receivers, "MOST_WEBHOOKS", 1)
    with pytest.raises(ConflictError, match="1 webhooks were added already"):
        bench.add("other")


def test_a_server_that_changes_nothing_adds_and_removes_none(bench: Bench) -> None:
    bench.add()
    bench.read_only = UnavailableError("the state is another server's", "ask that one")
    with pytest.raises(UnavailableError):
        bench.add("other")
    with pytest.raises(UnavailableError):
        bench.told.receivers.remove("room")
    assert [info.name for info in bench.told.receivers.all()] == ["room"]


def test_one_that_is_damaged_in_the_store_keeps_no_server_from_starting(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.add()
    bench.add("other")
    with bench.store.database.begin() as connection:
        connection.execute(text("UPDATE webhooks SET document = '{' WHERE name = 'room'"))
    bench.told = bench.new_notifications()
    assert [info.name for info in bench.told.receivers.all()] == ["other"]
    assert "the webhook room is damaged" in caplog.text
