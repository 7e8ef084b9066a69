"""Who has held how much for how long: the books from which usage is told and charged.

A *stretch* is a span of time in which a job held the same. Whenever what a job holds changes, its open stretches end
and new ones begin. What counts is what counts for quotas: frozen work has its cards and memory, swapped work has memory
alone, waiting work nothing.

Stretches are stored together with the decisions of the same turn, so that a killed server loses none and counts none
twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from millpond.model.devices import Device
from millpond.model.resources import Amount
from millpond.scheduling.holdings import counted
from millpond.scheduling.records import JobRecord


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
    """The open stretches of a job end at ``at``, and these begin.

    Attributes:
        is_first: the job has no open stretches.
    """

    job: str
    at: float
    began: tuple[UsageInterval, ...]
    is_first: bool = False


class UsageMeter:
    """Knows what each job holds, and says when that changes.

    Args:
        open_stretches: those that had not ended when the server last stopped.
    """

    def __init__(self, open_stretches: Iterable[UsageInterval] = ()) -> None:
        self._held: dict[str, tuple[HeldAmount, ...]] = {}
        for stretch in open_stretches:
            self._held[stretch.job] = _sorted((*self._held.get(stretch.job, ()), stretch.held))

    @property
    def jobs(self) -> list[str]:
        """Jobs with open stretches."""
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
        return UsageChange(record.id, now, _stretches(record, held, now), is_first=not before)

    def skip(self, record: JobRecord, since: float, now: float) -> list[UsageChange]:
        """A job with open stretches goes on with them at ``now``; between ``since`` and then no time has passed."""
        began = _stretches(record, self._held[record.id], now)
        return [UsageChange(record.id, since, ()), UsageChange(record.id, now, began, is_first=True)]

    def gone(self, job: str, now: float) -> UsageChange:
        """A job with open stretches is known no more: they end."""
        del self._held[job]
        return UsageChange(job, now, ())


def _stretches(record: JobRecord, held: Iterable[HeldAmount], since: float) -> tuple[UsageInterval, ...]:
    job = record.job
    return tuple(UsageInterval(job.id, job.user, job.queue, job.kind.value, since, part) for part in held)


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
