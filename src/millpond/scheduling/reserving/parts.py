"""Running work as reservations see it: by what may be asked to leave, and when each part has left."""

from __future__ import annotations

from typing import NamedTuple

from millpond.model.states import JobState, TaskState
from millpond.scheduling.elastic.gang_sizes import is_enough, spare_tasks
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State


class Part(NamedTuple):
    """Tasks of running work, and whether they may be asked to leave."""

    record: JobRecord
    tasks: list[TaskRecord]
    may_be_asked: bool


def parts_of(record: JobRecord) -> list[Part]:
    """Running work by what may be asked to leave: of a gang whose minimum alone stays, each task beyond that."""
    held = record.holding_tasks()
    if record.job.preemptible or record.kept is not None or record.is_ending:
        return [Part(record, held, not record.is_ending)]
    rest = [task for task in held if task.state is TaskState.STOPPING]
    if record.job.rest_preemptible and record.state is JobState.RUNNING:
        running = [task for task in held if task.state is TaskState.RUNNING]
        rest += spare_tasks(record.job, running) if is_enough(record.job, running) else []
    stays = Part(record, [task for task in held if task not in rest], False)
    return [stays, *(Part(record, [task], True) for task in rest)]


def leaves_at(state: State, record: JobRecord, *, may_be_asked: bool) -> float:
    """When running work, or a part of it, has left its cards at the latest; ``NEVER`` if it cannot be asked to."""
    grace_s = record.job.checkpoint.grace_s
    kept = record.kept
    if kept is not None:
        return state.now
    if record.is_ending:
        return state.now + grace_s
    if may_be_asked:
        asked_s = state.now + grace_s
        is_gone = is_gone_by(state, record, asked_s)
        return state.ordering.time_left.cautious_end(record, state.now) if is_gone else asked_s
    limit = record.job.time_limit_s
    return NEVER if limit is None else state.now + max(limit - record.service_s(state.now), 0.0) + grace_s


def is_gone_by(state: State, record: JobRecord, instant: float) -> bool:
    """Whether work will almost surely have ended by itself; what has outlived its forecast will not."""
    return state.now < state.ordering.time_left.cautious_end(record, state.now) <= instant
