"""Accounts and the audit log in both kinds of database: what was stored is there after a restart."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import sqlalchemy as sa
from auth_world import API, OWNER_TOKEN, PASSWORD, AuthWorld, error_of
from server_world import Clock

from millpond.model.tenancy.tenants import Limit
from millpond.server.auth.roles import UserRole
from millpond.server.store.audit import AuditQuery
from millpond.server.store.jobs import Owners
from millpond.server.store.store import Store
from millpond.specs.api.accounts.accounts import AuditInfo


def entry(*values: float | str) -> AuditInfo:
    return AuditInfo.model_validate(dict(zip(AuditInfo.model_fields, values, strict=True)))


ENTRY = entry(5.0, "ada", "::1", "token", "change-users", "user", "eve", "vision", "a", "b", 200)


def test_everything_about_accounts_survives_a_restart(database_url: str, tmp_path: Path) -> None:
    clock = Clock(1_000_000.0)
    first = AuthWorld(tmp_path, database_url, clock).populate()
    owner = first.client("olga")
    owner.patch(f"{API}/users/max", json={"limits": {"jobs": 3, "dev_s": 7200}})
    owner.patch(f"{API}/groups/vision", json={"limits": {"gpu_milli": 4000}})
    owner.put(f"{API}/groups/speech/members/max", json={"role": "viewer"})
    owner.delete(f"{API}/groups/speech/members/sam")
    first.security.logins.choose_password("max", PASSWORD)
    token = first.client("max").post(f"{API}/tokens", json={"name": "t", "verbs": ["read-jobs"]}).json()
    job = first.submit("max")
    first.settled()
    first.client("max").post(f"{API}/jobs/{job}/stop")
    first.settled()
    identities = first.security.sign_on.identities
    bound = identities.bind("max", "https://login.test", "0001")
    identities.bind("mia", "https://login.test", "0002")
    identities.unbind("mia")
    first.accounts.put_member("speech", "vic", UserRole.LEAD, "https://login.test")
    before = [owner.get(f"{API}/{path}").json() for path in ("users", "groups", "tokens")]
    first.close()

    second = AuthWorld(tmp_path, database_url, clock)
    owner = second.client("olga")
    assert [owner.get(f"{API}/{path}").json() for path in ("users", "groups", "tokens")] == before
    assert second.loop.query(lambda core: core.scheduler.limit_of("max", "")).result(60) == Limit("max", jobs=3)
    assert second.loop.query(lambda core: core.scheduler.limit_of("", "vision")).result(60).gpu_milli == 4000
    identities = second.security.sign_on.identities
    assert (identities.of("max"), identities.of("mia")) == (bound, None)
    assert {member.user for member in second.accounts.members_of("speech") if member.issuer} == {"vic"}
    bearer = {"Authorization": f"Bearer {token['secret']}"}
    assert [item["id"] for item in second.client(**bearer).get(f"{API}/jobs?all=true").json()["jobs"]] == [job]
    assert second.client("sue").get(f"{API}/jobs?all=true").json()["jobs"] == []
    assert second.client().post(f"{API}/login", json={"user": "max", "password": PASSWORD}).status_code == 200
    verbs = [entry["verb"] for entry in owner.get(f"{API}/audit").json()["entries"]]
    assert {"submit-jobs", "change-jobs", "change-groups", "change-members", "change-tokens"} <= set(verbs)
    second.close()


def test_secrets_are_not_in_the_database(tmp_path: Path) -> None:
    world = AuthWorld(tmp_path).populate()
    world.security.logins.choose_password("max", PASSWORD)
    secrets = [world.client("max").post(f"{API}/tokens", json={"name": "t"}).json()["secret"]]
    secrets.append(world.client("olga").post(f"{API}/users/max/invitation").json()["invitation"])
    body = {"user": "max", "password": PASSWORD, "session": True}
    secrets.append(world.client().post(f"{API}/login", json=body).cookies["millpond_session"])
    world.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for secret in (*secrets, PASSWORD, OWNER_TOKEN):
        assert secret.removeprefix("pond_")[-43:].encode() not in kept
    assert b"$argon2id$" in kept
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_the_audit_log_is_found_by_who_when_what_and_group(database_url: str) -> None:
    store = Store(database_url)
    other = entry(9.0, "eve", "::1", "token", "change-jobs", "job", "j", "", "", "", 403)
    store.audit.add([ENTRY, other])
    for question, found in (
        (AuditQuery(), [other, ENTRY]),
        (AuditQuery(user="ada"), [ENTRY]),
        (AuditQuery(since=6.0), [other]),
        (AuditQuery(object="eve"), [ENTRY]),
        (AuditQuery(groups=["vision", "speech"]), [ENTRY]),
        (AuditQuery(groups=[]), []),
        (AuditQuery(limit=1), [other]),
    ):
        assert store.audit.find(question) == found
    store.close()


@pytest.mark.parametrize("change", ["UPDATE audit SET status = 200", "DELETE FROM audit"])
def test_the_database_itself_keeps_the_audit_log_as_it_was(database_url: str, change: str) -> None:
    store = Store(database_url)
    store.audit.add([ENTRY])
    with pytest.raises(sa.exc.DBAPIError, match="append-only"), sa.create_engine(database_url).begin() as connection:
        connection.execute(sa.text(change))
    assert store.audit.find(AuditQuery()) == [ENTRY]
    store.close()


def test_ended_jobs_are_found_by_owner(database_url: str, tmp_path: Path) -> None:
    world = AuthWorld(tmp_path, database_url).populate()
    jobs = {user: world.submit(user) for user in ("max", "sam", "olga")}
    world.settled()
    for job in jobs.values():
        world.client("olga").post(f"{API}/jobs/{job}/stop")
    world.settled()
    for owners, expected in (
        (None, set(jobs.values())),
        (Owners("sam", frozenset()), {jobs["sam"]}),
        (Owners("sam", frozenset({"vision"})), {jobs["sam"], jobs["max"]}),
        (Owners("nob", frozenset()), set()),
    ):
        assert {info.id for info in world.store.jobs.ended_jobs(10, owners=owners)} == expected
    world.close()


@pytest.mark.parametrize("name", ["\x00", "a\x00b", "\udcff", "%00"])
def test_a_name_that_no_database_takes_is_absent(database_url: str, tmp_path: Path, name: str) -> None:
    from urllib.parse import quote

    world = AuthWorld(tmp_path, database_url).populate()
    answer = world.client("olga").get(f"{API}/jobs/{quote(name, errors='surrogateescape')}")
    assert answer.status_code == 404
    assert error_of(answer).cause
    world.close()
