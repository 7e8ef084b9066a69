"""Our ordering: the least work left goes first, learnt if nobody tells, aged so that nobody is forgotten.

Between queues and users the decayed weighted share has its say (see ``tenancy.standing``); within, the key is

    left * cards ** SIZE_POWER / (1 + waited / (PATIENCE * (attained + left)))

with ``left`` the seconds the job still needs: from its forecast or time limit where there is one, otherwise the Gittins
rank that ``survival`` learns from the jobs that have ended. Ageing is relative to the job's own length, so a minute's
job moves up within hours and a month's job within years. Running work leaves for waiting work only where its key is
worse by a margin, larger when lengths are guesses, and by the cost of the preemption (see ``reclaiming.plans``).

How the parameters were chosen, and on which data: docs/ordering.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from millpond.scheduling.ordering.base import NEVER, BoolArray, Displaceable, Key, Ordering, cards, debt_s, remaining_s
from millpond.scheduling.ordering.guard import Guard
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

PATIENCE = 100.0
"""A job that has waited so many times its own length has its key halved."""

MARGIN_KNOWN, MARGIN_GUESSED = 1.05, 2.0
"""By how much a victim's key must exceed the newcomer's, when the newcomer's length is known and when it is not."""

COST_WEIGHT = 2.0
"""... and by so many times the cost of the preemption, in card-seconds."""

MOVE_GATE = 0.01
"""Running work is moved aside for a job only if that costs less than this part of the job's key per card."""

MOVE_HARM = 0.2
"""Moving counts as so much of the harm of ending."""

MOVABLE_CARDS = 7
"""Only jobs of up to so many cards are moved aside."""

WAIT_GRID_S, WAIT_RATIO = 60.0, 1.25
"""Waiting counts in geometric steps from the first on, so that keys change only now and then."""

RANK_RISE = 1.3
"""A running job is looked at again when its rank has risen by this factor."""


