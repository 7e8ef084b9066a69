"""The addresses at which the programs of a job can be reached now."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.engines.task_access import TaskAccess
from millpond.model.errors import ConflictError, UnavailableError
from millpond.model.states import JobState, TaskState
from millpond.node.task.records import TaskId
from millpond.server.sessions.task_routes import TaskRoute
from millpond.specs.api.jobs.jobs import JobInfo, TaskInfo
from millpond.specs.job.serving import SERVING_KINDS


@dataclass(frozen=True, slots=True)
class TaskEndpoint:
    """Where one task serves.

    Attributes:
        way: how it is reached.
        access_key: shown to the program with each request.
    """

    task: TaskId
    way: TaskRoute
    access_key: str


class NotRunningError(UnavailableError):
    """A job has no program to reach, but may have one later."""


def places_of(job: JobInfo, access: TaskAccess) -> list[TaskEndpoint]:
    """Where the running tasks of a job serve, in the order of their numbers.

    Raises:
        ConflictError: it serves nothing, or has ended.
        NotRunningError: none of its tasks runs now.
    """
    if job.kind not in SERVING_KINDS:
        raise ConflictError(f"job {job.id} is of kind {job.kind} and serves nothing", "use kind dev or service")
    if JobState(job.state).ended:
        raise ConflictError(f"job {job.id} has ended ({job.state})", f"see what it wrote with `pond logs {job.id}`")
    found = [place for task in job.tasks if (place := _place(job, task, access)) is not None]
    if not found:
        suspended = JobState(job.state) == JobState.SUSPENDED
        hint = f"pond resume {job.id} has it go on" if suspended else f"pond why {job.id} says more"
        raise NotRunningError(f"job {job.id} is {job.state}", job.reason or hint)
    return found


def _place(job: JobInfo, task: TaskInfo, access: TaskAccess) -> TaskEndpoint | None:
    if task.state != TaskState.RUNNING:
        return None
    run = TaskId(job.id, job.attempt, task.task)
    place = access.serving(run)
    if place is None or place.port is None:
        return None
    return TaskEndpoint(run, TaskRoute(run, place.port, access), place.access_key)
