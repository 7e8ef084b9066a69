"""What every ordering answers: where a job stands in line, and whether it may ask running work to leave for it.

A key is a tuple of floats; the lower key goes first. The key of a job that waits changes only when ``line_up`` says so,
so that waiting lines can stay sorted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millpond.model.states import JobState
from millpond.scheduling.ordering.forecast_errors import ForecastErrors
from millpond.scheduling.ordering.line_table import ATTAINED, CAUTIOUS, DEBT, LIMIT, LineTable
from millpond.scheduling.ordering.survival import SurvivalTable
from millpond.scheduling.placement.kernels import KernelSet
from millpond.scheduling.reclaiming.roster import SLOT_ATTAINED, SLOT_DEBT, SLOT_STARTED, SLOT_WHOLE, FloatArray
from millpond.scheduling.records import JobRecord
from millpond.scheduling.settings import Settings

Key = tuple[float, ...]
BoolArray = NDArray[np.bool_]
NEVER = float("inf")

LEAST_SIZE_MILLI = 10
"""Work without a card, or with less of one, counts as if it had so much."""

TRUSTED_SPREAD = 3.0
"""A forecast is trusted if its cautious length is at most so many times the expected one."""


@dataclass(frozen=True, slots=True)
class Displaceable:
    """Running work that a waiting job may displace, as arrays over the slots of the roster.

    Attributes:
        harm: cost of ending each; infinite for those that may not be ended.
        preference: who leaves first on a node, highest first.
        move_harm: cost of moving each aside to free room elsewhere instead; infinite for those that may not be moved,
            empty when none may.
    """

    harm: FloatArray
    preference: FloatArray
    move_harm: FloatArray


class Ordering:
    """Base of all orderings: first come, first served; no work is asked to leave.

    Attributes:
        needs_usage: it looks at decayed usage, which is kept only then.
        share_decides: the service of queues and users goes before the key; otherwise queues take rounds, and that of
            users only stretches the key.
        replans: it looks at all work, waiting and running, as if nothing ran, at every event (``replan_period_s`` 0) or
            at multiples of a period; used by the published baselines.
        selective: it picks single victims for a waiting job where that pays (see ``reclaiming.victims``).
        bounds_waits: no job waits much longer than the backlog explains (see ``cycle.overdue``).
        strict: a job that does not fit blocks all behind it in its pool.
        survival, forecast_errors: how long jobs run, with and without forecasts: learnt from those that ended.
        version: rises when what it has learnt changes the keys of running work.
    """

    needs_usage = False
    share_decides = False
    replans = False
    replan_period_s = 0.0
    selective = False
    bounds_waits = False
    strict = False
    version = 0

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.survival = SurvivalTable()
        self.forecast_errors = ForecastErrors()

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

    def expected_end(self, record: JobRecord, now: float) -> float:
        """When a running job is expected to end; ``NEVER`` when nothing is known."""
        left = remaining_s(record, now)
        return NEVER if left is None else now + left

    def cautious_end(self, record: JobRecord, now: float) -> float:
        """When it has ended with good certainty (about 9 times in 10)."""
        if record.cautious_s is not None:
            return now + max(record.cautious_s - record.service_s(now), 0.0) + debt_s(record, now)
        return self.expected_end(record, now)

    def cautious_lefts(self, table: LineTable) -> FloatArray:
        """(lines,) how many seconds ``cautious_end`` is ahead for the first of each waiting line."""
        cautious, limits = table.figure(CAUTIOUS), table.figure(LIMIT)
        whole = np.where(cautious < NEVER, cautious, limits)
        left: FloatArray = np.maximum(whole - table.figure(ATTAINED), 0.0) + table.figure(DEBT)
        return left

    def work_left_s(self, record: JobRecord, now: float) -> float:
        """Seconds that a waiting job counts for in the backlog, where waits are bounded."""
        return 0.0

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
        return whole_s(record), float(is_exact(record)), 1.0, 0.0, 0.0

    def next_release(self, now: float) -> float | None:
        """When the first job that ``holds_back`` kept waiting may be kept no longer; None when there is none."""
        return None

    def slot_keys(self, slots: FloatArray, now: float) -> FloatArray:
        """(slots,) keys of running jobs if they waited now; for selective orderings."""
        keys: FloatArray = slots[SLOT_STARTED]
        return keys

    def victims(
        self, record: JobRecord, slots: FloatArray, now: float, keys: FloatArray, open_to_it: BoolArray, budget: float
    ) -> Displaceable | None:
        """Which work a waiting job may displace; None for none.

        Args:
            slots: (19, slots), see ``reclaiming.roster``.
            keys: what ``slot_keys`` gave.
            open_to_it: (slots,) who may be asked at all.
            budget: the most card-seconds that the preemption of one may cost.
        """
        return None

    def displaced_below(self, slots: FloatArray, now: float, keys: FloatArray, budget: float) -> FloatArray:
        """(slots,) ``victims`` may name each only where ``displaces_above`` of the job is below this; -inf: never."""
        return np.full(slots.shape[1], -np.inf)

    def movable(self, slots: FloatArray, now: float, asked_cards: float, key: float, budget: float) -> BoolArray:
        """(slots,) which ``victims`` may name to be moved aside for a job of so many cards, its key at most this."""
        return np.zeros(slots.shape[1], dtype=np.bool_)

    def ends(self, slots: FloatArray, now: float) -> FloatArray:
        """(slots,) when running jobs are expected to end; infinite when nothing is known."""
        due: FloatArray = slots[SLOT_STARTED] + slots[SLOT_WHOLE] - slots[SLOT_ATTAINED] + slots[SLOT_DEBT]
        return np.maximum(due, now)

    def refresh(self, slots: FloatArray, now: float) -> None:
        """A cycle begins: bring up to date what is learnt. ``slots``: running work, see ``reclaiming.roster``."""

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
        if record.state is JobState.SUCCEEDED:
            self.survival.end(record, record.attained_s)
            if record.expected_s is not None and not is_exact(record):
                self.forecast_errors.learn(record.expected_s, record.attained_s)
        else:
            self.survival.outlive(record, record.attained_s)

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; results are the same."""

    def snapshot(self) -> dict[str, Any]:
        """All it has learnt, as plain data."""
        return {"survival": self.survival.snapshot(), "errors_of_forecasts": self.forecast_errors.snapshot()}

    def restore(self, plain: dict[str, Any]) -> None:
        """Take over what ``snapshot`` returned."""
        if "survival" in plain:  # at first not written, but by the default ordering
            self.survival.restore(plain["survival"])
        if "errors_of_forecasts" in plain:
            self.forecast_errors.restore(plain["errors_of_forecasts"])


