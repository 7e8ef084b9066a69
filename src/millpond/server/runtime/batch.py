"""The entries that one turn of the scheduler's thread stores together, and the requests that it answers afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy.exc import DBAPIError

from millpond.forecasting.durations import Forecast
from millpond.model import events
from millpond.model.errors import ConflictError, InvalidInputError, MillpondError, NotFoundError, UnavailableError
from millpond.model.reasons import Reason
from millpond.model.workloads import Job, Priority
from millpond.server.auth.roles import absent
from millpond.server.runtime.active_jobs.array import Array
from millpond.server.runtime.active_jobs.arrays import array_of
from millpond.server.runtime.active_jobs.dependencies import Dependent, Dependents
from millpond.server.runtime.active_jobs.job_cache import JobCache
from millpond.server.runtime.core import Core
from millpond.server.runtime.inbox import ChangeJob, ChangeSetting, Submission
from millpond.server.store.histories import LogEntry
from millpond.server.store.jobs import DEPENDENT, LIVE, NewJob
from millpond.server.store.store import Store
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.errors import SpecError
from millpond.specs.job.job_ids import split_member
from millpond.specs.job.mounts import After

ARRAY_RELEASED: Final = "what it waited for has come"
"""What the history of an array says when its members may start."""


@dataclass(frozen=True, slots=True)
class _Earlier:
    """A submission that another one repeats; ``seq``: the entry of this batch that answers it, None if it is stored."""

    name: str
    digest: str
    seq: int | None = None


class Batch:
    """Events that become log entries, in order; requests are checked here, before anything is stored.

    Args:
        submitted: ids of the jobs that are about to be submitted: the store is asked for all of them at once.

    Attributes:
        entries: the log entries, the closing tick last.
        reported: events of the engine and of the server itself, which must not get lost.
        held: jobs that have to wait for others.
        released: ids of jobs that waited for others until now.
        arrays: that were submitted.
        closed: ids of arrays of which no more members are handed to the scheduler.
        reprioritized: jobs that wait for others, and arrays, as they are with the class of priority that they get.
        settled: last views of members that ended before they were handed to the scheduler, with the answers due.
    """

    def __init__(self, core: Core, store: Store, dependents: Dependents, now: float, submitted: Sequence[str]) -> None:
        self.now = now
        self.entries: list[LogEntry] = []
        self.new_jobs: list[NewJob] = []
        self.reported: list[events.Event] = []
        self.held: list[Dependent] = []
        self.released: list[str] = []
        self.arrays: list[Array] = []
        self.closed: list[str] = []
        self.reprioritized: dict[str, Job] = {}
        self.settled: list[tuple[JobInfo, Future[JobInfo]]] = []
        self._dependents = dependents
        self._core = core
        self._store = store
        self._taken = store.jobs.existing(submitted)
        self._latest = core.now
        self._waiting: dict[int, list[tuple[str, Future[JobInfo]]]] = {}
        self._repeated: list[tuple[str, Future[JobInfo]]] = []
        self._by_key: dict[str, _Earlier] = {}
        self._requested: dict[events.Event, int] = {}
        self._settings: dict[int, Future[None]] = {}

    @property
    def handled(self) -> list[LogEntry]:
        """The entries without the closing tick."""
        return self.entries[:-1]

    @property
    def ending(self) -> frozenset[str]:
        """Arrays and members that this batch ends."""
        return frozenset((*self.closed, *(info.id for info, _ in self.settled)))

    def add_event(self, event: events.Event) -> None:
        """Take an event from the engine or the server."""
        self.reported.append(event)
        self._append(event)

    def add_submissions(self, together: Sequence[Submission]) -> None:
        """Check submissions against the cluster and take all of them, or none and answer why."""
        ids = frozenset(submission.job.id for submission in together)
        try:
            keys = [submission.key for submission in together if submission.key]
            if len(set(keys)) < len(keys):
                raise ConflictError("two of the jobs have the same idempotency key", "give each its own")
            earlier = [self._earlier(submission) for submission in together]
            known = {new.job.id: old.name for new, old in zip(together, earlier, strict=True) if old is not None}
            for number, submission in enumerate(together):
                with numbered(number, len(together), submission.job.name):
                    self._check(submission, ids, known)
        except MillpondError as error:
            for submission in together:
                submission.answer.set_exception(error)
            return
        for submission, old in zip(together, earlier, strict=True):
            if old is not None:
                self._answer_later(submission, old)
            else:
                self._admit(submission, ids)

    def add_release(self, dependent: Dependent) -> str:
        """Have a job queue that waited for others until now; says why it cannot, if so."""
        reason = self._core.scheduler.check(dependent.job)
        if reason is not None:
            return reason.summary
        self._append(events.JobSubmitted(self.now, dependent.job))
        self._note_if_never_held(dependent.job)
        self.released.append(dependent.job.id)
        return ""

    def add_array_release(self, array: str) -> None:
        """An array waited for others until now."""
        self._append(events.Noted(self.now, array, ARRAY_RELEASED))
        self.released.append(array)

    def add_member(self, member: Job, forecast: Forecast | None) -> None:
        """Hand a member of an array to the scheduler."""
        self._append(events.JobSubmitted(self.now, member))
        if forecast is not None:
            self._append(events.DurationPredicted(self.now, member.id, forecast.expected_s, forecast.cautious_s))
        self._enter_member(member)

    def add_array_end(self, array: Array, message: ChangeJob) -> None:
        """End an array: those members that the scheduler has, and with them all others."""
        seq = self._append(events.Noted(self.now, array.id, message.end_account))
        self._waiting[seq] = [(array.id, message.answer)]
        self.closed.append(array.id)
        for member in array.living():
            self._append(events.StopRequested(self.now, member, message.stopped_by or ""))

    def add_priority(self, job: Job, priority: Priority, members: Sequence[str], message: ChangeJob) -> None:
        """Give a job that waits for others, or an array, another class of priority, or answer why not.

        Args:
            members: those members of the array that the scheduler has.
        """
        try:
            changed = self._core.scheduler.with_priority(job, priority)
        except MillpondError as error:
            message.answer.set_exception(error)
            return
        by, name = message.by or "somebody", priority.name.lower()
        seq = self._append(events.Noted(self.now, changed.id, f"{by} gave it priority {name}"))
        self._waiting[seq] = [(changed.id, message.answer)]
        self.reprioritized[changed.id] = changed
        for member in members:
            self._append(events.PriorityChanged(self.now, member, priority, message.by))

    def add_unsubmitted_end(self, member: JobInfo, message: ChangeJob) -> None:
        """End a member that was not handed to the scheduler; it never will be."""
        if all(info.id != member.id for info, _ in self.settled):
            self._enter_member(member, ended=member)
        self.settled.append((member, message.answer))

    def add_change(self, message: ChangeJob) -> None:
        """Take a change of a living job, or answer why not."""
        record = self._core.scheduler.jobs.get(message.job)
        try:
            if record is None or record.state.ended:
                raise self._not_alive(message.job)
            event = message.event(record, self.now)
        except MillpondError as error:
            message.answer.set_exception(error)
            return
        seq = self._requested.get(event)
        if seq is None:
            seq = self._requested[event] = self._append(event)
            if message.pruned and isinstance(event, events.StopRequested):
                self._note_pruned(event)
        self._waiting.setdefault(seq, []).append((message.job, message.answer))

    def add_setting(self, message: ChangeSetting) -> None:
        """Take a change of a node or a queue; the core judges it."""
        self._settings[self._append(message.event(self.now))] = message.answer

    def close(self) -> LogEntry:
        """Add the tick that ends the batch; it is later than everything in it."""
        self._append(events.Tick(max(self.now, self._latest)))
        return self.entries[-1]

    # ---- afterwards ---------------------------------------------------------------------------------------------

    def turn_down(self, seq: int, error: MillpondError) -> None:
        """Answer an entry that the core did not accept."""
        for _, answer in self._waiting.pop(seq, []):
            answer.set_exception(error)
        if (of_setting := self._settings.pop(seq, None)) is not None:
            of_setting.set_exception(error)

    def acknowledge(self, job_cache: JobCache) -> None:
        """Everything left is durable and handled."""
        for waiting in self._waiting.values():
            for name, answer in waiting:
                info = job_cache.get(name)
                assert info is not None, "a handled job is in the cache until the decisions are stored"
                answer.set_result(info)
        for of_setting in self._settings.values():
            of_setting.set_result(None)
        for info, answer in self.settled:
            answer.set_result(info)
        self.answer_repeated(job_cache)

    def answer_repeated(self, job_cache: JobCache) -> None:
        """Submissions that were made before get the job they got then."""
        for name, answer in self._repeated:
            try:
                info = job_cache.get(name) or self._ended_job(name)
                if info is None:
                    raise NotFoundError(f"no job {name!r}", "submit it with a new key")
            except MillpondError as error:
                answer.set_exception(error)
            else:
                answer.set_result(info)

    def turn_away(self, error: MillpondError) -> None:
        """Answer all requests with an error: nothing became durable, or whether it did is open; nobody waits then."""
        for waiting in (*self._waiting.values(), self._repeated):
            for _, answer in waiting:
                answer.set_exception(error)
        for of_setting in self._settings.values():
            of_setting.set_exception(error)
        for _, answer in self.settled:
            answer.set_exception(error)
        self._waiting, self._repeated, self._settings, self.settled = {}, [], {}, []

    # ---- inside -------------------------------------------------------------------------------------------------

    def _enter(self, new: NewJob) -> None:
        self.new_jobs.append(new)
        self._taken.add(new.id)

    def _append(self, event: events.Event) -> int:
        # Reported late: the log's clock does not run back. By a clock that leapt: this one decides when it is followed.
        at = max(self._latest, min(event.at, self.now))
        if event.at != at:
            event = replace(event, at=at)
        self._latest = event.at
        seq = self._core.seq + len(self.entries) + 1
        self.entries.append(LogEntry(seq, event, self._core.job_of(event)))
        return seq

    def _earlier(self, submission: Submission) -> _Earlier | None:
        """The submission that this one repeats; None when it is new.

        Raises:
            ConflictError: the key was used with another document.
            UnavailableError: the store cannot be read.
        """
        if not submission.key:
            return None
        if (earlier := self._by_key.get(submission.key)) is None:
            with _readable():
                stored = self._store.jobs.repeated(submission.key)
            if stored is None:
                return None
            earlier = _Earlier(*stored)
        if submission.digest != earlier.digest:
            raise ConflictError(
                "this idempotency key was used for another submission", "use a new key for each submission"
            )
        return earlier

    def _answer_later(self, submission: Submission, earlier: _Earlier) -> None:
        """A repeated submission gets the job of the earlier one, when that is durable."""
        waiting = self._repeated if earlier.seq is None else self._waiting[earlier.seq]
        waiting.append((earlier.name, submission.answer))

    def _check(self, submission: Submission, together: frozenset[str], known: Mapping[str, str]) -> None:
        """Whether a job can be taken, if it is new.

        Args:
            together: ids of the jobs that are submitted together.
            known: of those that repeat an earlier submission, the id that they have already.

        Raises:
            MillpondError: it cannot.
        """
        job = submission.job
        if job.id in known:
            return
        if job.id in self._core.scheduler.jobs or job.id in self._taken:
            raise ConflictError(f"a job {job.id!r} exists already", "submit it again")
        reason = self._core.scheduler.check(job)
        if reason is not None:
            raise refusal(reason)
        self._core.scheduler.check_reservation(job)
        if known and "after" in submission.document:
            after = After.model_validate(submission.document["after"]).renamed(known)
            submission.document = {**submission.document, "after": after.model_dump(exclude_defaults=True)}
        self._dependents.waits(submission.document, together)

    def _admit(self, submission: Submission, together: frozenset[str]) -> None:
        """Take a checked job."""
        job = submission.job
        after = self._dependents.waits(submission.document, together)
        if after is None and submission.waits:
            after = After()
        array = array_of(job, submission.document, max(self.now, self._latest))
        if array is not None:
            array.held = after is not None
            self.arrays.append(array)
            words = f"submitted by {job.user or 'somebody'} to queue {job.queue}: {len(array.members)} jobs"
            seq = self._append(events.Noted(self.now, job.id, words))
            self._note_if_never_held(job)
        elif after is None:
            seq = self._append(events.JobSubmitted(self.now, job))
            self._note_if_never_held(job)
        else:  # not in the log yet: answers are kept under numbers that no entry has
            seq = -1 - len(self.held)
        if after is not None:
            self.held.append(Dependent(job, max(self.now, self._latest), after, submission.document))
        self._enter(
            NewJob(
                job.id,
                job.user,
                max(self.now, self._latest),
                submission.document,
                submission.key,
                submission.digest,
                LIVE if after is None else DEPENDENT,
                job.group,
                0 if array is None else len(array.members),
            )
        )
        if after is None and array is None and (forecast := submission.forecast) is not None:
            self._append(events.DurationPredicted(self.now, job.id, forecast.expected_s, forecast.cautious_s))
        self._waiting[seq] = [(job.id, submission.answer)]
        if submission.key:
            self._by_key[submission.key] = _Earlier(job.id, submission.digest, seq)

    def _note_if_never_held(self, job: Job) -> None:
        """The history of a flexible job, or of an array of them, says why it waits for no hours, if so."""
        if job.flexible_s and (missing := self._core.scheduler.rates_missing):
            self._append(events.Noted(self.now, job.id, f"flexible changes nothing: {missing}"))

    def _note_pruned(self, event: events.StopRequested) -> None:
        """Note it in the sweep's own history too."""
        found = split_member(event.job)
        assert found is not None, "only trials of sweeps are pruned"
        self._append(events.Noted(self.now, found[0], f"trial {found[1]} is stopped: {event.reason}"))

    def _enter_member(self, member: Job | JobInfo, ended: JobInfo | None = None) -> None:
        found = split_member(member.id)
        assert found is not None, "the id of a member names its array"
        at = max(self.now, self._latest)
        self._enter(NewJob(member.id, member.user, at, {}, group=member.group, parent=found[0], ended=ended))

    def _ended_job(self, name: str) -> JobInfo | None:
        """A job that has ended.

        Raises:
            UnavailableError: the store cannot be read.
        """
        if not name.isprintable():  # no id ever was, and a database may refuse to look for it
            return None
        with _readable():
            return self._store.jobs.ended_job(name)

    def _not_alive(self, name: str) -> MillpondError:
        info = self._ended_job(name)
        if info is None:
            return absent("job", name)
        return ended_already(info)


