"""Runs that a simulation finds there when it begins: those of a live scheduler.

A real engine's answers are missing from the moment of the copy on. What it was asked and has not answered is answered
by the simulated one; what it had answered shows in the states of tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from millpond.model.decisions import Decision, Placement, Resume, Start, SuspendMode
from millpond.model.states import TaskState
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.ordering.forecasts import debt_s
from millpond.scheduling.records import JobRecord, TaskRecord

NEVER = math.inf

_LEFT_CARDS = (TaskState.FROZEN, TaskState.SWAPPED)


@dataclass(frozen=True, slots=True)
class PresentRun:
    """A run that a simulation finds there when it begins.

    Attributes:
        placements: its tasks that run or are suspended; not those that are leaving.
        service_s: seconds of work that this run has done.
        overhead_s: the part of what is left that comes from preemptions.
        swapped_mib: device memory that lies in host memory.
        is_suspended: it holds no cards.
        ends_at: when all of it has been asked to have left; ``NEVER`` where it goes on.
        is_over: the job does not run again after that.
        leaving: numbers of the tasks that are being ended while others go on.
    """

    job: str
    attempt: int
    placements: tuple[Placement, ...]
    service_s: float = 0.0
    overhead_s: float = 0.0
    swapped_mib: int = 0
    is_suspended: bool = False
    ends_at: float = NEVER
    is_over: bool = False
    leaving: tuple[int, ...] = ()


def present_runs(records: Iterable[JobRecord], pending: Iterable[Decision], now: float) -> Iterator[PresentRun]:
    """The runs of jobs that have begun and not ended, as a real engine has them.

    Args:
        pending: decisions that it has not answered; they are applied to the result, so it shows what was before them.
    """
    starting: set[str] = set()
    joining: dict[str, set[int]] = {}
    resuming: set[str] = set()
    asked = set()
    for decision in pending:
        asked.add(decision.job)
        match decision:
            case Start(joins=True):
                joining.setdefault(decision.job, set()).update(placed.task for placed in decision.placements)
            case Start():
                starting.add(decision.job)
            case Resume():
                resuming.add(decision.job)
            case _:
                pass
    for record in records:
        if record.id in starting:
            continue
        tasks = [task for task in record.tasks if task.placement is not None and task.state is not TaskState.QUEUED]
        tasks = [task for task in tasks if not task.state.ended and task.number not in joining.get(record.id, ())]
        if tasks:
            yield _present(record, tasks, now, is_asked=record.id in asked, is_resuming=record.id in resuming)


def _present(
    record: JobRecord, tasks: list[TaskRecord], now: float, *, is_asked: bool, is_resuming: bool
) -> PresentRun:
    leaving = [] if is_asked else [task for task in tasks if task.state is TaskState.STOPPING]
    staying = [task for task in tasks if task not in leaving]
    kept = record.kept
    ends_at = NEVER
    if kept is not None:
        ends_at = kept.kept_until or now
    elif not staying:
        ends_at = now
    is_suspended = is_resuming or all(task.state in _LEFT_CARDS for task in tasks)
    places = tuple(task.placement for task in staying or tasks if task.placement is not None)
    is_swapped = is_suspended and record.suspend_mode is SuspendMode.SWAP
    return PresentRun(
        record.id,
        record.attempt,
        places,
        service_s=max(record.service_s(now) - record.attained_before_s, 0.0),
        overhead_s=debt_s(record, now),
        swapped_mib=sum(grant.memory_mib for place in places for grant in place.grants) if is_swapped else 0,
        is_suspended=is_suspended,
        ends_at=ends_at,
        is_over=kept is not None or record.stop_trigger is not Trigger.ENDED_FOR_RETRY,
        leaving=tuple(task.number for task in leaving) if staying else (),
    )
