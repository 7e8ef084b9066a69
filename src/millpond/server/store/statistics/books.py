"""Usage in the store: the scheduler's thread writes intervals, any thread reads sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import sqlalchemy as sa

from millpond.server.store.schema import usage
from millpond.server.store.tables import TableStore

_BEGAN: Final = usage.insert()
_ENDED: Final = (
    usage.update()
    .where(usage.c.job == sa.bindparam("of_job"), usage.c.until.is_(None))
    .values(until=sa.bindparam("ended_at"))
)


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
    group: str = ""


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

    def plus(self, other: UsageSum) -> UsageSum:
        """Both as one of this name."""
        return UsageSum(
            self.name,
            self.model,
            self.gpu_seconds + other.gpu_seconds,
            self.cpu_seconds + other.cpu_seconds,
            self.memory_gib_seconds + other.memory_gib_seconds,
            self.jobs + other.jobs,
        )

    def minus(self, part: UsageSum) -> UsageSum:
        """What is left without a part of it; never less than nothing, however the amounts were added up."""
        return UsageSum(
            self.name,
            self.model,
            max(self.gpu_seconds - part.gpu_seconds, 0.0),
            max(self.cpu_seconds - part.cpu_seconds, 0.0),
            max(self.memory_gib_seconds - part.memory_gib_seconds, 0.0),
            self.jobs - part.jobs,
        )


@dataclass(frozen=True, slots=True)
class Share:
    """Whose usage is wanted: one user's, and that of some queues."""

    user: str
    queues: frozenset[str]


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """Which usage is wanted: of this user, group, queue, kind and model.

    Attributes:
        share: what may be seen of it; None: all users'.
        only: by column, the value that it has to have; an empty one is no group, or no cards.
    """

    share: Share | None = None
    only: Mapping[str, str] = field(default_factory=dict)

    def on(self, table: sa.Table) -> list[sa.ColumnElement[bool]]:
        """The conditions on the rows of a table that has these columns."""
        wanted = [table.c[name] == value for name, value in self.only.items()]
        if self.share is not None:
            wanted.append(sa.or_(table.c.user == self.share.user, table.c.queue.in_(self.share.queues)))
        return wanted


ALL_USAGE: Final = UsageFilter()


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
                row.group,
            )
            for row in self._rows(sa.select(usage).where(usage.c.until.is_(None)))
        ]

    def computed_s(self, jobs: Sequence[str]) -> dict[str, float]:
        """For how many seconds jobs that have ended held CPUs, in all their runs: not while they were suspended."""
        seconds = sa.func.sum(usage.c.until - usage.c.since)
        held = sa.and_(usage.c.job.in_(jobs), usage.c.until.is_not(None), usage.c.cpu_milli > 0)
        query = sa.select(usage.c.job, seconds).where(held).group_by(usage.c.job)
        return {row[0]: float(row[1]) for row in self._rows(query)}

    def first_instant(self) -> float | None:
        """When a job held something for the first time; None where none ever did."""
        return self._value(sa.select(sa.func.min(usage.c.since)))

    def sums(self, by: str, since: float, until: float, wanted: UsageFilter = ALL_USAGE) -> list[UsageSum]:
        """Usage by group and model between two instants, the largest first.

        Args:
            until: not to come yet, as what is still held counts up to this instant.
            by: a column: ``user``, ``group``, ``queue``, ``model``, ``kind``, or ``job`` (of arrays all members
                together).
        """
        return self._sums(by, since, until, wanted, None)

    def largest(
        self, by: str, since: float, until: float, wanted: UsageFilter, most: int | None
    ) -> tuple[list[UsageSum], list[UsageSum]]:
        """The largest of these sums, and all others added up by model.

        Args:
            by, since, until: as of ``sums``.
            most: so many; None: all.
        """
        found = self._sums(by, since, until, wanted, None if most is None else most + 1)
        if most is None or len(found) <= most:
            return found, []
        left = {total.model: total for total in self._sums("model", since, until, wanted, None)}
        for total in found[:most]:
            left[total.model] = left[total.model].minus(total)
        return found[:most], [replace(total, name="") for total in left.values() if total.jobs]

    def _sums(self, by: str, since: float, until: float, wanted: UsageFilter, most: int | None) -> list[UsageSum]:
        if until <= since:
            return []
        grouped = _grouped(by, since, until, wanted).subquery()
        order = (grouped.c.gpu.desc(), grouped.c.cpu.desc(), grouped.c.name, grouped.c.model)
        return [
            UsageSum(row.name, row.model, row.gpu / 1000, row.cpu / 1000, row.memory / 1024, row.jobs)
            for row in self._rows(sa.select(grouped).order_by(*order).limit(most))
        ]

    def jobs(self, since: float, until: float, wanted: UsageFilter = ALL_USAGE) -> int:
        """How many different jobs held something between two instants."""
        query = sa.select(sa.func.count(usage.c.job.distinct())).where(*_within(since, until), *wanted.on(usage))
        return int(self._value(query) or 0)

    def jobs_beside(
        self, by: str, since: float, until: float, wanted: UsageFilter, shown: Iterable[tuple[str, str]]
    ) -> int:
        """How many different jobs are in sums that are not among these.

        Args:
            by, since, until: as of ``sums``.
            shown: groups and models of sums.
        """
        names: dict[str, list[str]] = {}
        for name, model in shown:
            names.setdefault(model, []).append(name)
        group = group_column(usage, by)
        left = [sa.and_(usage.c.model == model, group.not_in(self._texts(known))) for model, known in names.items()]
        beside = sa.or_(usage.c.model.not_in(list(names)), *left)
        query = sa.select(sa.func.count(usage.c.job.distinct()))
        return int(self._value(query.where(*_within(since, until), *wanted.on(usage), beside)) or 0)

    def jobs_of_spans(self, models: Mapping[tuple[float, float], Sequence[str]], wanted: UsageFilter) -> int:
        """How many different jobs held one of these models within its span, in all spans together."""
        held = [sa.and_(*_within(*span), usage.c.model.in_(names)) for span, names in models.items()]
        query = sa.select(sa.func.count(usage.c.job.distinct())).where(sa.or_(sa.false(), *held), *wanted.on(usage))
        return int(self._value(query) or 0)


