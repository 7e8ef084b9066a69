"""Revisions of services in the database: read whole when the server starts, written record by record."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import sqlalchemy as sa

from millpond.server.serving.revisions import Phase, Revision
from millpond.server.store import schema
from millpond.server.store.tables import TableStore


class RevisionStore(TableStore):
    """The table of one open database. Every ``save`` is a transaction."""

    def save(self, *revisions: Revision) -> None:
        """Keep these as they are now, all or none."""
        self._save(*((schema.revisions, _row(revision)) for revision in revisions))

    def all(self) -> list[Revision]:
        """All of them, service by service, the first first."""
        table = schema.revisions
        query = sa.select(table).order_by(table.c.service, table.c.number)
        return [
            Revision(**{**row._mapping, "document": json.loads(row.document), "phase": Phase(row.phase)})
            for row in self._rows(query)
        ]

    def forget(self) -> None:
        """Drop services of which no job is known any more."""
        table, jobs = schema.revisions, schema.jobs
        known = sa.select(table.c.service).join(jobs, jobs.c.id == table.c.job).where(jobs.c.document != "{}")
        coming = sa.select(table.c.service).where(table.c.phase.in_([phase for phase in Phase if phase.coming]))
        self._execute(table.delete().where(table.c.service.not_in(known), table.c.service.not_in(coming)))


def _row(revision: Revision) -> dict[str, Any]:
    row = {field.name: getattr(revision, field.name) for field in dataclasses.fields(revision)}
    return row | {"document": json.dumps(revision.document), "phase": revision.phase.value}
