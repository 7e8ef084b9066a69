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

_NUMBER: Final = sa.text("SELECT txid_current()")
_STATUS: Final = sa.text("SELECT txid_status(:number)")


class CommitInDoubtError(OperationalError):
    """The commit of a transaction got no answer: ``DurableWrites.is_durable`` finds out."""


class DurableWrites:
    """The transactions of one thread on one open database.

    Attributes:
        in_doubt: the number of a transaction whose outcome is not known; None mostly.
    """

    def __init__(self, database: sa.Engine) -> None:
        self.in_doubt: int | None = None
        self._database = database
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
