"""Faults between the fields of a job file, each of which is valid by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path as FilePath
from typing import NamedTuple

from millpond.specs.errors import Problem
from millpond.specs.job.fields import MOST_TASKS
from millpond.specs.job.job_file import JobFile
from millpond.specs.source_positions import Located, Path


class _Fault(NamedTuple):
    """A fault of the field at ``path``; ``at_key``: placed at the field's name, not at its value."""

    path: Path
    message: str
    hint: str
    at_key: bool = True


def cross_faults(file: JobFile, located: Located, written: Callable[[Path], Path]) -> list[Problem]:
    """All such faults; ``written`` gives the place in the file of a field."""
    checks = (
        _of_alternatives, _of_roles, _of_data, _of_serving, _of_replicas, _of_hours, _of_input, _of_places,
        _of_preemption, _of_background, _of_slowdown,
    )  # fmt: skip
    found = [fault for check in checks for fault in check(file)]
    return [located.problem(written(fault.path), fault.message, fault.hint, at_key=fault.at_key) for fault in found]


def _of_alternatives(file: JobFile) -> Iterator[_Fault]:
    if file.roles is not None and file.tasks is not None:
        yield _Fault(("tasks",), "both tasks and roles", "give each role its own tasks")
    if file.array is not None and file.sweep is not None:
        yield _Fault(("sweep",), "both array and sweep", "leave one of them out")
    elif (file.array or file.sweep) is not None and file.kind != "train":
        field = "array" if file.array is not None else "sweep"
        yield _Fault((field,), f"a job of kind {file.kind} is one job", "use kind train")


def _of_roles(file: JobFile) -> Iterator[_Fault]:
    roles = file.all_roles()
    seen: set[str] = set()
    for index, role in enumerate(roles):
        at: Path = ("roles", index) if file.roles is not None else ()
        if role.command is None and file.adopted is None:
            yield _Fault(at, "the field 'command' is missing", "say what to run", at_key=False)
        if role.name in seen:
            yield _Fault((*at, "name"), f"two roles are called {role.name!r}", "give each its own name", at_key=False)
        seen.add(role.name)
        if role.retry_on and not file.retries:
            yield _Fault((*at, "retry_on"), "retry_on without retries", "say how often: retries: 3")
    if all(role.daemon for role in roles):
        yield _Fault(("roles",), "all roles are daemons", "leave daemon out of the role that does the work")
    if (count := _most_tasks(file)) > MOST_TASKS:
        yield _Fault((), f"{count} tasks in all", f"use at most {MOST_TASKS}", at_key=False)


def _most_tasks(file: JobFile) -> int:
    return sum(role.tasks.max for role in file.all_roles() if role.tasks)


def _of_data(file: JobFile) -> Iterator[_Fault]:
    variables: set[str] = set()
    for name in file.data:
        variable = re.sub(r"[^a-z0-9]", "_", name.lower())
        if variable in variables:
            message = f"the data name {name!r} differs from another only in signs that its variable has not"
            yield _Fault(("data", name), message, "rename one")
        variables.add(variable)


def _of_serving(file: JobFile) -> Iterator[_Fault]:
    if file.serve is not None and not file.serves:
        yield _Fault(("serve",), f"a job of kind {file.kind} serves nothing", "use kind dev or service")
    if file.network == "host" and file.network_named != "host":
        hint = "leave network out, or use listen: port"
        yield _Fault(("network",), "serve.listen: private asks for a private network", hint, at_key=False)


def _is_replicated(file: JobFile) -> bool:
    return file.kind == "service" and file.roles is None


def _of_replicas(file: JobFile) -> Iterator[_Fault]:
    """What contradicts itself between ``tasks`` and ``serve``."""
    scale = None if file.serve is None else file.serve.scale
    if scale is not None and not _is_replicated(file):
        yield _Fault(("serve", "scale"), "only a service without roles can be scaled", "use kind service")
    elif scale is not None and "idle_after" in scale.model_fields_set and not file.may_scale_to_zero:
        message = "it never goes without replicas, so idle_after has no effect"
        yield _Fault(("serve", "scale", "idle_after"), message, "write tasks: {min: 0, max: 4}")
    for index, role in enumerate(file.all_roles()):
        if role.tasks is not None and role.tasks.min == 0 and not _is_replicated(file):
            at: Path = ("tasks",) if file.roles is None else ("roles", index, "tasks")
            yield _Fault((*at, "min"), "only a service without roles can go without tasks", "use min: 1")


