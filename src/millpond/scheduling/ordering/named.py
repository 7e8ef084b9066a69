"""The published orderings, kept as baselines: faithful to their rules, comparable on the same core.

Lengths are forecasts where the caller gives them (``DurationPredicted``), else the job's time limit; a job of unknown
length goes last among its like.
"""

from __future__ import annotations

from typing import Any

from millpond.scheduling.ordering.base import Key, Ordering, cards
from millpond.scheduling.ordering.forecasts import NEVER, debt_s
from millpond.scheduling.records import JobRecord
from millpond.scheduling.settings import Settings

ROUNDING_GPU_S = 1e-3
"""Sums of service are compared with thresholds up to this much rounding."""


def _whole_s(record: JobRecord) -> float:
    """Length of the whole run by forecast or time limit, ``NEVER`` when neither is there."""
    if record.expected_s is not None:
        return record.expected_s
    return NEVER if record.job.time_limit_s is None else record.job.time_limit_s


def _left_s(record: JobRecord, now: float) -> float:
    """The rest of it, catching up after a preemption included."""
    return max(_whole_s(record) - record.service_s(now), 0.0) + debt_s(record, now)


class Fifo(Ordering):
    """First come, first served."""

    strict = True


class ShortestJobFirst(Ordering):
    """Shortest whole length first."""

    strict = True

    def waiting_key(self, record: JobRecord, now: float) -> Key:
        return (_whole_s(record),)


class SmallestServiceFirst(Ordering):
    """Smallest whole GPU-time first (length times cards; QSSF with a given forecast, Hu et al., SC'21)."""

    strict = True

    def waiting_key(self, record: JobRecord, now: float) -> Key:
        return (_whole_s(record) * cards(record),)


class ShortestRemainingTime(Ordering):
    """Shortest remaining time first, preemptive."""

    replans = True

    def waiting_key(self, record: JobRecord, now: float) -> Key:
        return (_left_s(record, now),)


class SmallestRemainingService(Ordering):
    """Smallest remaining GPU-time first, preemptive (the SRSF of Gu et al., NSDI'19)."""

    replans = True

    def waiting_key(self, record: JobRecord, now: float) -> Key:
        return (_left_s(record, now) * cards(record),)


class EarliestDeadline(Ordering):
    """Earliest deadline first; work without a deadline after all that has one."""

    bounds_waits = True

    def waiting_key(self, record: JobRecord, now: float) -> Key:
        deadline = record.job.deadline_s
        return (NEVER if deadline is None else deadline, record.submitted_at)


class FairShare(Ordering):
    """First come, first served within a user; between queues and users by the least recent use (decayed DRF).

    The fairness part is a rank that the cycle computes from decayed usage; see ``tenancy.queue_rank``.
    """

    needs_usage = True
    share_decides = True
    bounds_waits = True


class Tiresias(Ordering):
    """Queues by attained GPU-time, preemptive (2D-LAS, Gu et al., NSDI'19).

    Within a queue the published simulators differ. Where decisions fall on a period, it is first come, first served
    (Lucid's). Where every event decides, a queue is a list: who runs stays ahead of who waits, newcomers and jobs that
    have moved down join the end (Tiresias' own, and Muri's).
    """

    replans = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._places: dict[str, tuple[int, int]] = {}

    def _level(self, record: JobRecord, now: float) -> int:
        served = record.service_s(now) * cards(record) + ROUNDING_GPU_S
        return sum(served >= threshold for threshold in self.settings.tiresias_thresholds_gpu_s)

    def waiting_key(self, record: JobRecord, now: float) -> Key:
        return (float(self._level(record, now)), record.submitted_at)

    def arrange(self, active: list[JobRecord], now: float) -> list[JobRecord]:
        if self.settings.replan_period_s > 0:
            return super().arrange(active, now)
        places = self._places

        def order(record: JobRecord) -> tuple[int, int, int, int]:
            level = self._level(record, now)
            before = places.get(record.id)
            if before is None or before[0] != level:
                return level, 1, 0, record.sequence
            return level, 0, int(record.slot < 0), before[1]

        arranged = sorted(active, key=order)
        self._places = {record.id: (order(record)[0], place) for place, record in enumerate(arranged)}
        return arranged

    def next_change(self, record: JobRecord, now: float) -> float:
        served = record.service_s(now) * cards(record) + ROUNDING_GPU_S
        for threshold in sorted(self.settings.tiresias_thresholds_gpu_s):
            if served < threshold:
                return now + (threshold - served + ROUNDING_GPU_S) / cards(record)
        return NEVER

    def snapshot(self) -> dict[str, Any]:
        return {**super().snapshot(), "places": {job: list(place) for job, place in self._places.items()}}

    def restore(self, plain: dict[str, Any]) -> None:
        super().restore(plain)
        self._places = {job: (level, place) for job, (level, place) in plain["places"].items()}
