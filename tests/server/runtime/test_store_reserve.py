"""Room that the store keeps within itself: on a full disk jobs are stopped, and end, and nothing new is taken on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from api_world import JOBS, Api, error_of
from fresh_databases import fresh_sqlite
from sqlalchemy.exc import OperationalError

from millpond.model.events import Ended, StopRequested
from millpond.model.states import Outcome
from millpond.server.operations.disk_watch import DiskWatch
from millpond.server.storage.disk_use import KEPT_FOR_ENDS_BYTES
from millpond.server.store.connection.reserve import RESERVE_BYTES, Reserve
from millpond.server.store.histories import LogEntry
from millpond.server.store.jobs import NewJob
from millpond.server.store.store import Store

MANY = 200


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(fresh_sqlite(tmp_path))
    yield store
    store.close()


def sizes(store: Store) -> list[int]:
    """Bytes of the database and of its log."""
    path = Path(store.database.url.database or "")
    return [file.stat().st_size for file in (path, Path(f"{path}-wal"))]


def grow_no_more(store: Store) -> None:
    """From now on the database has the pages that it has."""

    def bound(connection, _record, _proxy) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()

    sa.event.listen(store.database, "checkout", bound)


def end_many(store: Store) -> None:
    """Stops and ends, each pair in a transaction of its own, as when people stop one job after the other."""
    for number in range(MANY):
        stop = StopRequested(float(number), f"job-{number}", "ada")
        end = Ended(float(number), f"job-{number}", 1, Outcome.STOPPED, 0, 143, detail="x" * 500)
        store.append([LogEntry(2 * number, stop, stop.job), LogEntry(2 * number + 1, end, end.job)])


def test_stops_and_ends_are_stored_in_files_that_do_not_grow(store: Store) -> None:
    assert store.reserve.refill()
    before = sizes(store)
    grow_no_more(store)
    end_many(store)
    assert sizes(store) == before


def test_without_a_reserve_they_are_not(store: Store) -> None:
    grow_no_more(store)
    with pytest.raises(OperationalError, match="full"):
        end_many(store)


def test_a_reserve_is_filled_when_half_of_it_is_gone_and_left_alone_before(store: Store) -> None:
    assert store.reserve.kept_bytes() == 0
    assert store.reserve.refill()
    assert store.reserve.kept_bytes() >= RESERVE_BYTES
    assert not store.reserve.refill()
    document = {"command": "x" * (RESERVE_BYTES * 3 // 4)}
    store.append([], [NewJob("a", "ada", 1.0, document)])
    assert store.reserve.kept_bytes() < RESERVE_BYTES / 2
    assert store.reserve.refill()
    assert store.reserve.kept_bytes() >= RESERVE_BYTES


def test_a_server_that_was_killed_while_it_filled_the_reserve_leaves_nothing_behind(store: Store) -> None:
    with store.database.begin() as connection:
        connection.execute(sa.text("CREATE TABLE reserve (room BLOB)"))
        connection.execute(sa.text("INSERT INTO reserve VALUES (zeroblob(1000000))"))
    assert store.reserve.refill()
    assert "reserve" not in sa.inspect(store.database).get_table_names()


def test_a_database_that_is_not_sqlite_keeps_nothing() -> None:
    reserve = Reserve(sa.create_engine("postgresql+psycopg://nobody@localhost/none"))
    assert (reserve.kept_bytes(), reserve.refill()) == (0, False)


def test_on_a_full_disk_nothing_is_taken_on_and_what_runs_is_stopped(api: Api) -> None:
    free = [10 * KEPT_FOR_ENDS_BYTES]
    api.service.disk.free = lambda path: free[0]
    job = api.submit()
    assert api.job(job.id).state == "running"
    free[0] = 0
    refused = api.client.post(JOBS, json={"command": "work"})
    assert refused.status_code == 503
    assert error_of(refused).cause == "the server's disk is full: 0 B are free"
    assert "pond stop" in error_of(refused).remedy
    assert api.client.post(f"{JOBS}/{job.id}/stop").status_code == 202
    assert api.job(job.id).state == "cancelled"
    free[0] = 10 * KEPT_FOR_ENDS_BYTES
    assert api.client.post(JOBS, json={"command": "work"}).status_code == 201


def test_the_servers_log_tells_of_the_reserve_and_of_the_full_disk(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    free = [10 * KEPT_FOR_ENDS_BYTES]
    api.service.disk.free = lambda path: free[0]
    watch = DiskWatch(api.loop, api.store, api.service.disk, api.state_dir, 1.0, api.clock)
    caplog.set_level("INFO", "millpond.server.operations.disk_watch")
    for free[0] in (10 * KEPT_FOR_ENDS_BYTES, 0, 0, 10 * KEPT_FOR_ENDS_BYTES):
        watch.look_at_full_disk()
        watch.look_at_reserve()
    kept, full, again = (record.getMessage() for record in caplog.records)
    assert kept == "4.0 MiB are kept within the database for ends on a full disk"
    assert full.startswith("nothing is taken on: the server's disk is full: 0 B are free; 4.0 MiB are kept")
    assert again == "jobs are taken on again"


def test_a_reserve_that_a_growing_store_uses_up_is_logged_once_until_the_disk_is_full(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    free = [10 * KEPT_FOR_ENDS_BYTES]
    api.service.disk.free = lambda path: free[0]
    watch = DiskWatch(api.loop, api.store, api.service.disk, api.state_dir, 1.0, api.clock)
    monkeypatch.setattr(api.store.reserve, "refill", lambda: True)
    caplog.set_level("INFO", "millpond.server.operations.disk_watch")
    told = []
    for free[0] in (10 * KEPT_FOR_ENDS_BYTES, 10 * KEPT_FOR_ENDS_BYTES, 0, 10 * KEPT_FOR_ENDS_BYTES):
        watch.look_at_reserve()
        told.append(len(caplog.records))
    assert told == [1, 1, 1, 2]


def test_no_reserve_is_taken_from_a_disk_that_is_nearly_full(api: Api) -> None:
    api.service.disk.free = lambda path: KEPT_FOR_ENDS_BYTES + RESERVE_BYTES
    DiskWatch(api.loop, api.store, api.service.disk, api.state_dir, 1.0, api.clock).look_at_reserve()
    assert api.store.reserve.kept_bytes() < RESERVE_BYTES / 2
