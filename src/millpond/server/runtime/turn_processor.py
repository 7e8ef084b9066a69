"""One turn of the scheduler: everything here runs in the scheduler's thread, or before that starts.

Make what came in durable in one transaction, handle it, acknowledge it, decide, make the decisions durable, hand them
to the engine. A crash between any two of these steps loses nothing and does nothing twice (``recovery``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy.exc import DBAPIError

from millpond.engines.server_engine import AdoptingEngine
from millpond.model import events
from millpond.model.decisions import Decision
from millpond.model.errors import ConflictError, MillpondError, UnavailableError
from millpond.server.runtime import recovery
from millpond.server.runtime.active_jobs.arrays import Arrays
from millpond.server.runtime.active_jobs.dependencies import Dependents, fields_with_priority
from millpond.server.runtime.active_jobs.job_cache import cancelled_view, read_only_view
from millpond.server.runtime.active_jobs.job_lookup import JobLookup
from millpond.server.runtime.active_jobs.job_views import JobViews
from millpond.server.runtime.batch import Batch
from millpond.server.runtime.core import Core
from millpond.server.runtime.inbox import (
    ChangeJob,
    ChangeSetting,
    JointSubmission,
    Message,
    Query,
    answer,
    events_in,
    turn_away,
)
from millpond.server.runtime.long_questions import LongQuestions
from millpond.server.runtime.loop import Loop
from millpond.server.runtime.loop_dependencies import LoopDependencies, TurnResult
from millpond.server.runtime.usage import UsageMeter
from millpond.server.store.connection.durable_writes import CommitInDoubtError
from millpond.server.store.histories import DecisionEntry, LogEntry
from millpond.server.store.store import ClaimsEntry, Store, StoredSnapshot
from millpond.server.version import VERSION
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.reasons import ReasonInfo

log = logging.getLogger(__name__)

SNAPSHOT_EVERY: Final = 5_000
"""Log entries between two snapshots: what a restart replays at most."""
RETRY_STORE_S: Final = 1.0
LONGEST_SLEEP_S: Final = 3_600.0


class TurnProcessor:
    """Owns the core, and is the only writer of the log and of what becomes of jobs.

    Args:
        core: as ``recovery.recover`` returns it; from now on this object's alone.
        loop: what other threads may know is published there.

    Attributes:
        lookup: finds jobs; any thread.
    """

    def __init__(self, store: Store, core: Core, loop: Loop, dependencies: LoopDependencies) -> None:
        self._store = store
        self._core = core
        self._loop = loop
        self._job_cache = job_cache = loop.job_cache
        self._dependencies = dependencies
        self._engine: AdoptingEngine
        self._arrays = Arrays(store.jobs, store.trials)
        self.lookup = JobLookup(job_cache, store.jobs, self._arrays)
        self._dependents = Dependents(store.jobs, self.lookup, dependencies.stages)
        self._job_views = JobViews(core, job_cache, self._arrays, UsageMeter(store.books.open_intervals()))
        self._unstored: list[events.Event] = []
        self._doubtful: tuple[Batch, LogEntry] | None = None
        self._decided: list[DecisionEntry] = []
        self._claims: ClaimsEntry | None = None
        self._refused: list[int] = []
        self._snapshot_seq = store.latest_snapshot_seq() or 0
        self._due: float | None = None
        self._has_more = False

    def settle(self, engine: AdoptingEngine) -> Sequence[events.Event]:
        """Make core and engine agree after a start; returns what became of known nodes, for the first turn.

        New nodes join before all that the engine says in that turn: it may say something of these already.
        """
        self._engine = engine
        self._forget_ended()
        self._save_snapshot()  # behind what was redone after a crash: from here on the log can be verified again
        inventory = engine.inventory()
        nodes = inventory.nodes
        submitted = self._store.jobs.submission_times()
        self._job_views.begin(inventory.tasks, self._dependents.all, submitted, self._now())
        for row in (*self._dependents.unreadable, *self._arrays.unreadable):
            self._job_views.give_up(row, self._now())
        joined, changes = recovery.node_changes(self._core, nodes, self._now())
        self._unstored = [*joined]
        engine.adopt(recovery.expected_tasks(self._core, nodes), recovery.to_repeat(self._core, nodes))
        return changes

    def serve_read_only(self, why: MillpondError) -> None:
        """Show what is known and change nothing, instead of ``settle``: the state is another server's.

        What that one may still run is unknown here. Nothing is decided, stored, started or ended.
        """
        self._loop.read_only = why
        self._forget_ended()
        self._job_views.begin((), self._dependents.all, self._store.jobs.submission_times(), self._now())
        self._job_views.stored()
        for info in self._job_cache.newest_first():
            self._job_cache.put(read_only_view(info))

    def process(self, messages: Sequence[Message], questions: LongQuestions) -> None:
        """One turn, in which some of the long questions are answered too."""
        self._has_more = False
        if self._loop.read_only is not None:
            turn_away(messages, self._loop.read_only)
        elif self._flush():
            self._take(messages)
        else:
            self._refuse(messages)
        self._loop.paused, self._loop.seq, self._loop.now = self._core.scheduler.holds, self._core.seq, self._core.now
        for message in messages:
            if isinstance(message, Query):
                answer(message, self._core)
        questions.answer_some(self._core)

    def sleep_s(self) -> float:
        """Seconds until a turn is due without a message."""
        if self._has_more:
            return 0.0
        if self._loop.trouble:
            return RETRY_STORE_S
        if self._loop.read_only is not None:
            return LONGEST_SLEEP_S
        now = self._now()
        due = self._next_due(now)
        return LONGEST_SLEEP_S if due is None else min(max(due - now, 0.0), LONGEST_SLEEP_S)

    def keep_snapshot(self) -> None:
        """Store a snapshot, unless the latest is as new."""
        if self._loop.read_only is None and self._flush():
            self._save_snapshot()

    def _save_snapshot(self) -> None:
        if self._core.seq == self._snapshot_seq:
            return
        try:
            self._store.save_snapshot(StoredSnapshot(self._core.seq, self._core.now, VERSION, self._core.snapshot()))
        except DBAPIError as error:
            self._store_fails(error)
            return
        self._snapshot_seq = self._core.seq

    def reason_outside_core(self, job: str, explain: Callable[[str], ReasonInfo | None]) -> ReasonInfo | None:
        """Why a job or an array waits that the core does not know; None of all others. For queries.

        Args:
            explain: why a job waits that the core knows.
        """
        return self._dependents.reason(job) or self._arrays.reason(job, explain)

    # ---- the steps of a turn ----------------------------------------------------------------------------------------

    def _forget_ended(self) -> None:
        """Drop the jobs whose end a server before this one has stored, and told to all: the log leads to them again."""
        ended = [record.id for record in self._core.scheduler.jobs.values() if record.state.ended]
        living = self._store.jobs.living(ended)
        for job in ended:
            if job not in living:
                self._core.forget(job)

    def _now(self) -> float:
        return max(self._dependencies.clock(), self._core.now)

    def _next_due(self, now: float) -> float | None:
        """When a cycle is worth running although nothing happened.

        What fell due since the latest cycle counts: a thread wakes a moment after the instant that it waited for, when
        the scheduler, asked what comes next, names the one behind it.
        """
        instants = (self._due, self._core.scheduler.next_wakeup(now))
        return min((instant for instant in instants if instant is not None), default=None)

    def _take(self, messages: Sequence[Message]) -> None:
        """Everything between receiving a batch and having its decisions carried out."""
        joint = (message.members for message in messages if isinstance(message, JointSubmission))
        submitted = [submission.job.id for members in joint for submission in members]
        try:
            batch = Batch(self._core, self._store, self._dependents, self._now(), submitted)
        except DBAPIError as error:
            self._store_fails(error)
            self._refuse(messages)
            return
        if (skipped := self._dependencies.clock_jump()) > 0.0:  # before all that came in since
            batch.add_event(events.ClockJumped(batch.now, skipped))
        for event in (*self._unstored, *self._engine.events(), *events_in(messages)):
            if not recovery.is_known(self._core, event):
                batch.add_event(event)
        for message in messages:
            self._add(batch, message)
        if self._loop.trouble:  # the end of a job that waits for others could not be stored
            self._give_up(batch)
            return
        self._release_dependents(batch)
        for member in self._arrays.due(self._core.scheduler.check, batch.ending):
            batch.add_member(member, self._dependencies.forecast(member))
        due = self._next_due(batch.now)
        if not batch.entries and not batch.new_jobs and (due is None or due > batch.now):
            batch.answer_repeated(self._job_cache)
            self._flush()
            return
        tick = batch.close()
        if self._is_stored(batch, tick):
            self._handle(batch)
            self._decide(tick)

    def _is_stored(self, batch: Batch, tick: LogEntry) -> bool:
        """Store a batch; whether that went well, else its requests are turned away."""
        try:
            changed = {name: fields_with_priority(job) for name, job in batch.reprioritized.items()}
            self._store.append(batch.entries, batch.new_jobs, batch.released, batch.closed, changed)
        except CommitInDoubtError as error:
            self._unstored, self._doubtful = [], (batch, tick)
            self._store_fails(error)
            batch.turn_away(
                UnavailableError(self._loop.trouble, "it may have been accepted: look before you repeat it")
            )
            return False
        except DBAPIError as error:
            self._store_fails(error)
            self._give_up(batch)
            return False
        self._unstored = []
        return True

    def _give_up(self, batch: Batch) -> None:
        self._unstored = batch.reported
        batch.turn_away(UnavailableError(self._loop.trouble, "see the server's log"))

    def _refuse(self, messages: Sequence[Message]) -> None:
        """Turn requests away while the store fails; what has happened is kept until it does not."""
        turn_away(messages, UnavailableError(self._loop.trouble, "see the server's log"))
        self._unstored += events_in(messages)

    def _add(self, batch: Batch, message: Message) -> None:
        """Take a request into the batch, or answer it at once; queries and events are handled elsewhere."""
        match message:
            case JointSubmission():
                batch.add_submissions(message.members)
            case ChangeJob() if message.job in self._dependents:
                self._change_dependent(batch, message)
            case ChangeJob() if message.job in self._arrays:
                self._change_array(batch, message)
            case ChangeJob() if (unsubmitted := self._arrays.unsubmitted(message.job)) is not None:
                self._change_unsubmitted(batch, message, unsubmitted)
            case ChangeJob():
                if message.pruned:
                    self._arrays.prune(message.job, message.pruned)
                batch.add_change(message)
            case ChangeSetting():
                batch.add_setting(message)

    def _release_dependents(self, batch: Batch) -> None:
        """Queue or cancel the jobs whose wait for others is over."""
        for dependent, standing in self._dependents.due():
            account = standing.unsatisfiable
            if not account and dependent.job.id in self._arrays:
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
            result = self._core.handle(entry.event)
            if isinstance(entry.event, events.ClockJumped):
                touched |= self._job_views.skip(entry.event)
            if isinstance(result, MillpondError):
                self._refused.append(entry.seq)
                batch.turn_down(entry.seq, result)
            else:
                touched |= result
        self._job_views.update(touched, self._now())
        # Who is answered may look at once, and must not take what was kept for the same.
        self._loop.seq = self._core.seq
        batch.acknowledge(self._job_cache)

    def _note_kept(self, batch: Batch) -> None:
        """Keep the arrays, and the jobs that wait for others, in step with this batch."""
        for array in batch.arrays:
            self._arrays.hold(array)
        for dependent in batch.held:
            self._dependents.hold(dependent)
            self._job_views.hold(dependent)
        for job in batch.released:
            self._dependents.drop(job)
            if job in self._arrays:
                self._arrays.release(job)
        for job in batch.closed:
            self._arrays.close(job)
        for job, changed in batch.reprioritized.items():
            self._arrays.reprioritize(job, changed.priority)
            if job in self._dependents:
                self._job_views.hold(self._dependents.reprioritized(changed))
        for new in batch.new_jobs:
            self._arrays.note_row(new)

    def _decide(self, tick: LogEntry) -> None:
        assert isinstance(tick.event, events.Tick)
        begun = time.perf_counter()
        decisions = self._core.decide(tick.event)
        self._dependencies.on_cycle(time.perf_counter() - begun)
        self._due = self._core.scheduler.next_wakeup(self._core.now)
        self._decided += [DecisionEntry(tick.seq, tick.event.at, decision) for decision in decisions]
        claims = self._core.scheduler.changed_claims()
        self._claims = None if claims is None else ClaimsEntry(tick.seq, claims)
        self._job_views.update({decision.job for decision in decisions}, self._now())
        self._flush()
        if self._core.seq - self._snapshot_seq >= SNAPSHOT_EVERY:
            self.keep_snapshot()

    def _change_dependent(self, batch: Batch, message: ChangeJob) -> None:
        """End a job that waits for others, and answer once that is durable, or change its class of priority."""
        if message.priority is not None:
            batch.add_priority(self._dependents[message.job].job, message.priority, (), message)
            return
        if message.stopped_by is None:
            hint = "it can be stopped, or have another priority"
            message.answer.set_exception(ConflictError(f"job {message.job!r} waits for other jobs or for data", hint))
            return
        if self._flush() and (info := self._cancel(message.job, message.end_account)) and self._flush():
            message.answer.set_result(info)
        else:
            message.answer.set_exception(UnavailableError(self._loop.trouble, "see the server's log"))

    def _change_array(self, batch: Batch, message: ChangeJob) -> None:
        """End an array, or change its class of priority; anything else is asked of its members one by one."""
        array = self._arrays[message.job]
        if message.priority is not None:
            batch.add_priority(array.job, message.priority, array.living(), message)
        elif message.stopped_by is None:
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
        batch.add_unsubmitted_end(cancelled_view(member, self._now(), message.end_account), message)

    def _cancel(self, job: str, account: str) -> JobInfo:
        """A job or an array that waits for others will never start; its last view."""
        return self._job_views.cancel(self._dependents.drop(job), account, self._now())

    def _flush(self) -> bool:
        """Store what was decided and what has ended, then let the engine have it; false when it cannot be stored."""
        job_views = self._job_views
        if not self._resolve_doubt():
            return False
        views_differ = job_views.ended or job_views.used or job_views.kept
        if self._decided or self._claims or self._refused or views_differ:
            is_stored = self._store_decided()
        else:
            is_stored = not self._loop.trouble or self._is_writable()
        if not is_stored:
            return False
        self._hand_over()
        return True

    def _resolve_doubt(self) -> bool:
        """Learn what became of a write whose commit got no answer, and go on from there; false while that is open."""
        if self._store.writes.in_doubt is None:
            return True
        try:
            is_durable = self._store.is_durable()
        except DBAPIError as error:
            self._store_fails(error)
            return False
        doubtful, self._doubtful = self._doubtful, None
        if doubtful is None and is_durable:
            self._hand_over()
        elif doubtful is not None and is_durable:
            self._handle(doubtful[0])
            self._decide(doubtful[1])
        elif doubtful is not None:
            self._unstored = doubtful[0].reported + self._unstored
        return True

    def _hand_over(self) -> None:
        """What was decided and what has ended is stored: let the engine, and those that wait for it, have it."""
        job_views = self._job_views
        decisions: list[Decision] = [entry.decision for entry in self._decided]
        ended = job_views.stored()
        self._decided, self._claims, self._refused, self._loop.trouble = [], None, [], ""
        if decisions:
            self._engine.apply(decisions)
        for view in ended:
            job_views.forget(view)
        if self._dependents.ended([view.id for view in ended]) or self._arrays.has_capacity:
            self._has_more = True
        if ended:
            jobs = [view for view in ended if view.array is None]
            for notify in self._dependencies.on_ended:
                notify(jobs)

    def _store_decided(self) -> bool:
        """Store it with the deliveries that follow; false when it cannot be stored."""
        job_views = self._job_views
        ended_now = list(job_views.ended.values())
        decided = [entry.decision for entry in self._decided]
        result = TurnResult(self._core.now, decided, [*job_views.kept, *ended_now], self._job_cache.get)
        deliveries = self._dependencies.notices.address(result)
        try:
            self._store.record(self._decided, ended_now, job_views.used, deliveries, self._claims, self._refused)
        except DBAPIError as error:
            self._store_fails(error)
            return False
        if deliveries:
            self._dependencies.notices.wake()
        return True

    def _is_writable(self) -> bool:
        """Whether the store has recovered, where nothing is left that would show it."""
        try:
            self._store.try_writing()
        except DBAPIError as error:
            self._store_fails(error)
            return False
        return True

    def _store_fails(self, error: DBAPIError) -> None:
        trouble = f"the store cannot be read or written ({error.orig})"
        if trouble != self._loop.trouble:
            log.error("%s; trying again every %g s", trouble, RETRY_STORE_S)
        self._loop.trouble = trouble
