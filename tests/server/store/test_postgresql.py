"""The store on PostgreSQL."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from millpond.model import events
from millpond.model.errors import UnavailableError
from millpond.server.store import schema
from millpond.server.store.connection import database
from millpond.server.store.connection.durable_writes import CommitInDoubtError
from millpond.server.store.connection.leadership import LEASE_S
from millpond.server.store.histories import LogEntry
from millpond.server.store.jobs import NewJob
from millpond.server.store.store import Store, StoredSnapshot


def test_the_store_works_on_postgresql_and_keeps_a_second_server_off(postgresql_url: str) -> None:
    store = Store(postgresql_url)
    store.append([LogEntry(1, events.Tick(1.0))], [NewJob("j", "ada", 1.0, {"command": "x"}, "key", "digest")])
    store.save_snapshot(StoredSnapshot(1, 1.0, "v", {"a": 1}))
    assert [entry.event for entry in store.events_after(0)] == [events.Tick(1.0)]
    assert store.jobs.repeated("key") == ("j", "digest")
    with pytest.raises(UnavailableError, match="another server"):
        Store(postgresql_url)
    store.close()
    again = Store(postgresql_url)
    assert again.snapshots()[-1] == StoredSnapshot(1, 1.0, "v", {"a": 1})
    again.close()


def test_a_database_that_was_made_under_the_locale_c_keeps_text_all_the_same(postgresql_url: str) -> None:
    engine = sa.create_engine(postgresql_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'"))
    try:
        store = Store(postgresql_url.replace("/postgres?", "/ascii?"))
        store.append([], [NewJob("j", "zoë", 1.0, {"command": "echo grüß"})])
        found = store.jobs.submitted("j")
        assert found is not None
        assert (found.user, found.document["command"]) == ("zoë", "echo grüß")
        store.close()
    finally:
        with engine.connect() as connection:
            connection.execute(sa.text("DROP DATABASE ascii WITH (FORCE)"))
        engine.dispose()


@pytest.mark.parametrize("is_durable", [True, False])
def test_whether_a_commit_is_durable_that_got_no_answer_is_known_afterwards(
    postgresql_url: str, is_durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(postgresql_url)
    commit = store.database.dialect.do_commit

    def lose_the_answer(connection: Any) -> None:
        if is_durable:
            commit(connection)
        connection.dbapi_connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patch:
        patch.setattr(store.database.dialect, "do_commit", lose_the_answer)
        with pytest.raises(CommitInDoubtError, match="closed the connection"):
            store.append([LogEntry(1, events.Tick(1.0))])
    with pytest.raises(OperationalError, match="in doubt"):
        store.append([LogEntry(1, events.Tick(1.0))])
    assert store.is_durable() is is_durable
    assert len(list(store.events_after(0))) == is_durable
    store.append([LogEntry(2, events.Tick(2.0))])
    store.close()


def test_a_table_that_another_program_locks_refuses_what_is_written_instead_of_holding_it(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LOCKED_WITHIN_S", 0.01)
    store, other = Store(postgresql_url), sa.create_engine(postgresql_url)
    with other.begin() as connection:
        connection.execute(sa.text("LOCK TABLE events"))
        with pytest.raises(OperationalError, match="lock timeout"):
            store.append([LogEntry(1, events.Tick(1.0))])
        with pytest.raises(OperationalError, match="lock timeout"):
            store.try_writing()
    store.try_writing()
    store.append([LogEntry(1, events.Tick(1.0))])
    store.close()
    other.dispose()


def test_an_upgrade_may_stand_still_for_longer_than_a_leaders_write(postgresql_url: str) -> None:
    patience: dict[bool, set[str]] = {True: set(), False: set()}

    def look(_connection: object, cursor: Any, statement: str, *_rest: object) -> None:
        is_upgrade = statement.lstrip().startswith("CREATE TABLE")
        if is_upgrade or statement.startswith("INSERT INTO events"):
            cursor.execute("SHOW idle_in_transaction_session_timeout")
            patience[is_upgrade].add(cursor.fetchone()[0])

    sa.event.listen(sa.Engine, "before_cursor_execute", look)
    try:
        store = Store(postgresql_url)
        store.append([LogEntry(1, events.Tick(1.0))], [])
        store.close()
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", look)
    assert patience == {True: {"1min"}, False: {f"{LEASE_S:g}s"}}


def test_a_row_that_another_request_is_adding_is_replaced_once_that_is_done(postgresql_url: str) -> None:
    store = Store(postgresql_url)
    with ThreadPoolExecutor(1) as pool, store.database.connect() as other:
        other.execute(schema.notification_settings.insert().values(user="ada", document="{}"))
        saved = pool.submit(store.notification_settings.save, "ada", {"address": "ada@example.org"})
        wait_until_blocked(store)
        other.commit()
        saved.result(60)
    assert store.notification_settings.all() == {"ada": {"address": "ada@example.org"}}
    store.close()


def wait_until_blocked(store: Store) -> None:
    """Returns once a transaction waits for another."""
    end = time.monotonic() + 60
    with store.database.connect() as connection:
        while not connection.execute(sa.text("SELECT 1 FROM pg_locks WHERE NOT granted")).all():
            assert time.monotonic() < end, "nothing waits"
            connection.rollback()
            os.sched_yield()
