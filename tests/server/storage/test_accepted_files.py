"""The files of jobs: read once, but for what is found for a job after it was submitted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fresh_databases import fresh_sqlite

from millpond.model.errors import NotFoundError
from millpond.server.storage.job_files import Accepted, JobFiles
from millpond.server.store.jobs import NewJob
from millpond.server.store.store import Store
from millpond.specs.job.job_ids import member_id
from millpond.specs.job.job_spec import check_job


@pytest.fixture
def store(tmp_path: Path):
    store = Store(fresh_sqlite(tmp_path))
    yield store
    store.close()


def test_a_job_that_was_checked_just_now_is_not_read_again(store: Store) -> None:
    files = JobFiles(store.jobs)
    accepted = Accepted(check_job({"command": "work"}), "ada", "vision")
    files.note("j", accepted)  # the store has no such job
    assert files.latest("j") is accepted
    assert asyncio.run(files.soon("j")) is files.file_of("j") is accepted.spec.file
    files.forget("j")
    with pytest.raises(NotFoundError, match="no job 'j'"):
        files.latest("j")


def test_whoever_starts_a_job_is_told_what_was_found_for_it_meanwhile(store: Store) -> None:
    store.append([], [NewJob("j", "ada", 1.0, {"command": "work", "data": {"in": "/far/one"}})])
    files = JobFiles(store.jobs)
    assert files.latest("j").spec.file.pinned is None
    store.jobs.pin("j", {"data": {"in": "key"}})
    pinned = files.latest("j").spec.file.pinned
    assert pinned is not None
    assert dict(pinned.data) == {"in": "key"}


def test_a_file_that_may_change_is_read_again_only_when_one_has_changed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append([], [NewJob("many", "ada", 1.0, {"command": "work", "image": "torch", "array": 3})])
    files, reads = JobFiles(store.jobs), []
    read = store.jobs.submitted
    monkeypatch.setattr(store.jobs, "submitted", lambda job: reads.append(job) or read(job))
    for index in range(3):
        files.latest(member_id("many", index))
    assert len(reads) == 2, "once to know it, and once for what was found since"
    store.append([], changed={"many": {"priority": "high"}})
    assert files.latest(member_id("many", 0)).spec.file.priority == "high"
    assert len(reads) == 3


def test_the_file_of_a_member_is_made_of_its_arrays(store: Store) -> None:
    store.append([], [NewJob("many", "ada", 1.0, {"command": "work {index}", "array": 3}, group="vision")])
    files = JobFiles(store.jobs)
    member = files.latest(member_id("many", 2))
    assert (member.spec.file.command, member.user, member.group) == ("work 2", "ada", "vision")
    assert files.file_of(member_id("many", 1)).command == "work 1"


def test_what_is_no_array_has_no_members(store: Store) -> None:
    store.append([], [NewJob("j", "ada", 1.0, {"command": "work"})])
    with pytest.raises(NotFoundError):
        JobFiles(store.jobs).latest(member_id("j", 1))


def test_only_so_many_are_remembered(store: Store) -> None:
    files = JobFiles(store.jobs)
    accepted = Accepted(check_job({"command": "work"}), "ada", "")
    for number in range(1_001):
        files.note(f"j-{number}", accepted)
    assert files.file_of("j-1000") is accepted.spec.file
    with pytest.raises(NotFoundError):
        files.file_of("j-0")
