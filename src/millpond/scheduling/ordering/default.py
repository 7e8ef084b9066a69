"""Our ordering: the least work left goes first, learnt if nobody tells, aged so that nobody is forgotten.

Between queues and users the decayed weighted share decides (see ``scheduler``); within, the key is

    left * cards ** SIZE_POWER / (1 + waited / (PATIENCE * (attained + left)))

with ``left`` the seconds the job still needs: from its forecast or time limit where there is one, otherwise the Gittins
rank that ``survival`` learns from the jobs that have ended. The ageing term is relative to the job's own length: a
minute's job is moved up after an hour, a month's job after weeks. Running work leaves for waiting work only where the
waiting job's key is lower by ``PREEMPTION_MARGIN`` and the cost of the preemption is covered (see
``reclaiming.victims``).

How the parameters were chosen: see docs/ordering.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from millpond.scheduling.ordering.base import NEVER, BoolArray, Key, Ordering, cards, debt_s, remaining_s
from millpond.scheduling.ordering.survival import SurvivalTable
from millpond.scheduling.placement.kernels import KernelSet
from millpond.scheduling.reclaiming.roster import (
    SLOT_ATTAINED,
    SLOT_CARDS,
    SLOT_CLASS,
    SLOT_DEBT,
    SLOT_STARTED,
    SLOT_WAITED,
    SLOT_WHOLE,
    FloatArray,
)
from millpond.scheduling.records import JobRecord
from millpond.scheduling.settings import Settings

SIZE_POWER = 0.9
"""How strongly cards count against a job, compared with seconds."""

PATIENCE = 50.0
"""A job that has waited so many times its own length has its key halved."""

PREEMPTION_MARGIN = 1.5
COST_WEIGHT = 2.0
"""A victim's key must exceed ``margin * key + weight * cost * cards``."""

REKEY_GROWTH = 0.1
"""A waiting job's key is computed anew when its ageing term has grown by this part."""

RANK_RISE = 1.1
"""A running job is looked at again when its rank has risen by this factor."""


class Default(Ordering):
    """Least predicted work left, aged."""

    needs_usage = True
    selective = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.survival = SurvivalTable()

    def _left(self, record: JobRecord, now: float) -> float:
        left = remaining_s(record, now)
        if left is None:
            left = self.survival.rank(record.size_class, record.service_s(now)) + debt_s(record, now)
        return max(left, 1.0)

    def waiting_key(self, record: JobRecord, now: float) -> Key:
        left = self._left(record, now)
        attained = record.service_s(now)
        waited = max(now - record.submitted_at - attained, 0.0)
        return (left * cards(record) ** SIZE_POWER / (1.0 + waited / (PATIENCE * (attained + left))),)

    def next_rekey(self, record: JobRecord, now: float) -> float:
        length = record.service_s(now) + self._left(record, now)
        waited = max(now - record.submitted_at - record.service_s(now), 0.0)
        return now + REKEY_GROWTH * (PATIENCE * length + waited)

    def next_change(self, record: JobRecord, now: float) -> float:
        if record.started_at is None or remaining_s(record, now) is not None:
            return NEVER
        at = self.survival.next_rise(record.size_class, record.service_s(now), RANK_RISE)
        return now + at - record.service_s(now) + debt_s(record, now)

    def expected_end(self, record: JobRecord, now: float) -> float:
        left = remaining_s(record, now)
        if left is None:
            service = record.service_s(now)
            left = self.survival.quantile_s(record.size_class, service, 0.5) + debt_s(record, now)
        return now + left

    def cautious_end(self, record: JobRecord, now: float) -> float:
        if remaining_s(record, now) is not None:
            return super().cautious_end(record, now)
        service = record.service_s(now)
        return now + self.survival.quantile_s(record.size_class, service, 0.1) + debt_s(record, now)

    def _slots_left(self, slots: FloatArray, now: float) -> FloatArray:
        """(slots,) seconds left: to the forecast end, or the rank where there is no forecast."""
        run = np.maximum(now - slots[SLOT_STARTED], 0.0)
        debt = np.maximum(slots[SLOT_DEBT] - run, 0.0)
        service = slots[SLOT_ATTAINED] + np.maximum(run - slots[SLOT_DEBT], 0.0)
        whole = slots[SLOT_WHOLE]
        ranks = self.survival.ranks_at(slots[SLOT_CLASS].astype(np.int64), service)
        left: FloatArray = np.where(np.isfinite(whole), np.maximum(whole - service, 0.0), ranks) + debt
        return np.maximum(left, 1.0)

    def victims(
        self, record: JobRecord, slots: FloatArray, now: float
    ) -> tuple[BoolArray, FloatArray, FloatArray] | None:
        left = self._slots_left(slots, now)
        attained = slots[SLOT_ATTAINED] + np.maximum(now - slots[SLOT_STARTED] - slots[SLOT_DEBT], 0.0)
        size = slots[SLOT_CARDS]
        keys = left * size**SIZE_POWER / (1.0 + slots[SLOT_WAITED] / (PATIENCE * (attained + left)))
        cost = self.settings.preemption_cost
        costs = np.where(size > cost.large_above_gpus, cost.large_s, cost.small_s)
        own = self.waiting_key(record, now)[0]
        allowed: BoolArray = keys > PREEMPTION_MARGIN * own + COST_WEIGHT * costs * size
        return (allowed, size / keys, keys) if allowed.any() else None

    def ends(self, slots: FloatArray, now: float) -> FloatArray:
        return now + self._slots_left(slots, now)

    def use_kernels(self, kernels: KernelSet) -> None:
        self.survival.use_kernels(kernels)

    def refresh(self, running: Iterable[JobRecord], now: float) -> None:
        if self.survival.stale:
            for record in running:
                self.survival.outlive(record, record.service_s(now))
            self.survival.refresh()

    def left(self, record: JobRecord, now: float) -> None:
        if record.state.ended:
            self.survival.end(record, record.attained_s)
        else:
            self.survival.outlive(record, record.attained_s)

    def snapshot(self) -> dict[str, Any]:
        return {"survival": self.survival.snapshot()}

    def restore(self, plain: dict[str, Any]) -> None:
        self.survival.restore(plain["survival"])
