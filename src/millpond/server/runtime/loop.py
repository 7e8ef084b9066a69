"""The scheduler's thread: the only one that touches the core, and the only one that writes to the store.

One turn: gather what came in, make it durable in one transaction, handle it, acknowledge it, decide, make the
decisions durable, hand them to the engine. A crash between any two of these steps loses nothing and does nothing twice
(``recovery``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol

from sqlalchemy.exc import DBAPIError

from millpond.forecasting.durations import Forecast
from millpond.model import events
from millpond.model.decisions import Decision
from millpond.model.engine import Engine
from millpond.model.errors import ConflictError, MillpondError, UnavailableError
from millpond.model.workloads import Job
from millpond.node.task.records import TaskId
from millpond.server.jobs.arrays.arrays import Arrays
from millpond.server.jobs.dependencies import Dependents, Stages
from millpond.server.operations.webhooks.notices import Notice, notices_of
from millpond.server.runtime import recovery
from millpond.server.runtime.batch import Batch
from millpond.server.runtime.core import Core
from millpond.server.runtime.inbox import (
    ChangeJob,
    ChangeNode,
    Inbox,
    JointSubmission,
    Message,
    Query,
    ServerEvents,
    Submission,
    Wake,
    abandon,
    answer,
    is_wanted,
    told_in,
    turn_away,
    wall_clock,
)
from millpond.server.runtime.usage import UsageMeter
from millpond.server.storage.provisioning.staging import NOTHING_TO_STAGE
from millpond.server.store.deliveries import NewDelivery
from millpond.server.store.histories import DecisionEntry, LogEntry
from millpond.server.store.store import Store, StoredSnapshot
from millpond.server.version import VERSION
from millpond.server.views.job_cache import JobCache, picture_apart, picture_cancelled
from millpond.server.views.job_lookup import JobLookup
from millpond.server.views.job_views import JobViews
from millpond.specs.api.jobs import JobInfo

log = logging.getLogger(__name__)

SNAPSHOT_EVERY: Final = 5_000
"""Log entries between two snapshots: what a restart replays at most."""
RETRY_STORE_S: Final = 1.0
LONGEST_SLEEP_S: Final = 3_600.0


class AdoptingEngine(Engine, Protocol):
    """An engine that finds its tasks again after the server was killed."""

    def adopt(self, expected: Iterable[TaskId], unanswered: Sequence[Decision]) -> None:
        """Report what became of the expected tasks, carry the unanswered decisions out, end everything else.

        To be called once, before the first ``apply``.
        """


class Loop:
    """Owns the core.

    Args:
        core: as ``recovery.recover`` gives it.
        job_cache: where the looks of living jobs are put for readers.
        clock: seconds since 1970.
        stages: gets near what jobs need before they queue.

    Attributes:
        skipped: says, and then forgets, by how many seconds the clock was set forward, at the latest look at it.
        trouble: why nothing can be accepted now (the store cannot be written); empty when all is well.
        on_ended: told the last look of jobs whose end is durable; must return at once.
        on_cycle: told how many seconds the core took to decide; must return at once.
        apart: why nothing is taken on at all, as the state is another server's; None where it is our own.
        failure: what ended the thread when it ended by itself: always a defect.
        address: says which webhooks are to be told of what happened.
        on_told: called when there is something new to tell, and it is durable.
        forecast: guesses how long a member of an array will run, if that can be said at once.
    """

    def __init__(
        self,
        store: Store,
        core: Core,
        job_cache: JobCache,
        clock: Callable[[], float] = wall_clock,
        stages: Stages = NOTHING_TO_STAGE,
    ) -> None:
        self.store = store
        self.core = core
        self.job_cache = job_cache
        self.clock = clock
        self.skipped: Callable[[], float] = lambda: 0.0
        self.engine: AdoptingEngine
        self.inbox = Inbox()
        self.trouble = ""
        self.apart: MillpondError | None = None
        self.failure: Exception | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self.on_told: Callable[[], None] = lambda: None
        self.address: Callable[[Sequence[Notice]], list[NewDelivery]] = lambda notices: []
        self.on_cycle: Callable[[float], None] = lambda _: None
        self.on_ended: Callable[[Sequence[JobInfo]], None] = lambda _: None
        self.forecast: Callable[[Job], Forecast | None] = lambda _: None
        self._unstored: list[events.Event] = []
        self._decided: list[DecisionEntry] = []
        self.arrays = Arrays(store)
        self.lookup = JobLookup(job_cache, store, self.arrays)
        self.dependents = Dependents(store, self.lookup, stages)
        self._job_views = JobViews(core, job_cache, self.arrays, UsageMeter(store.open_stretches()))
        self._snapshot_seq = core.seq
        self._due: float | None = None
        self._closing = False
        self._taken: list[Message] = []
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    # ---- from any thread ----------------------------------------------------------------------------------------

    def submit(self, *submissions: Submission) -> Future[list[JobInfo]]:
        """Submit jobs that are taken together or not at all; answered once they are durable."""
        joint = JointSubmission(submissions)
        self._put(joint)
        return joint.answer

    def stop_job(self, job: str, by: str) -> Future[JobInfo]:
        """Ask for the end of a job; answered once the wish is durable."""
        return self.change_job(ChangeJob(job, lambda _, now: events.StopRequested(now, job, by), by))

    def change_job(self, change: ChangeJob) -> Future[JobInfo]:
        """Ask that something become of a job; answered once the wish is durable, with what the core says to it."""
        self._put(change)
        return change.answer

    def change_node(self, event: Callable[[float], events.Event]) -> Future[None]:
        """Ask that a node be closed or opened; answered once that is durable, with what the core says to it."""
        message = ChangeNode(event)
        self._put(message)
        return message.answer

    def ask(self, question: Callable[[Core], Any]) -> Future[Any]:
        """Look something up in the core, between two turns."""
        message = Query(question)
        self._put(message)
        return message.answer

    def tell(self, told: Sequence[events.Event]) -> None:
        """Hand in events of the server itself, such as a configuration that was read again."""
        self.inbox.put(ServerEvents(tuple(told)))

    def note(self, job: str, text: str) -> None:
        """Have a text stand in a job's history."""
        self.tell([events.Noted(wall_clock(), job, text)])

    def _put(self, message: Message) -> None:
        """Hand a message over; when the thread is gone for good, whoever comes last says so to all who wait."""
        self.inbox.put(message)
        if self.failure is not None:
            abandon(self.inbox.drain(0.0))

    def wake(self) -> None:
        """The engine has events."""
        self.inbox.put(Wake())

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout_s: float = 30.0) -> None:
        """Finish what is in the queue, keep a last snapshot, and end the thread."""
        self._closing = True
        self.wake()
        self._thread.join(timeout_s)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    # ---- the scheduler's thread ---------------------------------------------------------------------------------

    def settle(self, engine: AdoptingEngine, configured: Sequence[events.Event] = ()) -> None:
        """Make core and engine agree after a start: the first thing that happens, before any request.

        Args:
            engine: carries out what the core decides from now on.
            configured: pools and queues of the configuration.
        """
        self.engine = engine
        inventory = self.engine.inventory()
        nodes = inventory.nodes
        self._job_views.begin(inventory.tasks, self.dependents.all, self._now())
        told = (*configured, *recovery.node_changes(self.core, nodes, self._now()))
        self.engine.adopt(recovery.expected_tasks(self.core, nodes), recovery.to_repeat(self.core, nodes))
        self.inbox.put(ServerEvents(told))
        self.turn(0.0)

    def stand_apart(self, why: MillpondError) -> None:
        """Show what is known and change nothing, instead of ``settle``: the state is another server's.

        What that one may still run is unknown here. Nothing is decided, stored, started or ended.
        """
        self.apart = why
        self._job_views.begin((), self.dependents.all, self._now())
        self._job_views.stored()
        for info in self.job_cache.newest_first():
            self.job_cache.put(picture_apart(info))

    def turn(self, timeout_s: float | None) -> None:
        """One turn; waits for something to do at most ``timeout_s``."""
        self._taken = messages = [message for message in self.inbox.drain(timeout_s) if is_wanted(message)]
        questions = [message for message in messages if isinstance(message, Query)]
        if self.apart is not None:
            turn_away(messages, self.apart)
        elif self._flush():
            self._take(messages)
        else:
            turn_away(messages, UnavailableError(self.trouble, "see the server's log"))
            self._unstored += told_in(messages)
        for question in questions:
            answer(question, self.core)

    def _run(self) -> None:
        try:
            while not self._closing:
                self.turn(self._sleep_s())
            self.turn(0.0)
            self._keep_snapshot()
        except Exception as error:
            self.failure = error
            log.critical("the scheduler stopped by a defect", exc_info=error)
            abandon([*self._taken, *self.inbox.drain(0.0)])
            self.on_failure()

    def _now(self) -> float:
        return max(self.clock(), self.core.now)

    def _sleep_s(self) -> float:
        if self.trouble:
            return RETRY_STORE_S
        if self.apart is not None:
            return LONGEST_SLEEP_S
        now = self._now()
        due = self._next_due(now)
        return LONGEST_SLEEP_S if due is None else min(max(due - now, 0.0), LONGEST_SLEEP_S)

    def _next_due(self, now: float) -> float | None:
        """When a cycle is worth running although nothing happened.

        What fell due since the latest cycle counts: a thread wakes a moment after the instant that it waited for, when
        the scheduler, asked what comes next, names the one behind it.
        """
        instants = (self._due, self.core.scheduler.next_wakeup(now))
        return min((instant for instant in instants if instant is not None), default=None)

    def _take(self, messages: Sequence[Message]) -> None:
        """Everything between receiving a batch and having its decisions carried out."""
        batch = Batch(self.core, self.store, self.dependents, self._now())
        if (skipped := self.skipped()) > 0.0:  # before all that came in since
            batch.add_event(events.ClockJumped(batch.now, skipped))
        for event in (*self._unstored, *self.engine.events(), *told_in(messages)):
            if not recovery.is_known(self.core, event):
                batch.add_event(event)
        for message in messages:
            self._add(batch, message)
        self._release_dependents(batch)
        for member in self.arrays.due(self.core.scheduler.check, batch.unfeedable):
            batch.add_member(member, self.forecast(member))
        due = self._next_due(batch.now)
        if not batch.entries and not batch.new_jobs and (due is None or due > batch.now):
            batch.answer_repeated(self.job_cache)
            self._flush()
            return
        tick = batch.close()
        try:
            self.store.append(batch.entries, batch.new_jobs, batch.released, batch.closed)
        except DBAPIError as error:
            self._unstored = batch.reported
            self._store_fails(error)
            batch.turn_away(UnavailableError(self.trouble, "see the server's log"))
            return
        self._unstored = []
        self._handle(batch)
        self._decide(tick)

    def _add(self, batch: Batch, message: Message) -> None:
        """Take a request into the batch, or answer it at once; what is told and asked is looked after elsewhere."""
        match message:
            case JointSubmission():
                batch.add_submissions(message.members)
            case ChangeJob() if message.job in self.dependents:
                self._change_dependent(message)
            case ChangeJob() if message.job in self.arrays:
                self._change_array(batch, message)
            case ChangeJob() if (unsubmitted := self.arrays.unsubmitted(message.job)) is not None:
                self._change_unsubmitted(batch, message, unsubmitted)
            case ChangeJob():
                if message.pruned:
                    self.arrays.prune(message.job)
                batch.add_change(message)
            case ChangeNode():
                batch.add_node_change(message)

    def _release_dependents(self, batch: Batch) -> None:
        """Jobs that waited for others queue now, or never will."""
        for dependent, standing in self.dependents.due():
            account = standing.unsatisfiable
            if not account and dependent.job.id in self.arrays:
                batch.add_array_release(dependent.job.id)
            elif not account:
                account = batch.add_release(dependent)
            if account:
                self._cancel(dependent.job.id, account)

    def _handle(self, batch: Batch) -> None:
        """Handle what has just become durable, and acknowledge it."""
        self._note_kept(batch)
        touched: set[str] = set()
        for entry in batch.handled:
            if isinstance(entry.event, events.Confirmed):
                self._job_views.confirmed(entry.job, entry.event)
            result = self.core.handle(entry.event)
            if isinstance(entry.event, events.ClockJumped):
                touched |= self._job_views.skip(entry.event)
            if isinstance(result, MillpondError):
                batch.turn_down(entry.seq, result)
            else:
                touched |= result
        self._job_views.draw(touched, self._now())
        batch.acknowledge(self.job_cache)

    def _note_kept(self, batch: Batch) -> None:
        """Which arrays, and jobs that wait for others, have come, gone on or ended with this batch."""
        for array in batch.arrays:
            self.arrays.hold(array)
        for dependent in batch.held:
            self.dependents.hold(dependent)
            self._job_views.hold(dependent)
        for job in batch.released:
            self.dependents.drop(job)
            if job in self.arrays:
                self.arrays.release(job)
        for job in batch.closed:
            self.arrays.close(job)
        for new in batch.new_jobs:
            self.arrays.note_row(new)

    def _decide(self, tick: LogEntry) -> None:
        assert isinstance(tick.event, events.Tick)
        begun = time.perf_counter()
        decisions = self.core.decide(tick.event)
        self.on_cycle(time.perf_counter() - begun)
        self._due = self.core.scheduler.next_wakeup(self.core.now)
        self._decided += [DecisionEntry(tick.seq, tick.event.at, decision) for decision in decisions]
        self._job_views.draw({decision.job for decision in decisions}, self._now())
        self._flush()
        if self.core.seq - self._snapshot_seq >= SNAPSHOT_EVERY:
            self._keep_snapshot()

    def _change_dependent(self, message: ChangeJob) -> None:
        """End a job that waits for others, and answer once that is durable; nothing else can be asked of it."""
        if message.stopped_by is None:
            message.answer.set_exception(
                ConflictError(f"job {message.job!r} waits for other jobs or for data", "it can be stopped")
            )
            return
        info = self._cancel(message.job, f"{message.stopped_by or 'somebody'} asked for its end")
        if self._flush():
            message.answer.set_result(info)
        else:
            message.answer.set_exception(UnavailableError(self.trouble, "see the server's log"))

    def _change_array(self, batch: Batch, message: ChangeJob) -> None:
        """End an array; anything else is asked of its members one by one."""
        array = self.arrays[message.job]
        if message.stopped_by is None:
            hint = f"name one of its members, such as {array.id}[{array.members.first}]"
            message.answer.set_exception(ConflictError(f"{array.id!r} is an array of jobs", hint))
        else:
            batch.add_array_end(array, message)

    def _change_unsubmitted(self, batch: Batch, message: ChangeJob, member: JobInfo) -> None:
        """End a member of an array before the scheduler knows it; nothing else can be asked of it."""
        if message.stopped_by is None:
            hint = "it can be stopped"
            message.answer.set_exception(ConflictError(f"job {member.id!r} waits for its turn in its array", hint))
            return
        account = f"{message.stopped_by or 'somebody'} asked for its end"
        batch.add_unsubmitted_end(picture_cancelled(member, self._now(), account), message)

    def _cancel(self, job: str, account: str) -> JobInfo:
        """A job or an array that waits for others will never start; its last look."""
        return self._job_views.cancel(self.dependents.drop(job), account, self._now())

    def _flush(self) -> bool:
        """Store what was decided and what has ended, then let the engine have it; false when it cannot be stored."""
        job_views = self._job_views
        if (self._decided or job_views.ended or job_views.used or job_views.kept) and not self._store_decided():
            return False
        decisions: list[Decision] = [entry.decision for entry in self._decided]
        ended = job_views.stored()
        self._decided, self.trouble = [], ""
        if decisions:
            self.engine.apply(decisions)
        for look in ended:
            job_views.forget(look)
        if self.dependents.ended([look.id for look in ended]) or self.arrays.has_capacity:
            self.wake()
        if ended:
            self.on_ended([look for look in ended if look.array is None])
        return True

    def _store_decided(self) -> bool:
        """Store it, and what webhooks are to be told of it; false when it cannot be stored."""
        job_views = self._job_views
        ended_now = list(job_views.ended.values())
        decided = [entry.decision for entry in self._decided]
        told = self.address(notices_of(self.core.now, decided, [*job_views.kept, *ended_now], self.job_cache.get))
        try:
            self.store.record(self._decided, ended_now, job_views.used, told)
        except DBAPIError as error:
            self._store_fails(error)
            return False
        if told:
            self.on_told()
        return True

    def _keep_snapshot(self) -> None:
        if self.apart is not None or self.core.seq == self._snapshot_seq or not self._flush():
            return
        try:
            self.store.save_snapshot(StoredSnapshot(self.core.seq, self.core.now, VERSION, self.core.snapshot()))
        except DBAPIError as error:
            self._store_fails(error)
            return
        self._snapshot_seq = self.core.seq

    def _store_fails(self, error: DBAPIError) -> None:
        self.trouble = f"the store cannot be written ({error.orig})"
        log.error("%s; trying again every %g s", self.trouble, RETRY_STORE_S)
