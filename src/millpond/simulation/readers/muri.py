"""The traces of Muri (SIGCOMM'22): Philly arrivals with times in milliseconds."""

from __future__ import annotations

from millpond.model.workloads import Job
from millpond.simulation.readers.rows import Row, Table, read_jobs
from millpond.simulation.trace import TraceJob, Workload, gang_roles

COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "iteration_time")

RUNTIME_FACTOR = 1.015
"""The authors' simulator runs every iteration this much longer than the trace says, under every policy."""


def read(table: Table, cards_per_node: int, *, skip_bad_rows: bool) -> Workload:
    """Jobs of a Muri trace. Its ``model_name`` becomes the job's name; its ``priority`` has no published meaning.

    The run time is that of the authors' simulator: iterations times the time of one, times ``RUNTIME_FACTOR``. The
    rounded column ``duration`` is not read.
    """
    table.require(COLUMNS)

    def trace_job(row: Row) -> TraceJob:
        roles = gang_roles(row.integer("num_gpu", least=1), cards_per_node)
        job = Job(row.text("job_id"), roles, name=row.text("model_name"))
        submit_at = row.number("submit_time", least=0) / 1000
        iteration_s = row.number("iteration_time", least=0) * RUNTIME_FACTOR / 1000
        duration_s = row.number("iterations", least=0) * iteration_s
        return TraceJob(job, submit_at, duration_s, row.where)

    return read_jobs(table, trace_job, skip_bad_rows=skip_bad_rows)
