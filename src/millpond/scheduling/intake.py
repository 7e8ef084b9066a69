"""What each event does to the state. One method per event; the table at the end says which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millpond.model import events
from millpond.model.decisions import Migrate, Resume, Start, Suspend, SuspendMode
from millpond.model.devices import Health
from millpond.model.errors import ConflictError, InvalidInputError, NotFoundError
from millpond.model.nodes import Node
from millpond.model.reasons import Cause
from millpond.model.states import JobState, Outcome, TaskState
from millpond.scheduling import suspending
from millpond.scheduling.draining import close_node, open_node
from millpond.scheduling.endings import Endings
from millpond.scheduling.holdings import Hold
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.migrating import Migrations
from millpond.scheduling.placing import Placer
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.resizing import resize, rest
from millpond.scheduling.state import ACTIVE, State

LOAD_HALF_LIFE_S = 300.0
"""Measured node load is remembered with this half-life."""


class Intake:
    """Applies events to a state, each within one transaction."""

    def __init__(self, state: State, placer: Placer, migrations: Migrations) -> None:
        self.state = state
        self._migrations = migrations
        self._placer = placer
        self._endings = Endings(state)
        self.load: dict[str, tuple[float, float]] = {}
        self._by_type: dict[type, Callable[[Any], None]] = {
            events.PoolChanged: self._pool_changed,
            events.QueueChanged: self._queue_changed,
            events.LimitChanged: self._limit_changed,
            events.NodeJoined: self._node_joined,
            events.NodeLost: self._node_lost,
            events.NodeClosed: self._node_closed,
            events.NodeOpened: self._node_opened,
            events.StartsHeld: self._starts_held,
            events.StartsFreed: self._starts_freed,
            events.DeviceHealthChanged: self._device_health_changed,
            events.LoadSampled: self._load_sampled,
            events.JobSubmitted: self._job_submitted,
            events.DurationPredicted: self._duration_predicted,
            events.StopRequested: self._stop_requested,
            events.SuspendRequested: self._suspend_requested,
            events.ResumeRequested: self._resume_requested,
            events.MigrateRequested: self._migrations.request,
            events.DesiredCountChanged: self._desired_count_changed,
            events.TimeLimitChanged: self._time_limit_changed,
            events.Noted: self._noted,
            events.Confirmed: self._confirmed,
            events.Refused: self._refused,
            events.Ended: self._ended,
        }

    def handle(self, event: events.Event) -> None:
        """Apply one event.

        Raises:
            InvalidInputError: the event contradicts the model (an unknown queue, a duplicate id); nothing has changed.
        """
        state = self.state
        if event.at > state.now:
            state.now = event.at
        journal = state.journal
        mark = journal.begin()
        try:
            self._by_type[type(event)](event)
        except Exception:
            journal.rollback(mark)
            raise
        journal.commit()

    # ---- the pool -----------------------------------------------------------------------------------------------

    def _pool_changed(self, event: events.PoolChanged) -> None:
        self.state.cluster.set_pool(event.pool)

    def _queue_changed(self, event: events.QueueChanged) -> None:
        self.state.queues.set_queue(event.queue)
        self.state.cluster.releases += 1

    def _limit_changed(self, event: events.LimitChanged) -> None:
        self.state.set_limit(event.limit)
        self.state.cluster.releases += 1

    def _node_joined(self, event: events.NodeJoined) -> None:
        cluster, node = self.state.cluster, event.node
        index = cluster.node_index.get(node.name)
        if index is None:
            cluster.add_node(node)
            self._placer.capacity_changed()
            return
        old = cluster.nodes[index]
        if old is not None and [d.uuid for d in old.devices] == [d.uuid for d in node.devices]:
            cluster.update_node(node)
        else:
            self._replace_node(node, index)
        self._placer.capacity_changed()
        self._leave_faulty_devices(node.name)

    def _replace_node(self, node: Node, old_index: int) -> None:
        """A node came back with other devices: move what still has its devices, the rest has lost them."""
        cluster = self.state.cluster
        moving = self._tasks_on(old_index)
        uuids = {id(task): [cluster.device_ids[d] for d in task.holding.devices] for _, task in moving if task.holding}
        left = {id(task): [cluster.device_ids[d] for d in task.vacating.devices] for _, task in moving if task.vacating}
        cluster.remove_node(node.name)
        new_index = cluster.add_node(node)
        lost = []
        for _, task in moving:
            holding = task.holding
            if holding is None:
                continue
            found = [cluster.device_index.get(uuid) for uuid in uuids[id(task)]]
            if None in found:
                lost.append(task)
            else:
                cluster.rebase(holding, new_index, [device for device in found if device is not None])
                self._rebase_vacating(task, left.get(id(task), []), new_index)
        for record, tasks in _by_job(moving):
            if record.slot >= 0:
                self.state.enroll(record)
            gone = [task for task in tasks if task in lost]
            if gone:
                self._endings.end(record, gone, Outcome.DEVICE_LOST, None, "the device is gone from its node", None)

    def _rebase_vacating(self, task: TaskRecord, uuids: list[str], node: int) -> None:
        """What a task that is being moved comes from may be gone from its node, or be known under another index."""
        cluster = self.state.cluster
        found = [cluster.device_index[uuid] for uuid in uuids if uuid in cluster.device_index]
        if task.vacating is not None and len(found) == len(uuids):
            cluster.rebase(task.vacating, node, found)
        elif task.vacating is not None:
            cluster.change(task.vacating, Hold.NOTHING)
            task.vacating = None

    def _node_lost(self, event: events.NodeLost) -> None:
        cluster = self.state.cluster
        index = cluster.node_index.get(event.node)
        if index is None:
            return
        cluster.remove_node(event.node)
        self._placer.capacity_changed()
        for record, tasks in _by_job(self._tasks_on(index)):
            self._endings.end(record, tasks, Outcome.NODE_LOST, None, f"node {event.node} was lost", None)

    def _node_closed(self, event: events.NodeClosed) -> None:
        close_node(self.state, event.node, event.closure)

    def _node_opened(self, event: events.NodeOpened) -> None:
        open_node(self.state, event.node, planned=event.planned)

    def _starts_held(self, event: events.StartsHeld) -> None:
        self.state.holds[event.cause] = event.text

    def _starts_freed(self, event: events.StartsFreed) -> None:
        if self.state.holds.pop(event.cause, None) is not None:
            self.state.cluster.releases += 1

    def _device_health_changed(self, event: events.DeviceHealthChanged) -> None:
        cluster = self.state.cluster
        node = cluster.node_named(event.node)
        if node is None:
            return
        devices = tuple(
            replace(device, health=event.health, health_detail=event.detail) if device.uuid == event.device else device
            for device in node.devices
        )
        cluster.update_node(replace(node, devices=devices))
        self._placer.capacity_changed()
        self._leave_faulty_devices(event.node)

    def _leave_faulty_devices(self, node_name: str) -> None:
        """What still runs on devices of the node that have failed is told to end."""
        cluster = self.state.cluster
        index = cluster.node_index[node_name]
        node, first = cluster.nodes[index], int(cluster.arrays.first_device[index])
        devices = () if node is None else node.devices
        faulty = {first + i: device for i, device in enumerate(devices) if device.health is Health.FAULTY}
        if not faulty:
            return
        for record, tasks in _by_job(self._tasks_on(index)):
            hit: dict[TaskRecord, str] = {}
            for task in tasks:
                broken = [
                    faulty[device] for device in (task.holding.devices if task.holding else ()) if device in faulty
                ]
                if broken:
                    hit[task] = broken[0].health_detail
            if hit and not self._migrations.leave_failed(record):
                self._endings.devices_failed(record, hit)

    def _leave_failed_place(self, record: JobRecord) -> None:
        """What came, or stayed, where a device has failed meanwhile is told to end."""
        for node in {task.placement.node for task in record.tasks if task.placement is not None}:
            if node in self.state.cluster.node_index:
                self._leave_faulty_devices(node)

    def _tasks_on(self, node: int) -> list[tuple[JobRecord, TaskRecord]]:
        return [
            (record, task)
            for record in self.state.running.values()
            for task in record.tasks
            if task.holding is not None and task.holding.node == node
        ]

    def _load_sampled(self, event: events.LoadSampled) -> None:
        if event.node not in self.state.cluster.node_index:
            return
        load, since = self.load.get(event.node, (float(event.load_milli), event.at))
        kept = 0.5 ** (max(event.at - since, 0.0) / LOAD_HALF_LIFE_S)
        load = load * kept + event.load_milli * (1.0 - kept)
        self.load[event.node] = (load, event.at)
        self.state.cluster.set_load(event.node, round(load))

    # ---- what people want ---------------------------------------------------------------------------------------

    def _job_submitted(self, event: events.JobSubmitted) -> None:
        job = event.job
        if job.id in self.state.jobs:
            raise ConflictError(f"a job {job.id!r} exists already", "choose another id")
        if not self.state.queues.is_leaf(job.queue):
            raise InvalidInputError(f"queue {job.queue!r} takes no jobs", "name a leaf of the queue tree")
        record = self.state.submit(job)
        self._placer.observe(record, event.at)

    def _duration_predicted(self, event: events.DurationPredicted) -> None:
        record = self.state.jobs.get(event.job)
        if record is not None and not record.state.ended:
            first = record.expected_s is None
            record.expected_s, record.cautious_s = event.expected_s, event.cautious_s
            if first:
                self.state.ordering.foretold(record)
            self.state.rekey(record)
            if record.slot >= 0:
                self.state.enroll(record)

    def _stop_requested(self, event: events.StopRequested) -> None:
        state = self.state
        record = state.jobs.get(event.job)
        if record is None:
            raise NotFoundError(f"no job {event.job!r}")
        if record.state.ended:
            return
        if record.id in state.running:
            state.stop(record, Trigger.ENDED_CANCELLED, Cause.STOP_REQUESTED)
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
        by_itself = record.suspended_by not in (suspending.BY_REQUEST, suspending.BY_REST)
        goes_further = event.swap and record.state is JobState.SUSPENDED and record.suspend_mode is SuspendMode.FREEZE
        if record.id in self.state.suspended and by_itself and not goes_further:
            record.suspended_by, record.suspended_why = suspending.BY_REQUEST, Cause.SUSPEND_REQUESTED
            return  # it has left its devices already, and does not go on by itself any more
        if goes_further and suspending.is_leaving(record):
            raise ConflictError(f"job {record.id!r} is being halted", "ask again when it is")
        if record.state is not JobState.RUNNING and not (goes_further and not record.resting):
            raise ConflictError(f"job {record.id!r} is {record.state.value}", "only a running job can be suspended")
        mode = SuspendMode.SWAP if event.swap else SuspendMode.FREEZE
        if event.swap and (hindrance := suspending.why_not_vacated(self.state, record)):
            raise ConflictError(f"job {record.id!r} cannot be swapped: {hindrance}", "freeze it, or stop it")
        record.suspended_by = suspending.BY_REQUEST
        suspending.suspend(self.state, record, mode, Cause.SUSPEND_REQUESTED)

    def _resume_requested(self, event: events.ResumeRequested) -> None:
        record = self._running(event.job)
        if record.id not in self.state.suspended:
            raise ConflictError(f"job {record.id!r} is {record.state.value}", "only a suspended job can be resumed")
        if not self.state.is_in_window(record):
            hours = " and ".join(map(str, record.job.windows))
            raise ConflictError(
                f"the window of job {record.id!r} is closed", f"it goes on by itself in its hours: {hours}"
            )
        if record.resting:
            raise ConflictError(f"job {record.id!r} is at rest", "it goes on with its next request")
        record.suspended_by, record.ready_at = "", self.state.now

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
        if event.desired == 0:
            rest(self.state, record, event.role, event.why, swap=event.swap)
        else:
            resize(self.state, record, event.role, event.desired)

    def _time_limit_changed(self, event: events.TimeLimitChanged) -> None:
        record = self.state.jobs.get(event.job)
        if record is None or record.state.ended:
            raise NotFoundError(f"no job {event.job!r} that could get another time limit")
        record.job = replace(record.job, time_limit_s=event.time_limit_s)
        self.state.rekey(record)
        if record.id in self.state.running:
            self.state.watch_deadline(record)
            if record.slot >= 0:
                self.state.enroll(record)

    def _noted(self, event: events.Noted) -> None:
        """For people only."""

    # ---- what the engine says -----------------------------------------------------------------------------------

    def _confirmed(self, event: events.Confirmed) -> None:
        state = self.state
        decision = state.pending.pop(event.decision, None)
        record = state.jobs.get(decision.job) if decision is not None else None
        if decision is None or record is None or record.attempt != decision.attempt:
            return
        if type(decision) is Suspend and record.id in state.suspended:
            suspending.suspended_now(state, record, decision.mode)
        if type(decision) is Resume and record.started_at is not None:
            record.return_s = state.now - record.started_at
        if type(decision) in (Migrate, Resume):
            self._migrations.arrived(record)
            self._leave_failed_place(record)
        if type(decision) is not Start:
            return
        for placement in decision.placements:
            task = record.tasks[placement.task]
            if task.state is TaskState.STARTING:
                task.move(Trigger.START_CONFIRMED)
        record.refresh()
        if record.id not in state.running:
            return
        record.failed_starts = 0
        if record.started_at is None:
            record.started_at = state.now
            record.attained_before_s = record.attained_s
            if record.first_started_at is None:
                record.first_started_at = state.now
            state.ordering.started(record, state.now)
            state.watch_deadline(record)
        if record.stop_trigger is None:
            state.enroll(record)

    def _refused(self, event: events.Refused) -> None:
        state = self.state
        decision = state.pending.pop(event.decision, None)
        record = state.jobs.get(decision.job) if decision is not None else None
        if decision is None or record is None or record.attempt != decision.attempt:
            return
        if isinstance(decision, Start):
            tasks = [record.tasks[placement.task] for placement in decision.placements]
            tasks = [task for task in tasks if task.state in ACTIVE]
            if not tasks:
                return  # they have ended meanwhile
            if decision.joins:
                self._endings.growth_refused(record, tasks, event.reason)
            else:
                outcome = Outcome.NODE_LOST if event.device_fault else Outcome.START_FAILED
                self._endings.start_refused(record, tasks, outcome, event.reason)
        elif isinstance(decision, Suspend) and record.id in state.suspended:
            suspending.suspend_refused(state, decision, event.reason)
        elif isinstance(decision, Migrate):
            self._migrations.refused(decision, event.reason)
            self._leave_failed_place(record)
        elif isinstance(decision, Resume) and self._migrations.not_back(decision, event.reason):
            self._leave_failed_place(record)  # else it waits for its own cards again
        elif isinstance(decision, Resume) and record.id in state.running:
            # It cannot go on where it is; what is left of it ends, and it runs anew.
            for task in record.tasks:
                task.detail = event.reason
            state.stop(record, Trigger.ENDED_FOR_RETRY, Cause.DEVICE_FAILED if event.device_fault else Cause.NO_RETURN)
        # A stop that is refused concerns what is not there: the engine reports its end itself.

    def _ended(self, event: events.Ended) -> None:
        record = self.state.jobs.get(event.job)
        if record is None or record.attempt != event.attempt or record.id not in self.state.running:
            return
        if event.task == events.ALL_TASKS:
            tasks = [task for task in record.tasks if task.state in ACTIVE]
        else:
            tasks = [record.tasks[event.task]] if 0 <= event.task < len(record.tasks) else []
            tasks = [task for task in tasks if task.state in ACTIVE]
        if tasks:
            self._endings.end(record, tasks, event.outcome, event.exit_code, event.detail, event.service_s)


def _by_job(tasks: list[tuple[JobRecord, TaskRecord]]) -> list[tuple[JobRecord, list[TaskRecord]]]:
    """The same tasks, together by job, in the same order."""
    found: dict[str, tuple[JobRecord, list[TaskRecord]]] = {}
    for record, task in tasks:
        found.setdefault(record.id, (record, []))[1].append(task)
    return list(found.values())
