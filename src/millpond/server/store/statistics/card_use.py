"""How much jobs used the cards that they held, in the store: sums by job, model and day, updated while a job runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import sqlalchemy as sa

from millpond.model.energy import ENERGY_FIELDS, NO_ENERGY, EnergySum
from millpond.server.store.schema import card_use
from millpond.server.store.statistics.books import ALL_USAGE, UsageFilter, group_column
from millpond.server.store.tables import TableStore

_USE: Final = ("measured_gpu_s", "busy_gpu_s", "idle_gpu_s")
_GROWING: Final = (*_USE, *ENERGY_FIELDS)


@dataclass(frozen=True, slots=True)
class JobCardUse:
    """What one job made of cards of one model between two instants of one day.

    Attributes:
        day: when the day began, in seconds since 1970.
        measured_gpu_s: seconds of whole cards of which it is known whether they computed.
        busy_gpu_s: of these, those in which they computed.
        idle_gpu_s: of these, those of minutes in which they hardly did.
        energy: what they drew, by the prices of that time.
    """

    job: str
    model: str
    day: float
    user: str
    queue: str
    group: str
    kind: str
    since: float
    until: float
    measured_gpu_s: float
    busy_gpu_s: float
    idle_gpu_s: float
    energy: EnergySum = NO_ENERGY


@dataclass(frozen=True, slots=True)
class CardUseSum:
    """The same of all jobs of one group."""

    measured_gpu_s: float = 0.0
    busy_gpu_s: float = 0.0
    idle_gpu_s: float = 0.0
    energy: EnergySum = NO_ENERGY

    def __add__(self, other: CardUseSum) -> CardUseSum:
        return CardUseSum(
            self.measured_gpu_s + other.measured_gpu_s,
            self.busy_gpu_s + other.busy_gpu_s,
            self.idle_gpu_s + other.idle_gpu_s,
            self.energy + other.energy,
        )


class CardUseStore(TableStore):
    """The measurements of one open database."""

    def add(self, measured: Sequence[JobCardUse]) -> None:
        """Add to what is known of these jobs on that day."""
        if not measured:
            return
        insert = self._insert(card_use)
        grown = {name: card_use.c[name] + insert.excluded[name] for name in _GROWING}
        statement = insert.on_conflict_do_update(
            index_elements=[card_use.c.job, card_use.c.model, card_use.c.day],
            set_={**grown, "until": insert.excluded.until},
        )
        with self._engine.begin() as connection:
            connection.execute(statement, [_row(one) for one in measured])

    def sums(
        self,
        by: str,
        since: float,
        until: float,
        wanted: UsageFilter = ALL_USAGE,
        names: Collection[str] | None = None,
    ) -> dict[tuple[str | None, str], CardUseSum]:
        """What was measured between two instants, by group and model; of a day that an instant cuts, its part.

        Args:
            names: the groups that have sums of their own, all others are added up as None; None: all of them.
        """
        table = card_use
        end = sa.case((table.c.until > until, until), else_=table.c.until)
        begin = sa.case((table.c.since < since, since), else_=table.c.since)
        part = (end - begin) / (table.c.until - table.c.since)
        group = group_column(table, by)
        name = group if names is None else sa.case((group.in_(self._texts(names)), group))
        amounts = ((table.c[amount] * part).label(amount) for amount in _GROWING)
        rows = (
            sa.select(name.label("name"), table.c.model, *amounts)
            .where(table.c.since < until, table.c.until > since, *wanted.on(table))
            .subquery()
        )
        sums = (sa.func.sum(rows.c[amount]) for amount in _GROWING)
        query = sa.select(rows.c.name, rows.c.model, *sums).group_by(rows.c.name, rows.c.model)
        found: dict[tuple[str | None, str], CardUseSum] = {}
        for of, model, *summed in self._rows(query):
            use, energy = summed[: len(_USE)], summed[len(_USE) :]
            found[of, model] = replace(CardUseSum(*use), energy=EnergySum(*energy))
        return found


def _row(one: JobCardUse) -> dict[str, Any]:
    of_use = {each.name: getattr(one, each.name) for each in fields(one) if each.name != "energy"}
    return of_use | {name: getattr(one.energy, name) for name in ENERGY_FIELDS}
