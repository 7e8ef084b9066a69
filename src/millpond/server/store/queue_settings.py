"""Definitions of queues in the database: as changed while the server ran, and as last read from the configuration."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from millpond.server.store import schema
from millpond.server.store.stored_json import plain_in
from millpond.server.store.tables import TableStore


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue.

    Attributes:
        document: its fields as they are written in the configuration; None where it was deleted.
        applied: those that the configuration file had when they were applied last; None where it has no such queue.
        version: how often it was changed; it goes on counting when a queue of this name was deleted.
        by, at: who changed it last, empty for the configuration file, and when.
    """

    name: str
    document: dict[str, Any] | None
    applied: dict[str, Any] | None
    version: int
    by: str
    at: float


class QueueSettingsStore(TableStore):
    """The table of one open database."""

    def all(self) -> dict[str, QueueRow]:
        """All queues that were ever defined by the configuration file or by a request, by name.

        Raises:
            InvalidInputError: what one says is damaged.
        """
        table = schema.queue_settings
        rows = self._rows(sa.select(table).order_by(table.c.name))
        return {row.name: _queue(row) for row in rows}

    def save(self, rows: Iterable[QueueRow]) -> None:
        """Keep these, all or none, instead of those of the same names."""
        self._save(
            *(
                (
                    schema.queue_settings,
                    {
                        "name": row.name,
                        "document": json.dumps(row.document),
                        "applied": json.dumps(row.applied),
                        "version": row.version,
                        "by": row.by,
                        "at": row.at,
                    },
                )
                for row in rows
            )
        )


def _queue(row: sa.Row[Any]) -> QueueRow:
    what = f"what is stored of queue {row.name!r}"
    document, applied = plain_in(row.document, what), plain_in(row.applied, what)
    return QueueRow(row.name, document, applied, row.version, row.by, row.at)
