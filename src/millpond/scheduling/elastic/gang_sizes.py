"""How large an elastic gang is: the tasks it cannot start without, and the most that something else allows.

A role never goes below its minimum. What can be spared is left out from the end: the last tasks of the last role first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from millpond.model.states import TaskState
from millpond.model.workloads import Job
from millpond.scheduling.records import JobRecord, TaskRecord


def spare_tasks(job: Job, tasks: Sequence[TaskRecord]) -> list[TaskRecord]:
    """Those of a gang's tasks that it can start without, in the order of roles and numbers; none of a rigid one."""
    if not job.elastic:
        return []
    return [
        task
        for index, role in enumerate(job.roles)
        for task in [task for task in tasks if task.role_index == index][role.minimum :]
    ]


def least_tasks(job: Job, tasks: Sequence[TaskRecord]) -> list[TaskRecord]:
    """Those of a gang's tasks that have to start together."""
    return _without(tasks, spare_tasks(job, tasks))


def is_enough(job: Job, tasks: Sequence[TaskRecord]) -> bool:
    """Whether these tasks are as many as every role needs at least."""
    if len(job.roles) == 1:
        return len(tasks) >= job.roles[0].minimum
    return all(sum(task.role_index == index for task in tasks) >= role.minimum for index, role in enumerate(job.roles))


def tasks_of_next_run(record: JobRecord) -> list[TaskRecord]:
    """The tasks that a place for the next run of a running job is sought for: those that its present run has had.

    A gang is one piece of work, so those that have ended already start again with it (``runs.close``). Tasks that wait
    are among them if it could not start without.
    """
    begun = [task for task in record.wanted() if task.state is not TaskState.QUEUED]
    return begun if is_enough(record.job, begun) else record.wanted()


def most_tasks(
    job: Job, tasks: Sequence[TaskRecord], is_allowed: Callable[[list[TaskRecord]], bool]
) -> list[TaskRecord]:
    """The most of a gang's tasks that are allowed together, at least the minimum of each role; empty if not even that.

    Args:
        is_allowed: whether these may; what it allows, it allows in part too. Asked a logarithmic number of times.
    """
    spare = spare_tasks(job, tasks)
    sizes = range(len(spare) + 1)
    left_out = bisect_left(sizes, True, key=lambda number: is_allowed(_without(tasks, spare[len(spare) - number :])))
    return _without(tasks, spare[len(spare) - left_out :]) if left_out < len(sizes) else []


def first_tasks(tasks: Sequence[TaskRecord], is_allowed: Callable[[list[TaskRecord]], bool]) -> list[TaskRecord]:
    """The most tasks, from the first on, that may be added to a gang that runs; empty if not even one may."""
    count = bisect_left(range(1, len(tasks) + 1), True, key=lambda number: not is_allowed(list(tasks[:number])))
    return list(tasks[:count])


def _without(tasks: Sequence[TaskRecord], left_out: Sequence[TaskRecord]) -> list[TaskRecord]:
    numbers = {task.number for task in left_out}
    return [task for task in tasks if task.number not in numbers] if numbers else list(tasks)
