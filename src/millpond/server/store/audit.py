"""The audit log in the database: append and read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from millpond.server.store import schema
from millpond.server.store.tables import TableStore
from millpond.specs.api.accounts.accounts import AuditInfo


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Which entries are wanted; what is left empty asks for nothing in particular.

    Attributes:
        groups: only entries of these groups; None: of all, and of none.
    """

    user: str = ""
    since: float = 0.0
    object: str = ""
    groups: Collection[str] | None = None
    limit: int = 1000


class AuditStore(TableStore):
    """The audit table of one open database."""

    def add(self, entries: Sequence[AuditInfo]) -> None:
        """Keep entries, in one transaction."""
        with self._engine.begin() as connection:
            connection.execute(schema.audit.insert(), [entry.model_dump() for entry in entries])

    def find(self, question: AuditQuery) -> list[AuditInfo]:
        """Matching entries, the newest first."""
        table = schema.audit
        query = sa.select(*(table.c[name] for name in AuditInfo.model_fields))
        query = query.where(table.c.at >= question.since)
        if question.user:
            query = query.where(table.c.user == question.user)
        if question.object:
            query = query.where(table.c.object == question.object)
        if question.groups is not None:
            query = query.where(table.c.group.in_(list(question.groups)))
        return [
            AuditInfo(**row._mapping) for row in self._rows(query.order_by(table.c.id.desc()).limit(question.limit))
        ]
