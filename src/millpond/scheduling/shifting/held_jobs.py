"""Which jobs are held back for cheaper or cleaner hours, and what is predicted of these."""

from __future__ import annotations

from typing import Any

from millpond.model.codec import from_plain, to_plain
from millpond.model.energy import RateMeasure
from millpond.model.events import EnergyRatePredicted
from millpond.scheduling.records import JobRecord


class HeldJobs:
    """The held jobs of one scheduler.

    Attributes:
        predicted: what is known of the hours to come; one without hours: nothing.
        jobs: those that are held, by id; among them may be some that were stopped.
        undecided: those of them that the next cycle chooses a start for.
        chosen: (job, start) of those that the last such cycle chose for, for its log.
        version: rises with each such cycle.
    """

    __slots__ = ("chosen", "jobs", "predicted", "undecided", "version")

    def __init__(self) -> None:
        self.predicted = EnergyRatePredicted(0.0, RateMeasure.PRICE, 0.0, ())
        self.jobs: dict[str, JobRecord] = {}
        self.undecided: dict[str, JobRecord] = {}
        self.chosen: list[tuple[str, float]] = []
        self.version = 0

    def hold(self, record: JobRecord, until: float) -> None:
        """Hold a job back, at the most until then."""
        record.held_until = until
        self.jobs[record.id] = self.undecided[record.id] = record

    def reconsider(self, record: JobRecord) -> None:
        """Have the next cycle choose the start of a held job anew."""
        self.undecided[record.id] = record

    def release(self, record: JobRecord) -> None:
        """Hold a job back no longer, for good."""
        record.held_until = 0.0
        self.jobs.pop(record.id, None)
        self.undecided.pop(record.id, None)

    def prune(self) -> None:
        """Forget jobs that have ended."""
        for record in [record for record in self.jobs.values() if record.state.ended]:
            self.release(record)

    def copy_from(self, other: HeldJobs, jobs: dict[str, JobRecord]) -> None:
        """Hold the same jobs, or their twins among ``jobs``."""
        other.prune()
        self.predicted = other.predicted
        self.jobs = {job: jobs[job] for job in other.jobs}
        self.undecided = {job: jobs[job] for job in other.undecided}

    def snapshot(self) -> dict[str, Any]:
        """All of it as plain data."""
        self.prune()
        return {"predicted": to_plain(self.predicted), "jobs": list(self.jobs), "undecided": list(self.undecided)}

    def restore(self, plain: dict[str, Any], jobs: dict[str, JobRecord]) -> None:
        """Take over what ``snapshot`` returned."""
        self.predicted = from_plain(plain["predicted"])
        self.jobs = {job: jobs[job] for job in plain["jobs"]}
        self.undecided = {job: jobs[job] for job in plain["undecided"]}
