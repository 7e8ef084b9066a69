"""Arrays in the store, on each kind of database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from job_infos import job_info
from millpond.model.events import Noted
from millpond.server.store.histories import LogEntry
from millpond.server.store.jobs import CLOSED, LIVE, NewJob
from millpond.server.store.store import Store, StoredSnapshot
from millpond.specs.api.jobs.jobs import JobInfo


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """A store with an array of three: two ended, one not handed over; and a job beside it."""
    made = Store(database_url)
    array = NewJob("a", "ada", 1.0, {"command": "x {index}", "array": 3, "ship": "0" * 64}, members=3)
    made.append([LogEntry(1, Noted(1.0, "a", "submitted"), "a")], [array, NewJob("b", "ada", 1.0, {"command": "x"})])
    made.append([], [NewJob(f"a.{index}", "ada", 2.0, {}, parent="a") for index in (0, 1)])
    made.record([], [ended("a.0", "succeeded", 3.0), ended("a.1", "failed", 4.0), ended("b", "succeeded", 2.0)])
    made.save_snapshot(StoredSnapshot(1, 4.0, "v", {}))
    yield made
    made.close()


def ended(job: str, state: str, at: float) -> JobInfo:
    parent = job.partition(".")[0] if "." in job else ""
    return job_info(id=job, state=state, submitted_at=1.0, ended_at=at, parent=parent)


def test_members_stand_behind_their_array(store: Store) -> None:
    assert [(row.id, row.state, row.members) for row in store.jobs.open_arrays()] == [("a", LIVE, 3)]
    assert store.jobs.member_states("a") == {"a.0": "succeeded", "a.1": "failed"}
    assert [info.id for info in store.jobs.ended_jobs(10)] == ["b"]
    assert [info.id for info in store.jobs.ended_jobs(10, of="a")] == ["a.0", "a.1"]
    assert {info.id for info in store.jobs.ended_jobs(10, of=None)} == {"a.0", "a.1", "b"}
    assert store.jobs.ended_counts() == {"succeeded": 2, "failed": 1}
    assert store.jobs.document("a.2")["command"] == "x 2"  # type: ignore[index]
    assert store.jobs.document("b.2") is None
    assert set(store.jobs.ended_with(["ship"], 10.0)) == {"a.0", "a.1"}
    first = store.jobs.first_member("a")
    assert first is not None
    assert first.id == "a.0"


def test_a_closed_array_is_open_until_it_has_ended(store: Store) -> None:
    store.append([], [NewJob("a.2", "ada", 5.0, {}, parent="a", ended=ended("a.2", "cancelled", 5.0))], [], ["a"])
    assert [row.state for row in store.jobs.open_arrays()] == [CLOSED]
    assert store.jobs.member_states("a")["a.2"] == "cancelled"
    store.record([], [ended("a", "failed", 6.0)])
    assert store.jobs.open_arrays() == []


def test_members_are_forgotten_when_their_array_has_ended_and_it_after_them(store: Store) -> None:
    assert store.deletion.forgettable(9.0) == ["b"]
    store.record([], [ended("a", "failed", 6.0)])
    assert set(store.deletion.forgettable(9.0)) == {"a.0", "a.1", "b"}
    store.deletion.forget(["a.0", "a.1"])
    assert "a" in store.deletion.forgettable(9.0)


def test_an_array_is_deleted_with_its_members_and_trials(store: Store) -> None:
    store.trials.write("a", {"a.0": {"best": 1.0}})
    store.trials.write("a", {"a.0": {"best": 0.5}, "a.1": {}})
    assert store.trials.of("a") == {"a.0": {"best": 0.5}, "a.1": {}}
    store.record([], [ended("a", "failed", 6.0)])
    assert store.deletion.delete("a")
    assert [store.jobs.ended_job(job) for job in ("a", "a.0", "a.1")] == [None, None, None]
    assert store.trials.of("a") == {}
    assert store.jobs.ended_jobs(10, of=None)[0].id == "b"
