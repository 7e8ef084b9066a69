"""Bodies about what the server's jobs were, as rows of a native trace (docs/trace-format.md)."""

from __future__ import annotations

from pydantic import Field

from millpond.specs.api.models import Body


class TraceRow(Body):
    """One job that ended; its fields are the columns of the native form.

    Attributes:
        submit_s: seconds since 1970 here; on the trace's own clock in a file.
        duration_s: how long it runs when nothing disturbs it.
        gpus: cards of all its tasks.
        gpu_milli: share of each.
        tasks: identical ones among which cards, CPUs and memory are divided; None: they were not identical.
        time_limit_s: None: none.
        preemptible: ``yes`` or ``no``.
    """

    submit_s: float
    duration_s: float
    gpus: int
    gpu_milli: int
    job: str
    user: str
    name: str
    queue: str
    tasks: int | None = None
    cpu_milli: int = 0
    memory_mib: int = 0
    gpu_models: str = ""
    priority: str = "normal"
    time_limit_s: float | None = None
    minimum_run_s: float = 0.0
    preemptible: str = "yes"


class HistoryPage(Body):
    """Jobs in the order of their submission.

    Attributes:
        left_out: how many jobs of this part of the history are no rows, by the reason.
        next: asks for the jobs behind these; empty when there are none.
        cluster: the machines as ``NxG:MODEL``; empty where they differ.
    """

    rows: list[TraceRow]
    left_out: dict[str, int] = Field(default={})
    next: str = ""
    cluster: str = ""
