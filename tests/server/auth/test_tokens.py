"""Tokens: confined, expiring, revocable; and never kept as they are."""

from __future__ import annotations

from typing import Any

import pytest
from auth_world import API, OWNER_TOKEN, AuthWorld, error_of
from fastapi.testclient import TestClient
from one_loop import client_of

from millpond.server.auth import tokens
from millpond.server.auth.account_store import AccountStore
from millpond.server.auth.records import TokenKind
from millpond.server.auth.roles import AccessTarget, Verb


def make(world: AuthWorld, by: str = "max", **fields: Any) -> dict[str, Any]:
    answer = world.client(by).post(f"{API}/tokens", json={"name": "ci", **fields})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def bearer(world: AuthWorld, secret: str) -> TestClient:
    return client_of(world.app, headers={"Authorization": f"Bearer {secret}"})


def test_a_confined_token_does_what_it_is_for_and_nothing_else(world: AuthWorld) -> None:
    made = make(world, verbs=["submit-jobs", "read-jobs"])
    client = bearer(world, made["secret"])
    assert client.post(f"{API}/jobs", json={"command": "x"}).status_code == 201
    assert client.get(f"{API}/whoami").json()["verbs"] == ["read-jobs", "submit-jobs"]
    for method, path, body in (
        ("GET", "nodes", None),
        ("PUT", "password", {"new_password": "0123456789"}),
        ("GET", "tokens", None),
        ("POST", "jobs/x/stop", None),
    ):
        answer = client.request(method, f"{API}/{path}", json=body)
        assert answer.status_code == 403
        assert "this token does not allow" in error_of(answer).cause


@pytest.mark.parametrize("owner", ["max", "amy"])
def test_a_token_that_reads_no_jobs_is_told_of_none_by_machines_and_events(world: AuthWorld, owner: str) -> None:
    job = world.submit("max", gpus=1, name="secret-plan")
    world.submit("max", gpus=4, name="secret-plan")
    world.settled()
    whole = bearer(world, make(world, owner)["secret"])
    confined = bearer(world, make(world, owner, verbs=["read-cluster"])["secret"])
    (node,) = whole.get(f"{API}/nodes").json()["nodes"]
    for path in ("nodes", f"nodes/{node['name']}", "devices", f"nodes/{node['name']}/events", "events", "overview"):
        answer = confined.get(f"{API}/{path}")
        assert (answer.status_code, "secret-plan" in answer.text) == (200, False), path
    assert node["jobs"] == [job]


def test_a_token_that_may_submit_alone_names_its_owners_jobs_to_wait_for(world: AuthWorld) -> None:
    client = bearer(world, make(world, verbs=["submit-jobs"])["secret"])
    mine, theirs = world.submit("max", queue="vision"), world.submit("sam", queue="speech")
    statuses = [
        client.post(f"{API}/jobs", json={"command": "x", "after": {"ok": [job]}}).status_code for job in (mine, theirs)
    ]
    assert statuses == [201, 422]


def test_a_token_never_gives_more_than_its_owner_has(world: AuthWorld) -> None:
    client = bearer(world, make(world, verbs=["change-users"])["secret"])
    assert client.post(f"{API}/users", json={"name": "eve"}).status_code == 403


def test_a_confined_token_makes_no_wider_one(world: AuthWorld) -> None:
    client = bearer(world, make(world, verbs=["change-tokens", "read-jobs"])["secret"])
    for verbs in ([], ["submit-jobs"], ["read-jobs", "change-jobs"]):
        assert client.post(f"{API}/tokens", json={"name": "t", "verbs": verbs}).status_code == 422
    assert client.post(f"{API}/tokens", json={"name": "t", "verbs": ["read-jobs"]}).status_code == 201


def test_who_was_let_in_may_go_on_as_long_as_their_rights_last(world: AuthWorld) -> None:
    accounts, group = world.accounts, AccessTarget("job", "chat", "max", frozenset({"vision"}))
    token, secret = accounts.tokens.issue("vic", TokenKind.PERSONAL, None)
    caller = accounts.caller(secret)
    owner = accounts.caller(OWNER_TOKEN)
    assert caller is not None
    assert owner is not None

    def may_go_on() -> bool:
        assert accounts.still_may(owner, Verb.READ_JOBS, group)
        return accounts.still_may(caller, Verb.READ_JOBS, group)

    assert may_go_on()
    assert accounts.still_may(caller, Verb.READ_CLUSTER, None)
    assert not accounts.still_may(caller, Verb.CHANGE_JOBS, group)
    world.client("olga").delete(f"{API}/groups/vision/members/vic")
    assert not may_go_on()
    world.client("olga").put(f"{API}/groups/vision/members/vic", json={"role": "viewer"})
    assert may_go_on()
    for disabled in (True, False):
        world.client("olga").patch(f"{API}/users/vic", json={"disabled": disabled})
        assert may_go_on() is not disabled
    accounts.tokens.revoke(token)
    assert not may_go_on()