def forecast_s(record: JobRecord) -> float:
    """Length of the whole run by a forecast that can be trusted; ``NEVER`` when there is none.

    A forecast whose cautious length is far above the expected one says little more than that nothing is known.
    """
    expected, cautious = record.expected_s, record.cautious_s
    if expected is None or cautious is None or cautious > TRUSTED_SPREAD * expected:
        return NEVER
    return expected


def is_exact(record: JobRecord) -> bool:
    """Whether the forecast claims to be certain."""
    return record.expected_s is not None and record.cautious_s == record.expected_s


def debt_s(record: JobRecord, now: float) -> float:
    """Seconds of the present or next run that go into catching up after a preemption, not into progress."""
    if record.started_at is None:
        return record.debt_s
    return max(record.debt_s - (now - record.started_at), 0.0)


def remaining_s(record: JobRecord, now: float) -> float | None:
    """Seconds the job still has to run by its forecast (or time limit), catching up included; None when unknown."""
    whole = whole_s(record)
    if whole == NEVER:
        return None
    return max(whole - record.service_s(now), 0.0) + debt_s(record, now)


def whole_s(record: JobRecord) -> float:
    """Length of the whole run by forecast or time limit, ``NEVER`` when neither is there."""
    if record.expected_s is not None:
        return record.expected_s
    return NEVER if record.job.time_limit_s is None else record.job.time_limit_s


def cards(record: JobRecord) -> float:
    """GPUs the job asks for, at least a hundredth of one, so that CPU work has a size too."""
    return cards_of(record.gpu_milli)


def cards_of(gpu_milli: int) -> float:
    """The same for a request of this size."""
    return max(gpu_milli, LEAST_SIZE_MILLI) / 1000.0
