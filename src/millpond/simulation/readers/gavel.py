"""The traces of Gavel (OSDI'20): jobs by their type and their steps, whose lengths follow from a table of speeds."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from millpond.model.workloads import Job
from millpond.simulation.readers.rows import Row, Table, read_jobs
from millpond.simulation.trace import TraceJob, Workload, gang_roles
from millpond.simulation.world.speeds import SpeedTable

COLUMNS: Final = (
    "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor",
    "priority_weight", "SLO", "arrival_time",
)  # fmt: skip
"""The file has no header; the names are those of Gavel's parser."""


def read(path: Path, cards_per_node: int, speeds: SpeedTable, *, skip_bad_rows: bool) -> Workload:
    """Jobs of a Gavel trace: names are the types, lengths those alone on the fastest cards.

    Commands, weights and SLOs are not read.
    """

    def trace_job(row: Row) -> TraceJob:
        kind, cards = row.text("job_type"), row.integer("scale_factor", least=1)
        if not speeds.knows(kind):
            raise row.error("job_type", "a job of the table of speeds")
        job = Job(f"gavel-{row.line}", gang_roles(cards, cards_per_node), name=kind)
        duration_s = row.number("total_steps", least=0) / speeds.full(kind, cards)
        return TraceJob(job, row.number("arrival_time", least=0), duration_s, row.where)

    return read_jobs(Table(path, COLUMNS, delimiter="\t"), trace_job, skip_bad_rows=skip_bad_rows)
