"""Ended jobs are found by their names and their queues in the store, on each kind of database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from job_infos import job_info
from millpond.server.store.job_filter import JobFilter
from millpond.server.store.jobs import NewJob
from millpond.server.store.store import Store
from millpond.specs.api.jobs.jobs import JobInfo


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """Ended jobs of two users, an array with a member of its name, and a job that lives."""
    made = Store(database_url)
    ended = [
        ended_job("a1", "train", 1.0),
        ended_job("a2", "train", 3.0),
        ended_job("a3", "Train", 4.0),
        ended_job("b1", "train", 5.0, user="bob"),
        ended_job("s", "sweep", 6.0),
        ended_job("s.0", "sweep", 7.0, parent="s"),
    ]
    rows = [NewJob(info.id, info.user, info.submitted_at, {}, parent=info.parent) for info in ended]
    made.append([], [*rows[:-1], NewJob("a4", "ada", 8.0, {"name": "train"})])
    made.append([], [NewJob("s.0", "ada", 7.0, {}, parent="s", ended=ended[-1])])
    made.record([], ended[:-1])
    yield made
    made.close()


def ended_job(job: str, name: str, at: float, user: str = "ada", parent: str = "") -> JobInfo:
    known = {"id": job, "name": name, "user": user, "parent": parent, "queue": f"of-{user}"}
    return job_info(**known, state="succeeded", submitted_at=at, ended_at=at)


def named(store: Store, name: str, user: str = "ada") -> str | None:
    found = store.jobs.latest_named(name, user)
    return found and found.id


def test_the_latest_job_of_a_name_is_the_users_own_that_has_ended_and_no_member(store: Store) -> None:
    assert named(store, "train") == "a2"
    assert named(store, "Train") == "a3"
    assert named(store, "train", "bob") == "b1"
    assert named(store, "sweep") == "s"
    assert named(store, "prepare") is None


def test_a_deleted_job_is_not_found_by_its_name(store: Store) -> None:
    assert store.deletion.delete("a2")
    assert named(store, "train") == "a1"


def test_ended_jobs_of_a_name_are_listed_with_or_without_members(store: Store) -> None:
    assert [info.id for info in store.jobs.ended_jobs(10, JobFilter(name="train"))] == ["b1", "a2", "a1"]
    assert [info.id for info in store.jobs.ended_jobs(10, JobFilter(name="sweep"), of="s")] == ["s.0"]


def test_ended_jobs_of_a_queue_are_listed(store: Store) -> None:
    assert [info.id for info in store.jobs.ended_jobs(10, JobFilter(queue="of-bob"))] == ["b1"]
    assert store.jobs.ended_jobs(10, JobFilter(queue="OF-BOB")) == []
    assert [info.id for info in store.jobs.ended_jobs(10, JobFilter(queue="of-ada"), of="s")] == ["s.0"]


def add_many(store: Store) -> None:
    """As many jobs as make a database look for the index that suits."""
    others = [ended_job(f"c{n}", f"name-{n % 30}", 10.0 + n, user=f"user-{n // 30}") for n in range(900)]
    store.append([], [NewJob(info.id, info.user, info.submitted_at, {}, ended=info) for info in others])


def test_jobs_of_a_queue_are_found_through_an_index(store: Store) -> None:
    add_many(store)
    ((statement, parameters),) = asked_of(store, lambda: store.jobs.ended_jobs(10, JobFilter(queue="none")))
    with store.database.connect() as connection:
        if connection.dialect.name == "sqlite":
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            assert rows[0][-1] == "SEARCH jobs USING INDEX jobs_of_queue (queue=?)"
        else:
            connection.exec_driver_sql("ANALYZE jobs")
            connection.exec_driver_sql("SET enable_seqscan = off")  # of so few rows it would read all
            plan = "\n".join(connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).scalars())
            assert "jobs_of_queue" in plan


def test_a_job_is_found_by_its_name_through_an_index(store: Store) -> None:
    add_many(store)
    ((statement, parameters),) = asked_of(store, lambda: named(store, "train"))
    with store.database.connect() as connection:
        if connection.dialect.name == "sqlite":
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            assert rows[0][-1] == "SEARCH jobs USING INDEX jobs_by_name (name=? AND parent=? AND user=?)"
        else:
            connection.exec_driver_sql("ANALYZE jobs")
            connection.exec_driver_sql("SET enable_seqscan = off")  # of so few rows it would read all
            plan = "\n".join(connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).scalars())
            assert "Index Scan Backward using jobs_by_name" in plan
            assert "Index Cond: ((name = 'train'::text) AND ((parent)::text = ''::text)" in plan


def asked_of(store: Store, read: Callable[[], object]) -> list[tuple[str, Any]]:
    """The statements that the database is given, each with its parameters."""
    seen: list[tuple[str, Any]] = []

    def remember(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        seen.append((statement, parameters))

    sa.event.listen(store.database, "before_cursor_execute", remember)
    read()
    sa.event.remove(store.database, "before_cursor_execute", remember)
    return seen
