"""Secrets in the database. The caller encrypts them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from millpond.server.store import schema
from millpond.server.store.tables import TableStore

_TABLE: Final = schema.secrets


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
        self._save((_TABLE, dataclasses.asdict(row)))

    def find(self, kind: str, owner: str, name: str) -> SecretRow | None:
        """One secret; None when there is none."""
        row = self._first(sa.select(_TABLE).where(_is(kind, owner, name)))
        return None if row is None else SecretRow(**row._mapping)

    def all(self) -> list[SecretRow]:
        """All of them, by owner and name."""
        query = sa.select(_TABLE).order_by(_TABLE.c.kind, _TABLE.c.owner, _TABLE.c.name)
        return [SecretRow(**row._mapping) for row in self._rows(query)]

    def others_of(self, kind: str, owner: str, name: str) -> int:
        """How many secrets of other names an owner has."""
        theirs = sa.and_(_TABLE.c.kind == kind, _TABLE.c.owner == owner, _TABLE.c.name != name)
        row = self._first(sa.select(sa.func.count()).select_from(_TABLE).where(theirs))
        return 0 if row is None else int(row[0])

    def drop(self, kind: str, owner: str, name: str) -> bool:
        """Forget a secret; false when there is none."""
        return self._execute(_TABLE.delete().where(_is(kind, owner, name))) > 0


def _is(kind: str, owner: str, name: str) -> sa.ColumnElement[bool]:
    return sa.and_(_TABLE.c.kind == kind, _TABLE.c.owner == owner, _TABLE.c.name == name)
