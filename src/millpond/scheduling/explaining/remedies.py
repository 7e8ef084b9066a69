"""Changed jobs that might start where a job does not: what a remedy could be, before it is tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from millpond.model.amounts import count_text, memory_text, milli_text
from millpond.model.hardware.topology import Level
from millpond.model.reasons import Remedy
from millpond.model.resources import CARD_MILLI, SHARE_OF_CARD, TaskRequest
from millpond.model.workloads import Job, Role

Extras: TypeAlias = tuple[tuple[str, int], ...]
MOST_VARIANTS = 100
"""Changed jobs that are tried for one answer."""


def variants(job: Job, rooms: list[int], parts_take: Extras) -> Iterator[tuple[Remedy, Job]]:
    """Changed jobs worth trying, the least change first.

    Args:
        rooms: for how many tasks of each role there is room.
        parts_take: extra resources that a task with a part of a card takes.
    """
    if job.together_required:
        yield (
            Remedy("let its tasks lie apart (topology: any)", "topology", "any"),
            replace(job, together_required=False, together=Level.CLUSTER),
        )
    roles = range(len(job.roles))
    for index in roles:
        request = job.roles[index].request
        if request.models:
            change = f"accept any device model{_of_role(job, index)}"
            yield _remedy(job, index, change, "gpu_models", "any"), _with(job, index, replace(request, models=()))
    for part in (2, 4):
        for index in roles:
            yield from _less_host(job, index, part)
    if not job.preemptible:
        yield (
            Remedy("let it be asked to leave again (preemptible: true)", "preemptible", "true"),
            replace(job, preemptible=True, rest_preemptible=False),
        )
    for index in roles:
        yield from _fewer_tasks(job, index, rooms[index])
    for index in roles:
        yield from _fewer_gpus(job, index, parts_take)


def _less_host(job: Job, index: int, part: int) -> Iterator[tuple[Remedy, Job]]:
    request, whose = job.roles[index].request, _of_role(job, index)
    cpu = request.cpu_milli // part
    if cpu >= 1000:
        change = f"ask for {milli_text(cpu)} CPUs a task{whose} instead of {milli_text(request.cpu_milli)}"
        yield (
            _remedy(job, index, change, "cpus", milli_text(cpu)),
            _with(job, index, replace(request, cpu_milli=cpu)),
        )
    memory = request.memory_mib // part
    if memory >= 256:
        change = f"ask for {memory_text(memory)} a task{whose} instead of {memory_text(request.memory_mib)}"
        yield (
            _remedy(job, index, change, "memory", f"{memory}MiB"),
            _with(job, index, replace(request, memory_mib=memory)),
        )


def _fewer_tasks(job: Job, index: int, room: int) -> Iterator[tuple[Remedy, Job]]:
    """As many tasks as there is room for, then half of that, and so on; an elastic role has tried down to its least."""
    role = job.roles[index]
    count = min(role.minimum - 1, max(room, 1))
    while count >= 1:
        rigid = Role.rigid(role.request, count, role.name)
        change = f"run {count_text(count, 'task')}{_of_role(job, index)} instead of {role.desired}"
        yield (
            _remedy(job, index, change, "tasks", str(count)),
            replace(job, roles=(*job.roles[:index], rigid, *job.roles[index + 1 :])),
        )
        count //= 2


def _fewer_gpus(job: Job, index: int, parts_take: Extras) -> Iterator[tuple[Remedy, Job]]:
    request, whose = job.roles[index].request, _of_role(job, index)
    devices = request.devices
    while devices > 1:
        devices //= 2
        change = f"ask for {count_text(devices, 'GPU')} a task{whose} instead of {request.devices}"
        yield (
            _remedy(job, index, change, "gpus", str(devices)),
            _with(job, index, replace(request, devices=devices)),
        )
    piece = request.slice
    share = asked = min(piece.compute_milli, CARD_MILLI)
    extras = tuple(sorted(dict([*request.extras, *parts_take]).items()))
    # Who asks for several cards is not helped by a part of one.
    while request.devices == 1 and share > 100 and piece.memory_mib == SHARE_OF_CARD:
        share //= 2
        smaller = replace(piece, compute_milli=share, limit_milli=share)
        change = f"ask for {milli_text(share)} GPUs a task{whose} instead of {milli_text(asked)}"
        yield (
            _remedy(job, index, change, "gpus", milli_text(share)),
            _with(job, index, replace(request, devices=1, slice=smaller, extras=extras)),
        )


def _of_role(job: Job, index: int) -> str:
    return f" of role {job.roles[index].name!r}" if len(job.roles) > 1 else ""


def _remedy(job: Job, index: int, change: str, field: str, value: str) -> Remedy:
    return Remedy(change, f"roles[{index}].{field}" if len(job.roles) > 1 else field, value)


def _with(job: Job, index: int, request: TaskRequest) -> Job:
    role = replace(job.roles[index], request=request)
    return replace(job, roles=(*job.roles[:index], role, *job.roles[index + 1 :]))
