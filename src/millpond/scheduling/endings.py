"""What becomes of a job when tasks of it end: by themselves, by decision, by failure, or with their node."""

from __future__ import annotations

from millpond.model.reasons import Cause
from millpond.model.workloads import GangRule, Outcome, TaskState
from millpond.scheduling.gang_sizes import is_enough
from millpond.scheduling.lifecycle import Trigger, is_retried
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import ACTIVE, State


class Endings:
    """Applies ends of tasks to a state, within the open transaction."""

    def __init__(self, state: State) -> None:
        self._state = state

    def end(
        self,
        record: JobRecord,
        tasks: list[TaskRecord],
        outcome: Outcome,
        exit_code: int | None,
        detail: str,
        service_s: float | None,
    ) -> None:
        """Tasks of a run are over: give back what they held, and decide what becomes of the job."""
        state = self._state
        leaving = [task for task in tasks if task.state is TaskState.STOPPING]
        for task in tasks:
            task.outcome, task.exit_code = outcome, exit_code
            if detail:
                task.detail = detail
            state.release(record, task)
        if outcome is Outcome.SUCCESS:
            for task in tasks:
                task.move(Trigger.ENDED_WELL)
        elif record.stop_trigger is not None or outcome is Outcome.STOPPED:
            for task in tasks:
                task.move(_fate(record, task))
        else:
            for task in leaving:  # whatever ended it in the end, it was leaving, and its mates do without it
                task.move(_fate(record, task))
            if len(leaving) < len(tasks):
                self._failed(record, [task for task in tasks if task not in leaving], outcome)
        if any(task.state in ACTIVE for task in record.tasks):
            if record.stop_trigger is None and any(task.state is TaskState.QUEUED for task in leaving):
                state.growing[record.id] = record  # what it gave up for others it gets back when there is room
            record.refresh()
            if record.slot >= 0:
                state.enroll(record)
            return
        if outcome is Outcome.SUCCESS or (leaving and record.stop_trigger is None):
            self._dismiss_late(record)
        self._keep_service(record, outcome, service_s)
        state.close_run(record)

    def _dismiss_late(self, record: JobRecord) -> None:
        """Tasks of an elastic gang that never got to join it are not missed once enough have succeeded."""
        for index, role in enumerate(record.job.roles):
            mine = [task for task in record.tasks if task.role_index == index]
            if sum(task.state is TaskState.SUCCEEDED for task in mine) >= role.minimum:
                for task in mine:
                    if task.state is TaskState.QUEUED:
                        task.surplus = True
                        task.move(Trigger.CANCELLED_WAITING)

    def _failed(self, record: JobRecord, tasks: list[TaskRecord], outcome: Outcome) -> None:
        """A task failed by itself: by its gang's rule the others stop, and all run again if that is allowed."""
        if outcome is Outcome.OUT_OF_MEMORY:
            record.out_of_memory_failures += 1
        elif outcome in (Outcome.USER_ERROR, Outcome.START_FAILED):
            record.failures += 1
        again = is_retried(
            outcome,
            failures=record.failures,
            out_of_memory_failures=record.out_of_memory_failures,
            retries=record.job.retries,
        )
        trigger = Trigger.ENDED_FOR_RETRY if again else Trigger.ENDED_BADLY
        for task in tasks:
            task.move(trigger)
        alive = [task for task in record.tasks if task.state in ACTIVE]
        if not alive:
            self._fail_idle(record, again)
            return
        rule = record.job.gang_rule
        if again and rule is GangRule.RESTART_TASK:
            self._state.growing[record.id] = record  # the cycle starts the lost task again beside its mates
            self._state.arrivals += 1
        elif rule is GangRule.SHRINK and is_enough(record.job, alive):
            for task in tasks:
                if task.state is TaskState.QUEUED:
                    task.surplus = True
                    task.move(Trigger.CANCELLED_WAITING)
        else:
            self._state.stop(record, trigger, Cause.GANG_BROKEN)
            self._fail_idle(record, again)

    def _fail_idle(self, record: JobRecord, again: bool) -> None:
        """Tasks that wait beside a gang that failed for good never run."""
        if not again:
            for task in record.tasks:
                if task.state is TaskState.QUEUED:
                    task.move(Trigger.ENDED_BADLY)

    def _keep_service(self, record: JobRecord, outcome: Outcome, service_s: float | None) -> None:
        """Count the service of the run that is over."""
        if service_s is not None:
            record.attained_s = record.attained_before_s + service_s
        elif outcome is Outcome.SUCCESS:
            record.attained_s = record.service_s(self._state.now)
        else:
            record.attained_s = record.attained_before_s


def _fate(record: JobRecord, task: TaskRecord) -> Trigger:
    """What becomes of a task that ended because it was told to: decided for its job, or for the task alone."""
    if record.stop_trigger is not None:
        return record.stop_trigger
    made_room = task.state is TaskState.STOPPING and not task.surplus
    return Trigger.ENDED_FOR_RETRY if made_room else Trigger.ENDED_CANCELLED