def _of_hours(file: JobFile) -> Iterator[_Fault]:
    """Hours in which more, or fewer, replicas are asked for than the service may ever have."""
    tasks = file.all_roles()[0].tasks
    if not _is_replicated(file) or tasks is None or file.scale is None:
        return
    for index, hours in enumerate(file.scale.hours):
        fewest = tasks.min if hours.min is None else hours.min
        most = tasks.max if hours.max is None else hours.max
        if not tasks.min <= fewest <= most <= tasks.max:
            message = f"{fewest} to {most} replicas in some hours, of {tasks.min} to {tasks.max} in all"
            at: Path = ("serve", "scale", "hours", index)
            yield _Fault(at, message, "stay within the bounds of tasks", at_key=False)


def _of_input(file: JobFile) -> Iterator[_Fault]:
    if not file.stdin:
        return
    if file.kind != "train" or file.array or file.sweep or _most_tasks(file) != 1:
        hint = "leave stdin out, or have one task"
        yield _Fault(("stdin",), "standard input is for one task of kind train", hint)
    elif file.retries:
        message = "retries of a job that reads standard input, which comes once only"
        yield _Fault(("retries",), message, "leave one of them out")


def _of_preemption(file: JobFile) -> Iterator[_Fault]:
    tasks = [role.tasks for role in file.all_roles() if role.tasks is not None]
    if file.preemptible == "beyond-min" and all(each.min == each.max for each in tasks):
        hint = "write tasks: {min: 2, max: 8}"
        yield _Fault(("preemptible",), "no role has tasks beyond a minimum", hint, at_key=False)


def _of_background(file: JobFile) -> Iterator[_Fault]:
    """Protection of work that leaves for all other work."""
    if file.priority != "background":
        return
    hint = "leave it out, or use priority: low"
    if file.preemptible is not True:
        yield _Fault(("preemptible",), "background work leaves for all other work", hint)
    if file.min_run_time > 0:
        yield _Fault(("min_run_time",), "background work leaves at once for all other work", hint)


def _of_slowdown(file: JobFile) -> Iterator[_Fault]:
    if file.max_slowdown is None:
        return
    hint = "leave max_slowdown out"
    if file.kind != "train":
        yield _Fault(("max_slowdown",), f"a job of kind {file.kind} has no steps that may take longer", hint)
    elif file.name is None:
        message = "jobs are found to be alike by their name, and this one has none"
        yield _Fault(("max_slowdown",), message, "add a name, or leave max_slowdown out")
    elif any(role.tasks is not None and role.tasks.min != role.tasks.max for role in file.all_roles()):
        yield _Fault(("max_slowdown",), "the cards of an elastic job have no power cap of their own", hint)


def _of_places(file: JobFile) -> Iterator[_Fault]:
    if file.keep is not None and (file.kind != "train" or file.array or file.sweep):
        hint = "leave keep out" + (", and run the member that fails by itself" if file.array or file.sweep else "")
        yield _Fault(("keep",), "the place of a failed task is kept for a single job of kind train", hint)
    if file.deadline is not None and file.kind != "train":
        yield _Fault(("deadline",), f"a job of kind {file.kind} has no end of its own", "leave deadline out")
    if file.flexible is not None and file.kind != "train":
        yield _Fault(("flexible",), f"a job of kind {file.kind} is wanted as soon as it can be", "leave flexible out")
    if file.flexible is not None and file.reservation is not None:
        yield _Fault(("flexible",), "the hours of a job with a reservation are agreed", "leave one of them out")
    if file.workdir is not None and not FilePath(file.workdir).is_absolute():
        message = f"the working directory {file.workdir!r} is relative"
        yield _Fault(("workdir",), message, "write an absolute path", at_key=False)