class Default(Ordering):
    """Least predicted work left, aged."""

    needs_usage = True
    selective = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.survival = SurvivalTable()
        self.guard = Guard()

    # ---- waiting ------------------------------------------------------------------------------------------------

    def _left(self, record: JobRecord, now: float) -> float:
        left = remaining_s(record, now)
        if left is None:
            left = self.survival.rank(record.size_class, record.service_s(now)) + debt_s(record, now)
        return max(left, 1.0)

    def waiting_key(self, record: JobRecord, now: float) -> Key:
        left = self._left(record, now)
        attained = record.service_s(now)
        waited = _on_grid(now - record.submitted_at - attained)
        return (left * cards(record) ** SIZE_POWER / (1.0 + waited / (PATIENCE * (attained + left))),)

    def next_rekey(self, record: JobRecord, now: float) -> float:
        attained = record.service_s(now)
        waited = _on_grid(now - record.submitted_at - attained)
        step = WAIT_GRID_S if waited <= 0.0 else waited * WAIT_RATIO
        # A little past the grid point, so that rounding does not fall short of it.
        return max(record.submitted_at + attained + step * (1.0 + 1e-9), math.nextafter(now, NEVER))

    def submitted(self, record: JobRecord, now: float) -> None:
        self.guard.arrive(record, now)

    def foretold(self, record: JobRecord) -> None:
        self.guard.learn(record)

    def holds_back(self, record: JobRecord, free_gpu_milli: int, capacity_milli: int, now: float) -> bool:
        return self.guard.holds_back(record, free_gpu_milli, capacity_milli, now)

    # ---- running ------------------------------------------------------------------------------------------------

    def started(self, record: JobRecord, now: float) -> None:
        self.guard.start(record)

    def left(self, record: JobRecord, now: float) -> None:
        self.guard.leave(record)
        if record.state.ended:
            self.survival.end(record, record.attained_s)
        else:
            self.survival.outlive(record, record.attained_s)

    def next_change(self, record: JobRecord, now: float) -> float:
        if record.started_at is None or remaining_s(record, now) is not None:
            return NEVER
        at = self.survival.next_rise(record.size_class, record.service_s(now), RANK_RISE)
        return now + at - record.service_s(now) + debt_s(record, now)

    def next_change_of_any(self, running: Iterable[JobRecord], slots: FloatArray, now: float) -> float | None:
        guessed = (slots[0] > 0.0) & ~np.isfinite(slots[SLOT_WHOLE])
        if not guessed.any():
            return None
        service, debt = _service(slots, now)
        rises = self.survival.next_rises(slots[SLOT_CLASS].astype(np.int64), service, RANK_RISE)
        soonest = float(np.min(rises - service + debt, where=guessed, initial=NEVER))
        return None if soonest == NEVER else now + max(soonest, 0.0)

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

    def ends(self, slots: FloatArray, now: float) -> FloatArray:
        return now + self._slots_left(slots, now)

    def _slots_left(self, slots: FloatArray, now: float) -> FloatArray:
        """(slots,) seconds left: to the forecast end, or the rank where there is no forecast."""
        service, debt = _service(slots, now)
        whole = slots[SLOT_WHOLE]
        left: FloatArray = whole - service
        guessed = ~np.isfinite(whole)
        if guessed.any():
            ranks = self.survival.ranks_at(slots[SLOT_CLASS].astype(np.int64), service)
            left = np.where(guessed, ranks, left)
        return np.maximum(np.maximum(left, 0.0) + debt, 1.0)

    def slot_keys(self, slots: FloatArray, now: float) -> FloatArray:
        left = self._slots_left(slots, now)
        service, _ = _service(slots, now)
        keys: FloatArray = (
            left * slots[SLOT_CARDS] ** SIZE_POWER / (1.0 + slots[SLOT_WAITED] / (PATIENCE * (service + left)))
        )
        return keys

    def victims(self, record: JobRecord, slots: FloatArray, keys: FloatArray, now: float) -> Displaceable | None:
        own = record.key[0]
        margin = MARGIN_GUESSED if remaining_s(record, now) is None else MARGIN_KNOWN
        size = slots[SLOT_CARDS]
        cost = self.settings.preemption_cost
        costs = np.where(size > cost.large_above_gpus, cost.large_s, cost.small_s)
        allowed: BoolArray = keys > margin * own + COST_WEIGHT * costs * size
        if not allowed.any():
            return None
        movable: BoolArray = np.zeros(0, dtype=np.bool_)
        if record.gpu_milli >= 2000:
            movable = ~allowed & (size <= MOVABLE_CARDS) & (costs <= MOVE_GATE * own / cards(record))
        return Displaceable(allowed, size / keys, keys, movable, MOVE_HARM)

    # ---- upkeep -------------------------------------------------------------------------------------------------

    def refresh(self, running: Iterable[JobRecord], now: float) -> None:
        if self.survival.stale:
            for record in running:
                self.survival.outlive(record, record.service_s(now))
            self.survival.refresh()

    def use_kernels(self, kernels: KernelSet) -> None:
        self.survival.use_kernels(kernels)

    def snapshot(self) -> dict[str, Any]:
        return {"survival": self.survival.snapshot(), "guard": self.guard.snapshot()}

    def restore(self, plain: dict[str, Any]) -> None:
        self.survival.restore(plain["survival"])
        self.guard.restore(plain["guard"])


def _on_grid(waited_s: float) -> float:
    """The largest of 0 and 60 * 1.25 ** i seconds that is not above ``waited_s``."""
    if waited_s < WAIT_GRID_S:
        return 0.0
    step = math.floor(math.log(waited_s / WAIT_GRID_S, WAIT_RATIO) + 1e-9)
    return WAIT_GRID_S * WAIT_RATIO**step


def _service(slots: FloatArray, now: float) -> tuple[FloatArray, FloatArray]:
    """(slots,) attained service and what is left of the debt, both in seconds."""
    run = np.maximum(now - slots[SLOT_STARTED], 0.0)
    debt = slots[SLOT_DEBT]
    return slots[SLOT_ATTAINED] + np.maximum(run - debt, 0.0), np.maximum(debt - run, 0.0)
