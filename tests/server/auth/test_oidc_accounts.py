"""Whose account somebody gets for whom a provider vouches, and what its word changes about that account."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from auth_world import API, error_of
from oidc_world import OidcWorld, heading

from millpond.server.auth.account_store import AccountStore
from millpond.server.auth.oidc.identities import Identities
from millpond.server.auth.records import User
from millpond.server.auth.roles import UserRole
from millpond.specs.config.oidc import OidcGroupFile
from oidc_provider import ISSUER, rules

_numbers = itertools.count()


@pytest.fixture
def person() -> dict[str, Any]:
    """Somebody at the provider who was never here."""
    number = next(_numbers)
    return {"sub": f"s-{number}", "preferred_username": f"person{number}", "groups": []}


def roles_of(world: OidcWorld, user: str) -> dict[str, str]:
    return {member.group: member.role.value for member in world.accounts.memberships(user)}


def test_an_account_follows_its_owner_and_not_a_name(oidc: OidcWorld, person: dict[str, Any]) -> None:
    name = person["preferred_username"]
    assert heading(oidc.log_in(**person)) == f"Logged in as {name}"
    renamed = person | {"preferred_username": "somebody-new"}
    assert heading(oidc.log_in(**renamed)) == f"Logged in as {name}"


def test_nobody_gets_an_account_by_choosing_its_owners_name(oidc: OidcWorld, person: dict[str, Any]) -> None:
    for taken in ("max", "olga", "amy"):
        page = oidc.log_in(**person | {"preferred_username": taken})
        assert page.status_code == 409
        assert heading(page) == f"An account '{taken}' exists already, and it is not bound to you"
        assert f"pond user bind {taken} {person['sub']}" in page.text
        assert "millpond_session" not in page.headers.get("set-cookie", "")


def test_an_admin_binds_an_account_to_its_owner_and_takes_it_back(oidc: OidcWorld, person: dict[str, Any]) -> None:
    owner = oidc.client("olga")
    oidc.accounts.add_user(User(f"old-{person['sub']}"), "speech")
    identity = f"{API}/users/old-{person['sub']}/identity"
    bound = owner.put(identity, json={"subject": person["sub"]})
    assert bound.json() == {"user": f"old-{person['sub']}", "issuer": ISSUER, "subject": person["sub"]}
    assert heading(oidc.log_in(**person)) == f"Logged in as old-{person['sub']}"
    assert roles_of(oidc, f"old-{person['sub']}") == {"speech": "member"}, "what was made here stays"
    assert owner.delete(identity).status_code == 200
    assert heading(oidc.log_in(**person)) == f"Logged in as {person['preferred_username']}"
    taken = owner.put(identity, json={"subject": person["sub"]})
    assert (taken.status_code, error_of(taken).code) == (409, "conflict")


def test_a_service_cannot_be_bound_and_only_admins_bind(oidc: OidcWorld) -> None:
    if "bot" not in {user.name for user in oidc.accounts.users()}:
        oidc.accounts.add_user(User("bot", service=True))
    assert oidc.client("olga").put(f"{API}/users/bot/identity", json={"subject": "x"}).status_code == 422
    assert oidc.client("lea").put(f"{API}/users/max/identity", json={"subject": "x"}).status_code == 403


def test_a_disabled_account_stays_shut(oidc: OidcWorld, person: dict[str, Any]) -> None:
    oidc.log_in(**person)
    name = person["preferred_username"]
    assert oidc.client("olga").patch(f"{API}/users/{name}", json={"disabled": True}).status_code == 200
    page = oidc.log_in(**person)
    assert (page.status_code, heading(page)) == (403, f"The account '{name}' is disabled")


def test_without_new_accounts_only_bound_ones_get_in(oidc: OidcWorld, person: dict[str, Any]) -> None:
    oidc.rules = rules(create_users=False)
    page = oidc.log_in(**person)
    assert page.status_code == 403
    assert f"pond user bind NAME {person['sub']}" in page.text


@pytest.mark.parametrize("name", ["", "a b", "../root", "ada@example.org", "x" * 65, ["ada"], None, "ada\n"])
def test_a_name_that_no_account_can_have_makes_none(oidc: OidcWorld, person: dict[str, Any], name: Any) -> None:
    page = oidc.log_in(**person | {"preferred_username": name})
    assert page.status_code == 403
    assert "cannot be an account's name" in heading(page)


def test_only_the_allowed_groups_get_in(oidc: OidcWorld, person: dict[str, Any]) -> None:
    oidc.rules = rules(allowed=["lab"])
    assert oidc.log_in(**person).status_code == 403
    assert oidc.log_in(**person | {"groups": ["other", "lab"]}).status_code == 200
    assert oidc.log_in(**person).status_code == 403, "also who has an account by now"


def test_memberships_follow_the_providers_word_at_each_login(oidc: OidcWorld, person: dict[str, Any]) -> None:
    oidc.rules = rules(
        groups={
            "cv": OidcGroupFile(group="vision", role="member"),
            "heads": OidcGroupFile(group="vision", role="lead"),
            "asr": OidcGroupFile(group="speech", role="viewer"),
        }
    )
    name = person["preferred_username"]
    oidc.log_in(**person | {"groups": ["cv", "asr"]})
    assert roles_of(oidc, name) == {"vision": "member", "speech": "viewer"}
    oidc.log_in(**person | {"groups": ["heads", "cv"]})
    assert roles_of(oidc, name) == {"vision": "lead"}, "the widest role of a group counts"
    oidc.log_in(**person | {"groups": "cv"})
    assert roles_of(oidc, name) == {"vision": "member"}, "one value need not be a list"
    oidc.log_in(**person)
    assert roles_of(oidc, name) == {}
    assert oidc.audited()[0]["after"] == f"at {ISSUER}: no longer in vision"


def test_memberships_that_were_made_here_stay_as_they_are(oidc: OidcWorld, person: dict[str, Any]) -> None:
    oidc.rules = rules(groups={"cv": OidcGroupFile(group="vision", role="member")})
    name = person["preferred_username"]
    oidc.log_in(**person | {"groups": ["cv"]})
    oidc.client("olga").put(f"{API}/groups/speech/members/{name}", json={"role": "lead"})
    oidc.client("olga").put(f"{API}/groups/vision/members/{name}", json={"role": "viewer"})
    for values in (["cv"], []):
        oidc.log_in(**person | {"groups": values})
        assert roles_of(oidc, name) == {"speech": "lead", "vision": "viewer"}


def test_a_group_that_is_not_there_keeps_nobody_out(oidc: OidcWorld, person: dict[str, Any]) -> None:
    oidc.rules = rules(
        groups={
            "x": OidcGroupFile(group="never-made", role="member"),
            "cv": OidcGroupFile(group="vision", role="member"),
        }
    )
    assert oidc.log_in(**person | {"groups": ["x", "cv"]}).status_code == 200
    assert roles_of(oidc, person["preferred_username"]) == {"vision": "member"}
    assert "never-made, which is not there" in oidc.audited()[0]["after"]


def test_admins_by_the_providers_word_are_so_as_long_as_it_says_so(oidc: OidcWorld, person: dict[str, Any]) -> None:
    oidc.rules = rules(admins=["ops"])
    name = person["preferred_username"]
    for values, admin in ((["ops"], True), ([], False), (["ops"], True)):
        oidc.log_in(**person | {"groups": values})
        assert oidc.accounts.user(name).admin is admin
    oidc.client("olga").delete(f"{API}/users/{name}/identity")
    assert not oidc.accounts.user(name).admin, "nor is an account that is nobody's there any more"


def test_who_was_made_an_admin_here_stays_one(oidc: OidcWorld, person: dict[str, Any]) -> None:
    oidc.rules = rules(admins=["ops"])
    name = person["preferred_username"]
    oidc.log_in(**person)
    oidc.accounts.change_user(name, lambda user: replace(user, admin=True))
    for values in (["ops"], []):
        oidc.log_in(**person | {"groups": values})
        assert oidc.accounts.user(name).admin


def test_claims_that_are_told_only_when_asked_for_are_asked_for(oidc: OidcWorld, person: dict[str, Any]) -> None:
    oidc.rules = rules(groups={"cv": OidcGroupFile(group="vision", role="lead")})
    oidc.provider.claims = lambda claims: (claims.pop("groups"), claims.pop("preferred_username"))
    oidc.provider.userinfo = person | {"groups": ["cv"]}
    assert oidc.log_in(**person).status_code == 200
    assert roles_of(oidc, person["preferred_username"]) == {"vision": "lead"}
    oidc.provider.userinfo = person | {"sub": "another", "groups": ["cv"]}
    assert oidc.log_in(**person).status_code == 401, "what is told about somebody else counts for nobody"


def test_what_was_bound_is_so_after_a_restart(oidc: OidcWorld, person: dict[str, Any]) -> None:
    oidc.rules = rules(groups={"cv": OidcGroupFile(group="vision", role="lead")}, admins=["cv"])
    oidc.log_in(**person | {"groups": ["cv"]})
    again = Identities(AccountStore(oidc.store.database), oidc.accounts, oidc.clock)
    assert again.of(person["preferred_username"]) == oidc.security.sign_on.identities.of(person["preferred_username"])
    (kept,) = [
        member for member in AccountStore(oidc.store.database).members() if member.user == person["preferred_username"]
    ]
    assert (kept.issuer, kept.role) == (ISSUER, UserRole.LEAD)