def _grouped(by: str, since: float, until: float, wanted: UsageFilter) -> sa.Select[Any]:
    """Sums by group and model, in units of the table times seconds."""
    seconds = _seconds_within(since, until)
    rows = (
        sa.select(
            group_column(usage, by).label("name"),
            usage.c.model,
            usage.c.job,
            *((usage.c[amount] * seconds).label(amount) for amount in ("gpu_milli", "cpu_milli", "memory_mib")),
        )
        .where(*_within(since, until), *wanted.on(usage))
        .subquery()
    )
    return sa.select(
        rows.c.name,
        rows.c.model,
        sa.func.sum(rows.c.gpu_milli).label("gpu"),
        sa.func.sum(rows.c.cpu_milli).label("cpu"),
        sa.func.sum(rows.c.memory_mib).label("memory"),
        sa.func.count(rows.c.job.distinct()).label("jobs"),
    ).group_by(rows.c.name, rows.c.model)


def _within(since: float, until: float) -> tuple[sa.ColumnElement[bool], ...]:
    """Whether a stretch lies between two instants with a part of it."""
    return usage.c.since < until, sa.or_(usage.c.until.is_(None), usage.c.until > since)


def _seconds_within(since: float, until: float) -> sa.ColumnElement[float]:
    """How long that part is."""
    ends = sa.func.coalesce(usage.c.until, until)
    end = sa.case((ends > until, until), else_=ends)
    begin = sa.case((usage.c.since < since, since), else_=usage.c.since)
    return end - begin


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
        connection.execute(_ENDED, ends)
    if began:
        connection.execute(_BEGAN, began)


def group_column(table: sa.Table, by: str) -> sa.ColumnElement[str]:
    """What rows of a table of usage are grouped by; ``by``: as of ``sums``."""
    return _array_column(table.c.job) if by == "job" else table.c[by]


def _array_column(job: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """The array that jobs are members of, and of others their own id; of ids as the store has them, ``ARRAY.17``."""
    stem = sa.func.rtrim(job, "0123456789", type_=sa.String())
    # The first condition spares most rows the others, which cost more than all else of a sum.
    is_member = sa.and_(job.like("%.%"), stem != job, sa.func.substr(stem, sa.func.length(stem)) == ".")
    return sa.case((is_member, sa.func.substr(job, 1, sa.func.length(stem) - 1)), else_=job)


def _row(interval: UsageInterval) -> dict[str, Any]:
    held = interval.held
    return {
        "job": interval.job,
        "user": interval.user,
        "queue": interval.queue,
        "group": interval.group,
        "kind": interval.kind,
        "model": held.model,
        "gpu_milli": held.gpu_milli,
        "cpu_milli": held.cpu_milli,
        "memory_mib": held.memory_mib,
        "since": interval.since,
        "until": None,
    }
