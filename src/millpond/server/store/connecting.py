"""Opening a database: SQLite in the state directory, or PostgreSQL by URL; brings its tables up to date."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from millpond.model.errors import UnavailableError

_MIGRATIONS: Final = Path(__file__).with_name("migrations")
_LOCK_KEY: Final = 0x4D494C4C
"""Advisory lock of the one server on a PostgreSQL database."""


def sqlite_url(path: Path) -> str:
    """URL of a SQLite file, which is created readable by its owner alone when it is not there.

    Raises:
        UnavailableError: it cannot be created.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise UnavailableError(f"cannot write {path} ({error.strerror})", "choose another state directory") from error
    return f"sqlite:///{path}"


def connect(url: str) -> sa.Engine:
    """An engine on an up-to-date database.

    Raises:
        UnavailableError: it cannot be reached, is held by another server, or was written by a newer Millpond.
    """
    shown = "the database"
    try:
        parsed = sa.make_url(url)
        shown = parsed.render_as_string(hide_password=True)
        engine = sa.create_engine(parsed)
        if engine.dialect.name == "sqlite":
            sa.event.listen(engine, "connect", _set_up_sqlite)
        with engine.connect() as connection:
            if not _is_current(connection):
                _upgrade(connection, shown)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        hint = "use sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME with the driver installed"
        raise UnavailableError(f"{shown} cannot be used ({error})", hint) from error
    except DBAPIError as error:
        raise UnavailableError(
            f"{shown} cannot be opened ({error.orig})", "check that it is there and whole"
        ) from error
    return engine


def hold(engine: sa.Engine) -> sa.Connection | None:
    """Keep other servers off a database that several machines can reach; None where the file lock does that.

    Raises:
        UnavailableError: another server holds it.
    """
    if engine.dialect.name != "postgresql":
        return None
    connection = engine.connect()
    got = connection.execute(sa.text("SELECT pg_try_advisory_lock(:key)"), {"key": _LOCK_KEY}).scalar_one()
    connection.commit()
    if not got:
        connection.close()
        raise UnavailableError("another server uses this database", "stop it, or give this one a database of its own")
    return connection


def newest_revision() -> str:
    """The last migration there is; their files are numbered in order."""
    script = max((_MIGRATIONS / "versions").glob("*.py")).read_text()
    found = re.search(r'^revision = "(.+)"$', script, re.MULTILINE)
    assert found is not None, "every migration has a revision"
    return found[1]


def _is_current(connection: sa.Connection) -> bool:
    """Whether nothing has to be done: the usual case, in which alembic need not even be imported."""
    try:
        found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalars().all()
    except DBAPIError:  # nothing of ours yet, or no database: the migrations will tell
        connection.rollback()
        return False
    return found == [newest_revision()]


def _upgrade(connection: sa.Connection, shown: str) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util.exc import CommandError

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise UnavailableError(f"{shown} was written by another version ({error})", "upgrade Millpond") from error
    connection.commit()


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    """Readers never block the writer; a commit is on disk when it returns."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
