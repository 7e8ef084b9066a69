"""What a program may ask and report while it runs as a task: its place, its metrics, whether it should stop.

Everything works outside a job too (rank 0 of 1, reports are printed), so that a script runs unchanged on a laptop.
Standard library alone, as it is imported by programs that care how long their start takes.
"""

from millpond.job.metrics import report
from millpond.job.notices import on_checkpoint, should_stop
from millpond.job.place import (
    array_index,
    attempt,
    data_dir,
    inside,
    job_id,
    local_rank,
    output_dir,
    parameters,
    rank,
    task,
    world_size,
)

__all__ = [
    "array_index",
    "attempt",
    "data_dir",
    "inside",
    "job_id",
    "local_rank",
    "on_checkpoint",
    "output_dir",
    "parameters",
    "rank",
    "report",
    "should_stop",
    "task",
    "world_size",
]
