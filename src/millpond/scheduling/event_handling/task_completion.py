"""What becomes of a job when tasks of it end: by themselves, by decision, by failure, or with their node."""

from __future__ import annotations

from collections.abc import Mapping

from millpond.model.decisions import Stop
from millpond.model.events import Kept, Refused
from millpond.model.reasons import Cause
from millpond.model.states import Outcome, TaskState
from millpond.model.workloads import GangRule
from millpond.scheduling import runs
from millpond.scheduling.elastic.gang_sizes import is_enough
from millpond.scheduling.lifecycle import OWN_FAILURES, Trigger, is_retried
from millpond.scheduling.ordering.queueing import pause, pause_until
from millpond.scheduling.packing.packing import note_failure
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import ACTIVE, State

_TOLD_BEFORE = frozenset({Cause.TIME_LIMIT, Cause.DEVICE_FAILED, Cause.WORK_DONE})
"""Decisions to end a run that come with a word about it for its tasks."""
_MAY_BE_THE_OTHERS_FAULT = frozenset({Outcome.USER_ERROR, Outcome.OUT_OF_MEMORY})
"""How a program ends that finds no device memory beside another on its cards."""


class TaskCompletion:
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
        if outcome in _MAY_BE_THE_OTHERS_FAULT:
            note_failure(self._state, record)
        for task in tasks:
            runs.release(self._state, record, task)
            if task.kept_until is not None:  # its failure is what it has ended by, whatever ended its place
                task.move(Trigger.ENDED_BADLY)
                continue
            task.outcome, task.exit_code = outcome, exit_code
            why = task.detail if task.device_failed or record.stop_cause in _TOLD_BEFORE else ""
            task.detail = f"{why}; {detail}" if why and detail else why or detail
        rest = [task for task in tasks if task.kept_until is None]
        if outcome is Outcome.SUCCESS:
            for task in rest:
                task.move(Trigger.ENDED_WELL)
        elif rest:
            self._ended_unfinished(record, rest, outcome)
        self._settle(record, service_s)

    def keep(self, record: JobRecord, task: TaskRecord, failure: Kept) -> None:
        """A task's program has failed, and its engine keeps its place.

        If the job has failed with it for good, the place stays, and its mates end. Else it is given back, and its end
        is reported as usual.
        """
        if task.state is TaskState.STOPPING:
            return  # its end is decided already
        state = self._state
        if not self._is_kept(record, task, failure):
            number = state.next_id()
            state.emit(Stop(number, record.id, record.attempt, Cause.NOT_KEPT, (task.number,), grace_s=0.0))
            return
        record.failures, record.out_of_memory_failures = _failures(record, failure.outcome)
        task.outcome, task.exit_code, task.detail = failure.outcome, failure.exit_code, failure.detail
        mates = [mate for mate in record.tasks if mate.state in ACTIVE and mate is not task]
        runs.decide_fate(state, record, Trigger.ENDED_BADLY, Cause.GANG_BROKEN if mates else Cause.KEPT)
        self._fail_idle(record, again=False)
        if mates:
            runs.stop(state, record, Trigger.ENDED_BADLY, Cause.GANG_BROKEN, tasks=mates)
        task.kept_until = failure.until
        state.kept[record.id] = record
        record.refresh()

    def _is_kept(self, record: JobRecord, task: TaskRecord, failure: Kept) -> bool:
        """Whether a failure of a task is the end of its job, which wants to be looked at then."""
        outcome = failure.outcome
        if not record.job.keep_s or outcome not in (Outcome.USER_ERROR, Outcome.OUT_OF_MEMORY):
            return False
        if task.state is not TaskState.RUNNING or task.vacating is not None or record.stop_trigger is not None:
            return False
        if self._is_retried(record, task, outcome, failure.exit_code, _failures(record, outcome)):
            return False
        mates = [mate for mate in _wanted(record, ACTIVE) if mate is not task]
        return record.job.gang_rule is not GangRule.SHRINK or not mates or not _goes_on(record, mates)

    def start_refused(self, record: JobRecord, tasks: list[TaskRecord], event: Refused) -> None:
        """The engine could not start a run: it is over before it began, and counts as a failure by its outcome."""
        record.failed_starts += 1
        outcome = Outcome.NODE_LOST if event.device_fault else Outcome.START_FAILED
        self.end(record, tasks, outcome, event.exit_code, event.reason, None)

    def growth_refused(self, record: JobRecord, tasks: list[TaskRecord], reason: str) -> None:
        """Tasks that should have joined a running gang could not: it goes on without them and tries again later."""
        state = self._state
        record.failed_starts += 1
        starting = [task for task in tasks if task.state is TaskState.STARTING]
        for task in starting:
            runs.release(state, record, task)
            task.move(Trigger.ENDED_FOR_RETRY)
            task.detail = reason
        if starting:
            state.growing.pop(record.id, None)
            pause(state, record)
        stopping = [task for task in tasks if task.state is TaskState.STOPPING]
        if stopping:  # they never began, so the engine will not report their end
            self.end(record, stopping, Outcome.STOPPED, None, reason, None)
        else:
            self._settle(record, None)

    def devices_failed(self, record: JobRecord, details: Mapping[TaskRecord, str]) -> None:
        """Devices failed under these tasks: they are asked to end, by their gang's rule alone or with all their mates.

        Args:
            details: what is said of each one's device.
        """
        hit = [task for task in details if task.state is not TaskState.STOPPING]
        if not hit:
            return
        if record.kept is not None:
            runs.stop(self._state, record, Trigger.ENDED_FOR_RETRY, Cause.DEVICE_FAILED)
            return
        rest = [task for task in _wanted(record, ACTIVE) if task not in hit]
        if not rest or not _goes_on(record, rest):
            for task in record.tasks:
                task.detail = details[hit[0]]
            runs.stop(self._state, record, Trigger.ENDED_FOR_RETRY, Cause.DEVICE_FAILED)
            return
        for task in hit:
            task.detail = details[task]
            task.device_failed = True
        runs.stop(self._state, record, Trigger.ENDED_FOR_RETRY, Cause.DEVICE_FAILED, tasks=hit)

    def _ended_unfinished(self, record: JobRecord, tasks: list[TaskRecord], outcome: Outcome) -> None:
        """Move tasks that ended without success: by what was decided for them, else by what they died of."""
        unforeseen = []
        for task in tasks:
            if task.surplus:
                task.move(Trigger.ENDED_CANCELLED)
            elif record.stop_trigger is not None:
                task.move(record.stop_trigger)
            elif task.state is TaskState.STOPPING and not task.device_failed:
                task.outcome = None  # it made room for others: as if it had not joined yet
                task.move(Trigger.ENDED_FOR_RETRY)
            else:
                unforeseen.append(task)
        if any(task.device_failed for task in unforeseen):
            outcome = Outcome.DEVICE_LOST  # whatever they died of, and their mates with them
        elif outcome is Outcome.STOPPED:
            outcome = Outcome.NODE_LOST  # no decision ended them: the platform lost them
        for task in unforeseen:
            task.outcome = outcome
        if unforeseen:
            self._failed(record, unforeseen, outcome)
        if len(unforeseen) < len(tasks):
            self._state.watch_growth(record)

    def _settle(self, record: JobRecord, service_s: float | None) -> None:
        """Tasks have ended: the run goes on with the rest, or is over."""
        state = self._state
        states = {task.state for task in record.tasks}
        if not ACTIVE.isdisjoint(states):
            if record.stop_trigger is None and _only_daemons_run(record):
                for task in record.tasks:
                    if task.state in ACTIVE:
                        task.detail = "stopped when the work was done"
                runs.stop(state, record, Trigger.ENDED_WELL, Cause.WORK_DONE)
            record.refresh()
            if record.slot >= 0:
                state.enroll(record)
            return
        if TaskState.QUEUED in states:
            self._dismiss_late(record)
        self._keep_service(record, service_s)
        runs.close(state, record)

    def _dismiss_late(self, record: JobRecord) -> None:
        """Tasks of an elastic gang that are not in it at its end are not missed if enough others have succeeded.

        Those are tasks that never joined this run and, unless the gang stands or falls as one, tasks that it lost.
        A task that was ended by decision is missed: the gang had not finished its work. Daemons are not missed by those
        that have.
        """
        if not _is_missing_work(record):
            for task in record.queued():
                task.dismiss()

    def _failed(self, record: JobRecord, tasks: list[TaskRecord], outcome: Outcome) -> None:
        """Tasks failed by themselves: by their gang's rule the others stop, and all run again if that is allowed.

        A job that failed beside another on its cards runs again, and that does not count.
        """
        if record.packed_with and outcome in _MAY_BE_THE_OTHERS_FAULT:
            rule = record.job.failure_rule
            again = not any(rule(task.role_index).fails(outcome, task.exit_code) for task in tasks)
        else:
            counts = record.failures, record.out_of_memory_failures = _failures(record, outcome)
            again = all(self._is_retried(record, task, outcome, task.exit_code, counts) for task in tasks)
        if again and outcome in OWN_FAILURES and not record.packed_with:
            failed = record.failures + record.out_of_memory_failures
            record.retry_at = self._state.now + record.job.retry_delay.after(failed)
        trigger = Trigger.ENDED_FOR_RETRY if again else Trigger.ENDED_BADLY
        for task in tasks:
            task.move(trigger)
        alive = _wanted(record, ACTIVE)
        if not alive:
            self._fail_idle(record, again)
            return
        if _goes_on(record, alive) and (again or record.job.gang_rule in (GangRule.SHRINK, GangRule.APART)):
            if again and record.retry_at > self._state.now:
                pause_until(self._state, record, record.retry_at)
            else:
                self._state.watch_growth(record)  # the cycle starts the lost tasks again beside their mates
        else:
            runs.stop(self._state, record, trigger, Cause.GANG_BROKEN)
            self._fail_idle(record, again)

    def _is_retried(
        self, record: JobRecord, task: TaskRecord, outcome: Outcome, exit_code: int | None, counts: tuple[int, int]
    ) -> bool:
        failures, out_of_memory_failures = counts
        if record.job.gang_rule is GangRule.APART and record.started_at is not None:
            return False
        return is_retried(
            outcome,
            exit_code,
            record.job.failure_rule(task.role_index),
            failures=failures,
            out_of_memory_failures=out_of_memory_failures,
            retries=record.job.retries,
        )

    def _fail_idle(self, record: JobRecord, again: bool) -> None:
        """Tasks that wait beside a gang that failed for good never run."""
        if not again:
            for task in record.tasks:
                if task.state is TaskState.QUEUED:
                    task.move(Trigger.ENDED_BADLY)
            self._state.watch_growth(record)

    def _keep_service(self, record: JobRecord, service_s: float | None) -> None:
        """Count the service of the run that is over."""
        service = record.service_s(self._state.now)
        record.reached_s = max(record.reached_s, service)
        if service_s is not None:
            record.attained_s = record.attained_before_s + service_s
        elif all(task.surplus or task.state is TaskState.SUCCEEDED for task in record.tasks):
            record.attained_s = service
        else:
            record.attained_s = record.attained_before_s


