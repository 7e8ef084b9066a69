"""The audit log in the database: added to, and read."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from millpond.server.store import schema
from millpond.server.store.tables import TableStore


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One request that changed something, or was refused to.

    Attributes:
        user: who; for a failed login, who they said they were.
        address: from where.
        how: by what they showed who they are; empty when they did not.
        kind, object: what it was about: ``job``, ``train-abcde``.
        group: the group that the object belonged to; its leads see the entry.
        before, after: in short, what was and what is now; empty where the verb says it all.
        status: the HTTP status of the answer.
    """

    at: float
    user: str
    address: str
    how: str
    verb: str
    kind: str
    object: str
    group: str
    before: str
    after: str
    status: int


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

    def add(self, entries: Sequence[AuditEntry]) -> None:
        """Keep entries, in one transaction."""
        with self._engine.begin() as connection:
            connection.execute(schema.audit.insert(), [dataclasses.asdict(entry) for entry in entries])

    def find(self, question: AuditQuery) -> list[AuditEntry]:
        """Matching entries, the newest first."""
        table = schema.audit
        query = sa.select(*(table.c[field.name] for field in dataclasses.fields(AuditEntry)))
        query = query.where(table.c.at >= question.since)
        if question.user:
            query = query.where(table.c.user == question.user)
        if question.object:
            query = query.where(table.c.object == question.object)
        if question.groups is not None:
            query = query.where(table.c.group.in_(list(question.groups)))
        return [AuditEntry(*row) for row in self._rows(query.order_by(table.c.id.desc()).limit(question.limit))]
