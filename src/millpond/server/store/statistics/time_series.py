"""The history of the pool: one row for each subject and span of time, with all series of the subject."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from millpond.server.store.schema import time_series
from millpond.server.store.tables import TableStore


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """A look at a subject.

    Attributes:
        step_s, at: the span that it stands for: its length, and its begin in seconds since 1970.
        samples: how many minutes it was made of.
        look: figures by the name of the series (``server.monitoring.time_series.figures``).
    """

    subject: str
    step_s: int
    at: int
    samples: int
    look: Mapping[str, tuple[float | None, ...]]


@dataclass(frozen=True, slots=True)
class KeptSpan:
    """Of which rows of a length those are kept that begin in a span; seconds since 1970."""

    subjects: Sequence[str]
    step_s: int
    begin: float
    end: float


class TimeSeriesStore(TableStore):
    """The table of one open database."""

    def write(self, rows: Sequence[SeriesRow]) -> None:
        """Keep these rows, all or none, in place of those of the same spans."""
        if not rows:
            return
        table = time_series
        key = {column.name: column for column in table.primary_key}
        same = table.delete().where(*(column == sa.bindparam(f"this_{name}") for name, column in key.items()))
        values = [
            {
                "subject": str(row.subject),
                "step_s": row.step_s,
                "at": row.at,
                "samples": row.samples,
                "data": zlib.compress(json.dumps(row.look, separators=(",", ":")).encode()),
            }
            for row in rows
        ]
        with self._engine.begin() as connection:
            connection.execute(same, [{f"this_{name}": each[name] for name in key} for each in values])
            connection.execute(table.insert(), values)

    def between(
        self, subject: str, step_s: int, begin: float, end: float, names: Collection[str] | None = None
    ) -> list[SeriesRow]:
        """The rows of a length that begin at ``begin`` or later and before ``end``, in order.

        Args:
            names: of which series; None: all.
        """
        table = time_series
        this = (table.c.subject == str(subject), table.c.step_s == step_s, table.c.at >= begin, table.c.at < end)
        found = self._rows(sa.select(table).where(*this).order_by(table.c.at))
        return [SeriesRow(row.subject, row.step_s, row.at, row.samples, _look(row.data, names)) for row in found]

    def latest(self, subject: str, step_s: int, now: float) -> int | None:
        """When the last row of a subject and a length begins that is not in the future."""
        table = time_series
        this = (table.c.subject == str(subject), table.c.step_s == step_s, table.c.at <= now)
        return self._value(sa.select(sa.func.max(table.c.at)).where(*this))

    def forget(self, kept: Sequence[KeptSpan]) -> None:
        """Drop rows that begin outside a span. What is behind it was written while the clock was wrong."""
        at = time_series.c.at
        outside = [
            time_series.delete().where(
                time_series.c.subject.in_([str(subject) for subject in each.subjects]),
                time_series.c.step_s == each.step_s,
                is_outside,
            )
            for each in kept
            for is_outside in (at < each.begin, at > each.end)
        ]
        self._execute(*outside)

    def forget_subject(self, subject: str, before: float) -> None:
        """Drop the rows of a subject that begin before an instant."""
        table = time_series
        self._execute(table.delete().where(table.c.subject == subject, table.c.at < before))


def _look(data: bytes, names: Collection[str] | None) -> dict[str, tuple[float | None, ...]]:
    look = json.loads(zlib.decompress(data))
    return {name: tuple(look[name]) for name in (look if names is None else names) if name in look}
