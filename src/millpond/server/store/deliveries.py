"""Webhook deliveries in the store: written with the turn that they come from, kept until delivered or given up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from millpond.server.store.schema import deliveries
from millpond.server.store.tables import TableStore

WAITING, DELIVERED, GIVEN_UP = "waiting", "delivered", "given up"


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """A notice for one receiver."""

    hook: str
    at: float
    notice: dict[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """The same, with what became of it so far.

    Attributes:
        due_at: when it is tried next.
        trouble: what went wrong last.
    """

    id: int
    hook: str
    at: float
    notice: dict[str, Any]
    text: str
    state: str
    tries: int
    due_at: float
    trouble: str


def write_new(connection: sa.Connection, fresh: Sequence[NewDelivery]) -> None:
    """Add deliveries within the transaction of their turn."""
    if fresh:
        rows = [
            {
                "hook": one.hook,
                "at": one.at,
                "notice": json.dumps(one.notice),
                "text": one.text,
                "state": WAITING,
                "tries": 0,
                "due_at": one.at,
                "trouble": "",
            }
            for one in fresh
        ]
        connection.execute(deliveries.insert(), rows)


def forget(connection: sa.Connection, before: float) -> None:
    """Drop what was settled before an instant."""
    connection.execute(deliveries.delete().where(deliveries.c.state != WAITING, deliveries.c.at < before))


class DeliveryStore(TableStore):
    """The deliveries of one open database. Any thread."""

    def due(self, now: float, limit: int) -> list[Delivery]:
        """What is to be delivered now, oldest first."""
        waits = (deliveries.c.state == WAITING, deliveries.c.due_at <= now)
        query = sa.select(deliveries).where(*waits).order_by(deliveries.c.id).limit(limit)
        return [_delivery(row) for row in self._rows(query)]

    def next_due(self) -> float | None:
        """When something is to be delivered next; None when nothing waits."""
        query = sa.select(sa.func.min(deliveries.c.due_at)).where(deliveries.c.state == WAITING)
        return self._value(query)

    def tried(self, number: int, state: str, due_at: float, trouble: str) -> None:
        """Note one more try."""
        change = {"state": state, "tries": deliveries.c.tries + 1, "due_at": due_at, "trouble": trouble}
        self._execute(deliveries.update().where(deliveries.c.id == number).values(change))

    def latest(self, limit: int) -> list[Delivery]:
        """What was or is to be delivered, newest first."""
        query = sa.select(deliveries).order_by(deliveries.c.id.desc()).limit(limit)
        return [_delivery(row) for row in self._rows(query)]


def _delivery(row: sa.Row[Any]) -> Delivery:
    return Delivery(
        row.id, row.hook, row.at, json.loads(row.notice), row.text, row.state, row.tries, row.due_at, row.trouble
    )
