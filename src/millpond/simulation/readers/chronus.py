"""The deadline traces of Chronus (SoCC'21): times in minutes, deadlines relative to submission.

The files do not state their unit; minutes fit their two weeks. Rows without GPUs are left out and counted. Of a
job with several deadlines the first counts. Best-effort jobs have none.
"""

from __future__ import annotations

import math

from millpond.model.workloads import Job
from millpond.simulation.readers.rows import Row, Table, read_jobs
from millpond.simulation.trace import TraceJob, Workload, gang_roles

COLUMNS = ("job_id", "user", "num_gpu", "submit_time", "duration", "expect_time_list", "best_effort")
MINUTE_S = 60.0


def read(table: Table, cards_per_node: int, *, skip_bad_rows: bool) -> Workload:
    """Jobs of a Chronus trace. Its ``user`` names a virtual cluster and becomes the queue."""
    table.require(COLUMNS)

    def trace_job(row: Row) -> TraceJob | None:
        gpus = row.integer("num_gpu", least=0)
        submit_at = row.number("submit_time", least=0) * MINUTE_S
        duration_s = row.number("duration", least=0) * MINUTE_S
        deadline = None if row.integer("best_effort", least=0) else submit_at + _first_deadline(row) * MINUTE_S
        if not gpus:
            return None
        roles = gang_roles(gpus, cards_per_node)
        job = Job(row.text("job_id"), roles, name=row.text("model_name"), queue=row.text("user"), deadline_s=deadline)
        return TraceJob(job, submit_at, duration_s, row.where)

    return read_jobs(table, trace_job, skip_bad_rows=skip_bad_rows)


def _first_deadline(row: Row) -> float:
    try:
        minutes = float(row.text("expect_time_list").split("-")[0])
    except ValueError:
        minutes = math.nan
    if not math.isfinite(minutes):
        raise row.error("expect_time_list", "minutes, or several joined by '-'")
    return minutes
