"""What displacing equals may cost: a small part of what the cluster has done.

The ordering ends running work for work of the same class where that shortens the line by more than it costs. Each time
is worth it, and yet they add up: where lengths are guessed badly, or nothing is saved, a cluster could be busy with
work that it threw away. So what all such preemptions cost, in card-seconds, never exceeds ``PREEMPTION_BUDGET`` of
what has been held; and no more is saved up than a day's worth, so that a quiet year does not pay for a wasted week.
"""

from __future__ import annotations

from collections.abc import Sequence

from millpond.model.resources import CARD_MILLI
from millpond.model.workloads import CheckpointMode
from millpond.scheduling.records import JobRecord
from millpond.scheduling.settings import PreemptionCost

PREEMPTION_BUDGET = 0.015
"""Of the card-seconds that have been held."""

SAVED_UP_S = 86_400.0
"""What is not spent of so many seconds of the present use may be spent later."""


class PreemptionBudget:
    """Card-seconds that may be spent.

    Attributes:
        left: what there is now; below zero never.
        since: up to when work has been counted.
    """

    def __init__(self) -> None:
        self.left = 0.0
        self.since = 0.0

    def earn(self, held_milli: int, now: float) -> None:
        """Count what has been held since the last time; what ended on the way does not count."""
        rate = PREEMPTION_BUDGET * held_milli / CARD_MILLI
        most = max(self.left, rate * SAVED_UP_S)
        self.left = min(self.left + rate * max(now - self.since, 0.0), most)
        self.since = max(self.since, now)

    def spend(self, cost: float) -> None:
        """A preemption was decided."""
        self.left = max(self.left - cost, 0.0)

    def snapshot(self) -> list[float]:
        """Plain data."""
        return [self.left, self.since]

    def restore(self, plain: Sequence[float]) -> None:
        """Take over what ``snapshot`` returned."""
        self.left, self.since = plain


def cost_of(record: JobRecord, cost: PreemptionCost, now: float) -> float:
    """Card-seconds that a preemption costs running work: its restart, and all of its run where it saves nothing.

    But for what of the run went into catching up: that was a cost of the preemption before. ``running.charge_of`` says
    the same of the roster.
    """
    lost_s = cost.of(record.gpu_milli)
    if record.job.checkpoint.mode is CheckpointMode.NONE and record.started_at is not None:
        lost_s += max(now - record.started_at - record.debt_s, 0.0)
    return lost_s * record.gpu_milli / CARD_MILLI
