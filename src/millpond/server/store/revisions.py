"""Revisions of services in the database: read whole when the server starts, written record by record."""

from __future__ import annotations

import dataclasses
import json

import sqlalchemy as sa

from millpond.server.serving.revisions import Phase, Revision
from millpond.server.store import schema


class RevisionStore:
    """The table of one open database. Every ``save`` is a transaction."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def save(self, *revisions: Revision) -> None:
        """Keep these as they are now, all or none."""
        table = schema.revisions
        with self._engine.begin() as connection:
            for revision in revisions:
                row = {field.name: getattr(revision, field.name) for field in dataclasses.fields(revision)}
                row |= {"document": json.dumps(revision.document), "phase": revision.phase.value}
                this = (table.c.service == revision.service, table.c.number == revision.number)
                changed = connection.execute(table.update().where(*this).values(row))
                if changed.rowcount == 0:
                    connection.execute(table.insert().values(row))

    def all(self) -> list[Revision]:
        """All of them, service by service, the first first."""
        table = schema.revisions
        query = sa.select(table).order_by(table.c.service, table.c.number)
        with self._engine.connect() as connection:
            rows = [dict(row) for row in connection.execute(query).mappings()]
        return [
            Revision(**{**row, "document": json.loads(row["document"]), "phase": Phase(row["phase"])}) for row in rows
        ]

    def forget(self) -> None:
        """Drop services of which no job is known any more."""
        table, jobs = schema.revisions, schema.jobs
        with self._engine.begin() as connection:
            known = sa.select(table.c.service).join(jobs, jobs.c.id == table.c.job).where(jobs.c.document != "{}")
            coming = sa.select(table.c.service).where(table.c.phase.in_([phase for phase in Phase if phase.coming]))
            gone = table.c.service.not_in(known), table.c.service.not_in(coming)
            connection.execute(table.delete().where(*gone))
