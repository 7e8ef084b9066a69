"""Usage as the API shows it: who used what at which price."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from millpond.model.energy import J_PER_KWH, EnergyRates, Rate
from millpond.model.units import HOUR_S
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.roles import Caller, Verb
from millpond.server.storage.disk_use import DiskBooks
from millpond.server.store.statistics.books import Share, UsageFilter, UsageSum
from millpond.server.store.statistics.card_use import CardUseSum
from millpond.server.store.store import Store
from millpond.server.views.reports.row_order import in_order
from millpond.specs.api.reports.usage import DiskInfo, RateGap, UsageList, UsageRow
from millpond.specs.calendar_spans import months_within
from millpond.specs.config.prices import PriceList

LONG_REPORT: Final = 1_000
"""A report of more rows, each a job, waits for its caller's turn."""
_G_PER_KG: Final = 1000.0
_AMOUNTS: Final = {
    "gpu_hours": 3,
    "cpu_hours": 3,
    "memory_gib_hours": 3,
    "busy_gpu_hours": 3,
    "idle_gpu_hours": 3,
    "measured_gpu_hours": 3,
    "cost": 2,
    "energy_gpu_hours": 3,
    "energy_kwh": 3,
    "declared_kwh": 3,
    "energy_cost": 2,
    "priced_kwh": 3,
    "co2_kg": 3,
    "carbon_kwh": 3,
}
"""What is added up, and to how many digits."""
_MAY_BE_UNKNOWN: Final = ("cost", "energy_kwh", "energy_cost", "co2_kg")


_TIE: Final = 1e-6
"""Halves are rounded up, however the amounts behind them were added up."""


def rounded_together(amounts: Sequence[float], digits: int) -> tuple[list[float], float]:
    """Amounts of one sign rounded to so many digits behind the point, and their sum, alike.

    Each is rounded down or up; up are those that lose most otherwise (the method of largest remainders), so that
    the rounded amounts add up to the rounded sum.
    """
    scale = 10**digits
    units = [amount * scale + _TIE for amount in amounts]
    total = math.floor(math.fsum(amounts) * scale + 0.5 + _TIE)
    floors = [math.floor(each) for each in units]
    missing = total - sum(floors)
    by_loss = sorted(range(len(units)), key=lambda index: floors[index] - units[index])
    for index in by_loss[:missing]:
        floors[index] += 1
    return [each / scale for each in floors], total / scale


@dataclass(frozen=True, slots=True)
class UsageRequest:
    """Which usage is asked for.

    Attributes:
        by: a ``specs.api.reports.usage.Grouping``.
        until: not to come yet.
        only: by column (``user``, ``group``, ``queue``, ``model``, ``kind``), the value that counts alone.
        limit: so many rows at most, the others added up.
        order: as ``row_order.in_order`` has it; empty: the largest first, of months the latest.
    """

    by: str
    since: float
    until: float
    only: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
    order: str = ""

    @property
    def is_sorted_here(self) -> bool:
        """Whether the order is another than the store's, so that those that come first are only known of all rows."""
        return bool(self.order) and (self.order != "gpu_hours" or self.by == "month")

    @property
    def is_long(self) -> bool:
        """Whether it may take all rows of a hundred thousand jobs."""
        return self.by == "job" and (self.limit is None or self.limit > LONG_REPORT or self.is_sorted_here)


@dataclass(frozen=True, slots=True)
class ReportRates:
    """What cards and energy cost, as it is configured."""

    prices: PriceList = PriceList()
    energy: EnergyRates = EnergyRates()


_Summed = tuple[UsageSum, CardUseSum]
_UNMEASURED: Final = CardUseSum()


