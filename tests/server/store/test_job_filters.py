"""Lists of jobs that have ended, on both databases: each filter gives what it says, page by page."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fresh_databases import fresh_sqlite

from job_infos import job_info
from millpond.server.store import job_filter
from millpond.server.store.job_filter import JobFilter, listed_at
from millpond.server.store.jobs import NewJob
from millpond.server.store.store import Store
from millpond.specs.api.jobs.jobs import JobInfo
from seeds import few_then_many

ONE = job_info(id="", queue="q", state="failed", submitted_at=1.0, ended_at=2.0)
STATES, USERS, QUEUES, NAMES = ("succeeded", "failed"), ("ada", "bob"), ("q", "q", "q", "r"), ("train", "eval")


@pytest.fixture(autouse=True)
def few_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the values, those of the queue ``r`` are rare, and those that no job has."""
    monkeypatch.setattr(job_filter, "_RARE", 20)


@pytest.fixture(params=["SQLite", pytest.param("PostgreSQL", marks=pytest.mark.long)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    is_postgresql = request.param == "PostgreSQL"
    store = Store(request.getfixturevalue("postgresql_url") if is_postgresql else fresh_sqlite(tmp_path))
    yield store
    store.close()


def fill(store: Store) -> list[JobInfo]:
    """Jobs of all kinds, several of one instant."""
    draws = random.Random(5)
    infos = [
        job_info(
            id=f"job-{number:02d}",
            name=draws.choice(NAMES),
            queue=draws.choice(QUEUES),
            user=draws.choice(USERS),
            state=draws.choice(STATES),
            submitted_at=float(number // 4),
            ended_at=100.0,
        )
        for number in range(60)
    ]
    store.append([], [NewJob(info.id, info.user, info.submitted_at, {}) for info in infos])
    store.record([], infos)
    return sorted(infos, key=listed_at)


@pytest.mark.parametrize("part", few_then_many([0], range(1, 5)))
def test_each_filter_gives_the_jobs_that_it_names_page_by_page(store: Store, part: int) -> None:
    infos = fill(store)
    states = ((), ("failed",), STATES, ("cancelled",))
    users, queues, names = ("", "ada", "nobody"), ("", "r", "none"), ("", "train", "none", "t*", "?va?", "*a*n", "n*")
    for chosen, oldest_first in list(product(product(states, users, queues, names), (False, True)))[part::5]:
        wanted = JobFilter(*chosen, oldest_first=oldest_first)
        expected = [info.id for info in (reversed(infos) if oldest_first else infos) if wanted.matches(info)]
        found = [info.id for info in store.jobs.ended_jobs(100, wanted)]
        assert found == expected, wanted
        assert [each.job for each in store.jobs.owners_of_ended(100, wanted, None, "")] == expected, wanted
        paged: list[str] = []
        while page := store.jobs.ended_jobs(17, wanted):
            paged += [info.id for info in page]
            wanted = replace(wanted, behind=(page[-1].submitted_at, page[-1].id))
        assert paged == expected, wanted


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (JobFilter(queue="r", name="train"), "jobs_of_queue"),
        (JobFilter(("cancelled",), user="ada", queue="q", name="train"), "jobs_by_state"),
        (JobFilter(user="nobody", queue="q"), "jobs_of_user"),
        (JobFilter(("failed",), name="train"), "jobs_of_name"),
        (JobFilter(user="ada", name="train"), "jobs_by_name"),
        (JobFilter(name="*ain"), "jobs_by_parent"),
        (JobFilter(("failed",), user="ada", queue="q", name="tr*"), "jobs_by_parent"),
    ],
)
def test_jobs_are_found_by_a_value_that_few_have_whatever_else_is_asked(
    tmp_path: Path, wanted: JobFilter, index: str
) -> None:
    url = fresh_sqlite(tmp_path)
    store, asked = Store(url), list[tuple[str, Any]]()
    fill(store)

    def note(_1: object, _2: object, statement: str, values: Any, *_rest: object) -> None:
        asked.append((statement, values))

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        store.jobs.ended_jobs(100, wanted)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
        store.close()
    statement, values = asked[-1]
    with sa.create_engine(url).connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).scalars("detail").first()
    assert f"USING INDEX {index} " in str(plan)


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("train", {"train"}),
        ("train*", {"train", "train-1", "train_1"}),
        ("*rai*", {"train", "train-1", "train_1", "Training"}),
        ("train?1", {"train-1", "train_1"}),
        ("train_*", {"train_1"}),
        ("ÜB?N", {"ÜBÜN"}),
        ("[t]*", set()),
        ("*%*", set()),
        ("*\\\\*", set()),
        ("*" * 60 + "b", set()),
    ],
)
def test_a_name_may_be_a_pattern_of_which_both_databases_and_living_jobs_mean_the_same(
    store: Store, pattern: str, meant: set[str]
) -> None:
    names = ("train", "train-1", "train_1", "Training", "ÜBÜN", "a" * 100)
    infos = [replace(ONE, id=f"job-{number}", name=name) for number, name in enumerate(names)]
    store.append([], [NewJob(info.id, info.user, info.submitted_at, {}) for info in infos])
    store.record([], infos)
    wanted = JobFilter(name=pattern)
    assert {info.name for info in store.jobs.ended_jobs(100, wanted)} == meant
    assert {info.name for info in infos if wanted.matches(info)} == meant
