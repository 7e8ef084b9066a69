"""Histories read from the log and the decisions: of one job, of one node, or the latest of all."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from millpond.model.decisions import Decision
from millpond.model.events import (
    CardClosed,
    CardLayoutChanged,
    CardOpened,
    DeviceHealthChanged,
    DeviceReported,
    Event,
    LoadSampled,
    NodeClosed,
    NodeContents,
    NodeJoined,
    NodeLost,
    NodeOpened,
    NodePowerChanged,
    ProgressMeasured,
    Tick,
    WaitExplained,
)
from millpond.server.store.schema import UNACCEPTED, decisions, events
from millpond.server.store.tables import TableStore, value_in

_SILENT: Final = (UNACCEPTED, *(kind.__name__ for kind in (Tick, LoadSampled, NodeContents, ProgressMeasured)))
"""Events that are not shown among those of everything."""
_OF_NODES: Final = tuple(
    kind.__name__
    for kind in (
        NodeJoined,
        NodeLost,
        NodeClosed,
        NodeOpened,
        NodePowerChanged,
        CardClosed,
        CardOpened,
        CardLayoutChanged,
        DeviceHealthChanged,
        DeviceReported,
    )
)


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


class HistoryStore(TableStore):
    """The log and the decisions of one open database, to be told."""

    def of_job(self, job: str) -> History:
        """Everything about one job."""
        mine = sa.and_(events.c.job == job, events.c.type != UNACCEPTED)
        happened = self._events(sa.select(events).where(mine).order_by(events.c.seq))
        decided = self._decisions(sa.select(decisions).where(decisions.c.job == job).order_by(decisions.c.id))
        return happened, decided

    def last_wait(self, job: str) -> WaitExplained | None:
        """Why a job waited when that was noted last; None where it never was."""
        query = sa.select(events).where(events.c.job == job, events.c.type == WaitExplained.__name__)
        for entry in self._events(query.order_by(events.c.seq.desc()).limit(1)):
            assert isinstance(entry.event, WaitExplained)
            return entry.event
        return None

    def of_node(self, node: str, most: int) -> History:
        """The latest about one node."""
        query = sa.select(events).where(
            events.c.type.in_(_OF_NODES), events.c.data.contains(json.dumps(node), autoescape=True)
        )
        found = self._events(query.order_by(events.c.seq.desc()))
        mine = [entry for entry in found if node_of(entry.event) == node]
        return mine[:most][::-1], []

    def happenings(self, after: int | None, most: int) -> History:
        """What happened to everything, and was decided in the same time: the first behind a place in the log, or the
        latest."""
        return self._latest(most) if after is None else self._after(after, most)

    def _latest(self, most: int) -> History:
        query = sa.select(events).where(events.c.type.not_in(_SILENT)).order_by(events.c.seq.desc()).limit(most)
        happened = self._events(query)[::-1]
        since = happened[0].seq if happened else 0
        return self._with_decisions(happened, decisions.c.seq >= since)

    def _after(self, seq: int, most: int) -> History:
        query = sa.select(events).where(events.c.type.not_in(_SILENT), events.c.seq > seq)
        happened = self._events(query.order_by(events.c.seq).limit(most))
        in_time = decisions.c.seq > seq
        if len(happened) == most:
            in_time = sa.and_(in_time, decisions.c.seq <= happened[-1].seq)
        return self._with_decisions(happened, in_time)

    def _with_decisions(self, happened: list[LogEntry], condition: sa.ColumnElement[bool]) -> History:
        return happened, self._decisions(sa.select(decisions).where(condition).order_by(decisions.c.id))

    def decisions(self, numbers: Iterable[int]) -> dict[int, Decision]:
        """Decisions by their ids."""
        found = self._decisions(sa.select(decisions).where(decisions.c.id.in_(sorted(numbers))))
        return {entry.decision.id: entry.decision for entry in found}

    def _events(self, query: sa.Select[Any]) -> list[LogEntry]:
        return [log_entry(row) for row in self._rows(query)]

    def _decisions(self, query: sa.Select[Any]) -> list[DecisionEntry]:
        return [decision_entry(row) for row in self._rows(query)]


def log_entry(row: sa.Row[Any]) -> LogEntry:
    """An entry of the log by its row.

    Raises:
        InvalidInputError: it is damaged, or a newer version wrote it.
    """
    return LogEntry(row.seq, value_in(row.data, f"entry {row.seq} of the stored log"), row.job)


def decision_entry(row: sa.Row[Any]) -> DecisionEntry:
    """A decision by its row.

    Raises:
        InvalidInputError: it is damaged, or a newer version wrote it.
    """
    return DecisionEntry(row.seq, row.at, value_in(row.data, f"the stored decision {row.id}"))


def node_of(event: Event) -> str:
    """The node that an event is about; empty when it is about none."""
    match event:
        case NodeJoined(node=node):
            return node.name
        case (
            NodeLost()
            | NodeClosed()
            | NodeOpened()
            | NodePowerChanged()
            | CardClosed()
            | CardOpened()
            | CardLayoutChanged()
            | DeviceHealthChanged()
            | DeviceReported()
        ):
            return event.node
        case _:
            return ""
