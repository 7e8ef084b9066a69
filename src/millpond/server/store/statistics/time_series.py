"""The history of the pool: one row for each subject and span of time, with all series of the subject."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
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


class TimeSeriesStore(TableStore):
    """The table of one open database."""

    def write(self, rows: Sequence[SeriesRow]) -> None:
        """Keep these rows, all or none, in place of those of the same spans."""
        self._save(
            *(
                (
                    time_series,
                    {
                        "subject": str(row.subject),
                        "step_s": row.step_s,
                        "at": row.at,
                        "samples": row.samples,
                        "data": zlib.compress(json.dumps(row.look, separators=(",", ":")).encode()),
                    },
                )
                for row in rows
            )
        )

    def between(self, subject: str, step_s: int, begin: float, end: float) -> list[SeriesRow]:
        """The rows of a length that begin at ``begin`` or later and before ``end``, in order."""
        table = time_series
        this = (table.c.subject == str(subject), table.c.step_s == step_s, table.c.at >= begin, table.c.at < end)
        found = self._rows(sa.select(table).where(*this).order_by(table.c.at))
        return [SeriesRow(row.subject, row.step_s, row.at, row.samples, _look(row.data)) for row in found]

    def latest(self, step_s: int, now: float) -> int | None:
        """When the last row of a length begins that is not in the future."""
        table = time_series
        return self._value(sa.select(sa.func.max(table.c.at)).where(table.c.step_s == step_s, table.c.at <= now))

    def forget(self, kept: Mapping[int, tuple[float, float]]) -> None:
        """Drop rows that begin outside a span.

        Args:
            kept: the span, by the length of the rows. What is behind it was written while the clock was wrong.
        """
        table = time_series
        outside = [
            sa.and_(table.c.step_s == step_s, sa.or_(table.c.at < begin, table.c.at > end))
            for step_s, (begin, end) in kept.items()
        ]
        self._execute(table.delete().where(sa.or_(*outside)))

    def forget_subject(self, subject: str, before: float) -> None:
        """Drop the rows of a subject that begin before an instant."""
        table = time_series
        self._execute(table.delete().where(table.c.subject == subject, table.c.at < before))


def _look(data: bytes) -> dict[str, tuple[float | None, ...]]:
    return {name: tuple(figures) for name, figures in json.loads(zlib.decompress(data)).items()}
