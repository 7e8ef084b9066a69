"""Deliveries in the store: written with the turn that they come from, kept until delivered or given up.

A delivery goes to a webhook of the configuration, or to a user by mail or by a webhook of theirs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from millpond.server.store.schema import deliveries
from millpond.server.store.tables import TableStore

WAITING, DELIVERED, GIVEN_UP = "waiting", "delivered", "given up"
WEBHOOK, MAIL, CHAT = "webhook", "mail", "chat"
"""The channels."""
MOST_AHEAD_S: Final = 7_200.0
"""No pause is longer: what is due later was put off before the clock was set back, and is due now."""
_IDS_AT_ONCE: Final = 500
"""SQLite takes no more than so many values of a statement for granted."""


@dataclass(frozen=True, slots=True)
class Target:
    """Who gets a delivery.

    Attributes:
        channel: ``webhook``, ``mail`` or ``chat``.
        name: of the webhook of the configuration; for mail and chat, of the user.
    """

    channel: str
    name: str


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """A notice for one receiver.

    Attributes:
        at: when it happened.
        due_at: when it is tried first; None: at once.
        key: by which the same is known again; empty: it cannot come twice.
    """

    target: Target
    at: float
    notice: dict[str, Any]
    text: str
    due_at: float | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The same, with what became of it so far.

    Attributes:
        due_at: when it is tried next.
        trouble: what went wrong last.
    """

    id: int
    target: Target
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
        connection.execute(deliveries.insert(), [_row(one) for one in fresh])


def forget(connection: sa.Connection, before: float) -> None:
    """Drop what was settled before an instant."""
    connection.execute(deliveries.delete().where(deliveries.c.state != WAITING, deliveries.c.at < before))


class DeliveryStore(TableStore):
    """The deliveries of one open database. Any thread."""

    def add(self, fresh: Sequence[NewDelivery]) -> list[NewDelivery]:
        """Keep those whose target has none of the same key yet; returns these."""
        with self._engine.begin() as connection:
            kept = [one for one in fresh if not one.key or not _is_there(connection, one)]
            write_new(connection, kept)
        return kept

    def add_one(self, fresh: NewDelivery) -> Delivery:
        """Keep one, whatever there is already."""
        with self._engine.begin() as connection:
            number = connection.execute(deliveries.insert().values(_row(fresh))).inserted_primary_key
            assert number is not None
            return _delivery(connection.execute(_of_number(number[0])).one())

    def find(self, number: int) -> Delivery | None:
        """One, while it is kept."""
        return next((_delivery(row) for row in self._rows(_of_number(number))), None)

    def due_targets(self, channels: Collection[str], now: float) -> list[Target]:
        """For whom something is to be delivered now, those whose oldest delivery is oldest first."""
        waits = (deliveries.c.state == WAITING, _is_due(now), deliveries.c.channel.in_(channels))
        query = sa.select(deliveries.c.channel, deliveries.c.hook).where(*waits)
        found = query.group_by(deliveries.c.channel, deliveries.c.hook).order_by(sa.func.min(deliveries.c.id))
        return [Target(channel, name) for channel, name in self._rows(found)]

    def waiting_for(self, target: Target, limit: int) -> list[Delivery]:
        """All that waits for a target, due or not, oldest first."""
        query = sa.select(deliveries).where(deliveries.c.state == WAITING, *_for(target))
        return [_delivery(row) for row in self._rows(query.order_by(deliveries.c.id).limit(limit))]

    def due_for(self, target: Target, now: float, limit: int) -> list[Delivery]:
        """What is to be delivered to a target now, oldest first."""
        query = sa.select(deliveries).where(deliveries.c.state == WAITING, _is_due(now), *_for(target))
        return [_delivery(row) for row in self._rows(query.order_by(deliveries.c.id).limit(limit))]

    def next_due(self, channels: Collection[str], after: float) -> float | None:
        """When more comes due than is due at an instant; None when nothing does."""
        waits = (deliveries.c.state == WAITING, deliveries.c.due_at > after, deliveries.c.channel.in_(channels))
        return self._value(sa.select(sa.func.min(deliveries.c.due_at)).where(*waits))

    def tried(self, numbers: Sequence[int], state: str, due_at: float, trouble: str) -> None:
        """Note one more try of some that were tried together, as one transaction.

        Args:
            due_at: when they are tried next, or were settled.
        """
        change = {"state": state, "tries": deliveries.c.tries + 1, "due_at": due_at, "trouble": trouble}
        parts = [numbers[begin : begin + _IDS_AT_ONCE] for begin in range(0, len(numbers), _IDS_AT_ONCE)]
        chosen = [deliveries.c.id.in_(part) for part in parts]
        self._execute(*(deliveries.update().where(these).values(change) for these in chosen))

    def put_off(self, target: Target, until: float) -> None:
        """Try nothing that waits for a target before an instant; that counts as no try."""
        table = deliveries
        waits = (table.c.state == WAITING, *_for(target), table.c.due_at < until)
        self._execute(table.update().where(*waits).values(due_at=until))

    def delivered_since(self, since: float) -> dict[Target, float]:
        """When users were last sent something, of those who were since an instant."""
        latest = sa.func.max(deliveries.c.due_at)
        query = sa.select(deliveries.c.channel, deliveries.c.hook, latest).where(
            deliveries.c.state == DELIVERED, deliveries.c.due_at >= since, deliveries.c.channel != WEBHOOK
        )
        found = self._rows(query.group_by(deliveries.c.channel, deliveries.c.hook))
        return {Target(channel, name): at for channel, name, at in found}

    def latest(self, limit: int, user: str = "") -> list[Delivery]:
        """What was or is to be delivered, newest first.

        Args:
            user: only what is for this one; empty: all.
        """
        query = sa.select(deliveries).order_by(deliveries.c.id.desc()).limit(limit)
        if user:
            query = query.where(deliveries.c.channel != WEBHOOK, deliveries.c.hook == user)
        return [_delivery(row) for row in self._rows(query)]


def _of_number(number: int) -> sa.Select[Any]:
    return sa.select(deliveries).where(deliveries.c.id == number)


def _is_due(now: float) -> sa.ColumnElement[bool]:
    return sa.or_(deliveries.c.due_at <= now, deliveries.c.due_at > now + MOST_AHEAD_S)


def _for(target: Target) -> tuple[sa.ColumnElement[bool], ...]:
    return deliveries.c.channel == target.channel, deliveries.c.hook == target.name


def _is_there(connection: sa.Connection, one: NewDelivery) -> bool:
    query = sa.select(deliveries.c.id).where(*_for(one.target), deliveries.c.key == one.key).limit(1)
    return connection.execute(query).first() is not None


def _row(one: NewDelivery) -> dict[str, Any]:
    return {
        "channel": one.target.channel,
        "hook": one.target.name,
        "at": one.at,
        "notice": json.dumps(one.notice),
        "text": one.text,
        "state": WAITING,
        "tries": 0,
        "due_at": one.at if one.due_at is None else one.due_at,
        "trouble": "",
        "key": one.key,
    }


def _delivery(row: sa.Row[Any]) -> Delivery:
    return Delivery(
        row.id,
        Target(row.channel, row.hook),
        row.at,
        json.loads(row.notice),
        row.text,
        row.state,
        row.tries,
        row.due_at,
        row.trouble,
    )
