"""The published orderings, kept as baselines: faithful to their rules, comparable on the same core.

Lengths are forecasts where the caller gives them (``DurationPredicted``), else the job's time limit; a job of unknown
length goes last among its like.
"""

from __future__ import annotations

from millpond.scheduling.ordering.base import NEVER, Key, Ordering, cards, remaining_s, whole_s
from millpond.scheduling.records import JobRecord

ROUNDING_GPU_S = 1e-3
"""Sums of service are compared with thresholds up to this much rounding."""


def _left(record: JobRecord, now: float) -> float:
    left = remaining_s(record, now)
    return NEVER if left is None else left


class Fifo(Ordering):
    """First come, first served."""

    strict = True


class ShortestJobFirst(Ordering):
    """Shortest whole length first."""

    strict = True

    def waiting_key(self, record: JobRecord, now: float) -> Key:
        return (whole_s(record),)


class SmallestServiceFirst(Ordering):
    """Smallest whole GPU-time first (length times cards; QSSF with a given forecast, Hu et al., SC'21)."""

    strict = True

    def waiting_key(self, record: JobRecord, now: float) -> Key:
        return (whole_s(record) * cards(record),)


class ShortestRemainingTime(Ordering):
    """Shortest remaining time first, preemptive."""

    replans = True

    def waiting_key(self, record: JobRecord, now: float) -> Key:
        return (_left(record, now),)


class SmallestRemainingService(Ordering):
    """Smallest remaining GPU-time first, preemptive (the SRSF of Gu et al., NSDI'19)."""

    replans = True

    def waiting_key(self, record: JobRecord, now: float) -> Key:
        return (_left(record, now) * cards(record),)


class EarliestDeadline(Ordering):
    """Earliest deadline first; work without a deadline after all that has one."""

    def waiting_key(self, record: JobRecord, now: float) -> Key:
        deadline = record.job.deadline_s
        return (NEVER if deadline is None else deadline, record.submitted_at)


class FairShare(Ordering):
    """First come, first served within a user; between queues and users whoever has had least of late (decayed DRF).

    The fairness part is a rank that the cycle computes from decayed usage; see ``tenancy.standing``.
    """

    needs_usage = True
    share_decides = True


class Tiresias(Ordering):
    """Queues by attained GPU-time, first come first served in each, preemptive (2D-LAS, Gu et al., NSDI'19)."""

    replans = True

    def waiting_key(self, record: JobRecord, now: float) -> Key:
        served = record.service_s(now) * cards(record) + ROUNDING_GPU_S
        level = sum(served >= threshold for threshold in self.settings.tiresias_thresholds_gpu_s)
        return (float(level), record.submitted_at)

    def next_change(self, record: JobRecord, now: float) -> float:
        served = record.service_s(now) * cards(record) + ROUNDING_GPU_S
        for threshold in sorted(self.settings.tiresias_thresholds_gpu_s):
            if served < threshold:
                return now + (threshold - served + ROUNDING_GPU_S) / cards(record)
        return NEVER
