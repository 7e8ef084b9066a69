"""How much longer jobs run, under every ordering: as forecast, where that can be trusted, else as learnt.

Reservations, backfill, the bound on waits and the default ordering's keys all ask here. A time limit bounds the instant
of an end; it says nothing of the work that is left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millpond.model.states import JobState
from millpond.scheduling.ordering.forecast_errors import ForecastErrors
from millpond.scheduling.ordering.forecasts import NEVER, TRUSTED_SPREAD, debt_s, forecast_s, is_exact
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
from millpond.scheduling.ordering.running import count_outlived, expected_ends
from millpond.scheduling.ordering.survival import SurvivalTable
from millpond.scheduling.placement.arrays import FloatArray
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.reclaiming.roster import Roster
from millpond.scheduling.records import JobRecord


class TimeLeft:
    """What is known of the lengths of the jobs of one scheduler.

    Attributes:
        survival, forecast_errors: how long jobs run, without and with forecasts: learnt from those that ended.
        version: rises when what was learnt changes the answers.
    """

    def __init__(self) -> None:
        self.survival = SurvivalTable()
        self.forecast_errors = ForecastErrors()
        self.version = 0
        self.use_kernels(interpreted())

    # ---- waiting ------------------------------------------------------------------------------------------------

    def needed_s(self, record: JobRecord, now: float) -> tuple[float, bool]:
        """Seconds that a waiting job still needs, at least 1; and whether that is known, not a learnt rank."""
        left = NEVER if record.expected_s is None else self.known_s(record, now)
        is_known = left < NEVER
        if not is_known:
            attained = record.attained_s
            reached = max(record.reached_s, attained)
            left = self.survival.rank(record.size_class, reached) + reached - attained
        return max(left + record.debt_s, 1.0), is_known

    def cautious_of(self, table: LineTable) -> FloatArray:
        """(lines,) how many seconds ``cautious_end`` is ahead for the first of each waiting line."""
        attained, expected, cautious = table.figure(ATTAINED), table.figure(EXPECTED), table.figure(CAUTIOUS)
        is_known = (cautious <= TRUSTED_SPREAD * expected) & ((attained < expected) | (cautious == expected))
        is_known &= expected < NEVER
        reached = np.maximum(table.figure(REACHED), attained)
        whole = np.where(is_known, cautious, self.survival.mostly_ended_of(table.figure(SIZE_CLASS), reached))
        left: FloatArray = np.maximum(np.minimum(whole, table.figure(LIMIT)) - attained, 0.0) + table.figure(DEBT)
        return left

    # ---- running or waiting -------------------------------------------------------------------------------------

    def known_s(self, record: JobRecord, now: float) -> float:
        """Seconds left by a forecast that can be trusted and was not outlived; ``NEVER`` when there is none."""
        whole = forecast_s(record)
        if whole == NEVER:
            return NEVER
        service = record.service_s(now)
        if service >= whole and not is_exact(record):
            return NEVER
        return max(whole - service, 0.0)

    def expected_end(self, record: JobRecord, now: float) -> float:
        """When a job that runs from now on has ended as likely as not."""
        left = self.known_s(record, now)
        if left == NEVER:
            left = self.survival.half_ended_s(record.size_class, reached_s(record, now)) - record.service_s(now)
        return now + min(left, _until_limit(record, now)) + debt_s(record, now)

    def cautious_end(self, record: JobRecord, now: float) -> float:
        """When it has ended with good certainty (about 9 times in 10)."""
        service = record.service_s(now)
        if self.known_s(record, now) < NEVER and record.cautious_s is not None:
            left = max(record.cautious_s - service, 0.0)
        else:
            left = self.survival.mostly_ended_s(record.size_class, reached_s(record, now)) - service
        return now + min(left, _until_limit(record, now)) + debt_s(record, now)

    def ends(self, slots: FloatArray, now: float) -> FloatArray:
        """(slots,) when half of such work has ended, or where a forecast or the time limit says so earlier.

        Args:
            slots: running work, see ``reclaiming.roster``.
        """
        return self._ends_by(self.survival.half_ended_at, slots, now)

    def cautious_ends(self, slots: FloatArray, now: float) -> FloatArray:
        """(slots,) the same, but where that is learnt when nine in ten have ended."""
        return self._ends_by(self.survival.mostly_ended_at, slots, now)

    def _ends_by(self, ended_at: FloatArray, slots: FloatArray, now: float) -> FloatArray:
        ends = np.empty(slots.shape[1])
        if ends.size:  # a table of none has a layout of its own, for which kernels would be compiled
            self._fill_ends(slots, now, self.survival.edges, ended_at, ends)
        return ends

    # ---- learning -----------------------------------------------------------------------------------------------

    def learn(self, record: JobRecord) -> None:
        """A run is over, with its service added up; the job waits again or has ended."""
        if record.state is JobState.SUCCEEDED:
            self.survival.end(record, record.attained_s)
            if record.expected_s is not None and not is_exact(record):
                self.forecast_errors.learn(record.expected_s, record.attained_s)
        else:
            self.survival.outlive(record, record.attained_s)

    def refresh(self, roster: Roster, now: float) -> None:
        """Bring the answers up to what was learnt, also from the work that runs."""
        # Looking at all running work is worth it only once enough has ended since the last time.
        if self.survival.is_stale(roster.width):
            roster.own_tables()
            self._count_outlived(roster.live, now, self.survival.edges, self.survival.outlived)
            self.survival.refresh()
            self.version += 1

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; results are the same."""
        self._count_outlived = kernels.call(count_outlived.__name__)
        self._fill_ends = kernels.call(expected_ends.__name__)

    def snapshot(self) -> dict[str, Any]:
        """All that was learnt, as plain data."""
        return {"survival": self.survival.snapshot(), "errors_of_forecasts": self.forecast_errors.snapshot()}

    def restore(self, plain: dict[str, Any]) -> None:
        """Take over what ``snapshot`` returned."""
        self.survival.restore(plain["survival"])
        self.forecast_errors.restore(plain["errors_of_forecasts"])


def reached_s(record: JobRecord, now: float) -> float:
    """Seconds of service that a job is known to outlast."""
    return max(record.reached_s, record.service_s(now))


def _until_limit(record: JobRecord, now: float) -> float:
    limit = record.job.time_limit_s
    return NEVER if limit is None else max(limit - record.service_s(now), 0.0)
