"""What was submitted of late, and how often at which hour of the day: what estimates expect to come again.

Nothing is decided by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millpond.model.codec import from_plain, to_plain
from millpond.model.states import JobState
from millpond.model.workloads import Job
from millpond.scheduling.records import JobRecord

FloatArray = NDArray[np.float64]

REMEMBERED = 512
"""So many of the latest submissions stand for those to come."""

HOUR_S, HOURS = 3600.0, 24
KEPT_A_DAY = 0.7
"""What a day still counts for when the same hour has come again."""

LEAN_HOURS = 0.5
"""An hour of the day leans on all hours as if so much of it had passed at their mean rate."""

MOST_MISSED_HOURS = 14 * HOURS
"""After a longer silence nothing is known of the hours."""

FORESEEN_HOURS = 31 * HOURS


@dataclass(frozen=True, slots=True)
class Arrival:
    """A submission.

    Attributes:
        record: the job, as it is now or was at its end.
    """

    at: float
    record: JobRecord


class ArrivalHistory:
    """The latest submissions, oldest first, and their rate by the hour of the day."""

    def __init__(self) -> None:
        self.latest: deque[Arrival] = deque(maxlen=REMEMBERED)
        self._counts = [0.0] * HOURS
        self._hours = [0.0] * HOURS
        self._begin: float | None = None
        self._count = 0

    def add(self, record: JobRecord) -> None:
        """A job was submitted."""
        at = record.submitted_at
        if self._begin is None or at - self._begin > MOST_MISSED_HOURS * HOUR_S:
            self._counts, self._hours = [0.0] * HOURS, [0.0] * HOURS
            self._begin, self._count = at, 0
        while (end := (self._begin // HOUR_S + 1.0) * HOUR_S) <= at:
            self._close(self._begin, end)
        self.latest.append(Arrival(at, record))
        self._count += 1

    def _close(self, begin: float, end: float) -> None:
        """The hour is over."""
        hour = int(begin // HOUR_S) % HOURS
        self._counts[hour] = self._counts[hour] * KEPT_A_DAY + self._count
        self._hours[hour] = self._hours[hour] * KEPT_A_DAY + (end - begin) / HOUR_S
        self._begin, self._count = end, 0

    def rates(self, now: float) -> FloatArray:
        """(24,) submissions a second by the hour of the day."""
        counts, hours = np.array(self._counts), np.array(self._hours)
        begin = self._begin
        while begin is not None and begin < now:  # hours without any submission, and the one that is not over
            end = min((begin // HOUR_S + 1.0) * HOUR_S, now)
            hour = int(begin // HOUR_S) % HOURS
            counts[hour] += self._count if begin == self._begin else 0.0
            hours[hour] += (end - begin) / HOUR_S
            begin = end
        mean = counts.sum() / max(hours.sum(), 1e-3)
        rates: FloatArray = (counts + LEAN_HOURS * mean) / (hours + LEAN_HOURS) / HOUR_S
        return rates

    def instants(self, now: float, units: FloatArray, part: float) -> FloatArray:
        """Seconds from now at which jobs come: a stream of rate 1, ``units``, bent to ``part`` of the rates."""
        first = now // HOUR_S
        edges = (first + np.arange(FORESEEN_HOURS + 1)) * HOUR_S - now
        edges[0] = 0.0
        rates = part * self.rates(now)[(int(first) + np.arange(FORESEEN_HOURS)) % HOURS]
        cumulated = np.concatenate(([0.0], np.cumsum(np.diff(edges) * rates)))
        instants: FloatArray = np.interp(units, cumulated, edges, right=np.inf)
        return instants

    def copy_from(self, other: ArrivalHistory, jobs: dict[str, JobRecord]) -> None:
        """Know what another does; ``jobs``: the own records of the jobs that live."""
        for arrival in other.latest:
            record = arrival.record if arrival.record.state.ended else jobs[arrival.record.id]
            self.latest.append(Arrival(arrival.at, record))
        self._counts, self._hours = list(other._counts), list(other._hours)
        self._begin, self._count = other._begin, other._count

    def snapshot(self) -> dict[str, Any]:
        """Plain data; of jobs that came alike, one stands for all."""
        kinds: dict[Job, int] = {}
        latest = [
            [kinds.setdefault(_kind(arrival.record.job), len(kinds)), arrival.at, *_known(arrival.record)]
            for arrival in self.latest
        ]
        return {
            "kinds": [to_plain(job) for job in kinds],
            "latest": latest,
            "counts": list(self._counts),
            "hours": list(self._hours),
            "begin": self._begin,
            "count": self._count,
        }

    def restore(
        self, plain: dict[str, Any], jobs: dict[str, JobRecord], new_record: Callable[[Job], JobRecord]
    ) -> None:
        """Take over what ``snapshot`` returned.

        Args:
            jobs: those that are known still.
        """
        kinds = [from_plain(kind) for kind in plain["kinds"]]
        for kind, at, job, expected_s, cautious_s, attained_s in plain["latest"]:
            record = jobs.get(job)
            if record is None:
                record = new_record(replace(kinds[kind], id=job))
                record.expected_s, record.cautious_s = expected_s, cautious_s
                record.attained_s = attained_s or 0.0
                record.state = JobState.CANCELLED if attained_s is None else JobState.SUCCEEDED
            self.latest.append(Arrival(at, record))
        self._counts, self._hours = list(plain["counts"]), list(plain["hours"])
        self._begin, self._count = plain["begin"], plain["count"]


def _kind(job: Job) -> Job:
    """What a job says of those that come like it."""
    return Job(
        "-", job.roles, job.user, queue=job.queue, pool=job.pool, kind=job.kind, priority=job.priority,
        together=job.together, together_required=job.together_required, time_limit_s=job.time_limit_s,
        checkpoint=job.checkpoint, preemptible=job.preemptible, deadline_s=job.deadline_s,
    )  # fmt: skip


def _known(record: JobRecord) -> tuple[str, float | None, float | None, float | None]:
    """Its id, its forecast, and its length if it has come to its end."""
    length_s = record.attained_s if record.state is JobState.SUCCEEDED else None
    return record.id, record.expected_s, record.cautious_s, length_s
