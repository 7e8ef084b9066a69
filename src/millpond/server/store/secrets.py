"""Secrets in the database. The caller encrypts them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import sqlalchemy as sa

from millpond.server.store import schema
from millpond.server.store.tables import TableStore


@dataclass(frozen=True, slots=True)
class SecretRow:
    """A secret as it is kept.

    Attributes:
        kind, owner: whose it is: ``user``, ``group`` or ``server``, and the name; that of the server is empty.
        cipher: what it is sealed with.
        sealed: base64 of nonce, content and tag.
        by, at: who set it last, and when.
    """

    kind: str
    owner: str
    name: str
    cipher: str
    sealed: str
    by: str
    at: float


class SecretStore(TableStore):
    """The table of secrets of one open database."""

    def save(self, row: SecretRow) -> None:
        """Keep a secret instead of the one of the same owner and name."""
        self._save((schema.secrets, dataclasses.asdict(row)))

    def find(self, kind: str, owner: str, name: str) -> SecretRow | None:
        """One secret; None when there is none."""
        row = self._first(sa.select(schema.secrets).where(_is(kind, owner, name)))
        return None if row is None else SecretRow(**row._mapping)

    def all(self) -> list[SecretRow]:
        """All of them, by owner and name."""
        table = schema.secrets
        query = sa.select(table).order_by(table.c.kind, table.c.owner, table.c.name)
        return [SecretRow(**row._mapping) for row in self._rows(query)]

    def others_of(self, kind: str, owner: str, name: str) -> int:
        """How many secrets of other names an owner has."""
        table = schema.secrets
        theirs = sa.and_(table.c.kind == kind, table.c.owner == owner, table.c.name != name)
        row = self._first(sa.select(sa.func.count()).select_from(table).where(theirs))
        return 0 if row is None else int(row[0])

    def drop(self, kind: str, owner: str, name: str) -> bool:
        """Forget a secret; false when there is none."""
        return self._execute(schema.secrets.delete().where(_is(kind, owner, name))) > 0


def _is(kind: str, owner: str, name: str) -> sa.ColumnElement[bool]:
    table = schema.secrets
    return sa.and_(table.c.kind == kind, table.c.owner == owner, table.c.name == name)
