"""The base of the stores of all subjects: run one statement in a transaction of its own and return its rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from millpond.model.codec import from_plain
from millpond.model.errors import InvalidInputError

RESTORE: Final = "restore a backup of the database (pond restore)"


class TableStore:
    """Tables of one open database. Any thread; every call is a transaction."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def _rows(self, query: sa.Select[Any], **values: Any) -> Sequence[Any]:
        with self._engine.connect() as connection:
            return connection.execute(query, values).all()

    def _first(self, query: sa.Select[Any], **values: Any) -> Any | None:
        with self._engine.connect() as connection:
            return connection.execute(query, values).first()

    def _column(self, query: sa.Select[Any], **values: Any) -> list[Any]:
        """The first column of all rows."""
        return [row[0] for row in self._rows(query, **values)]

    def _value(self, query: sa.Select[Any], **values: Any) -> Any | None:
        """The first column of the first row; None where there is none."""
        row = self._first(query, **values)
        return None if row is None else row[0]

    def _execute(self, *statements: sa.Delete | sa.Insert | sa.Update) -> int:
        """Change something by one transaction; returns how many rows the last statement concerned."""
        with self._engine.begin() as connection:
            return [connection.execute(statement).rowcount for statement in statements][-1]

    def _texts(self, texts: Iterable[str]) -> sa.Select[Any]:
        """These texts as rows. They are one parameter, as databases take so many (PostgreSQL: 65,535) and no more."""
        listed = sa.literal(json.dumps(sorted(texts)), sa.Text)  # SQLite looks up those in order ten times as fast
        if self._engine.dialect.name == "postgresql":
            rows = sa.func.json_array_elements_text(sa.cast(listed, postgresql.JSON))
        else:
            rows = sa.func.json_each(listed)
        return sa.select(rows.table_valued("value").c.value)

    def _insert(self, table: sa.Table) -> Any:
        """An insertion for which can be said what happens with rows that are there (``on_conflict_do_update``)."""
        return (postgresql if self._engine.dialect.name == "postgresql" else sqlite).insert(table)

    def _save(self, *rows: tuple[sa.Table, Mapping[str, Any]]) -> None:
        """Have the tables hold these rows, all or none, in place of those with the same keys."""
        with self._engine.begin() as connection:
            for table, row in rows:
                insert = self._insert(table).values(row)
                connection.execute(insert.on_conflict_do_update(index_elements=table.primary_key, set_=row))


def plain_in(text: str, row: str) -> Any:
    """What a row holds.

    Args:
        row: what it is, for people: ``entry 7 of the log``.

    Raises:
        InvalidInputError: it is damaged.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInputError(f"{row} is damaged ({error})", RESTORE) from error


def value_in(text: str, row: str) -> Any:
    """The model value that a row holds.

    Raises:
        InvalidInputError: it is damaged, or a newer version wrote it.
    """
    plain = plain_in(text, row)
    try:
        return from_plain(plain)
    except InvalidInputError as error:
        raise InvalidInputError(f"{row} cannot be read ({error.cause})", error.remedy) from error
