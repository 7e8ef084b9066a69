"""The jobs of a row: of users who submit the same again whenever certain hours begin, and of traces."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from millpond.forecasting.series import WEEK_S
from millpond.model.windows import spans
from millpond.simulation.clusters import capacity_milli, cards_per_node
from millpond.simulation.readers import read_workload
from millpond.simulation.scenarios.scenario_file import CalendarDemand, ScenarioFile, ScenarioRow, TraceDemand
from millpond.simulation.synthetic import SyntheticOptions, synthesise
from millpond.simulation.trace import TraceJob, Workload


def row_workload(file: ScenarioFile, row: ScenarioRow, seed: int = 0) -> Workload:
    """All jobs of a row, in order of submission; those of one instant turn about between the groups.

    Args:
        seed: of synthetic traces.

    Raises:
        InvalidInputError: a trace cannot be read.
    """
    end = file.begin_at + (file.warm_up + file.weeks) * WEEK_S
    queues = {queue.name for queue in row.cluster.queues}
    jobs: list[TraceJob] = []
    for number, demand in enumerate(row.demand):
        name = demand.spec.job.name or f"job{number}"
        if isinstance(demand, TraceDemand):
            shifted = _of_trace(demand, row, name, seed)
            jobs += (replace(job, submit_at=job.submit_at + file.begin_at) for job in shifted)
        else:
            jobs += _of_users(file, demand, queues, name, end)
    jobs = [job for job in jobs if job.submit_at < end]
    return Workload(tuple(sorted(jobs, key=lambda each: each.submit_at)), f"scenario {file.name}, row {row.file.name}")


def _of_users(
    file: ScenarioFile, demand: CalendarDemand, queues: set[str], name: str, end: float
) -> Iterator[TraceJob]:
    users = list(_users(file, demand.users))
    for opening, (begin, close) in enumerate(spans(demand.window, file.begin_at, end)):
        takes_s = close - begin if demand.takes_s is None else demand.takes_s
        stop_at = close if demand.ends_with_hours else math.inf
        for time in range(demand.times):
            for group, user in users:
                job = demand.spec.to_job(f"{name}-{opening}-{time}-{user}", user)
                if group in queues and "queue" not in demand.spec.document:
                    job = replace(job, queue=group)
                yield TraceJob(replace(job, group=group), begin, takes_s, job.id, stop_at, demand.busy)


def _users(file: ScenarioFile, part: float) -> Iterator[tuple[str, str]]:
    """(group, user) of the first ``part`` of each group, one of each group after another."""
    counts = {group: math.ceil(count * part - 1e-9) for group, count in file.groups.items()}
    for number in range(max(counts.values())):
        for group, count in counts.items():
            if number < count:
                yield group, f"{group}-{number:02d}"


def _of_trace(demand: TraceDemand, row: ScenarioRow, name: str, seed: int) -> Iterator[TraceJob]:
    """Its jobs as the demand describes them, with the trace's tasks; the trace begins at 0."""
    nodes, trace = row.cluster.nodes, demand.trace
    per_node = cards_per_node(nodes)
    if isinstance(trace.jobs, int):
        options = SyntheticOptions(jobs=trace.jobs, load=trace.load)
        entries = synthesise(options, capacity_milli(nodes) // 1000, per_node, seed).jobs
        begin = 0.0
    else:
        entries = read_workload(trace.format, demand.path, per_node).jobs
        begin = entries[0].submit_at
    for entry in entries:
        job = demand.spec.to_job(f"{name}-{entry.job.id}", entry.job.user)
        job = replace(job, roles=entry.job.roles)
        yield replace(entry, job=job, submit_at=entry.submit_at - begin, busy=demand.busy)
