"""Lists of jobs that people have named, in the database."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import sqlalchemy as sa

from millpond.server.store import schema
from millpond.server.store.tables import TableStore


@dataclass(frozen=True, slots=True)
class SavedViewRow:
    """One of them.

    Attributes:
        user, group: whose it is; the other of the two is empty.
        query: that of the address of such a list.
        by, at: who saved it last, and when.
    """

    id: str
    user: str
    group: str
    name: str
    query: str
    by: str
    at: float


class SavedViewStore(TableStore):
    """The table of one open database."""

    def all(self) -> list[SavedViewRow]:
        """All of them, by name."""
        query = sa.select(schema.saved_views).order_by(schema.saved_views.c.name, schema.saved_views.c.id)
        return [SavedViewRow(**row._mapping) for row in self._rows(query)]

    def find(self, view: str) -> SavedViewRow | None:
        """One by its id; None when there is none."""
        row = self._first(sa.select(schema.saved_views).where(schema.saved_views.c.id == view))
        return None if row is None else SavedViewRow(**row._mapping)

    def save(self, row: SavedViewRow) -> None:
        """Keep one instead of that of the same id."""
        self._save((schema.saved_views, dataclasses.asdict(row)))

    def drop(self, view: str) -> None:
        """Forget one."""
        self._execute(schema.saved_views.delete().where(schema.saved_views.c.id == view))
