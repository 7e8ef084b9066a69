"""The default ordering: the least work left goes first, learnt where it is not forecast, with ageing.

Queues take rounds by their weights (see ``tenancy.queue_rank``); within a round, the key is

    left * cards ** SIZE_POWER / (1 + waited / (PATIENCE * (attained + left)))

with ``left`` the seconds the job still needs: by a forecast that can be trusted and was not outlived, otherwise the
Gittins rank that ``survival`` learns from the jobs that have ended. Ageing is relative to the job's own length, so a
minute's job moves up within hours and a month's job within years. Running work leaves for waiting work only where its
key is worse by a margin, larger when lengths are guesses, and by the cost of the preemption (see
``reclaiming.plans``).

How the parameters were chosen, and on which data: docs/ordering.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from millpond.model.workloads import CheckpointMode
from millpond.scheduling.ordering.base import Displaceable, Key, Ordering, cards, cards_of
from millpond.scheduling.ordering.forecasts import NEVER, debt_s, forecast_s, is_exact
from millpond.scheduling.ordering.guard import ShortWorkGuard
from millpond.scheduling.ordering.line_table import LineTable
from millpond.scheduling.ordering.running import (
    NOBODY_MOVES,
    aged_key,
    displaceable,
    displaced_below,
    movable_from,
    preemption_costs,
    running_keys,
    soonest_displaceable,
)
from millpond.scheduling.ordering.time_left import reached_s
from millpond.scheduling.placement.arrays import BoolArray, FloatArray, Int64Array
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.reclaiming.roster import LEAST_MOVING_CARDS
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

LEAST_WEIGHT = 1e-12
"""In place of the size of a job that was overdue when it began: no equal displaces it."""

AGEING_STEP = 0.05
"""A waiting job's key is computed anew when its ageing term has grown by this part."""

RANK_RISE = 1.1
"""A running job is looked at again when its rank has risen by this factor."""


_ROUNDING = 1e-9
"""The bound of what may be displaced is too high by up to this part of a key, never too low."""


