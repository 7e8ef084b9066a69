"""Faults between the fields of a job file, each of which is valid by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path as FilePath
from typing import Final, NamedTuple

from millpond.specs.errors import Problem
from millpond.specs.job.fields import MOST_TASKS
from millpond.specs.job.job_file import AS_A_FILE, JobFile, RoleFile
from millpond.specs.source_positions import Located, Path

_MOST_BYTES_TOGETHER: Final = 1_900_000
"""Linux gives a program's arguments and variables 2 MiB together, as stacks of 8 MiB have it; the rest is for those
that the server adds."""
_POINTER_BYTES: Final = 8
"""Of each argument and variable, beside its text and what ends it."""


class _Fault(NamedTuple):
    """A fault of the field at ``path``; ``at_key``: placed at the field's name, not at its value."""

    path: Path
    message: str
    hint: str
    at_key: bool = True


def cross_faults(
    file: JobFile, located: Located, written: Callable[[Path], Path], is_stored: bool = False
) -> list[Problem]:
    """All such faults.

    Args:
        written: gives the place in the file of a field.
        is_stored: it was accepted before, when commands and variables had no bound together.
    """
    roles = file.all_roles()
    of_fields = (_of_alternatives, _of_data, _of_serving, _of_places, _of_background)
    of_roles = (_of_roles, _of_replicas, _of_hours, _of_input, _of_preemption, _of_slowdown)
    found = [fault for check in of_fields for fault in check(file)]
    found += [fault for check in of_roles for fault in check(file, roles)]
    found += [] if is_stored else _of_room(file, roles)
    return [located.problem(written(fault.path), fault.message, fault.hint, at_key=fault.at_key) for fault in found]


def _of_alternatives(file: JobFile) -> Iterator[_Fault]:
    if file.roles is not None and file.tasks is not None:
        yield _Fault(("tasks",), "both tasks and roles", "give each role its own tasks")
    if file.array is not None and file.sweep is not None:
        yield _Fault(("sweep",), "both array and sweep", "leave one of them out")
    elif (file.array or file.sweep) is not None and file.kind != "train":
        field = "array" if file.array is not None else "sweep"
        yield _Fault((field,), f"a job of kind {file.kind} is one job", "use kind train")


def _of_roles(file: JobFile, roles: list[RoleFile]) -> Iterator[_Fault]:
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
    if (count := _most_tasks(roles)) > MOST_TASKS:
        yield _Fault((), f"{count} tasks in all", f"use at most {MOST_TASKS}", at_key=False)


def _most_tasks(roles: list[RoleFile]) -> int:
    return sum(role.tasks.max for role in roles if role.tasks)


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


def _of_replicas(file: JobFile, roles: list[RoleFile]) -> Iterator[_Fault]:
    """What contradicts itself between ``tasks`` and ``serve``."""
    scale = None if file.serve is None else file.serve.scale
    if scale is not None and not _is_replicated(file):
        yield _Fault(("serve", "scale"), "only a service without roles can be scaled", "use kind service")
    elif scale is not None and "idle_after" in scale.model_fields_set and not file.may_scale_to_zero:
        message = "it never goes without replicas, so idle_after has no effect"
        yield _Fault(("serve", "scale", "idle_after"), message, "write tasks: {min: 0, max: 4}")
    for index, role in enumerate(roles):
        if role.tasks is not None and role.tasks.min == 0 and not _is_replicated(file):
            at: Path = ("tasks",) if file.roles is None else ("roles", index, "tasks")
            yield _Fault((*at, "min"), "only a service without roles can go without tasks", "use min: 1")


def _of_hours(file: JobFile, roles: list[RoleFile]) -> Iterator[_Fault]:
    """Hours in which more, or fewer, replicas are asked for than the service may ever have."""
    tasks = roles[0].tasks
    if not _is_replicated(file) or tasks is None or file.scale is None:
        return
    for index, hours in enumerate(file.scale.hours):
        fewest = tasks.min if hours.min is None else hours.min
        most = tasks.max if hours.max is None else hours.max
        if not tasks.min <= fewest <= most <= tasks.max:
            message = f"{fewest} to {most} replicas in some hours, of {tasks.min} to {tasks.max} in all"
            at: Path = ("serve", "scale", "hours", index)
            yield _Fault(at, message, "stay within the bounds of tasks", at_key=False)


def _of_input(file: JobFile, roles: list[RoleFile]) -> Iterator[_Fault]:
    if not file.stdin:
        return
    if file.kind != "train" or file.array or file.sweep or _most_tasks(roles) != 1:
        hint = "leave stdin out, or have one task"
        yield _Fault(("stdin",), "standard input is for one task of kind train", hint)
    elif file.retries:
        message = "retries of a job that reads standard input, which comes once only"
        yield _Fault(("retries",), message, "leave one of them out")


def _of_preemption(file: JobFile, roles: list[RoleFile]) -> Iterator[_Fault]:
    tasks = [role.tasks for role in roles if role.tasks is not None]
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


def _of_slowdown(file: JobFile, roles: list[RoleFile]) -> Iterator[_Fault]:
    if file.max_slowdown is None:
        return
    hint = "leave max_slowdown out"
    if file.kind != "train":
        yield _Fault(("max_slowdown",), f"a job of kind {file.kind} has no steps that may take longer", hint)
    elif file.name is None:
        message = "jobs are found to be alike by their name, and this one has none"
        yield _Fault(("max_slowdown",), message, "add a name, or leave max_slowdown out")
    elif any(role.tasks is not None and role.tasks.min != role.tasks.max for role in roles):
        yield _Fault(("max_slowdown",), "the cards of an elastic job have no power cap of their own", hint)


def _of_room(file: JobFile, roles: list[RoleFile]) -> Iterator[_Fault]:
    """Programs whose arguments and variables Linux would not take."""
    variables = [f"{name}={value}" for name, value in file.env.items()]
    for index, role in enumerate(roles):
        words = [role.command] if isinstance(role.command, str) else role.command or ()
        if _bytes_of(variables) + _bytes_of(words) > _MOST_BYTES_TOGETHER:
            at: Path = ("roles", index) if file.roles is not None and file.roles[index].command is not None else ()
            path = ("env",) if _bytes_of(variables) >= _bytes_of(words) else (*at, "command")
            yield _Fault(path, "the command and its variables have more than 1.9 MB together", AS_A_FILE)
            return


def _bytes_of(texts: Iterable[str]) -> int:
    return sum(len(text.encode()) + 1 + _POINTER_BYTES for text in texts)


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
