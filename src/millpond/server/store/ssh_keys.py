"""Public keys in the database: read whole when the server starts, written one by one."""

from __future__ import annotations

import dataclasses

import sqlalchemy as sa

from millpond.server.auth.records import SshKey
from millpond.server.store import schema
from millpond.server.store.tables import TableStore


class SshKeyStore(TableStore):
    """The keys' table of one open database."""

    def all(self) -> list[SshKey]:
        """All keys, the oldest first."""
        table = schema.ssh_keys
        return [SshKey(**row._mapping) for row in self._rows(sa.select(table).order_by(table.c.created_at, table.c.id))]

    def save(self, key: SshKey) -> None:
        """Keep a key as it is now."""
        self._save((schema.ssh_keys, dataclasses.asdict(key)))

    def drop(self, key_id: str) -> None:
        """Forget a key."""
        table = schema.ssh_keys
        self._execute(table.delete().where(table.c.id == key_id))
