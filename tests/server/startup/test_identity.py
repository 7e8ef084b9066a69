"""A server knows its own state from a copy of another's, on SQLite and on PostgreSQL."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest
from fresh_databases import fresh_sqlite
from own_record import own_record

from millpond.model.errors import ConflictError, UnavailableError
from millpond.node.host import procfs
from millpond.node.host.files import write_json
from millpond.node.sessions.task_socket import program_folder, task_socket_path
from millpond.node.task import running_tasks
from millpond.node.task.records import TaskFiles, TaskId, running_records
from millpond.server.runtime.recovery import recover
from millpond.server.startup.identity import ServerIdentity, adopt_files, identify
from millpond.server.state_dir import IDENTITY_FILE
from millpond.server.store.connection.identity import DatabaseOwner
from millpond.server.store.jobs import NewJob
from millpond.server.store.store import Store
from millpond.specs.api.server import LOCK_FILE


@pytest.fixture
def store(database_url):
    made = Store(database_url)
    recover(made)
    yield made
    made.close()


@pytest.fixture
def state_dir(tmp_path) -> Path:
    return folder(tmp_path, "original")


def folder(tmp_path: Path, name: str) -> Path:
    made = tmp_path / name
    made.mkdir()
    return made


def start(store: Store, state_dir: Path, take_over: bool = False) -> ServerIdentity:
    return identify(store, state_dir, take_over)


def test_a_server_keeps_its_identity_from_start_to_start(store, state_dir):
    first = start(store, state_dir)
    assert not first.is_copy
    assert start(store, state_dir) == start(store, state_dir / ".", take_over=True) == first


def test_a_start_that_was_cut_off_before_the_database_was_noted_is_finished(store, state_dir):
    (state_dir / IDENTITY_FILE).write_text(json.dumps({"server": "a1", "state_dir": str(state_dir)}))
    assert start(store, state_dir).servers == ("a1",)


def test_a_server_with_jobs_does_not_begin_anew_on_an_empty_database(store, state_dir):
    (state_dir / IDENTITY_FILE).write_text(json.dumps({"server": "a1", "state_dir": str(state_dir)}))
    (state_dir / "jobs" / "train-abcde").mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"--store was used before.*restore a backup"):
            start(store, state_dir)


def test_a_server_without_jobs_does_not_begin_anew_without_its_users_and_queues(store, state_dir, tmp_path):
    start(store, state_dir)
    other = Store(fresh_sqlite(folder(tmp_path, "another")))
    with pytest.raises(UnavailableError, match=r"has had another one.*--store was used before"):
        start(other, state_dir)
    other.close()
    assert not start(store, state_dir).is_copy


def test_a_server_of_an_earlier_version_is_held_to_its_database_from_its_next_start_on(store, state_dir, tmp_path):
    first = start(store, state_dir)
    write_json(state_dir / IDENTITY_FILE, {"server": first.servers[0], "state_dir": str(state_dir)})
    assert start(store, state_dir) == first
    other = Store(fresh_sqlite(folder(tmp_path, "another")))
    with pytest.raises(UnavailableError, match="has had another one"):
        start(other, state_dir)
    other.close()


def test_a_database_in_another_state_directory_is_a_copy_until_it_is_taken_over(store, state_dir, tmp_path):
    original = start(store, state_dir)
    elsewhere = folder(tmp_path, "elsewhere")
    copy = start(store, elsewhere)
    assert copy.is_copy
    assert copy.original == state_dir
    assert start(store, elsewhere).is_copy
    taken = start(store, elsewhere, take_over=True)
    assert (taken.is_copy, taken.took_over) == (False, True)
    assert taken.servers[0] not in original.servers
    assert taken.servers[1:] == original.servers
    assert start(store, elsewhere).servers == taken.servers
    assert start(store, state_dir).is_copy, "it was replaced for good"


def test_an_original_that_is_started_again_after_it_was_replaced_is_the_copy(tmp_path):
    places = [folder(tmp_path, name) for name in ("original", "restored")]
    stores = [Store(fresh_sqlite(place)) for place in places]
    owner = start(stores[0], places[0])
    stores[1].identity.write(DatabaseOwner(owner.servers[0], places[0]))
    assert start(stores[1], places[1], take_over=True).took_over
    assert start(stores[0], places[0]).is_copy
    for store in stores:
        store.close()


def test_a_state_directory_that_is_at_another_place_is_a_copy(store, state_dir, tmp_path):
    start(store, state_dir)
    assert start(store, state_dir.rename(tmp_path / "moved")).is_copy


def test_nothing_is_taken_over_from_a_server_that_runs(store, state_dir, tmp_path):
    start(store, state_dir)
    elsewhere = folder(tmp_path, "elsewhere")
    with (state_dir / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConflictError, match="down --keep-jobs"):
            start(store, elsewhere, take_over=True)
    assert start(store, elsewhere, take_over=True).took_over


def test_what_living_tasks_go_on_to_write_is_found_in_the_copy_and_dead_ones_stay_as_they_were(tmp_path):
    original, copy = folder(tmp_path, "original"), folder(tmp_path, "copy")
    living, dead = TaskId("living", 1, 0), TaskId("dead", 1, 0)
    for task, ticks in ((living, procfs.start_ticks(os.getpid())), (dead, -1)):
        for state_dir in (original, copy):
            record = TaskFiles.of(state_dir, task).record
            record.parent.mkdir(parents=True)
            write_json(record, own_record(task, supervisor_start=ticks, task_socket="ab12"))
    program_folder(copy, "ab12").mkdir(parents=True)  # a copy made by hand has it
    adopt_files(original, copy, [living, dead])
    adopt_files(original, copy, [living, dead])
    assert [record.id for record in running_records(copy)] == [living]
    TaskFiles.of(original, living).log.write_text("said since")
    assert TaskFiles.of(copy, living).log.read_text() == "said since"
    assert task_socket_path(copy, "ab12").readlink() == task_socket_path(original, "ab12")
    assert not TaskFiles.of(copy, dead).record.parent.is_symlink()


def enter_task(state_dir: Path, job: str, **fields: object) -> None:
    files = TaskFiles.of(state_dir, TaskId(job, 1, 0))
    files.record.parent.mkdir(parents=True)
    write_json(files.record, own_record(TaskId(job, 1, 0), **fields))
    running_tasks.make_room(state_dir)
    running_tasks.enter(files.record)


def test_a_database_that_is_older_than_what_runs_is_refused(store, state_dir):
    server = start(store, state_dir).servers[0]
    store.append([], [NewJob("known", "ada", 1.0, {"command": "x"})])
    enter_task(state_dir, "known", server=server)
    enter_task(state_dir, "foreign", server="another")
    enter_task(state_dir, "ended", server=server, supervisor_start=-1)
    assert start(store, state_dir).servers == (server,)
    enter_task(state_dir, "later", server=server)
    with pytest.raises(
        UnavailableError, match=rf"older than what runs here.* later \(1 in all\).* {os.getpid()}, with"
    ):
        start(store, state_dir)
