"""What is sent: a job started, was preempted, or ended. One that has failed and whose place is kept is sent
at once, and not again when the place is given back. Of arrays the end alone, of their members nothing: ten thousand of
them would be as many messages."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from millpond.model.decisions import Start, Stop
from millpond.model.reasons import Cause
from millpond.server.runtime.loop_dependencies import TurnResult
from millpond.server.wording import local_time
from millpond.specs.api.jobs.jobs import JobInfo

_PREEMPTING = (Cause.PREEMPTED, Cause.RECLAIMED, Cause.DRAINED)


class Topic(StrEnum):
    """What a webhook can be notified of."""

    STARTED = "job.started"
    PREEMPTED = "job.preempted"
    SUCCEEDED = "job.succeeded"
    FAILED = "job.failed"
    CANCELLED = "job.cancelled"


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that happened.

    Attributes:
        at: seconds since 1970.
        exit_code: of a job that ended.
        detail: why it failed, where more is known than the exit code.
        for_job: the job that it made room for, when it was preempted.
    """

    topic: Topic
    at: float
    job: str
    name: str
    user: str
    queue: str
    attempt: int
    exit_code: int | None = None
    detail: str = ""
    for_job: str = ""

    def plain(self) -> dict[str, Any]:
        """As data for JSON."""
        return asdict(self)

    @property
    def sentence(self) -> str:
        """For people."""
        who = f"{self.job} of {self.user}" if self.user else self.job
        match self.topic:
            case Topic.STARTED:
                return f"{who} started" + (f", run {self.attempt}" if self.attempt > 1 else "")
            case Topic.PREEMPTED:
                return f"{who} was preempted" + (f" for {self.for_job}" if self.for_job else "")
            case Topic.SUCCEEDED:
                return f"{who} succeeded"
            case Topic.CANCELLED:
                return f"{who} was cancelled"
            case Topic.FAILED:
                return f"{who} failed: {self.detail or f'exit code {self.exit_code}'}"


def notices_of(turn: TurnResult) -> list[Notice]:
    """The notices of one turn."""
    at, found = turn.at, []
    for decision in turn.decisions:
        info = turn.jobs(decision.job)
        if info is None or info.parent:
            continue
        match decision:
            case Start(joins=False):
                found.append(_notice(Topic.STARTED, at, info, attempt=decision.attempt))
            case Stop(tasks=()) if decision.cause in _PREEMPTING:
                found.append(_notice(Topic.PREEMPTED, at, info, for_job=decision.for_job))
            case _:
                continue
    for info in turn.settled:
        if info.parent or (info.kept_until is not None and not info.is_kept):
            continue
        detail = info.array.summary if info.array else info.culprit.detail if info.culprit else ""
        if info.kept_until is not None:
            detail = f"{detail}; its place is kept until {local_time(info.kept_until)}"
        found.append(_notice(Topic(f"job.{info.settled}"), at, info, exit_code=info.exit_code, detail=detail))
    return found


def _notice(topic: Topic, at: float, info: JobInfo, **more: Any) -> Notice:
    basics: dict[str, Any] = {"attempt": info.attempt} | more
    return Notice(topic, at, info.id, info.name, info.user, info.queue, **basics)
