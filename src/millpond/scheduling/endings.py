"""What becomes of a job when tasks of it end: by themselves, by decision, by failure, or with their node."""

from __future__ import annotations

from millpond.model.reasons import Cause
from millpond.model.workloads import GangRule, Outcome, TaskState
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
        for task in tasks:
            task.outcome, task.exit_code = outcome, exit_code
            if detail:
                task.detail = detail
            state.release(record, task)
        if outcome is Outcome.SUCCESS:
            for task in tasks:
                task.move(Trigger.ENDED_WELL)
        elif record.stop_trigger is not None or outcome is Outcome.STOPPED:
            trigger = record.stop_trigger or Trigger.ENDED_CANCELLED
            for task in tasks:
                task.move(trigger)
        else:
            self._failed(record, tasks, outcome)
        if any(task.state in ACTIVE for task in record.tasks):
            record.refresh()
            if record.slot >= 0:
                state.enroll(record)
            return
        if outcome is Outcome.SUCCESS:
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
        elif rule is GangRule.SHRINK and self._is_enough(record, alive):
            for task in tasks:
                if task.state is TaskState.QUEUED:
                    task.surplus = True
                    task.move(Trigger.CANCELLED_WAITING)
        else:
            self._state.stop(record, trigger, Cause.GANG_BROKEN)
            self._fail_idle(record, again)

    def _is_enough(self, record: JobRecord, tasks: list[TaskRecord]) -> bool:
        """Whether these tasks are as many as every role needs at least."""
        return all(
            sum(task.role_index == index for task in tasks) >= role.minimum
            for index, role in enumerate(record.job.roles)
        )

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
