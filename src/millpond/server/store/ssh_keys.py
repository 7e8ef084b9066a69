"""Public keys in the database: read whole when the server starts, written one by one."""

from __future__ import annotations

import dataclasses

import sqlalchemy as sa

from millpond.server.auth.records import SshKey
from millpond.server.store import schema


class SshKeyStore:
    """The keys' table of one open database."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def all(self) -> list[SshKey]:
        """All keys, the oldest first."""
        table = schema.ssh_keys
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(table).order_by(table.c.created_at, table.c.id))
            return [SshKey(**row._mapping) for row in rows]

    def save(self, key: SshKey) -> None:
        """Keep a key as it is now."""
        table, row = schema.ssh_keys, dataclasses.asdict(key)
        with self._engine.begin() as connection:
            if connection.execute(table.update().where(table.c.id == key.id).values(row)).rowcount == 0:
                connection.execute(table.insert().values(row))

    def drop(self, key_id: str) -> None:
        """Forget a key."""
        table = schema.ssh_keys
        with self._engine.begin() as connection:
            connection.execute(table.delete().where(table.c.id == key_id))
