"""What was set while the server ran, in the database: queues, webhooks, notifications, saved views and secrets."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from millpond.server.store import schema
from millpond.server.store.tables import TableStore, plain_in
from millpond.specs.api.jobs.saved_views import SavedViewInfo

log = logging.getLogger(__name__)

_SECRETS: Final = schema.secrets


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
    """Definitions of queues: as changed while the server ran, and as last read from the configuration."""

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
                    dataclasses.asdict(row)
                    | {"document": json.dumps(row.document), "applied": json.dumps(row.applied)},
                )
                for row in rows
            )
        )


def _queue(row: sa.Row[Any]) -> QueueRow:
    what = f"what is stored of queue {row.name!r}"
    document, applied = plain_in(row.document, what), plain_in(row.applied, what)
    return QueueRow(row.name, document, applied, row.version, row.by, row.at)


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
    """Webhooks that were added while the server ran. Their addresses are secrets, and not here."""

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
        self._save((schema.webhooks, dataclasses.asdict(row) | {"document": json.dumps(row.document)}))

    def drop(self, name: str) -> None:
        """Forget one."""
        self._execute(schema.webhooks.delete().where(schema.webhooks.c.name == name))


class NotificationSettingsStore(TableStore):
    """What users are told of: all is read at the start, and each user's is written alone."""

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


class SavedViewStore(TableStore):
    """Saved views (named lists of jobs)."""

    def all(self) -> list[SavedViewInfo]:
        """All of them, by name."""
        query = sa.select(schema.saved_views).order_by(schema.saved_views.c.name, schema.saved_views.c.id)
        return [SavedViewInfo(**row._mapping) for row in self._rows(query)]

    def find(self, view: str) -> SavedViewInfo | None:
        """One by its id; None when there is none."""
        row = self._first(sa.select(schema.saved_views).where(schema.saved_views.c.id == view))
        return None if row is None else SavedViewInfo(**row._mapping)

    def save(self, row: SavedViewInfo) -> None:
        """Keep one instead of that of the same id."""
        self._save((schema.saved_views, dataclasses.asdict(row)))

    def drop(self, view: str) -> None:
        """Forget one."""
        self._execute(schema.saved_views.delete().where(schema.saved_views.c.id == view))


@dataclass(frozen=True, slots=True)
class SecretRow:
    """A secret as it is kept.

    Attributes:
        kind, owner: whose it is: ``user``, ``group`` or ``server``, and the name; that of the server is empty.
        cipher: what it is sealed with.
        sealed: base64 of nonce, content and tag.
        by, at: who set it last, and when.
    """

    kind: str
    owner: str
    name: str
    cipher: str
    sealed: str
    by: str
    at: float


class SecretStore(TableStore):
    """Secrets of users, groups and the server. The caller encrypts them."""

    def save(self, row: SecretRow) -> None:
        """Keep a secret instead of the one of the same owner and name."""
        self._save((_SECRETS, dataclasses.asdict(row)))

    def find(self, kind: str, owner: str, name: str) -> SecretRow | None:
        """One secret; None when there is none."""
        row = self._first(sa.select(_SECRETS).where(_is_secret(kind, owner, name)))
        return None if row is None else SecretRow(**row._mapping)

    def all(self) -> list[SecretRow]:
        """All of them, by owner and name."""
        query = sa.select(_SECRETS).order_by(_SECRETS.c.kind, _SECRETS.c.owner, _SECRETS.c.name)
        return [SecretRow(**row._mapping) for row in self._rows(query)]

    def others_of(self, kind: str, owner: str, name: str) -> int:
        """How many secrets of other names an owner has."""
        theirs = sa.and_(_SECRETS.c.kind == kind, _SECRETS.c.owner == owner, _SECRETS.c.name != name)
        row = self._first(sa.select(sa.func.count()).select_from(_SECRETS).where(theirs))
        return 0 if row is None else int(row[0])

    def drop(self, kind: str, owner: str, name: str) -> bool:
        """Forget a secret; false when there is none."""
        return self._execute(_SECRETS.delete().where(_is_secret(kind, owner, name))) > 0


def _is_secret(kind: str, owner: str, name: str) -> sa.ColumnElement[bool]:
    return sa.and_(_SECRETS.c.kind == kind, _SECRETS.c.owner == owner, _SECRETS.c.name == name)
