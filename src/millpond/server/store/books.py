"""The books of usage in the store: intervals written by the scheduler's thread, sums read by any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from millpond.server.store.schema import usage
from millpond.server.store.tables import TableStore
from millpond.specs.job.job_ids import split_member


@dataclass(frozen=True, slots=True)
class HeldAmount:
    """What one job holds of devices of one model; of none where ``model`` is empty."""

    model: str
    gpu_milli: int
    cpu_milli: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class UsageInterval:
    """One job held this from ``since`` (seconds since 1970) on."""

    job: str
    user: str
    queue: str
    kind: str
    since: float
    held: HeldAmount


@dataclass(frozen=True, slots=True)
class UsageChange:
    """The open intervals of a job end at ``at``, and these begin.

    Attributes:
        is_first: the job has no open intervals.
    """

    job: str
    at: float
    began: tuple[UsageInterval, ...]
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class UsageSum:
    """What the intervals of one group add up to, within the span that was asked for.

    Attributes:
        name: of the group: a user, a queue, a model, a kind, a job or an array.
        model: of the devices; empty for work without.
        jobs: how many different jobs.
    """

    name: str
    model: str
    gpu_seconds: float
    cpu_seconds: float
    memory_gib_seconds: float
    jobs: int


@dataclass(frozen=True, slots=True)
class Share:
    """Whose usage is wanted: one user's, and that of some queues."""

    user: str
    queues: frozenset[str]


class UsageStore(TableStore):
    """The books of one open database."""

    def open_intervals(self) -> list[UsageInterval]:
        """Stretches that have not ended."""
        return [
            UsageInterval(
                row.job,
                row.user,
                row.queue,
                row.kind,
                row.since,
                HeldAmount(row.model, row.gpu_milli, row.cpu_milli, row.memory_mib),
            )
            for row in self._rows(sa.select(usage).where(usage.c.until.is_(None)))
        ]

    def computed_s(self, jobs: Sequence[str]) -> dict[str, float]:
        """For how many seconds jobs that have ended held CPUs, in all their runs: not while they were suspended."""
        seconds = sa.func.sum(usage.c.until - usage.c.since)
        held = sa.and_(usage.c.job.in_(jobs), usage.c.until.is_not(None), usage.c.cpu_milli > 0)
        query = sa.select(usage.c.job, seconds).where(held).group_by(usage.c.job)
        return {row[0]: float(row[1]) for row in self._rows(query)}

    def sums(self, by: str, since: float, until: float, share: Share | None = None) -> list[UsageSum]:
        """Usage by group and model between two instants, the largest first.

        Args:
            until: not to come yet, as what is still held counts up to this instant.
            by: a ``specs.api.usage.Grouping``.
            share: whose; None: all users'.
        """
        if until <= since:
            return []
        ends = sa.func.coalesce(usage.c.until, until)
        end = sa.case((ends > until, until), else_=ends)
        begin = sa.case((usage.c.since < since, since), else_=usage.c.since)
        seconds = end - begin
        group = usage.c[by]
        query = (
            sa.select(
                group.label("name"),
                usage.c.model,
                sa.func.sum(usage.c.gpu_milli * seconds).label("gpu"),
                sa.func.sum(usage.c.cpu_milli * seconds).label("cpu"),
                sa.func.sum(usage.c.memory_mib * seconds).label("memory"),
                sa.func.count(usage.c.job.distinct()).label("jobs"),
            )
            .where(usage.c.since < until, sa.or_(usage.c.until.is_(None), usage.c.until > since))
            .group_by(group, usage.c.model)
        )
        if share is not None:
            query = query.where(sa.or_(usage.c.user == share.user, usage.c.queue.in_(share.queues)))
        found = [
            UsageSum(row.name, row.model, row.gpu / 1000, row.cpu / 1000, row.memory / 1024, row.jobs)
            for row in self._rows(query)
        ]
        if by == "job":
            found = _by_array(found)
        return sorted(found, key=lambda total: (-total.gpu_seconds, -total.cpu_seconds, total.name, total.model))


def write_changes(connection: sa.Connection, changes: Sequence[UsageChange]) -> None:
    """Make changes durable, within the transaction of the turn they happened in."""
    ends: list[dict[str, Any]] = []
    began: list[dict[str, Any]] = []
    latest: dict[str, list[dict[str, Any]]] = {}
    for change in changes:
        if change.job in latest:  # what begins and ends within one transaction is not there to be updated
            for row in latest[change.job]:
                row["until"] = change.at
        elif not change.is_first:
            ends.append({"of_job": change.job, "ended_at": change.at})
        latest[change.job] = [_row(interval) for interval in change.began]
        began += latest[change.job]
    if ends:
        is_open = sa.and_(usage.c.job == sa.bindparam("of_job"), usage.c.until.is_(None))
        connection.execute(usage.update().where(is_open).values(until=sa.bindparam("ended_at")), ends)
    if began:
        connection.execute(usage.insert(), began)


def _by_array(sums: Sequence[UsageSum]) -> list[UsageSum]:
    """The members of an array as one."""
    merged: dict[tuple[str, str], UsageSum] = {}
    for one in sums:
        member = split_member(one.name)
        name = one.name if member is None else member[0]
        before = merged.get((name, one.model), UsageSum(name, one.model, 0.0, 0.0, 0.0, 0))
        merged[name, one.model] = UsageSum(
            name,
            one.model,
            before.gpu_seconds + one.gpu_seconds,
            before.cpu_seconds + one.cpu_seconds,
            before.memory_gib_seconds + one.memory_gib_seconds,
            before.jobs + one.jobs,
        )
    return list(merged.values())


def _row(interval: UsageInterval) -> dict[str, Any]:
    held = interval.held
    return {
        "job": interval.job,
        "user": interval.user,
        "queue": interval.queue,
        "kind": interval.kind,
        "model": held.model,
        "gpu_milli": held.gpu_milli,
        "cpu_milli": held.cpu_milli,
        "memory_mib": held.memory_mib,
        "since": interval.since,
        "until": None,
    }
