"""The jobs of users who work by the calendar: each submits the same again whenever certain hours begin."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from millpond.model.windows import spans
from millpond.simulation.scenarios.scenario_file import CalendarDemand, ScenarioFile, ScenarioRow
from millpond.simulation.trace import TraceJob, Workload

WEEK_S = 7 * 86_400.0


def calendar_workload(file: ScenarioFile, row: ScenarioRow) -> Workload:
    """All jobs of a row, in order of submission; those of one instant turn about between the groups."""
    end = file.begin_at + (file.warm_up + file.weeks) * WEEK_S
    queues = {queue.name for queue in row.cluster.queues}
    jobs = [
        job
        for number, demand in enumerate(row.demand)
        for job in _jobs(file, demand, queues, f"{demand.spec.job.name or f'job{number}'}", end)
    ]
    return Workload(tuple(sorted(jobs, key=lambda each: each.submit_at)), f"scenario {file.name}, row {row.file.name}")


def _jobs(file: ScenarioFile, demand: CalendarDemand, queues: set[str], name: str, end: float) -> Iterator[TraceJob]:
    users = list(_users(file, demand.users))
    for opening, (begin, close) in enumerate(spans(demand.window, file.begin_at, end)):
        takes_s = close - begin if demand.takes_s is None else demand.takes_s
        stop_at = close if demand.ends_with_hours else math.inf
        for time in range(demand.times):
            for group, user in users:
                job = demand.spec.to_job(f"{name}-{opening}-{time}-{user}", user)
                if group in queues and "queue" not in demand.spec.document:
                    job = replace(job, queue=group)
                yield TraceJob(replace(job, group=group), begin, takes_s, job.id, stop_at)


def _users(file: ScenarioFile, part: float) -> Iterator[tuple[str, str]]:
    """(group, user) of the first ``part`` of each group, one of each group after another."""
    counts = {group: math.ceil(count * part - 1e-9) for group, count in file.groups.items()}
    for number in range(max(counts.values())):
        for group, count in counts.items():
            if number < count:
                yield group, f"{group}-{number:02d}"
