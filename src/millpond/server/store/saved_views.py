"""Saved views (named lists of jobs) in the database."""

from __future__ import annotations

import dataclasses

import sqlalchemy as sa

from millpond.server.store import schema
from millpond.server.store.tables import TableStore
from millpond.specs.api.jobs.saved_views import SavedViewInfo


class SavedViewStore(TableStore):
    """The table of one open database."""

    def all(self) -> list[SavedViewInfo]:
        """All of them, by name."""
        query = sa.select(schema.saved_views).order_by(schema.saved_views.c.name, schema.saved_views.c.id)
        return [SavedViewInfo(**row._mapping) for row in self._rows(query)]

    def find(self, view: str) -> SavedViewInfo | None:
        """One by its id; None when there is none."""
        row = self._first(sa.select(schema.saved_views).where(schema.saved_views.c.id == view))
        return None if row is None else SavedViewInfo(**row._mapping)

    def save(self, row: SavedViewInfo) -> None:
        """Keep one instead of that of the same id."""
        self._save((schema.saved_views, dataclasses.asdict(row)))

    def drop(self, view: str) -> None:
        """Forget one."""
        self._execute(schema.saved_views.delete().where(schema.saved_views.c.id == view))
