"""What users choose to be told of, and that they cannot have others be told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from auth_world import API, AuthWorld, error_of
from oidc_world import OidcWorld

from mail_catcher import MailCatcher, catching
from millpond.server.auth.roles import UserRole
from millpond.server.notifications.address_codes import GOOD_FOR_S, MOST_CODES, MOST_TRIES
from millpond.server.notifications.subscriptions import Subscription
from millpond.specs.config.notifications import MailRules, NotificationRules

NOTIFICATIONS = f"{API}/notifications"
CHAT = "https://chat.example.org"


@pytest.fixture
def catcher() -> Iterator[MailCatcher]:
    with catching(MailCatcher()) as made:
        yield made


@pytest.fixture
def world(tmp_path: Path, catcher: MailCatcher) -> Iterator[AuthWorld]:
    made = AuthWorld.populated(tmp_path)
    made.notification_rules = rules_at(catcher.port)
    yield made
    made.close()


def rules_at(port: int, **fields: Any) -> NotificationRules:
    return NotificationRules(MailRules("127.0.0.1", port, "none", "pond@example.org", **fields), (CHAT,))


def asked(world: AuthWorld, user: str, address: str) -> Any:
    return world.client(user).post(f"{NOTIFICATIONS}/address", json={"address": address})


def confirmed(world: AuthWorld, user: str, code: str) -> Any:
    return world.client(user).post(f"{NOTIFICATIONS}/address/confirm", json={"code": code})


def code_in(catcher: MailCatcher) -> str:
    found = re.search(r"\b\d{8}\b", catcher.texts()[-1])
    assert found is not None
    return found[0]


def choice(world: AuthWorld, user: str, *rules: dict[str, Any]) -> Any:
    return world.client(user).put(f"{NOTIFICATIONS}/rules", json={"rules": list(rules)})


def test_an_address_counts_once_the_code_that_was_sent_there_comes_back(world: AuthWorld, catcher: MailCatcher) -> None:
    answer = asked(world, "max", "max@example.org")
    assert (answer.json()["address"], answer.json()["pending"]) == ("", "max@example.org")
    assert catcher.mails[0]["To"] == "max@example.org"
    code = code_in(catcher)
    assert error_of(confirmed(world, "max", "0" * 8 if code != "0" * 8 else "1" * 8)).cause == "this is another code"
    answer = confirmed(world, "max", f" {code[:4]} {code[4:]} ")
    assert (answer.json()["address"], answer.json()["address_by"]) == ("max@example.org", "code")
    assert confirmed(world, "max", code).status_code == 404, "it counts once"
    assert world.client("max").get(NOTIFICATIONS).json()["pending"] == ""
    assert world.client("mia").get(NOTIFICATIONS).json()["address"] == "", "of one's own alone"


def test_a_code_is_another_users_for_nobody_and_dies_of_guesses_and_age(world: AuthWorld, catcher: MailCatcher) -> None:
    asked(world, "max", "victim@example.org")
    assert confirmed(world, "mia", code_in(catcher)).status_code == 404
    for _ in range(MOST_TRIES):
        answer = confirmed(world, "max", "wrong")
    assert answer.status_code == 404
    assert confirmed(world, "max", code_in(catcher)).status_code == 404
    asked(world, "max", "victim@example.org")
    world.clock.now += GOOD_FOR_S
    assert confirmed(world, "max", code_in(catcher)).status_code == 404


def test_nobody_can_have_an_address_be_sent_many_codes(world: AuthWorld, catcher: MailCatcher) -> None:
    statuses = [asked(world, user, "Victim@example.org").status_code for user in ("max", "mia") for _ in range(4)]
    assert statuses == [200] * MOST_CODES + [429] * (8 - MOST_CODES)
    assert asked(world, "sam", "victim@example.org").status_code == 429
    for number in range(MOST_CODES):
        assert asked(world, "sue", f"victim{number}@example.org").status_code == 200
    assert asked(world, "sue", "another@example.org").status_code == 429
    assert len(catcher.mails) == 2 * MOST_CODES
    world.clock.now += 86_400.0
    assert asked(world, "sue", "another@example.org").status_code == 200


@pytest.mark.parametrize(
    "address",
    [
        "ada@example.org\r\nBcc: b@example.org",
        "ada@example.org, b@example.org",
        "Ada <ada@example.org>",
        '"a b"@example.org',
        "ada@",
        "@example.org",
        "ada@example..org",
        "ada@-example.org",
        "äda@example.org",
        "a" * 65 + "@example.org",
        "ada@" + "a" * 300,
        "pond@example.org",
        "a\N{RIGHT-TO-LEFT OVERRIDE}da@example.org",
    ],
)
def test_what_is_no_address_of_a_user_gets_no_mail(world: AuthWorld, catcher: MailCatcher, address: str) -> None:
    assert asked(world, "max", address).status_code == 422
    assert catcher.mails == []


def test_mail_goes_to_the_configured_domains_alone(world: AuthWorld, catcher: MailCatcher) -> None:
    world.notification_rules = rules_at(catcher.port, domains=frozenset({"example.org"}))
    assert "example.org alone" in error_of(asked(world, "max", "max@elsewhere.org")).cause
    assert asked(world, "max", "max@EXAMPLE.org").status_code == 200


def test_a_code_that_cannot_be_sent_does_not_count(world: AuthWorld, catcher: MailCatcher) -> None:
    catcher.on_data = "451 busy"
    for _ in range(MOST_CODES + 1):
        assert asked(world, "max", "max@example.org").status_code == 503
    catcher.on_data = "250 taken"
    assert asked(world, "max", "max@example.org").status_code == 200


def test_events_are_chosen_as_a_whole_and_stay_after_a_restart(world: AuthWorld) -> None:
    rules = [
        {"topic": "job.failed", "channels": ["mail", "chat"], "span_s": None, "queue": ""},
        {"topic": "job.waiting", "channels": ["mail"], "span_s": 7_200.0, "queue": ""},
    ]
    assert choice(world, "max", *rules).json()["rules"] == rules
    assert world.client("max").get(NOTIFICATIONS).json()["rules"] == rules
    again = type(world.told.settings.subscriptions)(world.store.notification_settings, world.accounts)
    assert [rule.topic for rule in again.of("max").rules] == ["job.failed", "job.waiting"]
    assert choice(world, "max", {"topic": "job.failed", "channels": []}).json()["rules"] == []


@pytest.mark.parametrize(
    "rule",
    [
        {"topic": "job.exploded", "channels": ["mail"]},
        {"topic": "job.failed", "channels": ["pigeon"]},
        {"topic": "job.failed", "channels": ["mail"], "span_s": 600},
        {"topic": "job.waiting", "channels": ["mail"], "span_s": 1},
    ],
)
def test_a_choice_that_is_wrong_changes_nothing(world: AuthWorld, rule: dict[str, Any]) -> None:
    choice(world, "max", {"topic": "job.started", "channels": ["mail"]})
    assert choice(world, "max", rule).status_code == 422
    assert choice(world, "max", *[{"topic": "job.failed", "channels": ["mail"]}] * 2).status_code == 422
    assert [each["topic"] for each in world.client("max").get(NOTIFICATIONS).json()["rules"]] == ["job.started"]


def test_leads_alone_choose_events_of_a_queue(world: AuthWorld) -> None:
    rule = {"topic": "job.failed", "channels": ["mail"], "queue": "vision"}
    assert choice(world, "lea", rule).status_code == 200
    assert world.client("lea").get(NOTIFICATIONS).json()["queues"] == ["vision"]
    for user in ("max", "vic", "sue", "nob"):
        assert choice(world, user, rule).status_code == 403
    unknown = choice(world, "lea", {**rule, "queue": "visoin"})
    assert (unknown.status_code, error_of(unknown).cause) == (404, "no group has a queue 'visoin'")
    assert error_of(unknown).remedy == "you may choose events of: vision"
    world.accounts.put_member("vision", "lea", UserRole.MEMBER)
    assert not list(world.told.settings.subscriptions.wanting(failed_in("vision")))
    world.accounts.put_member("vision", "lea", UserRole.LEAD)
    assert [each.user for each, _ in world.told.settings.subscriptions.wanting(failed_in("vision"))] == ["lea"]
    world.accounts.change_user("lea", lambda known: type(known)(known.name, disabled=True))
    assert not list(world.told.settings.subscriptions.wanting(failed_in("vision")))


def failed_in(queue: str) -> Any:
    from millpond.server.notifications.notices import Notice
    from millpond.specs.api.notifications import Topic

    return Notice(Topic.FAILED, 0.0, "a", "", "max", queue, 1)


@pytest.mark.parametrize(
    "url",
    [
        "https://chat.example.org.evil.org/1",
        "https://chat.example.org:8443/1",
        "http://chat.example.org/1",
        "https://chat.example.org@evil.org/1",
        "https://user:word@chat.example.org/1",
        "http://169.254.169.254/latest",
        "http://127.0.0.1/admin",
    ],
)
def test_a_webhook_of_a_user_leads_to_allowed_origins_alone(world: AuthWorld, url: str) -> None:
    answer = world.client("max").put(f"{NOTIFICATIONS}/chat", json={"url": url})
    assert answer.status_code == 422
    assert world.client("max").get(NOTIFICATIONS).json()["chat"] == ""


def test_the_address_of_a_webhook_is_a_secret_that_nobody_reads(world: AuthWorld) -> None:
    answer = world.client("max").put(f"{NOTIFICATIONS}/chat", json={"url": f"{CHAT}/T0/quiet", "format": "slack"})
    assert (answer.status_code, answer.json()["chat"]) == (200, "slack")
    assert "quiet" not in answer.text + world.client("olga").get(f"{API}/audit").text
    assert "quiet" not in str(world.store.notification_settings.all())
    assert world.client("max").delete(f"{NOTIFICATIONS}/chat").json()["chat"] == ""
    assert world.store.secrets.all() == []


def test_where_no_way_is_configured_it_is_said(world: AuthWorld) -> None:
    world.notification_rules = NotificationRules()
    assert error_of(asked(world, "max", "max@example.org")).cause == "this server sends no mail"
    answer = world.client("max").put(f"{NOTIFICATIONS}/chat", json={"url": f"{CHAT}/1"})
    assert error_of(answer).cause == "this server allows no webhooks of users"
    assert world.client("max").get(NOTIFICATIONS).json()["offers"] == []


def test_a_trial_goes_where_the_user_is_told_and_not_again_at_once(world: AuthWorld, catcher: MailCatcher) -> None:
    assert world.client("max").post(f"{NOTIFICATIONS}/trial").status_code == 404
    asked(world, "max", "max@example.org")
    confirmed(world, "max", code_in(catcher))
    assert world.client("max").post(f"{NOTIFICATIONS}/trial").json() == {"sent": ["mail"], "troubles": {}}
    assert world.client("max").post(f"{NOTIFICATIONS}/trial").status_code == 409
    assert catcher.mails[-1]["Subject"] == "[Millpond] Trial"


def test_a_confined_token_changes_nothing_of_it(world: AuthWorld) -> None:
    made = world.client("max").post(f"{API}/tokens", json={"name": "ci", "verbs": ["read-jobs"]}).json()
    client = world.client("", Authorization=f"Bearer {made['secret']}")
    assert client.get(NOTIFICATIONS).status_code == 403
    assert client.put(f"{NOTIFICATIONS}/rules", json={"rules": []}).status_code == 403


@pytest.mark.parametrize(
    ("claims", "address"),
    [
        ({"email": "ada@example.org", "email_verified": True}, "ada@example.org"),
        ({"email": "ada@example.org", "email_verified": False}, ""),
        ({"email": "ada@example.org"}, ""),
        ({"email": "ada@elsewhere.org", "email_verified": True}, ""),
        ({"email": "ada@example.org\r\nBcc: b@example.org", "email_verified": True}, ""),
    ],
)
def test_an_address_that_the_provider_of_logins_has_verified_needs_no_code(
    tmp_path: Path, claims: dict[str, Any], address: str
) -> None:
    world = OidcWorld(tmp_path)
    world.populate()
    world.notification_rules = rules_at(9, domains=frozenset({"example.org"}))
    assert world.log_in(**claims).status_code == 200
    assert world.told.settings.subscriptions.of(world.provider.person["preferred_username"]).address == address
    world.close()


def test_an_address_that_is_confirmed_while_a_provider_vouches_for_another_stays(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscriptions = world.service.notifications.subscriptions
    change = subscriptions.change

    def confirmed_first(user: str, wanted: Callable[[Subscription], Subscription]) -> Subscription:
        change(user, lambda known: replace(known, address="max@example.org", address_by="code"))
        return change(user, wanted)

    monkeypatch.setattr(subscriptions, "change", confirmed_first)
    world.service.notifications.take_verified("max", "other@example.org")
    assert subscriptions.of("max").address == "max@example.org"
