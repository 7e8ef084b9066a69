"""Millpond's own CSV form, described in docs/trace-format.md: one job a line, three columns needed, more optional."""

from __future__ import annotations

import csv
from typing import TextIO

from millpond.model.errors import InvalidInputError
from millpond.model.resources import CARD_MILLI, SliceRequest, TaskRequest
from millpond.model.tenancy.tenants import DEFAULT_QUEUE
from millpond.model.workloads import Job, Priority, Role
from millpond.simulation.readers.rows import Row, Table, read_jobs
from millpond.simulation.trace import TraceJob, Workload, gang_roles

NEEDED = ("submit_s", "duration_s", "gpus")
OPTIONAL = (
    "gpu_milli", "job", "user", "queue", "name", "cpu_milli", "memory_mib", "gpu_models", "priority", "deadline_s",
    "time_limit_s", "minimum_run_s", "preemptible", "tasks",
)  # fmt: skip
WRITTEN = ("submit_s", "duration_s", "gpus", "gpu_milli", "job", "user", "queue", "name")

_PRIORITIES = {priority.name.lower(): priority for priority in Priority}
_YES_NO = {"yes": True, "no": False, "true": True, "false": False, "1": True, "0": False}


def read(table: Table, cards_per_node: int, *, skip_bad_rows: bool) -> Workload:
    """Jobs of a native trace."""
    table.require(NEEDED, (*NEEDED, *OPTIONAL))
    return read_jobs(table, lambda row: _trace_job(row, cards_per_node), skip_bad_rows=skip_bad_rows)


def write(workload: Workload, file: TextIO) -> None:
    """The workload as a native trace; only what ``WRITTEN`` names is kept."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(WRITTEN)
    for entry in workload.jobs:
        job = entry.job
        devices = sum(role.desired * role.request.devices for role in job.roles)
        share = job.gpu_milli // devices if devices else 0
        where = (f"{entry.submit_at:.3f}", f"{entry.duration_s:.3f}", devices, share)
        writer.writerow([*where, job.id, job.user, job.queue, job.name])


def _trace_job(row: Row, cards_per_node: int) -> TraceJob:
    submit_at = row.number("submit_s", least=0)
    job = Job(
        row.text("job", f"job-{row.line}"),
        _roles(row, cards_per_node),
        user=row.text("user"),
        name=row.text("name"),
        queue=row.text("queue", DEFAULT_QUEUE),
        priority=row.choice("priority", _PRIORITIES, Priority.NORMAL),
        preemptible=row.choice("preemptible", _YES_NO, True),
        deadline_s=_optional(row, "deadline_s"),
        time_limit_s=_optional(row, "time_limit_s"),
        minimum_run_s=row.number("minimum_run_s", least=0, default=0.0),
    )
    return TraceJob(job, submit_at, row.number("duration_s", least=0), row.where)


def _optional(row: Row, column: str) -> float | None:
    return row.number(column, least=0) if row.text(column) else None


def _roles(row: Row, cards_per_node: int) -> tuple[Role, ...]:
    tasks = row.integer("tasks", least=1) if row.text("tasks") else None
    cards, share = _cards_of_a_task(row, tasks or 1)
    models = tuple(part for part in row.text("gpu_models").split("|") if part)
    cpu_milli = row.integer("cpu_milli", least=0, default=0)
    memory_mib = row.integer("memory_mib", least=0, default=0)
    if tasks is None and share == CARD_MILLI:
        return gang_roles(cards, cards_per_node, cpu_milli, memory_mib, models)
    count = tasks or 1
    piece = SliceRequest(share, limit_milli=share) if share < CARD_MILLI else SliceRequest()
    return (Role.rigid(TaskRequest(cpu_milli // count, memory_mib // count, cards, piece, models), count),)


def _cards_of_a_task(row: Row, tasks: int) -> tuple[int, int]:
    """How many cards each of so many tasks asks for, and which share of each in thousandths."""
    gpus = row.number("gpus", least=0)
    share = row.integer("gpu_milli", least=0, default=CARD_MILLI)
    if 0 < gpus < 1 and not row.text("gpu_milli"):
        gpus, share = 1.0, round(gpus * CARD_MILLI)
    if gpus != int(gpus):
        raise row.error("gpus", "a whole number, or one fraction of a card below 1 with gpu_milli left empty")
    if gpus and not 0 < share <= CARD_MILLI:
        raise row.error("gpu_milli", f"a share of 1 to {CARD_MILLI} milli")
    cards, rest = divmod(int(gpus), tasks)
    if rest:
        raise row.error("tasks", f"a number by which {gpus:g} cards can be divided")
    if cards > 1 and share != CARD_MILLI:
        raise InvalidInputError(
            f"{row.where}: {share} milli of each of {cards} cards",
            "a fraction is taken of one card for each task; ask for one card or for whole cards",
        )
    return cards, share if cards else CARD_MILLI
