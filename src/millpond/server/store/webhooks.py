"""Webhooks that were added while the server ran, in the database. Their addresses are secrets, and not here."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from millpond.server.store import schema
from millpond.server.store.tables import TableStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WebhookRow:
    """One webhook.

    Attributes:
        document: its fields as they are written in the configuration, with the address as far as its host.
        by, at: who added it, and when.
    """

    name: str
    document: dict[str, Any]
    by: str
    at: float


class WebhookStore(TableStore):
    """The table of one open database."""

    def all(self) -> dict[str, WebhookRow]:
        """All that can be read, by name."""
        found = {}
        for row in self._rows(sa.select(schema.webhooks).order_by(schema.webhooks.c.name)):
            try:
                found[row.name] = WebhookRow(row.name, json.loads(row.document), row.by, row.at)
            except ValueError as error:
                log.error("the webhook %s is damaged (%s): add it again with `pond webhooks add`", row.name, error)
        return found

    def save(self, row: WebhookRow) -> None:
        """Keep one."""
        values = {"name": row.name, "document": json.dumps(row.document), "by": row.by, "at": row.at}
        self._save((schema.webhooks, values))

    def drop(self, name: str) -> None:
        """Forget one."""
        self._execute(schema.webhooks.delete().where(schema.webhooks.c.name == name))