class Bookkeeper:
    """Shows usage to the users who may see it.

    Args:
        disk: what users hold on disk.
        rates: gives the prices as they are now.
    """

    def __init__(self, store: Store, accounts: Accounts, disk: DiskBooks, rates: Callable[[], ReportRates]) -> None:
        self._store = store
        self._accounts = accounts
        self._disk = disk
        self._rates = rates

    async def usage(self, asked: UsageRequest, caller: Caller) -> UsageList:
        """Who held how much between two instants: all users, or those whose usage the caller may see."""
        share = usage_share(self._accounts, caller)
        found = await asyncio.to_thread(self._report, asked, UsageFilter(share, asked.only))
        disk = [] if asked.only else self._disk_of(asked.by, share)
        return replace(found, disk=disk)

    def _report(self, asked: UsageRequest, wanted: UsageFilter) -> UsageList:
        rates = self._rates()
        prices, energy = rates.prices, rates.energy
        summed = replace(asked, limit=None) if asked.is_sorted_here else asked
        found, added = self._by_month(summed, wanted) if asked.by == "month" else self._sums(summed, wanted)
        rows = in_order([_row(total, measured, prices) for total, measured in found], asked.order)
        others = [_row(total, measured, prices) for total, measured in added]
        if asked.is_sorted_here and asked.limit is not None:
            rows, others = rows[: asked.limit], rows[asked.limit :]
        total = _together([*rows, *others], self._store.books.jobs(asked.since, asked.until, wanted))
        rest = [_together(others, self._jobs_left(asked, wanted, rows))] if others else []
        *rows, total = _rounded([*rows, *rest], total)
        return UsageList(
            by=asked.by,
            since=asked.since,
            until=asked.until,
            currency=prices.currency if prices.gpu_hour else "",
            energy_currency=prices.currency if energy.price is not None else "",
            gaps=self._gaps(energy, asked, total),
            rows=rows[:-1] if rest else rows,
            rest=rows[-1] if rest else None,
            total=total,
        )

    def _jobs_left(self, asked: UsageRequest, wanted: UsageFilter, shown: Sequence[UsageRow]) -> int:
        """How many jobs are in the rows that are not shown: one that is in several of them counts once."""
        books, rows = self._store.books, {(row.name, row.model) for row in shown}
        if asked.by != "month":
            return books.jobs_beside(asked.by, asked.since, asked.until, wanted, rows)
        left: dict[tuple[float, float], list[str]] = {}
        for month, since, until in self._months(asked):
            models = [total.model for total in books.sums("model", since, until, wanted)]
            left[since, until] = [model for model in models if (month, model) not in rows]
        return books.jobs_of_spans(left, wanted)

    def _gaps(self, rates: EnergyRates, asked: UsageRequest, total: UsageRow) -> list[RateGap]:
        """Why energy is without a price or without emissions, where the configured series are the reason."""
        known_kwh: dict[Literal["price", "carbon"], tuple[Rate | None, float]] = {
            "price": (rates.price, total.priced_kwh),
            "carbon": (rates.carbon, total.carbon_kwh),
        }
        since = max(asked.since, self._store.books.first_instant() or asked.since)
        return [
            RateGap(of=of, since=begin, until=end)
            for of, (series, kwh) in known_kwh.items()
            if series is not None and kwh < (total.energy_kwh or 0.0)
            for begin, end in series.gaps(since, asked.until)
        ]

    def _sums(self, asked: UsageRequest, wanted: UsageFilter) -> tuple[list[_Summed], list[_Summed]]:
        """The largest, and all others added up by model."""
        books, card_use, span = self._store.books, self._store.card_use, (asked.since, asked.until)
        sums, rest = books.largest(asked.by, *span, wanted, asked.limit)
        measured = card_use.sums(asked.by, *span, wanted, {total.name for total in sums} if rest else None)
        found = [(total, measured.pop((total.name, total.model), _UNMEASURED)) for total in sums]
        left: dict[str, CardUseSum] = {}
        for (_, model), part in measured.items():
            left[model] = left.get(model, _UNMEASURED) + part
        return found, [(total, left.get(total.model, _UNMEASURED)) for total in rest]

    def _by_month(self, asked: UsageRequest, wanted: UsageFilter) -> tuple[list[_Summed], list[_Summed]]:
        """The latest month first; the others added up by model."""
        found: list[_Summed] = []
        for month, since, until in self._months(asked):
            of_month, _ = self._sums(replace(asked, by="model", since=since, until=until, limit=None), wanted)
            found += [(replace(total, name=month), measured) for total, measured in of_month]
        return found[: asked.limit], [] if asked.limit is None else _by_model(found[asked.limit :])

    def _months(self, asked: UsageRequest) -> list[tuple[str, float, float]]:
        """The months of a report since there is usage, the latest first."""
        begun = self._store.books.first_instant()
        return [] if begun is None else months_within(max(asked.since, begun), asked.until)[::-1]

    def _disk_of(self, by: str, share: Share | None) -> list[DiskInfo]:
        """What those hold on disk whose usage is asked for; by user or by queue only, the largest first."""
        found: list[DiskInfo] = []
        if by == "user":
            found = [
                self._disk.of_user(name) for name in self._disk.latest.users if share is None or share.user == name
            ]
        elif by == "queue":
            groups = self._accounts.groups()
            found = [
                self._disk.of_group(group.name) for group in groups if share is None or group.queue in share.queues
            ]
        return sorted((each for each in found if each.used_bytes), key=lambda each: (-each.used_bytes, each.name))


