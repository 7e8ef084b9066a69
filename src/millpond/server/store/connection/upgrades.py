"""Give a new database its tables, and an older one those of this version: whole or not at all. The older one is kept.

SQLite: a copy is brought up to date and takes the database's place in one step; an older one stays beside it
(``millpond.db.before-REVISION``). PostgreSQL: all steps are one transaction, and a backup is its operator's business.
What this version could not go on from is refused before anything is touched.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from millpond.model.errors import UnavailableError
from millpond.server.store import migrations
from millpond.server.store.formats import check_format
from millpond.server.store.schema import metadata
from millpond.server.store.tables import RESTORE

log = logging.getLogger(__name__)

_SNAPSHOTS: Final = "snapshots"
_STANDS_STILL_MS: Final = 60_000
"""Between two steps of an upgrade, on a machine that has much else to do; then PostgreSQL undoes them all."""
_READERS_END_WITHIN_MS: Final = 10_000
"""Other programs that read an SQLite database, such as `pond backup`."""


def bring_up_to_date(engine: sa.Engine, open_file: Callable[[Path], sa.Engine]) -> None:
    """Give a database the tables of this version.

    Args:
        engine: of the database; connections to it may be closed.
        open_file: an engine on a SQLite file.

    Raises:
        UnavailableError: it was written by a newer version, or by one whose state this one cannot read, or does not say
            by which, or another program has it open, or it cannot be upgraded; it is as it was.
    """
    with engine.connect() as connection:
        revision = _revision(connection)
        if revision == migrations.newest_revision():
            return
        require_readable(connection)
        is_file = engine.dialect.name == "sqlite"
        if revision is None and not is_file:
            _upgrade(connection)
            return
    if revision is None:
        _make_tables(engine, open_file)
        return
    log.info("upgrading the database from %s to %s", revision, migrations.newest_revision())
    if is_file:
        _upgrade_file(engine, open_file, revision)
        return
    with engine.connect() as connection:
        try:
            _upgrade(connection)
        except Exception as error:
            raise _failed(error, "it is as it was") from error


def require_readable(connection: sa.Connection) -> None:
    """Refuse a database from which this version could not go on.

    Raises:
        UnavailableError: it was written by a newer version, or by one whose state this one cannot read, or does not say
            by which.
    """
    revision = _revision(connection)
    if revision is None:
        _check_tables(connection)
    else:
        _check_revision(connection, revision)
        _check_snapshot(connection)


def _revision(connection: sa.Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _make_tables(engine: sa.Engine, open_file: Callable[[Path], sa.Engine]) -> None:
    """Of a new file. SQLite commits each table by itself, and a first start may be killed between two of them."""
    path = Path(str(engine.url.database))
    with _upgraded_copy(engine, open_file) as fresh:
        fresh.replace(path)


def _upgrade_file(engine: sa.Engine, open_file: Callable[[Path], sa.Engine], revision: str) -> None:
    path = Path(str(engine.url.database))
    kept = path.with_name(f"{path.name}.before-{revision}")
    try:
        with _upgraded_copy(engine, open_file) as fresh:
            _keep(path, kept)
            fresh.replace(path)
    except UnavailableError:
        raise
    except Exception as error:
        raise _failed(error, f"{path} is as it was") from error
    log.info("the database as it was is kept in %s; remove it when all is well", kept)


@contextlib.contextmanager
def _upgraded_copy(engine: sa.Engine, open_file: Callable[[Path], sa.Engine]) -> Iterator[Path]:
    """A copy with the tables of this version, beside the database, which is one file from then on.

    Raises:
        UnavailableError: another program has the database open.
    """
    path = Path(str(engine.url.database))
    fresh = path.with_name(f"{path.name}.upgrading")
    _become_one_file(engine)
    try:
        _remove(fresh)
        _copy(path, fresh)
        copy = open_file(fresh)
        try:
            with copy.connect() as connection:
                _upgrade(connection)
        finally:
            copy.dispose()  # open files that are removed fill a full disk still, and nothing could be said of it
        yield fresh
    finally:
        _remove(fresh)


def _become_one_file(engine: sa.Engine) -> None:
    """Have the file alone be the whole database. What lies beside it would be taken for the new one's.

    Raises:
        UnavailableError: another program has it open.
    """
    try:
        with engine.connect() as connection:
            connection.execute(sa.text(f"PRAGMA busy_timeout={_READERS_END_WITHIN_MS}"))
            connection.execute(sa.text("PRAGMA journal_mode=DELETE"))
    except sa.exc.OperationalError as error:
        raise UnavailableError(
            f"{engine.url.database} cannot be upgraded ({error.orig}); it is as it was",
            "end the programs that read it (fuser lists them), then start again",
        ) from error
    finally:
        engine.dispose()


def _upgrade(connection: sa.Connection) -> None:
    """Make the tables of this version at once where there are none, else take the steps that are missing."""
    if connection.dialect.name == "postgresql":  # a start may stand still for longer than a leader's writes may
        connection.execute(sa.text(f"SET LOCAL idle_in_transaction_session_timeout = {_STANDS_STILL_MS}"))
        connection.execute(sa.text("SET LOCAL lock_timeout = 0"))  # and wait for a pg_dump
    config = _config()
    config.attributes["connection"] = connection
    if _revision(connection) is None:
        metadata.create_all(connection, checkfirst=False)
        command.stamp(config, "head")
    else:
        command.upgrade(config, "head")
    connection.commit()


def _check_revision(connection: sa.Connection, revision: str) -> None:
    """Refuse a database that a newer version wrote, or one from before the first release."""
    if revision in {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}:
        return
    writer = _last_writer(connection)
    raise UnavailableError(
        f"the database is at {revision!r}, which this version does not know (it goes to "
        f"{migrations.newest_revision()!r}): it was written by a newer Millpond{f' ({writer})' if writer else ''}, or "
        "by one from before the first release",
        "start it with that version, or restore a backup that this one wrote",
    )


def _check_tables(connection: sa.Connection) -> None:
    """Refuse a database with our tables and without their revision: neither making nor upgrading them would do."""
    found = metadata.tables.keys() & set(sa.inspect(connection).get_table_names())
    if found:
        raise UnavailableError(
            f"the database has {len(found)} tables of Millpond, and does not say of which version (alembic_version)",
            RESTORE,
        )


def _check_snapshot(connection: sa.Connection) -> None:
    """Refuse a scheduler's state that this version cannot read."""
    table = sa.table(_SNAPSHOTS, sa.column("seq"), sa.column("data"))
    text = connection.execute(sa.select(table.c.data).order_by(table.c.seq.desc()).limit(1)).scalar()
    if text is not None:
        check_format(json.loads(text)["scheduler"].get("format"), _last_writer(connection))


def _last_writer(connection: sa.Connection) -> str:
    table = sa.table(_SNAPSHOTS, sa.column("seq"), sa.column("version"))
    with contextlib.suppress(sa.exc.DBAPIError):  # a newer version may keep it elsewhere
        found = connection.execute(sa.select(table.c.version).order_by(table.c.seq.desc()).limit(1)).scalar()
        return str(found or "")
    return ""


def _failed(error: Exception, consequence: str) -> UnavailableError:
    return UnavailableError(
        f"the database cannot be upgraded ({error}); {consequence}",
        "go on with the version that wrote it, and report this",
    )


def _copy(source: Path, target: Path) -> None:
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
    with contextlib.closing(sqlite3.connect(source)) as origin, contextlib.closing(sqlite3.connect(target)) as copy:
        origin.backup(copy)


def _keep(path: Path, kept: Path) -> None:
    """The same file under another name, so that there is no moment without a database."""
    kept.unlink(missing_ok=True)
    try:
        kept.hardlink_to(path)
    except OSError:  # a file system without links
        shutil.copy2(path, kept)


def _remove(path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations.FOLDER))
    return config
