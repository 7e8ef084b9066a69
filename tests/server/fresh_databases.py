"""Databases as a first start leaves them: a process makes the tables once, every further one is a copy.

What upgrades do is for `test_upgrades.py`, which lets them run.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import sqlalchemy as sa

from millpond.server.store.connection.database import sqlite_url
from millpond.server.store.store import Store


def fresh_sqlite(state_dir: Path) -> str:
    """URL of the SQLite database of a state directory: the one that is there, else one with empty tables."""
    path = state_dir / "millpond.db"
    url = sqlite_url(path)
    if not path.stat().st_size:
        path.write_bytes(_with_empty_tables())
    return url


@cache
def _with_empty_tables() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "millpond.db"
        Store(sqlite_url(path)).close()
        return path.read_bytes()


def fresh_postgresql(url: str) -> str:
    """URL of a database with empty tables, in the PostgreSQL at this URL; the one before it is gone."""
    _call(url, "DROP DATABASE IF EXISTS copied WITH (FORCE)", f"CREATE DATABASE copied TEMPLATE {_filled(url)}")
    return _at(url, "copied")


@cache
def _filled(url: str) -> str:
    _call(url, "CREATE DATABASE filled")
    Store(_at(url, "filled")).close()
    return "filled"


def _at(url: str, database: str) -> str:
    return sa.make_url(url).set(database=database).render_as_string(hide_password=False)


def _call(url: str, *statements: str) -> None:
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()