def usage_share(accounts: Accounts, caller: Caller) -> Share | None:
    """Whose usage a caller may see; None: all users'."""
    return None if caller.admin else Share(caller.user, accounts.queues_for(caller, Verb.READ_USAGE))


def _by_model(sums: Iterable[_Summed]) -> list[_Summed]:
    """Sums of several groups as one for each model."""
    found: dict[str, _Summed] = {}
    for total, measured in sums:
        model = total.model
        before, known = found.get(model, (UsageSum("", model, 0.0, 0.0, 0.0, 0), _UNMEASURED))
        found[model] = before.plus(total), known + measured if measured is not _UNMEASURED else known
    return list(found.values())


def _row(total: UsageSum, measured: CardUseSum, prices: PriceList) -> UsageRow:
    gpu_hours, energy = total.gpu_seconds / HOUR_S, measured.energy
    return UsageRow(
        name=total.name,
        model=total.model,
        jobs=total.jobs,
        gpu_hours=gpu_hours,
        cpu_hours=total.cpu_seconds / HOUR_S,
        memory_gib_hours=total.memory_gib_seconds / HOUR_S,
        cost=prices.cost(total.model, gpu_hours),
        measured_gpu_hours=measured.measured_gpu_s / HOUR_S,
        busy_gpu_hours=measured.busy_gpu_s / HOUR_S,
        idle_gpu_hours=measured.idle_gpu_s / HOUR_S,
        energy_gpu_hours=energy.known_gpu_s / HOUR_S,
        energy_kwh=energy.energy_j / J_PER_KWH if energy.known_gpu_s else None,
        declared_kwh=energy.declared_j / J_PER_KWH,
        energy_cost=energy.cost if energy.priced_j else None,
        priced_kwh=energy.priced_j / J_PER_KWH,
        co2_kg=energy.co2_g / _G_PER_KG if energy.carbon_j else None,
        carbon_kwh=energy.carbon_j / J_PER_KWH,
    )


def _together(rows: Sequence[UsageRow], jobs: int) -> UsageRow:
    """Rows of several groups as one; costs and energy as far as they are known."""
    sums = {amount: math.fsum(getattr(row, amount) or 0.0 for row in rows) for amount in _AMOUNTS}
    both = UsageRow(name="", model="", jobs=jobs, **sums)
    unknown: dict[str, Any] = dict.fromkeys(_MAY_BE_UNKNOWN)
    for row in rows:
        unknown = {name: None for name in unknown if getattr(row, name) is None}
    return replace(both, **unknown)


def _rounded(rows: Sequence[UsageRow], total: UsageRow) -> list[UsageRow]:
    """The same rows and the total behind them, rounded so that they add up."""
    changes: list[dict[str, Any]] = [{} for _ in range(len(rows) + 1)]
    for name, digits in _AMOUNTS.items():
        known = [index for index, row in enumerate(rows) if getattr(row, name) is not None]
        values, whole = rounded_together([getattr(rows[index], name) for index in known], digits)
        for index, value in zip(known, values, strict=True):
            changes[index][name] = value
        if getattr(total, name) is not None:
            changes[-1][name] = whole
    return [replace(row, **change) for row, change in zip((*rows, total), changes, strict=True)]
