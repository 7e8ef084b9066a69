"""How long jobs waited, in the store: written with the last view of an ended job, and kept when the job is deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

import sqlalchemy as sa

from millpond.server.store.schema import start_waits
from millpond.server.store.statistics.books import Share
from millpond.server.store.tables import TableStore
from millpond.specs.api.jobs.jobs import JobInfo

_NEW: Final = start_waits.insert()
_KNOWN: Final = start_waits.delete().where(start_waits.c.job == sa.bindparam("known"))
"""A turn that is repeated after a restart says the same again."""


@dataclass(frozen=True, slots=True)
class StartWait:
    """How long one job waited for its first start.

    Attributes:
        gpu_milli: what it asked for.
        eligible_at: since when it could start.
        started_at: None: it has not started, or never did.
        ended_at: None: it has not ended.
    """

    job: str
    user: str
    queue: str
    group: str
    gpu_milli: int
    eligible_at: float
    started_at: float | None
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class WaitFilter:
    """Which waits are wanted.

    Attributes:
        since, until: the jobs could start from an instant between these.
        share: what may be seen of them; None: all users'.
        only: by column (``user``, ``group``, ``queue``), the value that counts alone.
        size: least and most that they asked for, in thousandths of cards; None: anything.
    """

    since: float
    until: float
    share: Share | None = None
    only: Mapping[str, str] = field(default_factory=dict)
    size: tuple[int, int] | None = None

    def matches(self, wait: StartWait) -> bool:
        """Whether a wait is one of them."""
        return (
            self.since <= wait.eligible_at < self.until
            and (self.share is None or wait.user == self.share.user or wait.queue in self.share.queues)
            and all(getattr(wait, name) == value for name, value in self.only.items())
            and (self.size is None or self.size[0] <= wait.gpu_milli <= self.size[1])
        )


def wait_of(info: JobInfo) -> StartWait | None:
    """How long a job waited, or has so far; None where it could not start yet, or never could."""
    if info.eligible_at is None:
        return None
    whose = (info.id, info.user, info.queue, info.group)
    return StartWait(*whose, info.gpu_milli, info.eligible_at, info.first_started_at, info.ended_at)


def write_waits(connection: sa.Connection, ended: Sequence[JobInfo]) -> None:
    """Keep the waits of jobs that have ended, within the transaction of their turn. Of arrays, their members count."""
    waits = (wait_of(info) for info in ended if info.array is None)
    rows = [asdict(wait) for wait in waits if wait is not None]
    if rows:
        connection.execute(_KNOWN, [{"known": row["job"]} for row in rows])
        connection.execute(_NEW, rows)


class StartWaitStore(TableStore):
    """The waits of one open database: of jobs that have ended."""

    def lengths(self, by: str, wanted: WaitFilter) -> Sequence[tuple[str, int, float, bool]]:
        """By a column, what each job asked for, how many seconds it waited, and whether it ended before it started; the
        shortest first, as the database sorts them faster than their reader."""
        table = start_waits
        columns = (table.c[by], table.c.gpu_milli, _seconds().label("seconds"), table.c.started_at.is_(None))
        return self._rows(sa.select(*columns).where(*_conditions(wanted)).order_by("seconds"))

    def longest(self, wanted: WaitFilter, limit: int) -> list[StartWait]:
        """Those that waited longest."""
        query = sa.select(*(start_waits.c[name] for name in StartWait.__slots__)).where(*_conditions(wanted))
        query = query.order_by(_seconds().desc(), start_waits.c.job).limit(limit)
        return [StartWait(*row) for row in self._rows(query)]


def _seconds() -> sa.ColumnElement[float]:
    return sa.func.coalesce(start_waits.c.started_at, start_waits.c.ended_at) - start_waits.c.eligible_at


def _conditions(wanted: WaitFilter) -> list[sa.ColumnElement[bool]]:
    table = start_waits
    found = [table.c.eligible_at >= wanted.since, table.c.eligible_at < wanted.until]
    found += [table.c[name] == value for name, value in wanted.only.items()]
    if wanted.share is not None:
        found.append(sa.or_(table.c.user == wanted.share.user, table.c.queue.in_(wanted.share.queues)))
    if wanted.size is not None:
        found.append(table.c.gpu_milli.between(*wanted.size))
    return found
