"""The audit log: who, when, from where, what, and how it came out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from auth_world import API, PASSWORD, AuthWorld, error_of
from fresh_databases import fresh_sqlite
from sqlalchemy import event, text
from sqlalchemy.exc import DatabaseError, DataError, OperationalError

from millpond.model.errors import UnavailableError
from millpond.server.auth.audit import AuditLog
from millpond.server.store.store import Store


def audit(world: AuthWorld, user: str = "olga", **params: Any) -> list[dict[str, Any]]:
    world.security.audit.add_now(_MARK).result(60)  # what was gathered before is written with it
    found: list[dict[str, Any]] = world.client(user).get(f"{API}/audit", params=params).json()["entries"]
    return [entry for entry in found if entry["verb"] != "mark"]


def test_a_change_is_told_with_what_was_and_what_is(world: AuthWorld) -> None:
    world.client("amy").patch(f"{API}/users/max", json={"limits": {"jobs": 2}})
    world.client("amy").patch(f"{API}/users/max", json={"limits": {"jobs": 5}})
    entry = audit(world, object="max")[0]
    assert (entry["user"], entry["verb"], entry["kind"], entry["status"]) == ("amy", "change-users", "user", 200)
    assert (entry["before"], entry["after"]) == ("jobs 2", "jobs 5")
    assert (entry["at"], entry["address"], entry["how"]) == (world.clock.now, "testclient", "token")


def test_jobs_are_told_with_their_user_and_group(world: AuthWorld) -> None:
    job = world.submit("max")
    world.client("lea").post(f"{API}/jobs/{job}/stop")
    stopped, submitted = audit(world, object=job)
    assert (submitted["user"], submitted["verb"], submitted["group"]) == ("max", "submit-jobs", "vision")
    assert (stopped["user"], stopped["verb"], stopped["status"]) == ("lea", "change-jobs", 202)


def test_refusals_and_failed_logins_are_told(world: AuthWorld) -> None:
    world.client("sam").post(f"{API}/users", json={"name": "eve"})
    world.client().post(f"{API}/login", json={"user": "ma\nx", "password": PASSWORD})
    failed, refused = audit(world)[:2]
    assert (refused["user"], refused["verb"], refused["status"]) == ("sam", "change-users", 403)
    assert (failed["user"], failed["verb"], failed["status"], failed["how"]) == ("ma?x", "log-in", 401, "")


def test_reading_is_not_told(world: AuthWorld) -> None:
    job = world.submit("max")
    before = audit(world)
    world.client("max").get(f"{API}/jobs")
    assert world.client("max").post(f"{API}/jobs/{job}/output", json={"paths": ["a"]}).status_code == 200
    assert audit(world) == before


def test_a_lead_sees_what_concerns_the_group_and_no_more(world: AuthWorld) -> None:
    mine, other = world.submit("max"), world.submit("sam")
    seen = {entry["object"] for entry in audit(world, "lea")}
    assert mine in seen
    assert other not in seen
    assert {entry["group"] for entry in audit(world, "lea")} == {"vision"}


def test_no_secret_is_in_the_audit_log(world: AuthWorld) -> None:
    secret = world.client("max").post(f"{API}/tokens", json={"name": "ci"}).json()["secret"]
    world.client("max").put(f"{API}/password", json={"new_password": PASSWORD})
    text = str(audit(world))
    assert secret not in text
    assert PASSWORD not in text


def test_entries_that_could_not_be_written_are_written_later(world: AuthWorld, monkeypatch: Any) -> None:
    monkeypatch.setattr("millpond.server.auth.audit.RETRY_S", 0.01)
    add = world.store.audit.add
    failures = iter([OperationalError("insert", {}, Exception("disk full"))])

    def failing(entries: Any) -> None:
        for failure in failures:
            raise failure
        add(entries)

    monkeypatch.setattr(world.store.audit, "add", failing)
    job = world.submit("max")
    assert [entry["object"] for entry in audit(world, object=job)] == [job]


def test_what_a_database_could_not_store_is_refused_without_waiting_for_an_entry_that_it_cannot_store_either(
    world: AuthWorld, monkeypatch: Any
) -> None:
    monkeypatch.setattr("millpond.server.auth.audit.RETRY_S", 0.01)
    client, is_read_only = world.client("max"), True

    def set_up(connection: Any, *_: object) -> None:
        connection.execute(f"PRAGMA query_only={int(is_read_only)}")

    event.listen(world.store.database, "checkout", set_up)
    with ThreadPoolExecutor() as requests:
        answer = requests.submit(client.post, f"{API}/tokens", json={"name": "ci"})
        done, _ = wait([answer], timeout=60.0)
        is_read_only = False
        assert done
    assert answer.result().status_code == 503
    assert ("max", "change-tokens", 503) in [(each["user"], each["verb"], each["status"]) for each in audit(world)]


def test_a_server_whose_audit_log_is_damaged_is_not_ready_until_it_can_be_written(
    world: AuthWorld, monkeypatch: Any
) -> None:
    monkeypatch.setattr("millpond.server.auth.audit.RETRY_S", 0.01)
    add, answers = world.store.audit.add, []

    def failing(entries: Any) -> None:
        answers.append(world.client("").get("/readyz"))
        if len(answers) > 1:
            add(entries)
        else:
            raise DatabaseError("insert", {}, Exception("database disk image is malformed"))

    monkeypatch.setattr(world.store.audit, "add", failing)
    with pytest.raises(UnavailableError, match="the audit log cannot be written"):
        audit(world)
    audit(world)
    assert [answer.status_code for answer in (*answers[:2], world.client("").get("/readyz"))] == [200, 503, 200]
    assert "the audit log cannot be written (database disk image is malformed)" in answers[1].json()["status"]
    assert "pond restore" in answers[1].json()["status"]


def test_a_login_fails_while_the_audit_log_is_damaged_and_is_in_it_once_that_is_mended(
    world: AuthWorld, monkeypatch: Any
) -> None:
    monkeypatch.setattr("millpond.server.auth.audit.RETRY_S", 0.01)
    add, is_damaged = world.store.audit.add, True

    def failing(entries: Any) -> None:
        if is_damaged:
            raise DatabaseError("insert", {}, Exception("database disk image is malformed"))
        add(entries)

    monkeypatch.setattr(world.store.audit, "add", failing)
    answer = world.client().post(f"{API}/login", json={"user": "max", "password": PASSWORD})
    assert answer.status_code == 503
    assert "set-cookie" not in answer.headers
    assert "the audit log cannot be written (database disk image is malformed)" in error_of(answer).cause
    is_damaged = False
    assert audit(world)[0]["user"] == "max"


def test_no_server_starts_on_a_damaged_audit_log(tmp_path: Path) -> None:
    store = Store(fresh_sqlite(tmp_path))
    with store.database.begin() as connection:
        root = connection.execute(text("select rootpage from sqlite_master where name = 'audit'")).scalar_one()
        size = connection.execute(text("pragma page_size")).scalar_one()
    store.close()
    with (tmp_path / "millpond.db").open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(bytes(size))
    damaged = Store(f"sqlite:///{tmp_path / 'millpond.db'}")
    with pytest.raises(DatabaseError, match="malformed"):
        AuditLog(damaged.audit)
    damaged.close()


def test_no_name_in_a_request_is_one_that_a_database_refuses(world: AuthWorld) -> None:
    names = ("%00", "x" * 300, "%E2%80%AE", "%ed%a0%80")
    for name in names:
        for method, path in (
            ("PATCH", f"groups/{name}"),
            ("PUT", f"groups/{name}/members/{name}"),
            ("DELETE", f"secrets/group/{name}/{name}"),
            ("PATCH", f"users/{name}"),
        ):
            assert world.client("max").request(method, f"{API}/{path}", json={}).status_code in (403, 404, 422), path
    told = audit(world)
    assert len(told) >= 2 * len(names)
    for entry in told:
        assert all(str(value).isprintable() for value in entry.values())
        assert len(entry["group"]) <= 64


@pytest.mark.parametrize(
    "refusal", [DataError("insert", {}, Exception("no such letter")), ValueError("no such letter")]
)
def test_an_entry_that_the_database_refuses_for_good_keeps_no_other_from_being_written(
    world: AuthWorld, monkeypatch: Any, caplog: Any, refusal: Exception
) -> None:
    add = world.store.audit.add

    def refusing(entries: Any) -> None:
        if any(entry.object == "poison" for entry in entries):
            raise refusal
        add(entries)

    monkeypatch.setattr(world.store.audit, "add", refusing)
    world.security.audit.add(_MARK.model_copy(update={"object": "poison"}))
    job = world.submit("max")
    assert [entry["object"] for entry in audit(world, object=job)] == [job]
    assert "refuses an entry of the audit log for good (no such letter)" in caplog.text


def _mark() -> Any:
    from millpond.specs.api.accounts.accounts import AuditInfo

    return AuditInfo(**dict(zip(AuditInfo.model_fields, (0.0, "", "", "", "mark", "", "", "", "", "", 0), strict=True)))


_MARK = _mark()
