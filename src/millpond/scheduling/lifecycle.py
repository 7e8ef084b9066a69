"""Task and job states: one table of every allowed transition and what causes it.

States belong to tasks. A job's state is a pure function of its tasks (``job_state``).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from millpond.model.errors import InconsistentStateError
from millpond.model.states import JobState, Outcome, TaskState
from millpond.model.workloads import FailureRule

_Q, _ST, _RUN, _FR, _SW, _STOP = (
    TaskState.QUEUED,
    TaskState.STARTING,
    TaskState.RUNNING,
    TaskState.FROZEN,
    TaskState.SWAPPED,
    TaskState.STOPPING,
)


class Trigger(StrEnum):
    """What moves a task from one state to the next."""

    START_DECIDED = "start decided"
    START_CONFIRMED = "start confirmed"
    FREEZE_DECIDED = "freeze decided"
    SWAP_DECIDED = "swap decided"
    RESUME_DECIDED = "resume decided"
    STOP_DECIDED = "stop decided"
    ENDED_WELL = "ended well"
    ENDED_BADLY = "ended badly, no retry left"
    ENDED_FOR_RETRY = "ended, to be run again"
    ENDED_CANCELLED = "ended on request"
    CANCELLED_WAITING = "cancelled while waiting"


TRANSITIONS: dict[tuple[TaskState, Trigger], TaskState] = {
    (_Q, Trigger.START_DECIDED): _ST,
    (_Q, Trigger.CANCELLED_WAITING): TaskState.CANCELLED,
    (_Q, Trigger.ENDED_BADLY): TaskState.FAILED,  # a gang-mate failed for good before this one ever ran
    (_ST, Trigger.START_CONFIRMED): _RUN,
    (_ST, Trigger.STOP_DECIDED): _STOP,
    (_RUN, Trigger.FREEZE_DECIDED): _FR,
    (_RUN, Trigger.SWAP_DECIDED): _SW,
    (_RUN, Trigger.STOP_DECIDED): _STOP,
    (_FR, Trigger.SWAP_DECIDED): _SW,
    (_FR, Trigger.RESUME_DECIDED): _RUN,
    (_FR, Trigger.STOP_DECIDED): _STOP,
    (_SW, Trigger.FREEZE_DECIDED): _FR,  # it was frozen, and could not be swapped as well
    (_SW, Trigger.RESUME_DECIDED): _RUN,
    (_SW, Trigger.STOP_DECIDED): _STOP,
    **{(state, Trigger.ENDED_WELL): TaskState.SUCCEEDED for state in (_ST, _RUN, _FR, _SW, _STOP)},
    **{(state, Trigger.ENDED_BADLY): TaskState.FAILED for state in (_ST, _RUN, _FR, _SW, _STOP)},
    **{(state, Trigger.ENDED_FOR_RETRY): _Q for state in (_ST, _RUN, _FR, _SW, _STOP)},
    # Tasks of a gang that had ended by themselves before a mate was lost run again with it.
    (TaskState.SUCCEEDED, Trigger.ENDED_FOR_RETRY): _Q,
    (TaskState.FAILED, Trigger.ENDED_FOR_RETRY): _Q,
    **{(state, Trigger.ENDED_CANCELLED): TaskState.CANCELLED for state in (_ST, _RUN, _FR, _SW, _STOP)},
}
"""Every allowed transition. Anything else is a defect."""


def advance(state: TaskState, trigger: Trigger) -> TaskState:
    """The state after ``trigger``.

    Raises:
        InconsistentStateError: the table has no such transition.
    """
    try:
        return TRANSITIONS[state, trigger]
    except KeyError:
        raise InconsistentStateError(f"no transition from {state.value!r} by {trigger.value!r}") from None


def job_state(states: Iterable[TaskState]) -> JobState:
    """The state of a job whose tasks are in ``states``.

    The liveliest task decides: a job is running while any task runs, and has ended only when all have.
    """
    seen = set(states)
    for task_state, state in _BY_PRECEDENCE:
        if task_state in seen:
            return state
    return JobState.QUEUED


_BY_PRECEDENCE = (
    (TaskState.STOPPING, JobState.STOPPING),
    (TaskState.STARTING, JobState.STARTING),
    (TaskState.RUNNING, JobState.RUNNING),
    (TaskState.FROZEN, JobState.SUSPENDED),
    (TaskState.SWAPPED, JobState.SUSPENDED),
    (TaskState.QUEUED, JobState.QUEUED),
    (TaskState.FAILED, JobState.FAILED),
    (TaskState.CANCELLED, JobState.CANCELLED),
    (TaskState.SUCCEEDED, JobState.SUCCEEDED),
)

OWN_FAILURES = frozenset({Outcome.USER_ERROR, Outcome.START_FAILED, Outcome.OUT_OF_MEMORY})
"""Failures of the program itself."""
_BY_CLASS = FailureRule()
_NOT_THE_JOBS_FAULT = frozenset({Outcome.NODE_LOST, Outcome.DEVICE_LOST})


def is_retried(
    outcome: Outcome,
    exit_code: int | None = None,
    rule: FailureRule = _BY_CLASS,
    *,
    failures: int,
    out_of_memory_failures: int,
    retries: int,
) -> bool:
    """Whether a run that ended so is tried again.

    What the rule excludes never is. Else a lost node or device always is, and is not counted. Of the others, those
    that the rule names are while ``retries`` are left. Where it names none, running out of memory is, once, and the
    program's own failure while ``retries`` are left. A time limit never is.

    Args:
        failures: how often the program itself has failed, this time included.
        out_of_memory_failures: the same for running out of memory.
    """
    if rule.fails(outcome, exit_code):
        return False
    if outcome in _NOT_THE_JOBS_FAULT:
        return True
    if rule.retry_on:
        return rule.retries(outcome, exit_code) and failures + out_of_memory_failures <= retries
    if outcome is Outcome.OUT_OF_MEMORY:
        return out_of_memory_failures <= 1
    if outcome in (Outcome.USER_ERROR, Outcome.START_FAILED):
        return failures <= retries
    return False
