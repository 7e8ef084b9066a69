"""Transactions whose outcome has to be known: one whose commit got no answer may be durable, or not.

A connection that ends between a commit and its answer leaves that open. PostgreSQL knows it by the transaction's number
(``txid_status``); a file of SQLite has no way on which an answer could get lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError

from millpond.server.store.connection.leadership import Leadership

_NUMBER: Final = sa.text("SELECT txid_current()")
_STATUS: Final = sa.text("""
    SELECT CASE WHEN :number < txid_snapshot_xmax(txid_current_snapshot()) THEN txid_status(:number) END
""")
"""Null of a number that no transaction has had: of one that a database of an older state, such as a standby that was
promoted, never had."""


class CommitInDoubtError(OperationalError):
    """The commit of a transaction got no answer: ``DurableWrites.is_durable`` finds out."""


class DurableWrites:
    """The transactions of one thread on one open database.

    Args:
        leadership: learns what is durable; None for SQLite.

    Attributes:
        in_doubt: the number of a transaction whose outcome is not known; None mostly.
    """

    def __init__(self, database: sa.Engine, leadership: Leadership | None) -> None:
        self.in_doubt: int | None = None
        self._database = database
        self._leadership = leadership
        self._is_remote = database.dialect.name == "postgresql"

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """A transaction that is committed in the end.

        Raises:
            CommitInDoubtError: whether it is durable is open.
            DBAPIError: nothing of it is, as it failed, or as the outcome of an earlier one is still open.
        """
        if self.in_doubt is not None:
            raise _open("an earlier transaction is in doubt")
        with self._database.connect() as connection, connection.begin() as transaction:
            yield connection
            number = connection.execute(_NUMBER).scalar_one() if self._is_remote else None
            try:
                transaction.commit()
            except DBAPIError as error:
                if number is None or not error.connection_invalidated:
                    raise
                self.in_doubt = number
                raise CommitInDoubtError("COMMIT", None, error.orig or error) from error
            if self._leadership is not None:
                self._leadership.written_number = number or 0

    def is_durable(self) -> bool:
        """Whether the transaction in doubt is durable; the doubt is over then.

        Raises:
            DBAPIError: that is still open.
        """
        with self._database.connect() as connection:
            status = connection.execute(_STATUS, {"number": self.in_doubt}).scalar_one()
        if status == "in progress":
            raise _open("the database has not finished the latest transaction")
        self.in_doubt = None
        return bool(status == "committed")


def _open(why: str) -> OperationalError:
    return OperationalError("COMMIT", None, Exception(why))
