"""A database with data in it is upgraded by a version to come and used; what cannot be read is left as it was.

The rows are those of a server: a job that succeeded, one that failed, one that runs and one that waits, some people and
what they left.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command, op
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from server_world import Clock, World, WorldEngine

from millpond.model.errors import UnavailableError
from millpond.node.task.records import TaskId
from millpond.server.auth.account_store import AccountStore
from millpond.server.runtime.active_jobs.job_cache import JobCache
from millpond.server.runtime.loop import Loop
from millpond.server.runtime.loop_dependencies import LoopDependencies
from millpond.server.runtime.recovery import recover
from millpond.server.runtime.scheduler_thread import SchedulerThread
from millpond.server.runtime.turn_processor import TurnProcessor
from millpond.server.store import migrations
from millpond.server.store.connection import database, upgrades
from millpond.server.store.connection.database import sqlite_url
from millpond.server.store.job_filter import JobFilter
from millpond.server.store.schema import metadata, time_series
from millpond.server.store.statistics.start_waits import WaitFilter
from millpond.server.store.store import Store

DATA = Path(__file__).parents[2] / "data"
ROWS = json.loads((DATA / "rows_of_first_release.json").read_text())
FIRST = "names_by_pattern"
COUNTED = ("usage", "deliveries", "audit")
"""Tables whose rows the database counts itself."""
NEXT_STEP = """
import sqlalchemy as sa
from alembic import op

revision = "labels"
down_revision = "{newest}"


def upgrade():
    op.add_column("jobs", sa.Column("label", sa.String(20), nullable=False, server_default="none"))
    op.create_table("labels", sa.Column("name", sa.String(20), primary_key=True))
"""


@pytest.fixture
def database_url(empty_database_url: str) -> str:
    """Without even tables: they are made here."""
    return empty_database_url


@pytest.fixture
def next_step(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    """The revision of a version to come, which adds a column and a table."""
    folder = tmp_path_factory.mktemp("version") / "migrations"
    shutil.copytree(migrations.FOLDER, folder)
    newest = ScriptDirectory(str(folder)).get_current_head()
    (folder / "versions" / "9999_labels.py").write_text(NEXT_STEP.format(newest=newest))
    monkeypatch.setattr(migrations, "FOLDER", folder)
    return "labels"


def write_earlier(url: str) -> None:
    """A database as a server of the first release left it."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(migrations.FOLDER))
        config.attributes["connection"] = connection
        tables = DATA / f"tables_of_first_release.{engine.dialect.name}.sql"
        for statement in tables.read_text().splitlines():
            connection.exec_driver_sql(statement)
        command.stamp(config, FIRST)
        found = sa.MetaData()
        found.reflect(connection)
        for name, rows in ROWS.items():
            counted = {"id"} if name in COUNTED else set()
            known = [{key: value for key, value in row.items() if key not in counted} for row in rows]
            connection.execute(found.tables[name].insert(), known)
    engine.dispose()


def revision_of(url: str) -> str | None:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    engine.dispose()
    return found


def test_a_database_of_an_earlier_revision_is_upgraded_and_gone_on_with(database_url: str, next_step: str) -> None:
    write_earlier(database_url)
    store = Store(database_url)
    assert {info.id: info.state for info in store.jobs.ended_jobs(10)} == {"done": "succeeded", "failed": "failed"}
    assert len(store.jobs.ended_jobs(10, JobFilter(queue="default"))) == 2
    assert {wait.job for wait in store.start_waits.longest(WaitFilter(0.0, 1e12), 10)} == {"done", "failed"}
    assert store.jobs.repeated("done") is not None
    assert [user.name for user in AccountStore(store.database).users()] == ["ada", "bob"]
    clock, world = Clock(2_000_000.0), World()
    world.tasks[TaskId("running", 1, 0)] = None
    world.starts[TaskId("running", 1, 0)] = 1
    engine = WorldEngine(world, clock)
    loop = Loop(JobCache())
    processor = TurnProcessor(store, recover(store), loop, LoopDependencies(clock=clock))
    scheduler = SchedulerThread(loop, processor)
    scheduler.settle(engine)
    scheduler.turn(0.0)
    assert {info.id: info.state for info in loop.job_cache.newest_first()} == {
        "running": "running",
        "waiting": "queued",
    }
    engine.finish(TaskId("running", 1, 0))
    scheduler.turn(0.0)
    scheduler.turn(0.0)
    assert loop.job_cache.get("waiting").state == "running"  # type: ignore[union-attr]
    assert max(world.starts.values()) == 1
    store.close()
    assert revision_of(database_url) == next_step


