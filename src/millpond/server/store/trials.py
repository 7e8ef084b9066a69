"""Results of the trials of sweeps in the database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from millpond.server.store.schema import trials
from millpond.server.store.tables import TableStore


class TrialStore(TableStore):
    """The trials of one open database."""

    def of(self, sweep: str) -> dict[str, dict[str, Any]]:
        """What is known of the trials of a sweep, by job."""
        query = sa.select(trials.c.job, trials.c.data).where(trials.c.parent == sweep)
        return {row.job: json.loads(row.data) for row in self._rows(query)}

    def write(self, sweep: str, known: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep what is known of these trials now."""
        rows = [{"job": job, "parent": sweep, "data": json.dumps(data)} for job, data in known.items()]
        with self._engine.begin() as connection:
            connection.execute(trials.delete().where(trials.c.job.in_(list(known))))
            connection.execute(trials.insert(), rows)
