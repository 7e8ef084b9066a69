"""What was submitted of late, hour by hour: what estimates expect to come again.

Nothing is decided by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from millpond.model.codec import from_plain, to_plain
from millpond.model.states import JobState
from millpond.model.units import HOUR_S
from millpond.model.workloads import Job
from millpond.scheduling.records import JobRecord

KEPT_HOURS = 14 * 24

REMEMBERED = 1024
"""So many jobs stand for all that were submitted in these hours."""


@dataclass(slots=True)
class Hour:
    """An hour of the clock, or what of it is known.

    Attributes:
        begin: when it began; that of the first submission of all, if that was later.
        count: submissions.
        records: every n-th of these, n being ``every``, as they are now or were at their end.
    """

    begin: float
    count: int = 0
    records: list[JobRecord] = field(default_factory=list)
    every: int = 1

    @property
    def end(self) -> float:
        """When it is over."""
        return (self.begin // HOUR_S + 1.0) * HOUR_S

    def thin_out(self) -> None:
        """Remember every second of the jobs that it does."""
        self.every *= 2
        self.records = self.records[::2]


class ArrivalHistory:
    """The latest hours, oldest first; the last is that of the latest submission."""

    def __init__(self) -> None:
        self.hours: deque[Hour] = deque()
        self._remembered = 0

    def add(self, record: JobRecord) -> None:
        """A job was submitted."""
        at = record.submitted_at
        if not self.hours or at - self.hours[-1].begin > KEPT_HOURS * HOUR_S:
            self.hours.clear()
            self.hours.append(Hour(at))
            self._remembered = 0
        while (end := self.hours[-1].end) <= at:
            self.hours.append(Hour(end))
        while len(self.hours) > KEPT_HOURS:
            self._remembered -= len(self.hours.popleft().records)
        latest = self.hours[-1]
        if latest.count % latest.every == 0:
            latest.records.append(record)
            self._remembered += 1
        latest.count += 1
        while self._remembered > REMEMBERED:
            fullest = max(self.hours, key=lambda hour: len(hour.records))
            before = len(fullest.records)
            fullest.thin_out()
            self._remembered -= before - len(fullest.records)

    def until(self, now: float) -> list[Hour]:
        """The hours up to that which is not over, with those since the latest submission."""
        hours = list(self.hours)
        while hours and (end := hours[-1].end) <= now and len(hours) <= 2 * KEPT_HOURS:
            hours.append(Hour(end))
        return hours

    def copy_from(self, other: ArrivalHistory, jobs: dict[str, JobRecord]) -> None:
        """Know what another does; ``jobs``: the own records of the jobs that live."""
        self.hours = deque(
            replace(hour, records=[each if each.state.ended else jobs[each.id] for each in hour.records])
            for hour in other.hours
        )
        self._remembered = other._remembered

    def snapshot(self) -> dict[str, Any]:
        """Plain data; of jobs that came alike, one stands for all."""
        kinds: dict[Job, int] = {}
        hours = [
            [
                hour.begin,
                hour.count,
                hour.every,
                [[kinds.setdefault(_kind(record.job), len(kinds)), *_known(record)] for record in hour.records],
            ]
            for hour in self.hours
        ]
        return {"kinds": [to_plain(job) for job in kinds], "hours": hours}

    def restore(
        self, plain: dict[str, Any], jobs: dict[str, JobRecord], new_record: Callable[[Job], JobRecord]
    ) -> None:
        """Take over what ``snapshot`` returned.

        Args:
            jobs: those that are known still.
        """
        kinds = [from_plain(kind) for kind in plain["kinds"]]

        def record_of(kind: int, job: str, *known: float | None) -> JobRecord:
            record = jobs.get(job)
            if record is None:
                record = new_record(replace(kinds[kind], id=job))
                record.expected_s, record.cautious_s, length_s = known
                record.attained_s = length_s or 0.0
                record.state = JobState.CANCELLED if length_s is None else JobState.SUCCEEDED
            return record

        for begin, count, every, records in plain["hours"]:
            self.hours.append(Hour(begin, count, [record_of(*each) for each in records], every))
            self._remembered += len(records)


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
