"""Room that an SQLite database keeps within itself, so that jobs can be stopped, and end, on a disk that is full.

It is kept inside the database because whatever fills the disk takes all that is free on it: a file that is removed in
need is gone to a program that tries to write again and again before the database has asked for its blocks.

Two files need room. The database has it as free pages, which new rows take first
(https://www.sqlite.org/fileformat2.html, section 1.5). Its write-ahead log has it by having been large once: after a
checkpoint it is written again from the beginning and not cut (https://www.sqlite.org/pragma.html, journal_size_limit).
Rows that are written and dropped again give both. PostgreSQL has no such way; its disk is its operator's.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

import sqlalchemy as sa

RESERVE_BYTES: Final = 4 * 2**20
"""A stop and an end take a few KiB; this is room for about a thousand of each."""
_REFILLED_BELOW: Final = RESERVE_BYTES // 2
_FREE_PAGES: Final = "PRAGMA freelist_count"
_PAGE_SIZE: Final = "PRAGMA page_size"
_AT_ONCE: Final = RESERVE_BYTES // 4
"""Others write in between."""


def kept_within(database: Path) -> int | None:
    """How much of the reserve of an SQLite file is there, for who has no server; None where none has it open."""
    log = _log_of(database)
    if not log.exists():
        return None
    with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        (pages,), (size,) = (connection.execute(text).fetchone() for text in (_FREE_PAGES, _PAGE_SIZE))
    return min(int(pages * size), log.stat().st_size)


def _log_of(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


class Reserve:
    """What one database keeps free within itself; any thread.

    Args:
        engine: of the database; one that is not SQLite keeps nothing.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        path = engine.url.database
        self._log = _log_of(Path(path)) if engine.dialect.name == "sqlite" and path else None

    def kept_bytes(self) -> int:
        """How much of the reserve is there: the lesser of the two rooms.

        Raises:
            DBAPIError: the database cannot be read.
        """
        if self._log is None:
            return 0
        with self._engine.connect() as connection:
            pages, size = (connection.execute(sa.text(text)).scalar_one() for text in (_FREE_PAGES, _PAGE_SIZE))
        log = self._log.stat().st_size if self._log.exists() else 0
        return min(int(pages * size), log)

    def refill(self) -> bool:
        """Make it whole again where half of it is gone; says whether there was anything to do.

        Raises:
            DBAPIError: there is no room for it.
        """
        if self._log is None or self.kept_bytes() >= _REFILLED_BELOW:
            return False
        with self._engine.connect() as connection:
            self._execute(connection, "DROP TABLE IF EXISTS reserve")  # of a server that was killed while it did this
            self._execute(connection, "CREATE TABLE reserve (room BLOB)")
            for _ in range(RESERVE_BYTES // _AT_ONCE):
                self._execute(connection, f"INSERT INTO reserve VALUES (zeroblob({_AT_ONCE}))")
            self._execute(connection, "DROP TABLE reserve")
        return True

    @staticmethod
    def _execute(connection: sa.Connection, statement: str) -> None:
        with connection.begin():
            connection.execute(sa.text(statement))
