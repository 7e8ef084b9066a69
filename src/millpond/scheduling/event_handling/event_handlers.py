"""What each event does to the state: a table of handlers. Those of configuration and of users' requests are here,
what is seen of machines in ``scheduling.nodes.nodes``, what the engine says in ``engine_events``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millpond.model import events
from millpond.model.decisions import SuspendMode
from millpond.model.errors import ConflictError, InvalidInputError, NotFoundError
from millpond.model.reasons import Cause
from millpond.model.states import JobState, TaskState
from millpond.scheduling import runs
from millpond.scheduling.capping.capping import follow_progress
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.elastic.resizing import resize, rest
from millpond.scheduling.event_handling.clock_jumps import skip
from millpond.scheduling.event_handling.engine_events import EngineEvents
from millpond.scheduling.event_handling.requeueing import change_node_choice, change_priority, requeue
from millpond.scheduling.event_handling.task_completion import TaskCompletion
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.migration.migrations import Migrations
from millpond.scheduling.nodes.drain import close_card, close_node, open_node
from millpond.scheduling.nodes.layout_changes import change_layout
from millpond.scheduling.nodes.nodes import Nodes
from millpond.scheduling.ordering.queueing import enqueue, is_in_window, rekey, rekey_queue, restart_wait, submit
from millpond.scheduling.packing.packing import note_speed
from millpond.scheduling.records import BY_REQUEST, JobRecord, refuse_kept
from millpond.scheduling.reserving import upkeep
from millpond.scheduling.shifting.choosing_starts import start_now
from millpond.scheduling.state import State
from millpond.scheduling.suspension import suspension
from millpond.scheduling.tenancy.cells.cell_room import require_room
from millpond.scheduling.tenancy.queue_changes import jobs_of_queue, remove_queue, set_limit, set_queues


class EventHandlers:
    """Applies events to a state, each within one transaction."""

    def __init__(self, state: State, placer: Placer, claims: Claims, migrations: Migrations) -> None:
        self.state = state
        self._placer = placer
        self._claims = claims
        task_completion = TaskCompletion(state)
        nodes = Nodes(state, placer, migrations, task_completion)
        engine = EngineEvents(state, nodes, migrations, task_completion)
        self._of_parts: dict[type, Callable[[Any], None]] = {
            events.NodeJoined: nodes.node_joined,
            events.NodeLost: nodes.node_lost,
            events.NodePowerChanged: nodes.power_changed,
            events.DeviceHealthChanged: nodes.device_health_changed,
            events.LoadSampled: nodes.load_sampled,
            events.NodeContents: nodes.contents_reported,
            events.MigrateRequested: migrations.request,
            events.Confirmed: engine.confirmed,
            events.Refused: engine.refused,
            events.Kept: engine.kept,
            events.Ended: engine.ended,
        }

    def handle(self, event: events.Event) -> None:
        """Apply one event.

        Raises:
            InvalidInputError: the event contradicts the model (an unknown queue, a duplicate id); nothing has changed.
        """
        state = self.state
        with state.journal:
            if event.at > state.now:
                state.now = event.at
            kind = type(event)
            handler = _OWN.get(kind)
            if handler is None:
                self._of_parts[kind](event)
            else:
                handler(self, event)

    # ---- the pool -----------------------------------------------------------------------------------------------

    def _queue_changed(self, event: events.QueueChanged) -> None:
        queues, queue = self.state.queues, event.queue
        if queue.name not in queues.by_name and queues.is_leaf(queue.parent):
            self._require_unused(queue.parent, "a queue with others below it takes none")
        known = queues.queues()
        after = [queue if each.name == queue.name else each for each in known]
        require_room(self.state.cluster, known, after if queue.name in queues.by_name else [*known, queue])
        before = queues.by_name[queue.name].queue.ordering if queue.name in queues.by_name else ""
        set_queues(self.state, [queue])
        if queue.ordering != before:
            rekey_queue(self.state, queue.name)
        self.state.cluster.cells.changed()
        self.state.cluster.releases += 1

    def _queue_removed(self, event: events.QueueRemoved) -> None:
        self._require_unused(event.queue, "they belong to it")
        remove_queue(self.state, event.queue)
        self.state.cluster.cells.changed()
        self.state.cluster.releases += 1

    def _require_unused(self, queue: str, why: str) -> None:
        """Refuse to go on while jobs of a queue have not ended."""
        jobs = jobs_of_queue(self.state, queue)
        if jobs:
            them = "a job that has" if jobs == 1 else f"{jobs} jobs that have"
            cause = f"queue {queue!r} has {them} not ended: {why}"
            raise ConflictError(cause, f"wait, or stop them: `pond stop --queue {queue}`")
        for name, room in self.state.reserved.by_name.items():
            if room.wanted.queue == queue:
                raise ConflictError(
                    f"queue {queue!r} has a reservation: {name}", f"cancel it: `pond reservations cancel {name}`"
                )

    def _limit_changed(self, event: events.LimitChanged) -> None:
        set_limit(self.state, event.limit)
        self.state.cluster.releases += 1

    def _usage_half_life_changed(self, event: events.UsageHalfLifeChanged) -> None:
        self.state.settings = replace(self.state.settings, usage_half_life_s=event.half_life_s)
        self.state.usage.change_half_life(event.half_life_s, self.state.now)

    def _card_closed(self, event: events.CardClosed) -> None:
        close_card(self.state, event.node, event.card, event.closure)
        self._placer.capacity_changed()

    def _card_opened(self, event: events.CardOpened) -> None:
        self.state.card_cordons.open(event.node, event.card, self.state.now)
        self._placer.capacity_changed()

    def _card_layout_changed(self, event: events.CardLayoutChanged) -> None:
        change_layout(self.state, self._claims, event)
        self._placer.capacity_changed()

    def _scheduling_paused(self, event: events.SchedulingPaused) -> None:
        self.state.holds[event.cause] = event.text

    def _scheduling_resumed(self, event: events.SchedulingResumed) -> None:
        if self.state.holds.pop(event.cause, None) is not None:
            self.state.cluster.releases += 1

    # ---- what users request -------------------------------------------------------------------------------------

    def _job_submitted(self, event: events.JobSubmitted) -> None:
        job = event.job
        if job.id in self.state.jobs:
            raise ConflictError(f"a job {job.id!r} exists already", "choose another id")
        if not self.state.queues.is_leaf(job.queue):
            raise InvalidInputError(f"queue {job.queue!r} takes no jobs", "name a leaf of the queue tree")
        record = submit(self.state, job)
        self._placer.observe(record, event.at)

    def _duration_predicted(self, event: events.DurationPredicted) -> None:
        record = self.state.jobs.get(event.job)
        if record is not None and not record.state.ended:
            first = record.expected_s is None
            record.expected_s, record.cautious_s = event.expected_s, event.cautious_s
            if first:
                self.state.ordering.foretold(record)
            rekey(self.state, record)
            if record.slot >= 0:
                self.state.enroll(record)

    def _energy_rate_predicted(self, event: events.EnergyRatePredicted) -> None:
        held = self.state.held
        held.predicted = event
        held.undecided = dict(held.jobs)

    def _progress_measured(self, event: events.ProgressMeasured) -> None:
        record = self.state.jobs.get(event.job)
        if record is not None and record.attempt == event.attempt and not record.state.ended:
            self.state.known_speeds.note(record, event)
            note_speed(self.state, record)
            follow_progress(self.state, record, event)

    def _stop_requested(self, event: events.StopRequested) -> None:
        state = self.state
        record = state.jobs.get(event.job)
        if record is None:
            raise NotFoundError(f"no job {event.job!r}")
        if record.state.ended:
            return
        if record.id in state.running:
            runs.stop(state, record, Trigger.ENDED_CANCELLED, Cause.STOP_REQUESTED)
            return
        if record.line:
            state.waiting.remove(record)
            record.line = ()
        for task in record.tasks:
            if task.state is TaskState.QUEUED:
                task.move(Trigger.CANCELLED_WAITING)
        record.refresh()
        record.ended_at = state.now

    def _suspend_requested(self, event: events.SuspendRequested) -> None:
        record = self._running(event.job)
        by_itself = record.suspended_by not in (BY_REQUEST, suspension.BY_REST)
        goes_further = event.swap and record.state is JobState.SUSPENDED and record.suspend_mode is SuspendMode.FREEZE
        if record.id in self.state.suspended and by_itself and not goes_further:
            record.suspended_by, record.suspended_why = BY_REQUEST, Cause.SUSPEND_REQUESTED
            record.suspend_requester = event.by
            return  # it has left its devices already, and does not go on by itself any more
        if goes_further and suspension.is_leaving(record):
            raise ConflictError(f"job {record.id!r} is being halted", "ask again when it is")
        refuse_kept(record)
        if record.state is not JobState.RUNNING and not (goes_further and not record.scaled_to_zero):
            raise ConflictError(f"job {record.id!r} is {record.state.value}", "only a running job can be suspended")
        mode = SuspendMode.SWAP if event.swap else SuspendMode.FREEZE
        if event.swap and (hindrance := suspension.why_not_vacated(self.state, record)):
            raise ConflictError(f"job {record.id!r} cannot be swapped: {hindrance}", "freeze it, or stop it")
        if record.state is JobState.RUNNING:
            upkeep.refuse_to_hold_rest(self.state, record)
        record.suspend_requester = event.by
        suspension.suspend(self.state, record, mode, Cause.SUSPEND_REQUESTED)

    def _resume_requested(self, event: events.ResumeRequested) -> None:
        held = self.state.held.jobs.get(event.job)
        if held is not None:
            start_now(self.state, held)
            return
        if self._freed(event.job):
            return
        record = self._running(event.job)
        if record.id not in self.state.suspended:
            raise ConflictError(f"job {record.id!r} is {record.state.value}", "only a suspended job can be resumed")
        if not is_in_window(self.state, record):
            hours = " and ".join(map(str, record.job.windows))
            raise ConflictError(
                f"the window of job {record.id!r} is closed", f"it goes on by itself in its hours: {hours}"
            )
        if record.scaled_to_zero:
            raise ConflictError(f"job {record.id!r} is at rest", "it goes on with its next request")
        record.suspended_by, record.ready_at = "", self.state.now

    def _freed(self, job: str) -> bool:
        """Whether a job suspended on request has lost that run, or is about to: then it may have another."""
        state = self.state
        record = state.jobs.get(job)
        if record is None or record.suspended_by != BY_REQUEST or record.id in state.suspended or record.state.ended:
            return False
        waits = record.is_parked
        record.suspended_by = ""
        if waits and not record.scaled_to_zero:
            restart_wait(state, record)
            enqueue(state, record)
        return True

    def _running(self, job: str) -> JobRecord:
        record = self.state.jobs.get(job)
        if record is None:
            raise NotFoundError(f"no job {job!r}")
        if record.id not in self.state.running:
            raise ConflictError(f"job {job!r} is {record.state.value}", "it holds no devices")
        return record

    def _desired_count_changed(self, event: events.DesiredCountChanged) -> None:
        record = self.state.jobs.get(event.job)
        if record is None or record.state.ended:
            raise NotFoundError(f"no job {event.job!r} that could change its size")
        refuse_kept(record)
        if event.desired == 0:
            rest(self.state, record, event.role, event.why, swap=event.swap)
        else:
            resize(self.state, record, event.role, event.desired)

    def _time_limit_changed(self, event: events.TimeLimitChanged) -> None:
        record = self.state.jobs.get(event.job)
        if record is None or record.state.ended:
            raise NotFoundError(f"no job {event.job!r} that could get another time limit")
        record.job = replace(record.job, time_limit_s=event.time_limit_s)
        rekey(self.state, record)
        if record.id in self.state.running:
            self.state.watch_deadline(record)
            if record.slot >= 0:
                self.state.enroll(record)

    def _requeue_requested(self, event: events.RequeueRequested) -> None:
        if not self._freed(event.job):
            requeue(self.state, self._living(event.job))

    def _priority_changed(self, event: events.PriorityChanged) -> None:
        change_priority(self.state, self._claims, self._living(event.job), event.priority)

    def _node_choice_changed(self, event: events.NodeChoiceChanged) -> None:
        change_node_choice(self.state, self._living(event.job), event)

    def _living(self, job: str) -> JobRecord:
        record = self.state.jobs.get(job)
        if record is None or record.state.ended:
            raise NotFoundError(f"no job {job!r} that waits or runs")
        return record

    def _noted(self, event: events.Noted | events.DeviceReported | events.WaitExplained) -> None:
        """A note for the history; no decision depends on it."""


_OWN: dict[type, Callable[[EventHandlers, Any], None]] = {
    events.PoolChanged: lambda handlers, event: handlers.state.cluster.set_pool(event.pool),
    events.QueueChanged: EventHandlers._queue_changed,
    events.QueueRemoved: EventHandlers._queue_removed,
    events.LimitChanged: EventHandlers._limit_changed,
    events.UsageHalfLifeChanged: EventHandlers._usage_half_life_changed,
    events.NodeClosed: lambda handlers, event: close_node(handlers.state, event.node, event.closure),
    events.NodeOpened: lambda handlers, event: open_node(handlers.state, event.node, planned=event.planned),
    events.CardClosed: EventHandlers._card_closed,
    events.CardOpened: EventHandlers._card_opened,
    events.CardLayoutChanged: EventHandlers._card_layout_changed,
    events.ReservationMade: lambda handlers, event: upkeep.make(handlers.state, event.reservation),
    events.ReservationCancelled: lambda handlers, event: upkeep.cancel(handlers.state, event.name),
    events.SchedulingPaused: EventHandlers._scheduling_paused,
    events.SchedulingResumed: EventHandlers._scheduling_resumed,
    events.ClockJumped: lambda handlers, event: skip(handlers.state, event.seconds),
    events.JobSubmitted: EventHandlers._job_submitted,
    events.DurationPredicted: EventHandlers._duration_predicted,
    events.EnergyRatePredicted: EventHandlers._energy_rate_predicted,
    events.ProgressMeasured: EventHandlers._progress_measured,
    events.StopRequested: EventHandlers._stop_requested,
    events.SuspendRequested: EventHandlers._suspend_requested,
    events.ResumeRequested: EventHandlers._resume_requested,
    events.DesiredCountChanged: EventHandlers._desired_count_changed,
    events.TimeLimitChanged: EventHandlers._time_limit_changed,
    events.RequeueRequested: EventHandlers._requeue_requested,
    events.PriorityChanged: EventHandlers._priority_changed,
    events.NodeChoiceChanged: EventHandlers._node_choice_changed,
    events.Noted: EventHandlers._noted,
    events.DeviceReported: EventHandlers._noted,
    events.WaitExplained: EventHandlers._noted,
}
"""Not of each object: it would hold itself by them, and a fork all it has until the garbage collector comes."""