def test_a_token_expires_and_a_revoked_one_is_dead_at_once(world: AuthWorld) -> None:
    short, long = make(world, lifetime_s=60), make(world, lifetime_s=None)
    assert bearer(world, short["secret"]).get(f"{API}/whoami").status_code == 200
    world.clock.now += 61
    assert bearer(world, short["secret"]).get(f"{API}/whoami").status_code == 401
    client = bearer(world, long["secret"])
    assert client.delete(f"{API}/tokens/{long['id']}").status_code == 200
    assert client.get(f"{API}/whoami").status_code == 401


def test_the_last_use_is_told_and_the_secret_never_again(world: AuthWorld) -> None:
    made = make(world)
    assert made["used_at"] is None
    bearer(world, made["secret"]).get(f"{API}/whoami")
    listed = world.client("max").get(f"{API}/tokens")
    assert made["secret"] not in listed.text
    (mine,) = [token for token in listed.json()["tokens"] if token["id"] == made["id"]]
    assert mine["used_at"] == world.clock.now


def test_a_token_says_what_it_is_for(world: AuthWorld) -> None:
    answer = world.client("max").post(f"{API}/tokens", json={"name": ""})
    assert answer.status_code == 422
    assert "body.name" in answer.text


def test_only_an_admin_makes_a_token_for_a_service(world: AuthWorld) -> None:
    world.client("olga").post(f"{API}/users", json={"name": "bot", "service": True, "group": "vision"})
    made = make(world, "amy", user="bot", verbs=["submit-jobs"])
    job = bearer(world, made["secret"]).post(f"{API}/jobs", json={"command": "x"}).json()
    assert (job["user"], job["group"], job["queue"]) == ("bot", "vision", "vision")
    for user, status in (("lea", 403), ("max", 403), ("sam", 404)):
        assert world.client(user).post(f"{API}/tokens", json={"name": "t", "user": "bot"}).status_code == status


def test_a_misspelt_verb_is_told_with_the_nearest(world: AuthWorld) -> None:
    answer = world.client("max").post(f"{API}/tokens", json={"name": "t", "verbs": ["submit-job"]})
    assert error_of(answer).remedy == "did you mean 'submit-jobs'?"


@pytest.mark.parametrize("secret", ["", "x", "pond_", "pond_aaaaaaaaaa_" + "x" * 43, "pond_aaaaaaaaaa_ä"])
def test_what_is_no_token_opens_nothing(world: AuthWorld, secret: str) -> None:
    header = f"Bearer {secret}".encode()
    assert world.client().get(f"{API}/whoami", headers={"Authorization": header}).status_code == 401  # type: ignore[dict-item]


def test_an_account_has_not_more_tokens_than_anybody_needs(world: AuthWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MOST_TOKENS", 3)
    client = world.client("max")  # with one
    answers = [client.post(f"{API}/tokens", json={"name": "t"}).status_code for _ in range(3)]
    assert answers == [201, 201, 409]


def test_of_tokens_that_open_nothing_any_more_the_latest_are_remembered(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MOST_ENDED", 2)
    client, others = world.client("max"), make(world, "sam", name="sams")
    made = [make(world, name=f"t{number}") for number in range(5)]
    for each in made[:4]:
        client.delete(f"{API}/tokens/{each['id']}")
    make(world, name="t5")
    known = {each["id"] for each in world.client("olga").get(f"{API}/tokens").json()["tokens"]}
    assert {each["id"] for each in made} & known == {each["id"] for each in made[2:]}
    assert others["id"] in known
    assert {token.id for token in AccountStore(world.store.database).tokens()} == known


def test_the_next_end_is_that_of_a_made_token_that_is_in_use(world: AuthWorld) -> None:
    tokens = world.accounts.tokens
    assert tokens.next_end() is None
    made = [tokens.issue("max", TokenKind.PERSONAL, seconds)[0] for seconds in (9_000.0, 5_000.0, 2_000.0)]
    tokens.issue("max", TokenKind.SESSION, 100.0)
    assert tokens.next_end() is None, "none was used"
    for token in made[:2]:
        tokens.note_use(token.id)
    assert tokens.next_end() == made[1].expires_at
    world.clock.now += 6_000.0
    assert tokens.next_end() == made[0].expires_at