def ended_already(info: JobInfo) -> ConflictError:
    """The error for a job that something is to be done to, and that has ended."""
    return ConflictError(f"job {info.id!r} has ended already ({info.state})", "see how with `pond logs` or `pond why`")


@contextmanager
def _readable() -> Iterator[None]:
    """Have a store that cannot be read refuse the one request that needs it, and not end the scheduler's thread."""
    try:
        yield
    except DBAPIError as error:
        raise UnavailableError(f"the store cannot be read ({error.orig})", "try again in a moment") from error


@contextmanager
def numbered(number: int, count: int, name: str) -> Iterator[None]:
    """Errors within say which job of a submission of several is meant; ``number`` counts from 0."""
    try:
        yield
    except MillpondError as error:
        if count == 1:
            raise
        which = f"job {number + 1} of {count}" + (f" ({name!r})" if name else "")
        if isinstance(error, SpecError):
            problems = [replace(problem, message=f"{which}: {problem.message}") for problem in error.problems]
            raise SpecError(problems) from error
        raise type(error)(f"{which}: {error.cause}", error.remedy) from error


def refusal(reason: Reason) -> InvalidInputError:
    """Why the cluster could never take a job, as an error of the request."""
    return InvalidInputError(reason.summary, reason.remedy.change if reason.remedy else "")
