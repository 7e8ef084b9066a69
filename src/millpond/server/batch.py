"""What one turn of the scheduler's thread makes durable together, and whom it has to answer afterwards."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future

from millpond.model import events
from millpond.model.errors import ConflictError, InvalidInputError, MillpondError, NotFoundError
from millpond.model.reasons import Reason
from millpond.server.absent import absent
from millpond.server.board import Board
from millpond.server.core import Core
from millpond.server.dependents import Dependent, Dependents
from millpond.server.inbox import ChangeJob, ChangeNode, Submission
from millpond.server.store.histories import LogEntry
from millpond.server.store.store import DEPENDENT, LIVE, NewJob, Store
from millpond.specs.api import JobInfo


class Batch:
    """Events that become log entries, in order; requests are checked here, before anything is stored.

    Attributes:
        entries: the log entries, the closing tick last.
        reported: events that came from the engine or the server itself: they must not get lost.
        held: jobs that have to wait for others.
        released: ids of jobs that waited for others until now.
    """

    def __init__(self, core: Core, store: Store, dependents: Dependents, now: float) -> None:
        self.now = now
        self.entries: list[LogEntry] = []
        self.new_jobs: list[NewJob] = []
        self.reported: list[events.Event] = []
        self.held: list[Dependent] = []
        self.released: list[str] = []
        self._dependents = dependents
        self._core = core
        self._store = store
        self._latest = core.now
        self._waiting: dict[int, list[tuple[str, Future[JobInfo]]]] = {}
        self._repeated: list[tuple[str, Future[JobInfo]]] = []
        self._by_key: dict[str, tuple[int, str, str]] = {}
        self._wished: dict[events.Event, int] = {}
        self._node_changes: dict[int, Future[None]] = {}

    @property
    def handled(self) -> list[LogEntry]:
        """The entries without the closing tick."""
        return self.entries[:-1]

    def add_event(self, event: events.Event) -> None:
        """Take an event from the engine or the server."""
        self.reported.append(event)
        self._append(event)

    def add_submission(self, submission: Submission) -> None:
        """Check a submission against the cluster and take it, or answer why not."""
        try:
            if not self._is_repeated(submission):
                self._admit(submission)
        except MillpondError as error:
            submission.answer.set_exception(error)

    def add_release(self, dependent: Dependent) -> str:
        """Have a job queue that waited for others until now; says why it cannot, if so."""
        reason = self._core.scheduler.check(dependent.job)
        if reason is not None:
            return reason.summary
        self._append(events.JobSubmitted(self.now, dependent.job))
        self.released.append(dependent.job.id)
        return ""

    def add_change(self, message: ChangeJob) -> None:
        """Take a wish about a living job, or answer why not."""
        record = self._core.scheduler.jobs.get(message.job)
        try:
            if record is None or record.state.ended:
                raise self._not_alive(message.job)
            event = message.event(record, self.now)
        except MillpondError as error:
            message.answer.set_exception(error)
            return
        seq = self._wished.get(event)
        if seq is None:
            seq = self._wished[event] = self._append(event)
        self._waiting.setdefault(seq, []).append((message.job, message.answer))

    def add_node_change(self, message: ChangeNode) -> None:
        """Take a wish about a node; the core judges it."""
        self._node_changes[self._append(message.event(self.now))] = message.answer

    def close(self) -> LogEntry:
        """Add the tick that ends the batch; it is later than everything in it."""
        self._append(events.Tick(max(self.now, self._latest)))
        return self.entries[-1]

    # ---- afterwards ---------------------------------------------------------------------------------------------

    def turn_down(self, seq: int, error: MillpondError) -> None:
        """The core did not accept an entry: whoever asked for it is told."""
        for _, answer in self._waiting.pop(seq, []):
            answer.set_exception(error)
        if (of_node := self._node_changes.pop(seq, None)) is not None:
            of_node.set_exception(error)

    def acknowledge(self, board: Board) -> None:
        """Everything left is durable and handled."""
        for waiting in self._waiting.values():
            for name, answer in waiting:
                info = board.get(name)
                assert info is not None, "a handled job is on the board until the decisions are stored"
                answer.set_result(info)
        for of_node in self._node_changes.values():
            of_node.set_result(None)
        self.answer_repeated(board)

    def answer_repeated(self, board: Board) -> None:
        """Submissions that were made before get the job they got then."""
        for name, answer in self._repeated:
            info = board.get(name) or self._store.ended_job(name)
            if info is None:
                answer.set_exception(NotFoundError(f"no job {name!r}", "submit it with a new key"))
            else:
                answer.set_result(info)

    def turn_away(self, error: MillpondError) -> None:
        """Nothing became durable: everybody who waits is told."""
        for waiting in (*self._waiting.values(), self._repeated):
            for _, answer in waiting:
                answer.set_exception(error)
        for of_node in self._node_changes.values():
            of_node.set_exception(error)

    # ---- inside -------------------------------------------------------------------------------------------------

    def _append(self, event: events.Event) -> int:
        if event.at < self._latest:  # reported late: the log's clock does not run back
            event = dataclasses.replace(event, at=self._latest)
        self._latest = event.at
        seq = self._core.seq + len(self.entries) + 1
        self.entries.append(LogEntry(seq, event, self._core.job_of(event)))
        return seq

    def _is_repeated(self, submission: Submission) -> bool:
        if not submission.key:
            return False
        earlier = self._by_key.get(submission.key)
        if earlier is not None:
            seq, name, digest = earlier
            self._same_content(submission, digest)
            self._waiting[seq].append((name, submission.answer))
            return True
        stored = self._store.repeated(submission.key)
        if stored is None:
            return False
        self._same_content(submission, stored[1])
        self._repeated.append((stored[0], submission.answer))
        return True

    def _same_content(self, submission: Submission, digest: str) -> None:
        if submission.digest != digest:
            raise ConflictError(
                "this idempotency key was used for another submission", "use a new key for each submission"
            )

    def _admit(self, submission: Submission) -> None:
        job = submission.job
        taken = job.id in self._core.scheduler.jobs or any(new.id == job.id for new in self.new_jobs)
        if taken or self._store.is_job(job.id):
            raise ConflictError(f"a job {job.id!r} exists already", "submit it again")
        reason = self._core.scheduler.check(job)
        if reason is not None:
            raise refusal(reason)
        after = self._dependents.waits(submission.document)
        if after is None:
            seq = self._append(events.JobSubmitted(self.now, job))
        else:  # not in the log yet: answers are kept under numbers that no entry has
            seq = -1 - len(self.held)
            self.held.append(Dependent(job, max(self.now, self._latest), after))
        self.new_jobs.append(
            NewJob(
                job.id,
                job.user,
                max(self.now, self._latest),
                submission.document,
                submission.key,
                submission.digest,
                LIVE if after is None else DEPENDENT,
                job.group,
            )
        )
        if after is None and (forecast := submission.forecast) is not None:
            self._append(events.DurationPredicted(self.now, job.id, forecast.expected_s, forecast.cautious_s))
        self._waiting[seq] = [(job.id, submission.answer)]
        if submission.key:
            self._by_key[submission.key] = (seq, job.id, submission.digest)

    def _not_alive(self, name: str) -> MillpondError:
        info = self._store.ended_job(name)
        if info is None:
            return absent("job", name)
        return ConflictError(f"job {name!r} has ended already ({info.state})", "see how with pond logs or pond why")


def refusal(reason: Reason) -> InvalidInputError:
    """Why the cluster could never take a job, as an error of the request."""
    return InvalidInputError(reason.summary, reason.remedy.change if reason.remedy else "")