class Default(Ordering):
    """Least predicted work left, aged."""

    needs_usage = True
    selective = True
    bounds_waits = True
    promotes = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.guard = ShortWorkGuard()
        self._keys = np.zeros(64)
        self.use_kernels(interpreted())

    # ---- waiting ------------------------------------------------------------------------------------------------

    def line_up(self, record: JobRecord, now: float) -> tuple[Key, float, float]:
        attained = record.attained_s
        left, is_known = self.time_left.needed_s(record, now)
        waited = max(now - record.submitted_at - attained, 0.0)
        key = aged_key(left, self.weight_of(record), waited, attained, PATIENCE)
        due = now + AGEING_STEP * (waited + PATIENCE * (attained + left))
        return (key,), (MARGIN_KNOWN if is_known else MARGIN_GUESSED) * key, due

    def waiting_key(self, record: JobRecord, now: float) -> Key:
        return self.line_up(record, now)[0]

    def weight_of(self, record: JobRecord) -> float:
        """By how much the size of a job multiplies its seconds."""
        return _weight(record.gpu_milli)

    def submitted(self, record: JobRecord, now: float) -> None:
        self.guard.arrive(now)

    def foretold(self, record: JobRecord) -> None:
        self.guard.learn(record)

    def holds_back(self, record: JobRecord, free_gpu_milli: int, capacity_milli: int, now: float) -> bool:
        return self.guard.holds_back(record, free_gpu_milli, capacity_milli, now)

    def held_back(self, record: JobRecord) -> None:
        self.guard.hold_back(record)

    def held_lines(
        self, table: LineTable, free_gpu_milli: int, capacity_milli: int, now: float
    ) -> tuple[BoolArray, int]:
        return self.guard.held_lines(table, free_gpu_milli, capacity_milli, now)

    def next_release(self, now: float) -> float | None:
        return self.guard.next_release(now)

    # ---- running ------------------------------------------------------------------------------------------------

    def started(self, record: JobRecord, now: float) -> None:
        self.guard.start(record)

    def left(self, record: JobRecord, now: float) -> None:
        self.guard.leave(record)
        super().left(record, now)

    def next_change(self, record: JobRecord, now: float) -> float:
        if record.started_at is None or self.time_left.known_s(record, now) < NEVER:
            return NEVER
        at = self.time_left.survival.next_rise(record.size_class, reached_s(record, now), RANK_RISE)
        return now + at - record.service_s(now) + debt_s(record, now)

    def next_change_of_any(
        self, running: Iterable[JobRecord], slots: FloatArray, threshold: float, now: float
    ) -> float | None:
        """When a job of guessed length will have run so long that the first in line may displace it."""
        table = self.time_left.survival
        soonest = self._soonest(slots, now, table.edges, table.rank_table, PATIENCE, threshold, RANK_RISE)
        return None if soonest == NEVER else now + max(float(soonest), 0.0)

    def sizes(self, record: JobRecord) -> tuple[float, float, float, float, float]:
        gpu_milli = record.gpu_milli
        per_second = COST_WEIGHT * cards_of(gpu_milli)
        charge = per_second * self.settings.preemption_cost.of(gpu_milli)
        loss = per_second if record.job.checkpoint.mode is CheckpointMode.NONE else 0.0
        weight = LEAST_WEIGHT if record.overdue else self.weight_of(record)
        return forecast_s(record), float(is_exact(record)), weight, charge, loss

    def slot_keys(self, slots: FloatArray, now: float) -> FloatArray:
        count = slots.shape[1]
        if count > len(self._keys):
            self._keys = np.zeros(2 * count)
        table, keys = self.time_left.survival, self._keys[:count]
        self._running_keys(slots, now, table.edges, table.rank_table, PATIENCE, keys)
        return keys

    def victims(
        self, record: JobRecord, slots: FloatArray, now: float, keys: FloatArray, open_to_it: Int64Array, budget: float
    ) -> Displaceable | None:
        gate = _move_gate(cards(record), record.turn)
        harm, move_harm = np.full((2, len(keys)), np.inf)
        ended, moved = self._displaceable(
            slots,
            now,
            keys,
            open_to_it,
            record.displaces_above,
            gate,
            COST_WEIGHT * budget,
            MOVE_HARM,
            harm,
            move_harm,
        )
        return Displaceable(open_to_it, harm, keys, move_harm if moved else move_harm[:0]) if ended else None

    def displaced_below(self, slots: FloatArray, now: float, keys: FloatArray, budget: float) -> FloatArray:
        below = np.empty(len(keys))
        self._displaced_below(slots, now, keys, COST_WEIGHT * budget * (1.0 + _ROUNDING), _ROUNDING, below)
        return below

    def costs(self, slots: FloatArray, now: float) -> FloatArray:
        costs = np.empty(slots.shape[1])
        self._preemption_costs(slots, now, COST_WEIGHT, cards_of(0), costs)
        return costs

    def moved_from(self, slots: FloatArray, now: float, budget: float) -> FloatArray:
        keys, most = np.empty(slots.shape[1]), COST_WEIGHT * budget * (1.0 + _ROUNDING)
        self._movable_from(slots, now, most, COST_WEIGHT * MOVE_GATE, cards_of(0), _ROUNDING, keys)
        return keys

    # ---- upkeep -------------------------------------------------------------------------------------------------

    def use_kernels(self, kernels: KernelSet) -> None:
        super().use_kernels(kernels)
        self._running_keys = kernels.call(running_keys.__name__)
        self._soonest = kernels.call(soonest_displaceable.__name__)
        self._displaceable = kernels.call(displaceable.__name__)
        self._displaced_below = kernels.call(displaced_below.__name__)
        self._preemption_costs = kernels.call(preemption_costs.__name__)
        self._movable_from = kernels.call(movable_from.__name__)

    def snapshot(self) -> dict[str, Any]:
        return {**super().snapshot(), "guard": self.guard.snapshot()}

    def restore(self, plain: dict[str, Any]) -> None:
        super().restore(plain)
        self.guard.restore(plain["guard"])


def _move_gate(asked_cards: float, key: float) -> float:
    """The most that moving a job aside may cost per card of it, for a waiting job."""
    return COST_WEIGHT * MOVE_GATE * key / asked_cards if asked_cards >= LEAST_MOVING_CARDS else NOBODY_MOVES


@cache
def _weight(gpu_milli: int) -> float:
    return float(cards_of(gpu_milli) ** SIZE_POWER)
