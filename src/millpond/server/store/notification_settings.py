"""What users are told of, in the database: read whole when the server starts, written user by user."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from millpond.server.store import schema
from millpond.server.store.tables import TableStore


class NotificationSettingsStore(TableStore):
    """The table of one open database."""

    def all(self) -> dict[str, dict[str, Any]]:
        """The settings of all users who have any, by name."""
        rows = self._rows(sa.select(schema.notification_settings))
        return {row.user: json.loads(row.document) for row in rows}

    def save(self, user: str, document: dict[str, Any]) -> None:
        """Keep the settings of a user instead of those before."""
        self._save((schema.notification_settings, {"user": user, "document": json.dumps(document)}))
