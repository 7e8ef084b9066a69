"""The engine's answers to decisions, and its reports of the ends of tasks.

An answer about an earlier run of a job, or about a decision that was answered before, is let go: what it spoke of is
over.
"""

from __future__ import annotations

from millpond.model.decisions import CapPower, Decision, Migrate, Prefetch, Resume, Start, Suspend
from millpond.model.events import ALL_TASKS, Confirmed, Ended, Kept, Refused
from millpond.model.reasons import Cause
from millpond.model.states import Outcome, TaskState
from millpond.scheduling import runs
from millpond.scheduling.capping.capping import begin_capping, end_capping
from millpond.scheduling.event_handling.task_completion import TaskCompletion
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.migration.migrations import Migrations
from millpond.scheduling.nodes.drain import leave_drained
from millpond.scheduling.nodes.nodes import Nodes
from millpond.scheduling.ordering.queueing import pause_after
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import ACTIVE, State
from millpond.scheduling.suspension import suspension
from millpond.scheduling.tenancy.windows import leave_unlent


class EngineEvents:
    """Applies what the engine says to a state, within the open transaction."""

    def __init__(self, state: State, nodes: Nodes, migrations: Migrations, task_completion: TaskCompletion) -> None:
        self._state = state
        self._nodes = nodes
        self._migrations = migrations
        self._task_completion = task_completion

    def confirmed(self, event: Confirmed) -> None:
        """The engine has done it."""
        record, decision = self._answered(event.decision)
        if record is None:
            return
        match decision:
            case Start():
                self._started(record, decision)
            case Suspend(mode=mode) if record.id in self._state.suspended:
                suspension.suspended_now(self._state, record, mode)
            case Resume():
                if record.started_at is not None:
                    record.return_s = self._state.now - record.started_at
                self._arrived(record)
            case Migrate():
                self._arrived(record)
            case _:  # of a stop, the ends of its tasks are reported one by one
                pass

    def refused(self, event: Refused) -> None:
        """The engine cannot do it."""
        record, decision = self._answered(event.decision)
        if record is None:
            return
        match decision:
            case Start():
                self._start_refused(record, decision, event)
            case Suspend() if record.id in self._state.suspended:
                suspension.suspend_refused(self._state, decision, event.reason)
            case Migrate():
                self._migrations.refused(decision, event.reason)
                self._nodes.leave_failed_place(record)
            case Resume():
                self._resume_refused(record, decision, event)
            case CapPower():
                end_capping(self._state, record)
            case _:  # a stop that is refused concerns what is not there: the engine reports its end itself
                pass

    def kept(self, event: Kept) -> None:
        """A task's program has failed, and its place is kept; an engine that has begun anew says so again."""
        record = self._running(event.job, event.attempt)
        if record is None:
            return
        for task in record.tasks[event.task : event.task + 1]:
            if task.state in ACTIVE and task.kept_until is None:
                self._task_completion.keep(record, task, event)

    def ended(self, event: Ended) -> None:
        """A task is over, or all that a job has there."""
        record = self._running(event.job, event.attempt)
        if record is None:
            return
        named = record.tasks
        if event.task != ALL_TASKS:
            named = named[event.task : event.task + 1] if event.task >= 0 else []
        tasks = [task for task in named if task.state in ACTIVE]
        if tasks:
            if event.outcome is Outcome.NODE_LOST and record.began_at is not None:  # though its node is there
                record.retry_at = max(record.retry_at, record.began_at + pause_after(record.attempt))
            self._task_completion.end(record, tasks, event.outcome, event.exit_code, event.detail, event.service_s)

    def _running(self, job: str, attempt: int) -> JobRecord | None:
        """A job, if this is its run and goes on."""
        record = self._state.running.get(job)
        return record if record is not None and record.attempt == attempt else None

    def _answered(self, number: int) -> tuple[JobRecord, Decision] | tuple[None, None]:
        """The decision of this number, which waits no longer, and its job; none if its run is over."""
        decision = self._state.pending.pop(number)
        if isinstance(decision, Prefetch):
            self._state.prefetches.answered(decision)
            return None, None
        record = self._state.jobs.get(decision.job) if decision is not None else None
        if decision is None or record is None or record.attempt != decision.attempt:
            return None, None
        return record, decision

    def _started(self, record: JobRecord, decision: Start) -> None:
        state = self._state
        tasks = record.tasks
        for placement in decision.placements:
            task = tasks[placement.task]
            if task.state is TaskState.STARTING:
                task.move(Trigger.START_CONFIRMED)
        record.refresh()
        if record.id not in state.running:
            return
        record.failed_starts = 0
        if record.started_at is None:
            record.started_at = record.began_at = state.now
            record.attained_before_s = record.attained_s
            if record.first_started_at is None:
                record.first_started_at = state.now
            state.ordering.started(record, state.now)
            state.moves.arrived(record, state.now)
            state.watch_deadline(record)
        if record.stop_trigger is None:
            state.enroll(record)
            leave_drained(state, record)
            leave_unlent(state, record)
            if not decision.joins:
                begin_capping(state, record)

    def _arrived(self, record: JobRecord) -> None:
        self._migrations.arrived(record)
        self._nodes.leave_failed_place(record)
        if record.stop_trigger is None:
            begin_capping(self._state, record)

    def _start_refused(self, record: JobRecord, decision: Start, event: Refused) -> None:
        tasks = [record.tasks[placement.task] for placement in decision.placements]
        tasks = [task for task in tasks if task.state in ACTIVE]
        if not tasks:
            return  # they have ended meanwhile
        if decision.joins:
            self._task_completion.growth_refused(record, tasks, event.reason)
        else:
            self._task_completion.start_refused(record, tasks, event)

    def _resume_refused(self, record: JobRecord, decision: Resume, event: Refused) -> None:
        if self._migrations.not_back(decision, event.reason):
            self._nodes.leave_failed_place(record)  # else it waits for its own cards again
        elif record.id in self._state.running:
            # It cannot go on where it is; what is left of it ends, and it runs anew.
            for task in record.tasks:
                task.detail = event.reason
            cause = Cause.DEVICE_FAILED if event.device_fault else Cause.NO_RETURN
            runs.stop(self._state, record, Trigger.ENDED_FOR_RETRY, cause)