def test_upgrades_lead_to_the_tables_that_the_code_expects(database_url: str) -> None:
    write_earlier(database_url)
    Store(database_url).close()
    engine = sa.create_engine(database_url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_the_database_as_it_was_is_kept_beside_the_upgraded_one(tmp_path: Path, next_step: str) -> None:
    url = sqlite_url(tmp_path / "millpond.db")
    write_earlier(url)
    Store(url).close()
    kept = tmp_path / f"millpond.db.before-{FIRST}"
    assert kept.stat().st_mode & 0o077 == 0
    assert revision_of(f"sqlite:///{kept}") == FIRST
    assert revision_of(url) == next_step
    assert sorted(path.name for path in tmp_path.iterdir()) == ["millpond.db", kept.name]


def test_a_database_that_is_up_to_date_is_not_copied(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "millpond.db")
    for _ in range(2):
        Store(url).close()
    assert [path.name for path in tmp_path.iterdir()] == ["millpond.db"]


@pytest.mark.usefixtures("next_step")
def test_an_upgrade_that_fails_leaves_the_database_as_it_was(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_earlier(database_url)

    real = op.create_table

    def fail_midway(name: str, *columns: Any) -> Any:
        if name == "labels":
            raise RuntimeError("the power went out")
        return real(name, *columns)

    monkeypatch.setattr(op, "create_table", fail_midway)
    with pytest.raises(UnavailableError, match=r"cannot be upgraded \(the power went out\).* is as it was"):
        Store(database_url)
    assert revision_of(database_url) == FIRST
    monkeypatch.setattr(op, "create_table", real)
    store = Store(database_url)
    assert len(store.jobs.ended_jobs(10)) == 2
    store.close()


def test_a_first_start_that_was_killed_midway_does_not_keep_the_next_from_starting(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "millpond.db")

    def end_midway(*_: object, **_fields: object) -> None:
        raise KeyboardInterrupt

    sa.event.listen(time_series, "before_create", end_midway)
    try:
        with pytest.raises(KeyboardInterrupt):
            Store(url)
    finally:
        sa.event.remove(time_series, "before_create", end_midway)
    Store(url).close()
    assert revision_of(url) == migrations.newest_revision()


def test_a_start_that_fails_holds_no_room_of_a_full_disk_by_files_that_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_midway(*_: object, **_fields: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        raise sa.exc.OperationalError("CREATE TABLE", None, error)

    monkeypatch.setattr(metadata, "create_all", end_midway)
    with pytest.raises(UnavailableError) as caught:
        database.connect(sqlite_url(tmp_path / "x.db"), None)
    held = [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]
    assert not [path for path in held if ".upgrading" in path], "while the error is told"
    assert "cannot be opened" in caught.value.cause


def test_a_database_of_a_newer_version_is_refused_and_not_touched(database_url: str) -> None:
    write_earlier(database_url)
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'from_the_future'"))
    engine.dispose()
    with pytest.raises(UnavailableError) as caught:
        Store(database_url)
    assert "the database is at 'from_the_future', which this version does not know" in caught.value.cause
    assert "was written by a newer Millpond (0.1.0), or by one from before the first release" in caught.value.cause
    assert "start it with that version, or restore a backup" in caught.value.remedy
    assert revision_of(database_url) == "from_the_future"


@pytest.mark.parametrize("change", ["DELETE FROM alembic_version", "DROP TABLE alembic_version"])
def test_a_database_that_does_not_say_of_which_version_it_is_is_refused_and_not_touched(
    database_url: str, change: str
) -> None:
    write_earlier(database_url)
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(sa.text(change))
    with pytest.raises(UnavailableError) as caught:
        Store(database_url)
    assert "tables of Millpond, and does not say of which version (alembic_version)" in caught.value.cause
    assert "restore a backup" in caught.value.remedy
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM jobs")).scalar_one() > 0
    engine.dispose()


@pytest.mark.usefixtures("next_step")
def test_a_state_of_an_earlier_format_is_refused_before_anything_is_changed(database_url: str) -> None:
    write_earlier(database_url)
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        (row,) = ROWS["snapshots"]
        data = json.loads(row["data"])
        data["scheduler"]["format"] = 1
        connection.execute(sa.text("UPDATE snapshots SET data = :data"), {"data": json.dumps(data)})
    engine.dispose()
    with pytest.raises(UnavailableError) as caught:
        Store(database_url)
    assert "is of format 1, by Millpond 0.1.0; this one reads format 4 alone" in caught.value.cause
    assert "under the version that wrote it" in caught.value.remedy
    assert revision_of(database_url) == FIRST


def test_a_database_that_another_program_still_reads_is_upgraded_once_that_has_ended(
    tmp_path: Path, next_step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "millpond.db"
    url = sqlite_url(path)
    write_earlier(url)
    monkeypatch.setattr(upgrades, "_READERS_END_WITHIN_MS", 0)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("PRAGMA journal_mode=WAL")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM jobs").fetchall()
        with closing(sqlite3.connect(path)) as writer, writer:
            writer.execute("UPDATE users SET name = name")
        with pytest.raises(UnavailableError, match=r"database is locked.* as it was") as caught:
            Store(url)
        assert "end the programs that read it" in caught.value.remedy
    Store(url).close()
    assert revision_of(url) == next_step
    with closing(sqlite3.connect(path)) as whole:
        assert whole.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
