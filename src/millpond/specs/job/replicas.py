"""How many replicas a service may have, and when: what contradicts itself between ``tasks`` and ``serve``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from millpond.specs.errors import Problem
from millpond.specs.source_positions import Located, Path

if TYPE_CHECKING:
    from millpond.specs.job.job_file import JobFile


def replica_faults(file: JobFile, located: Located, written: Callable[[Path], Path]) -> list[Problem]:
    """All such faults; ``written`` gives the place in the file of a field."""
    problems = []
    replicas = file.kind == "service" and file.roles is None
    scale = None if file.serve is None else file.serve.scale
    if scale is not None and not replicas:
        message = "only a service without roles can be scaled"
        problems.append(located.problem(written(("serve", "scale")), message, "use kind service", at_key=True))
    elif scale is not None and "idle_after" in scale.model_fields_set and not file.may_rest:
        message = "it never goes without replicas, so idle_after has no effect"
        hint = "write tasks: {min: 0, max: 4}"
        problems.append(located.problem(written(("serve", "scale", "idle_after")), message, hint, at_key=True))
    problems += _faults_of_hours(file, located, written) if replicas else []
    for index, role in enumerate(file.all_roles()):
        if role.tasks is not None and role.tasks.min == 0 and not replicas:
            at: Path = ("tasks",) if file.roles is None else ("roles", index, "tasks")
            message = "only a service without roles can go without tasks"
            problems.append(located.problem(written((*at, "min")), message, "use min: 1", at_key=True))
    return problems


def _faults_of_hours(file: JobFile, located: Located, written: Callable[[Path], Path]) -> list[Problem]:
    """Hours in which more, or fewer, replicas are asked for than the service may ever have."""
    tasks = file.all_roles()[0].tasks
    if tasks is None or file.scale is None:
        return []
    problems = []
    for index, hours in enumerate(file.scale.hours):
        fewest = tasks.min if hours.min is None else hours.min
        most = tasks.max if hours.max is None else hours.max
        if not tasks.min <= fewest <= most <= tasks.max:
            message = f"{fewest} to {most} replicas in some hours, of {tasks.min} to {tasks.max} in all"
            at: Path = ("serve", "scale", "hours", index)
            problems.append(located.problem(written(at), message, "stay within the bounds of tasks"))
    return problems