def _failures(record: JobRecord, outcome: Outcome) -> tuple[int, int]:
    """How often the program itself has failed, and for want of memory, with one more run that ended so."""
    for_want_of_memory = outcome is Outcome.OUT_OF_MEMORY
    by_itself = outcome in OWN_FAILURES and not for_want_of_memory
    return record.failures + by_itself, record.out_of_memory_failures + for_want_of_memory


def _wanted(record: JobRecord, states: frozenset[TaskState] | set[TaskState]) -> list[TaskRecord]:
    return [task for task in record.tasks if task.state in states and not task.surplus]


def _only_daemons_run(record: JobRecord) -> bool:
    """Whether all tasks that keep a job running have ended, and some run that do not."""
    roles = record.job.roles
    if not any(role.daemon for role in roles):
        return False
    workers = [task for task in record.wanted() if not roles[task.role_index].daemon]
    return ACTIVE.isdisjoint(task.state for task in workers) and not _is_missing_work(record)


def _is_missing_work(record: JobRecord) -> bool:
    """Whether tasks that wait have to run for a gang of which no other task runs that keeps its job running."""
    roles = record.job.roles
    daemons = [task for task in record.wanted() if roles[task.role_index].daemon]
    missing = [task for task in record.queued() if not roles[task.role_index].daemon]
    succeeded = [task for task in _wanted(record, {TaskState.SUCCEEDED}) if task not in daemons]
    if not missing:
        return False
    if not is_enough(record.job, [*succeeded, *daemons]):
        return True
    one_piece = record.job.gang_rule is GangRule.ALL
    return any(task.outcome is not None and (one_piece or task.outcome is Outcome.STOPPED) for task in missing)


def _goes_on(record: JobRecord, alive: list[TaskRecord]) -> bool:
    """Whether a gang's rule lets these tasks go on although it has lost others."""
    match record.job.gang_rule:
        case GangRule.ALL:
            return False
        case GangRule.RESTART_TASK | GangRule.APART:
            return True
        case GangRule.SHRINK:
            return is_enough(record.job, [*alive, *_wanted(record, {TaskState.SUCCEEDED})])
