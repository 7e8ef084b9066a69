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
from typing import Any, TypeVar

import numpy as np

from millpond.model.workloads import CheckpointMode
from millpond.scheduling.ordering.base import (
    NEVER,
    TRUSTED_SPREAD,
    BoolArray,
    Displaceable,
    Key,
    Ordering,
    cards,
    cards_of,
    debt_s,
    forecast_s,
    is_exact,
)
from millpond.scheduling.ordering.guard import ShortWorkGuard
from millpond.scheduling.ordering.line_table import (
    ATTAINED,
    CAUTIOUS,
    DEBT,
    EXPECTED,
    LIMIT,
    REACHED,
    SIZE_CLASS,
    LineTable,
)
from millpond.scheduling.ordering.running import (
    NOBODY_MOVES,
    count_outlived,
    displaceable,
    expected_ends,
    running_keys,
    soonest_displaceable,
)
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.reclaiming.roster import (
    LEAST_MOVING_CARDS,
    MOST_MOVED_CARDS,
    SLOT_CARDS,
    SLOT_CHARGE,
    SLOT_DEBT,
    SLOT_LOSS,
    SLOT_STARTED,
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

LEAST_WEIGHT = 1e-12
"""In place of the size of a job that was overdue when it began: no equal displaces it."""

AGEING_STEP = 0.05
"""A waiting job's key is computed anew when its ageing term has grown by this part."""

RANK_RISE = 1.1
"""A running job is looked at again when its rank has risen by this factor."""


_ROUNDING = 1e-9
"""The bound of what may be displaced is too high by up to this part of a key, never too low."""

Seconds = TypeVar("Seconds", float, FloatArray)


class Default(Ordering):
    """Least predicted work left, aged."""

    needs_usage = True
    selective = True
    bounds_waits = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.guard = ShortWorkGuard()
        self._keys = np.zeros(64)
        self.use_kernels(interpreted())

    # ---- waiting ------------------------------------------------------------------------------------------------

    def _known_left(self, record: JobRecord, now: float) -> float:
        """Seconds left by a forecast that can be trusted and was not outlived; ``NEVER`` when there is none."""
        whole = forecast_s(record)
        if whole == NEVER:
            return NEVER
        service = record.service_s(now)
        if service >= whole and not is_exact(record):
            return NEVER
        return max(whole - service, 0.0)

    def line_up(self, record: JobRecord, now: float) -> tuple[Key, float, float]:
        attained = record.attained_s
        left, margin = self._left(record, now)
        waited = max(now - record.submitted_at - attained, 0.0)
        key = aged_key(left, _weight(record.gpu_milli), waited, attained)
        return (key,), margin * key, now + AGEING_STEP * (waited + PATIENCE * (attained + left))

    def _left(self, record: JobRecord, now: float) -> tuple[float, float]:
        """Seconds that a waiting job still needs; and by how much keys that it displaces exceed its own."""
        left, margin = NEVER if record.expected_s is None else self._known_left(record, now), MARGIN_KNOWN
        if left == NEVER:
            attained = record.attained_s
            reached = max(record.reached_s, attained)
            left, margin = self.survival.rank(record.size_class, reached) + reached - attained, MARGIN_GUESSED
        return max(left + record.debt_s, 1.0), margin

    def work_left_s(self, record: JobRecord, now: float) -> float:
        return self._left(record, now)[0]

    def waiting_key(self, record: JobRecord, now: float) -> Key:
        return self.line_up(record, now)[0]

    def submitted(self, record: JobRecord, now: float) -> None:
        self.guard.arrive(record, now)

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
        if record.started_at is None or self._known_left(record, now) < NEVER:
            return NEVER
        at = self.survival.next_rise(record.size_class, _reached_s(record, now), RANK_RISE)
        return now + at - record.service_s(now) + debt_s(record, now)

    def next_change_of_any(
        self, running: Iterable[JobRecord], slots: FloatArray, threshold: float, now: float
    ) -> float | None:
        """When a job of guessed length will have run so long that the first in line may displace it."""
        table = self.survival
        soonest = self._soonest(slots, now, table.edges, table.rank_table, PATIENCE, threshold, RANK_RISE)
        return None if soonest == NEVER else now + max(float(soonest), 0.0)

    def expected_end(self, record: JobRecord, now: float) -> float:
        left = self._known_left(record, now)
        if left == NEVER:
            left = self.survival.half_ended_s(record.size_class, _reached_s(record, now)) - record.service_s(now)
        return now + min(left, _until_limit(record, now)) + debt_s(record, now)

    def cautious_end(self, record: JobRecord, now: float) -> float:
        service = record.service_s(now)
        if self._known_left(record, now) < NEVER and record.cautious_s is not None:
            left = max(record.cautious_s - service, 0.0)
        else:
            left = self.survival.mostly_ended_s(record.size_class, _reached_s(record, now)) - service
        return now + min(left, _until_limit(record, now)) + debt_s(record, now)

    def cautious_lefts(self, table: LineTable) -> FloatArray:
        attained, expected, cautious = table.figure(ATTAINED), table.figure(EXPECTED), table.figure(CAUTIOUS)
        is_known = (cautious <= TRUSTED_SPREAD * expected) & ((attained < expected) | (cautious == expected))
        is_known &= expected < NEVER
        reached = np.maximum(table.figure(REACHED), attained)
        whole = np.where(is_known, cautious, self.survival.mostly_ended_of(table.figure(SIZE_CLASS), reached))
        left: FloatArray = np.maximum(np.minimum(whole, table.figure(LIMIT)) - attained, 0.0) + table.figure(DEBT)
        return left

    def ends(self, slots: FloatArray, now: float) -> FloatArray:
        """(slots,) when half of such work has ended, or where a forecast or the time limit says so earlier."""
        ends = np.empty(slots.shape[1])
        self._fill_ends(slots, now, self.survival.edges, self.survival.half_ended_at, ends)
        return ends

    def sizes(self, record: JobRecord) -> tuple[float, float, float, float, float]:
        gpu_milli = record.gpu_milli
        per_second = COST_WEIGHT * cards_of(gpu_milli)
        charge = per_second * self.settings.preemption_cost.of(gpu_milli)
        loss = per_second if record.job.checkpoint.mode is CheckpointMode.NONE else 0.0
        weight = LEAST_WEIGHT if record.overdue else _weight(gpu_milli)
        return forecast_s(record), float(is_exact(record)), weight, charge, loss

    def slot_keys(self, slots: FloatArray, now: float) -> FloatArray:
        count = slots.shape[1]
        if count > len(self._keys):
            self._keys = np.zeros(2 * count)
        table, keys = self.survival, self._keys[:count]
        self._running_keys(slots, now, table.edges, table.rank_table, PATIENCE, keys)
        return keys

    def victims(
        self, record: JobRecord, slots: FloatArray, now: float, keys: FloatArray, open_to_it: BoolArray, budget: float
    ) -> Displaceable | None:
        gate = _move_gate(cards(record), record.key[0])
        harm, move_harm = np.empty(len(keys)), np.empty(len(keys))
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
        return Displaceable(harm, keys, move_harm if moved else move_harm[:0]) if ended else None

    def displaced_below(self, slots: FloatArray, now: float, keys: FloatArray, budget: float) -> FloatArray:
        charges = _charges(slots, now)
        below: FloatArray = keys - charges + _ROUNDING * keys
        below[charges > COST_WEIGHT * budget * (1.0 + _ROUNDING)] = -np.inf
        return below

    def movable(self, slots: FloatArray, now: float, asked_cards: float, key: float, budget: float) -> BoolArray:
        charges, size = _charges(slots, now), slots[SLOT_CARDS]
        most = np.minimum(_move_gate(asked_cards, key) * size, COST_WEIGHT * budget)
        movable: BoolArray = (charges <= most * (1.0 + _ROUNDING)) & (size <= MOST_MOVED_CARDS)
        return movable

    # ---- upkeep -------------------------------------------------------------------------------------------------

    def refresh(self, slots: FloatArray, now: float) -> None:
        # Looking at all running work is worth it only once enough has ended since the last time.
        if self.survival.is_stale(slots.shape[1]):
            self._count_outlived(slots, now, self.survival.edges, self.survival.outlived)
            self.survival.refresh()
            self.version += 1

    def use_kernels(self, kernels: KernelSet) -> None:
        self.survival.use_kernels(kernels)
        self._running_keys = kernels.call(running_keys.__name__)
        self._count_outlived = kernels.call(count_outlived.__name__)
        self._soonest = kernels.call(soonest_displaceable.__name__)
        self._displaceable = kernels.call(displaceable.__name__)
        self._fill_ends = kernels.call(expected_ends.__name__)

    def snapshot(self) -> dict[str, Any]:
        return {**super().snapshot(), "guard": self.guard.snapshot()}

    def restore(self, plain: dict[str, Any]) -> None:
        super().restore(plain)
        self.guard.restore(plain["guard"])


def _reached_s(record: JobRecord, now: float) -> float:
    """Seconds of service that a job is known to outlast."""
    return max(record.reached_s, record.service_s(now))


def _charges(slots: FloatArray, now: float) -> FloatArray:
    """(slots,) ``charge_of`` all running work."""
    service = np.maximum(now - slots[SLOT_STARTED] - slots[SLOT_DEBT], 0.0)
    charges: FloatArray = slots[SLOT_CHARGE] + slots[SLOT_LOSS] * service
    return charges


def _move_gate(asked_cards: float, key: float) -> float:
    """The most that moving a job aside may cost per card of it, for a waiting job."""
    return COST_WEIGHT * MOVE_GATE * key / asked_cards if asked_cards >= LEAST_MOVING_CARDS else NOBODY_MOVES


def aged_key(left_s: Seconds, weight: Seconds, waited_s: Seconds, attained_s: Seconds) -> Seconds:
    """The key of a job, or (jobs,) of many, from the seconds left, the weight of the size, the wait and the service."""
    return left_s * weight / (1.0 + waited_s / (PATIENCE * (attained_s + left_s)))


@cache
def _weight(gpu_milli: int) -> float:
    """By how much the size of a job multiplies its seconds."""
    return float(cards_of(gpu_milli) ** SIZE_POWER)


def _until_limit(record: JobRecord, now: float) -> float:
    limit = record.job.time_limit_s
    return NEVER if limit is None else max(limit - record.service_s(now), 0.0)
