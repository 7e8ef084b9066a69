"""What the log and the decisions say: of one job, of one node, or of late."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from millpond.model.codec import from_plain
from millpond.model.decisions import Decision
from millpond.model.events import (
    DeviceHealthChanged,
    Event,
    LoadSampled,
    NodeClosed,
    NodeJoined,
    NodeLost,
    NodeOpened,
    Tick,
)
from millpond.server.store.schema import decisions, events

_SILENT: Final = (Tick.__name__, LoadSampled.__name__)
"""Events that are not shown."""
_OF_NODES: Final = tuple(kind.__name__ for kind in (NodeJoined, NodeLost, NodeClosed, NodeOpened, DeviceHealthChanged))


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An event at its place in the log; ``job`` is the job it concerns, for histories."""

    seq: int
    event: Event
    job: str = ""


@dataclass(frozen=True, slots=True)
class DecisionEntry:
    """A decision and the log entry (a tick) at which it was taken."""

    seq: int
    at: float
    decision: Decision


History = tuple[list[LogEntry], list[DecisionEntry]]
"""A part of what happened, and of what was decided, oldest first."""


def of_job(connection: sa.Connection, job: str) -> History:
    """Everything about one job."""
    happened = _events(connection, sa.select(events).where(events.c.job == job).order_by(events.c.seq))
    decided = _decisions(connection, sa.select(decisions).where(decisions.c.job == job).order_by(decisions.c.id))
    return happened, decided


def of_node(connection: sa.Connection, node: str, most: int) -> History:
    """The latest about one node."""
    query = sa.select(events).where(
        events.c.type.in_(_OF_NODES), events.c.data.contains(json.dumps(node), autoescape=True)
    )
    found = _events(connection, query.order_by(events.c.seq.desc()))
    mine = [entry for entry in found if node_of(entry.event) == node]
    return mine[:most][::-1], []


def of_late(connection: sa.Connection, most: int) -> History:
    """The latest about everything: at most so many of what happened, and what was decided in the same time."""
    query = sa.select(events).where(events.c.type.not_in(_SILENT)).order_by(events.c.seq.desc()).limit(most)
    happened = _events(connection, query)[::-1]
    since = happened[0].seq if happened else 0
    return _with_decisions(connection, happened, decisions.c.seq >= since)


def after(connection: sa.Connection, seq: int, most: int) -> History:
    """The first about everything behind a place in the log."""
    query = sa.select(events).where(events.c.type.not_in(_SILENT), events.c.seq > seq)
    happened = _events(connection, query.order_by(events.c.seq).limit(most))
    in_time = decisions.c.seq > seq
    if len(happened) == most:
        in_time = sa.and_(in_time, decisions.c.seq <= happened[-1].seq)
    return _with_decisions(connection, happened, in_time)


def _with_decisions(connection: sa.Connection, happened: list[LogEntry], condition: sa.ColumnElement[bool]) -> History:
    return happened, _decisions(connection, sa.select(decisions).where(condition).order_by(decisions.c.id))


def by_id(connection: sa.Connection, numbers: Iterable[int]) -> dict[int, Decision]:
    """Decisions by their ids."""
    found = _decisions(connection, sa.select(decisions).where(decisions.c.id.in_(sorted(numbers))))
    return {entry.decision.id: entry.decision for entry in found}


def _events(connection: sa.Connection, query: sa.Select[Any]) -> list[LogEntry]:
    return [LogEntry(row.seq, from_plain(json.loads(row.data)), row.job) for row in connection.execute(query)]


def _decisions(connection: sa.Connection, query: sa.Select[Any]) -> list[DecisionEntry]:
    return [DecisionEntry(row.seq, row.at, from_plain(json.loads(row.data))) for row in connection.execute(query)]


def node_of(event: Event) -> str:
    """The node that an event is about; empty when it is about none."""
    match event:
        case NodeJoined(node=node):
            return node.name
        case NodeLost() | NodeClosed() | NodeOpened() | DeviceHealthChanged():
            return event.node
        case _:
            return ""
