"""What every ordering answers: where a job stands in line, and whether it may ask running work to leave for it.

A key is a tuple of floats; the lower key goes first. The key of a job that waits changes only when ``line_up`` says so,
so that waiting lines can stay sorted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from millpond.scheduling.ordering.forecasts import NEVER, forecast_s, is_exact
from millpond.scheduling.ordering.line_table import LineTable
from millpond.scheduling.ordering.time_left import TimeLeft
from millpond.scheduling.placement.arrays import BoolArray, FloatArray, Int64Array
from millpond.scheduling.placement.kernels import KernelSet
from millpond.scheduling.reclaiming.roster import SLOT_STARTED
from millpond.scheduling.records import JobRecord
from millpond.scheduling.settings import Settings

Key = tuple[float, ...]

LEAST_SIZE_MILLI = 10
"""Work without a card, or with less of one, counts as if it had so much."""


@dataclass(frozen=True, slots=True)
class Displaceable:
    """Running work that a waiting job may displace, as arrays over the slots of the roster.

    Attributes:
        slots: those of which the others say anything, and perhaps more.
        harm: cost of ending each; infinite for those that may not be ended.
        preference: who leaves first on a node, highest first.
        move_harm: cost of moving each aside to free room elsewhere instead; infinite for those that may not be moved,
            empty when none may.
    """

    slots: Int64Array
    harm: FloatArray
    preference: FloatArray
    move_harm: FloatArray

    def withhold(self, slots: Int64Array) -> None:
        """These may neither be ended nor moved."""
        self.harm[slots] = np.inf
        if len(self.move_harm):
            self.move_harm[slots] = np.inf

    @property
    def may_any_end(self) -> bool:
        """Whether any may be ended."""
        return bool((self.harm[self.slots] < np.inf).any())

    @property
    def who(self) -> tuple[bytes, bytes]:
        """Who may be ended, and who may be moved: equal where they are the same."""
        moved = self.slots[self.move_harm[self.slots] < np.inf] if len(self.move_harm) else self.slots[:0]
        return self.slots[self.harm[self.slots] < np.inf].tobytes(), moved.tobytes()


class Ordering:
    """Base of all orderings: first come, first served; no work is asked to leave.

    Attributes:
        needs_usage: it looks at decayed usage, which is kept only then.
        share_decides: the service of queues and users goes before the key; otherwise queues take rounds, and that of
            users only stretches the key.
        replans: it looks at all work, waiting and running, as if nothing ran, at every event or, as settings
            say (``replan_period_s``), at multiples of a period; used by the published baselines.
        selective: it picks single victims for a waiting job where that pays (see ``reclaiming.victims``).
        bounds_waits: no job waits much longer than the backlog explains (see ``cycle.overdue``).
        promotes: one that has waited for longer goes first in its class; elsewhere it stands where it stood.
        strict: a job that does not fit blocks all behind it in its pool.
        time_left: how much longer jobs run, by what is told and what it has learnt.
    """

    needs_usage = False
    share_decides = False
    replans = False
    selective = False
    bounds_waits = False
    promotes = False
    strict = False

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.time_left = TimeLeft()

    @property
    def displaces(self) -> bool:
        """Whether a waiting job may displace running work of its own class."""
        return self.settings.preempt and self.selective

    def line_up(self, record: JobRecord, now: float) -> tuple[Key, float, float]:
        """How a job waits from now on: its key, above which key of running work it displaces, and until when.

        The last is the instant at which all three have to be computed anew. One answer, because waiting jobs are asked
        far more often than anything else.
        """
        return self.waiting_key(record, now), NEVER, NEVER

    def waiting_key(self, record: JobRecord, now: float) -> Key:
        """Its place among those that wait."""
        return (record.submitted_at,)

    def running_key(self, record: JobRecord, now: float) -> Key:
        """Its place if it had to wait now."""
        return self.waiting_key(record, now)

    def arrange(self, active: list[JobRecord], now: float) -> list[JobRecord]:
        """All work, running and waiting, in the order in which replanning gives it room."""
        return sorted(active, key=lambda record: (self.running_key(record, now), record.slot < 0, record.sequence))

    def next_change(self, record: JobRecord, now: float) -> float:
        """When a running job's place changes so that a cycle is worth running although nothing happened."""
        return NEVER

    def submitted(self, record: JobRecord, now: float) -> None:
        """A job was submitted."""

    def foretold(self, record: JobRecord) -> None:
        """A job's length became known for the first time."""

    def started(self, record: JobRecord, now: float) -> None:
        """A run was confirmed."""

    def holds_back(self, record: JobRecord, free_gpu_milli: int, capacity_milli: int, now: float) -> bool:
        """Whether a job that fits should wait a little all the same; asked only where nothing is preempted."""
        return False

    def held_back(self, record: JobRecord) -> None:
        """A cycle kept a job waiting because ``holds_back`` said so."""

    def held_lines(
        self, table: LineTable, free_gpu_milli: int, capacity_milli: int, now: float
    ) -> tuple[BoolArray, int]:
        """(lines,) what ``holds_back`` says of the first of each; and of which of them that ends first, -1: none."""
        return np.zeros(len(table), dtype=np.bool_), -1

    def sizes(self, record: JobRecord) -> tuple[float, float, float, float, float]:
        """What the roster keeps of a running job, beside its public figures.

        Its length as the ordering knows it (``NEVER`` when it has to guess); 1.0 if that is certain, else 0.0; by what
        its seconds are multiplied in ``slot_keys``; by how much more than the newcomer's its key must exceed it, for
        the cost of its preemption; and by how much more for each second of its run.
        """
        return forecast_s(record), float(is_exact(record)), 1.0, 0.0, 0.0

    def next_release(self, now: float) -> float | None:
        """When the first job that ``holds_back`` kept waiting may be kept no longer; None when there is none."""
        return None

    def slot_keys(self, slots: FloatArray, now: float) -> FloatArray:
        """(slots,) keys of running jobs if they waited now; for selective orderings."""
        keys: FloatArray = slots[SLOT_STARTED]
        return keys

    def victims(
        self, record: JobRecord, slots: FloatArray, now: float, keys: FloatArray, open_to_it: Int64Array, budget: float
    ) -> Displaceable | None:
        """Which work a waiting job may displace; None for none.

        Args:
            slots: (19, slots), see ``reclaiming.roster``.
            keys: what ``slot_keys`` gave.
            open_to_it: the slots of those who may be asked at all, in order.
            budget: the most card-seconds that the preemption of one may cost.
        """
        return None

    def displaced_below(self, slots: FloatArray, now: float, keys: FloatArray, budget: float) -> FloatArray:
        """(slots,) ``victims`` may name each only where ``displaces_above`` of the job is below this; -inf: never."""
        return np.full(slots.shape[1], -np.inf)

    def costs(self, slots: FloatArray, now: float) -> FloatArray:
        """(slots,) card-seconds that the preemption of each takes of the budget, or fewer."""
        return np.zeros(slots.shape[1])

    def moved_from(self, slots: FloatArray, now: float, budget: float) -> FloatArray:
        """(slots,) ``victims`` may name each to be moved aside only for a job whose key is so high for each card."""
        return np.full(slots.shape[1], np.inf)

    def next_change_of_any(
        self, running: Iterable[JobRecord], slots: FloatArray, threshold: float, now: float
    ) -> float | None:
        """The first ``next_change`` after ``now`` among running jobs; None when there is none.

        Args:
            slots: the same jobs as ``reclaiming.roster`` has them.
            threshold: the lowest key above which some waiting job displaces running work.
        """
        soonest = min(
            (self.next_change(record, now) for record in running if record.started_at is not None), default=NEVER
        )
        return None if soonest == NEVER else max(soonest, now)

    def left(self, record: JobRecord, now: float) -> None:
        """A run is over, with its service added up; the job waits again or has ended."""
        self.time_left.learn(record)

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; results are the same."""
        self.time_left.use_kernels(kernels)

    def snapshot(self) -> dict[str, Any]:
        """All it has learnt, as plain data."""
        return self.time_left.snapshot()

    def restore(self, plain: dict[str, Any]) -> None:
        """Take over what ``snapshot`` returned."""
        self.time_left.restore(plain)


def cards(record: JobRecord) -> float:
    """GPUs the job asks for, at least a hundredth of one, so that CPU work has a size too."""
    return cards_of(record.gpu_milli)


def cards_of(gpu_milli: int) -> float:
    """The same for a request of this size."""
    return max(gpu_milli, LEAST_SIZE_MILLI) / 1000.0
