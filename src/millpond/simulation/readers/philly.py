"""Microsoft's Philly trace in two forms that its users publish, with different headers.

*Reduced*: ``timestamp, duration, num_gpus, gpu_time, cluster``; instants count from the first row's midnight and
``cluster`` (a virtual cluster) becomes the queue. *Case*: ``job_id, gpu_num, submit_time, duration`` in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from millpond.model.errors import InvalidInputError
from millpond.model.tenancy.tenants import DEFAULT_QUEUE
from millpond.model.workloads import Job
from millpond.simulation.readers.rows import Row, Table, read_jobs
from millpond.simulation.trace import TraceJob, Workload, gang_roles

REDUCED = ("timestamp", "duration", "num_gpus", "cluster")
CASE = ("job_id", "gpu_num", "submit_time", "duration")


def read(table: Table, cards_per_node: int, *, skip_bad_rows: bool) -> Workload:
    """Jobs of a Philly trace in either form."""
    if "timestamp" in table.header:
        table.require(REDUCED)
        trace_job = _reduced_job()
    elif "gpu_num" in table.header:
        table.require(CASE)
        trace_job = _case_job
    else:
        raise InvalidInputError(
            f"{table.path}:1: neither form of the Philly trace (found: {', '.join(table.header)})",
            f"the reduced form has {', '.join(REDUCED)}; the case form has {', '.join(CASE)}",
        )
    return read_jobs(table, lambda row: trace_job(row, cards_per_node), skip_bad_rows=skip_bad_rows)


def _reduced_job() -> Callable[[Row, int], TraceJob]:
    midnight: datetime | None = None

    def trace_job(row: Row, cards_per_node: int) -> TraceJob:
        nonlocal midnight
        try:
            submitted = datetime.strptime(row.text("timestamp"), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        except ValueError:
            raise row.error("timestamp", "an instant such as 2017-09-04 10:30:41") from None
        midnight = midnight or submitted.replace(hour=0, minute=0, second=0)
        roles = gang_roles(row.integer("num_gpus", least=1), cards_per_node)
        job = Job(f"philly-{row.line}", roles, queue=row.text("cluster", DEFAULT_QUEUE))
        submit_at = (submitted - midnight).total_seconds()
        return TraceJob(job, submit_at, row.number("duration", least=0), row.where)

    return trace_job


def _case_job(row: Row, cards_per_node: int) -> TraceJob:
    job = Job(row.text("job_id"), gang_roles(row.integer("gpu_num", least=1), cards_per_node))
    return TraceJob(job, row.number("submit_time", least=0), row.number("duration", least=0), row.where)
