"""The container of a task: the command that runs it, and the plan for its supervisor."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millpond.node.containers.container import (
    JOB_LABEL,
    NAME_VARIABLE,
    STATE_LABEL,
    Container,
    state_mark,
    variables_text,
)
from millpond.node.containers.detection import Containers
from millpond.node.containers.images import LocalImage
from millpond.node.sandbox.sandbox import Mount
from millpond.node.task.start_plan import ContainerPlan

_NEVER_A_CARD = "FAKE-"


@dataclass(frozen=True, slots=True)
class Boundary:
    """What a container is kept to."""

    memory_mib: int = 0
    cpu_milli: int = 0


@dataclass(frozen=True, slots=True)
class ContainerLaunch:
    """That a job's tasks run in containers.

    Attributes:
        means: with what.
        image: of what.
        state_dir: the server's, in which no container finds anything but what is its own.
        boundaries: what the tasks of each role are kept to.
        owner: whom they run as; None: as the runtime's own way is.
    """

    means: Containers
    image: LocalImage
    state_dir: Path
    boundaries: Mapping[str, Boundary] = field(default_factory=dict)
    owner: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ContainerTask:
    """The task that a container is for.

    Attributes:
        name: the container's.
        record: the task's.
        env: all its variables.
        cards: UUIDs of the devices that it holds, of whatever kind.
        reads_input: it is given standard input.
    """

    name: str
    job: str
    role: str
    record: Path
    argv: Sequence[str]
    workdir: Path
    mounts: Sequence[Mount]
    env: Mapping[str, str]
    cards: Sequence[str]
    reads_input: bool = False
    hidden: Sequence[Path] = ()
    processes: int = 0


def plan_container(launch: ContainerLaunch, container_task: ContainerTask) -> tuple[list[str], ContainerPlan]:
    """The command that runs the container, and its supervisor's plan.

    Raises:
        InvalidInputError: it has a variable that no container can be given.
    """
    runtime, means = launch.means.runtime, launch.means
    bounds = launch.boundaries.get(container_task.role, Boundary())
    variables = {**_home(launch.owner), **container_task.env, NAME_VARIABLE: container_task.name}
    mounts = outer_first(container_task.mounts)
    container = Container(
        name=container_task.name,
        image=launch.image.place,
        argv=container_task.argv,
        workdir=container_task.workdir,
        variables=container_task.record.with_suffix(".env"),
        scratch=container_task.record.with_suffix(".scratch"),
        labels={STATE_LABEL: state_mark(launch.state_dir), JOB_LABEL: container_task.job},
        mounts=mounts,
        hidden=_seen((launch.state_dir, *container_task.hidden), mounts),
        cards=[uuid for uuid in container_task.cards if not uuid.startswith(_NEVER_A_CARD)],
        memory_mib=bounds.memory_mib,
        cpu_milli=bounds.cpu_milli,
        processes=container_task.processes,
        owner=launch.owner,
        reads_input=container_task.reads_input,
    )
    return runtime.run(container), ContainerPlan(
        name=container_task.name,
        leads=runtime.leads,
        enters=runtime.enters,
        variables=str(container.variables),
        text=variables_text(variables),
        scratch=str(container.scratch),
        env={**means.env, **runtime.environment(variables)},
        execute=runtime.execute(container_task.name, container.variables, container_task.workdir),
        kill=runtime.kill(container_task.name),
        out_of_memory=runtime.was_out_of_memory(container_task.name),
    )


def _seen(places: Sequence[Path], mounts: Sequence[Mount]) -> list[Path]:
    """Those that a container would see."""
    return [place for place in places if any(place.is_relative_to(mount.path) for mount in mounts)]


def outer_first(mounts: Sequence[Mount]) -> list[Mount]:
    """Each path once, the outer before the inner; of one path twice, the writable counts."""
    found: dict[Path, bool] = {}
    for mount in mounts:
        found[mount.path] = found.get(mount.path, False) or mount.writable
    return [Mount(path, found[path]) for path in sorted(found, key=lambda path: (len(path.parts), str(path)))]


def default_owner(means: Containers) -> tuple[int, int] | None:
    """Whom a container's files belong to where tasks run as the server does."""
    return None if means.runtime.as_caller else (os.geteuid(), os.getegid())


def _home(owner: tuple[int, int] | None) -> dict[str, str]:
    """An account that the image need not know has no home in it."""
    return {"HOME": "/tmp"} if owner is not None and owner[0] != 0 else {}
