"""How much each job has held for how long: the base of reported and charged usage.

Whenever what a job holds changes, its open usage intervals end and new ones begin. What counts is what counts for
quotas: frozen work has its cards and memory, swapped work has memory alone, waiting work nothing.

Intervals are stored together with the decisions of the same turn, so that a killed server loses none and counts none
twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millpond.model.hardware.devices import Device
from millpond.model.resources import Amount
from millpond.scheduling.ledger.holdings import counted
from millpond.scheduling.records import JobRecord
from millpond.server.store.statistics.books import HeldAmount, UsageChange, UsageInterval


class UsageMeter:
    """Knows what each job holds, and says when that changes.

    Args:
        open_intervals: those that had not ended when the server last stopped.
    """

    def __init__(self, open_intervals: Iterable[UsageInterval] = ()) -> None:
        self._held: dict[str, tuple[HeldAmount, ...]] = {}
        for interval in open_intervals:
            self._held[interval.job] = _sorted((*self._held.get(interval.job, ()), interval.held))

    @property
    def jobs(self) -> list[str]:
        """Jobs with open intervals."""
        return list(self._held)

    def look(self, record: JobRecord, devices: Mapping[str, Device], now: float) -> UsageChange | None:
        """What has changed since the last look at this job; None when nothing has."""
        held, before = _held(record, devices), self._held.get(record.id, ())
        if held == before:
            return None
        if held:
            self._held[record.id] = held
        else:
            del self._held[record.id]
        return UsageChange(record.id, now, _intervals(record, held, now), is_first=not before)

    def skip(self, record: JobRecord, since: float, now: float) -> list[UsageChange]:
        """A job with open intervals goes on with them at ``now``; between ``since`` and then no time has passed."""
        began = _intervals(record, self._held[record.id], now)
        return [UsageChange(record.id, since, ()), UsageChange(record.id, now, began, is_first=True)]

    def gone(self, job: str, now: float) -> UsageChange:
        """A job with open intervals is known no more: they end."""
        del self._held[job]
        return UsageChange(job, now, ())


def _intervals(record: JobRecord, held: Iterable[HeldAmount], since: float) -> tuple[UsageInterval, ...]:
    job = record.job
    return tuple(UsageInterval(job.id, job.user, job.queue, job.kind.value, since, part, job.group) for part in held)


def _held(record: JobRecord, devices: Mapping[str, Device]) -> tuple[HeldAmount, ...]:
    sums: dict[str, Amount] = {}
    for task in record.tasks:
        if task.holding is None or task.placement is None:
            continue
        first = next((devices.get(grant.device) for grant in task.placement.grants), None)
        model = first.model if first is not None else ""
        sums[model] = sums.get(model, Amount()) + counted(record.job.roles[task.role_index].request, task.holding.hold)
    return _sorted(
        HeldAmount(model, amount.gpu_milli, amount.cpu_milli, amount.memory_mib) for model, amount in sums.items()
    )


def _sorted(parts: Iterable[HeldAmount]) -> tuple[HeldAmount, ...]:
    return tuple(sorted(parts, key=lambda part: part.model))
