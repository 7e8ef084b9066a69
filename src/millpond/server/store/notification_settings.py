"""Notification settings of users in the database: all are read at the start, and each user's are written alone."""

from __future__ import annotations

import json
import logging
from typing import Any

import sqlalchemy as sa

from millpond.server.store import schema
from millpond.server.store.tables import TableStore

log = logging.getLogger(__name__)


class NotificationSettingsStore(TableStore):
    """The table of one open database."""

    def all(self) -> dict[str, dict[str, Any]]:
        """The settings of all users who have any that can be read, by name."""
        found = {}
        for row in self._rows(sa.select(schema.notification_settings)):
            try:
                found[row.user] = json.loads(row.document)
            except ValueError as error:
                log.error("what %s is told of is damaged (%s): choose it again with `pond notify`", row.user, error)
        return found

    def save(self, user: str, document: dict[str, Any]) -> None:
        """Keep the settings of a user instead of those before."""
        self._save((schema.notification_settings, {"user": user, "document": json.dumps(document)}))
