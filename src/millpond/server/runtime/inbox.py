"""Messages of other threads to the scheduler's thread, each with the future by which it is answered."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from millpond.forecasting.durations import Forecast
from millpond.model.errors import LeadershipLostError, MillpondError, UnavailableError
from millpond.model.events import Event
from millpond.model.workloads import Job, Priority
from millpond.scheduling.records import JobRecord
from millpond.server.runtime.core import Core
from millpond.specs.api.jobs.jobs import JobInfo


@dataclass(slots=True, eq=False)
class Submission:
    """A checked job that is submitted.

    Attributes:
        key, digest: the client's idempotency key (or empty) and the hash of what it sent with it.
        forecast: how long it is expected to run.
        waits: not everything that it needs is on the machine.
    """

    job: Job
    document: dict[str, Any]
    key: str = ""
    digest: str = ""
    forecast: Forecast | None = None
    waits: bool = False
    answer: Future[JobInfo] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class JointSubmission:
    """Checked jobs that are taken together or not at all; answered with all of them, in their order."""

    members: tuple[Submission, ...]
    answer: Future[list[JobInfo]] = field(default_factory=Future)

    def __post_init__(self) -> None:
        for member in self.members:
            member.answer.add_done_callback(self._collect)

    def _collect(self, _: Future[JobInfo]) -> None:
        """Answer when the last member is answered: all are refused by the same error, or none is."""
        if not all(member.answer.done() for member in self.members):
            return
        error = self.members[0].answer.exception()
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result([member.answer.result() for member in self.members])


@dataclass(slots=True, eq=False)
class ChangeJob:
    """The request that a living job end, pause, go on or change its size.

    Attributes:
        event: what happens to the job, given its record and the instant; raises a MillpondError when it cannot.
        stopped_by: the user who asks for its end; None where something else is asked. Jobs that wait for others, which
            the core does not know yet, and arrays can be ended as well.
        pruned: why it is to end, a trial that fell behind in its sweep; empty: for another reason.
        priority: the class of priority that it is to have; jobs that wait for others, and arrays with the members that
            follow, can have another as well.
        by: the user who asks for that.
    """

    job: str
    event: Callable[[JobRecord, float], Event]
    stopped_by: str | None = None
    pruned: str = ""
    priority: Priority | None = None
    by: str = ""
    answer: Future[JobInfo] = field(default_factory=Future)

    @property
    def end_account(self) -> str:
        """What the history of a job says that the core does not know, when its end is asked for."""
        return f"{self.stopped_by or 'somebody'} asked for its end"


@dataclass(slots=True, eq=False)
class ChangeSetting:
    """The request that a node be closed or opened, or a queue be defined or removed; the core judges it.

    Attributes:
        event: what happens to it, given the instant.
    """

    event: Callable[[float], Event]
    answer: Future[None] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class Query:
    """Something only the scheduler's thread may look up; it must not change anything.

    Attributes:
        is_long: it takes milliseconds, so that it waits for its turn behind all others, see ``long_questions``.
    """

    ask: Callable[[Core], Any]
    is_long: bool = False
    answer: Future[Any] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class ServerEvents:
    """Events from the server itself: its configuration, what settling found."""

    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Wake:
    """The engine has events, or the loop should look at its flags."""


Request = JointSubmission | ChangeJob | ChangeSetting | Query
"""Messages that are answered."""

Message = Request | ServerEvents | Wake


class Inbox:
    """A queue that is emptied in one go."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def put(self, message: Message) -> None:
        """Add a message; any thread, also within a signal handler."""
        self._queue.put(message)

    def drain(self, timeout_s: float) -> list[Message]:
        """All messages; waits for the first at most ``timeout_s``."""
        messages: list[Message] = []
        wait = timeout_s
        while True:
            try:
                messages.append(self._queue.get(block=wait > 0, timeout=wait))
            except queue.Empty:
                return messages
            wait = 0.0


def events_in(messages: Sequence[Message]) -> list[Event]:
    """All events of the server itself, in order."""
    return [event for message in messages if isinstance(message, ServerEvents) for event in message.events]


# ---- answers ----------------------------------------------------------------------------------------------------


def is_wanted(message: Message) -> bool:
    """Whether the answer is still awaited; from here on the request cannot be withdrawn."""
    if isinstance(message, Request):
        return message.answer.set_running_or_notify_cancel()
    return True


def answer(question: Query, core: Core) -> None:
    """Answer a query; a defect is raised where it was asked."""
    try:
        question.answer.set_result(question.ask(core))
    except Exception as error:
        question.answer.set_exception(error)


def turn_away(messages: Sequence[Message], trouble: MillpondError) -> None:
    """Refuse all requests, as nothing can be stored; queries are answered all the same."""
    for message in messages:
        if isinstance(message, (JointSubmission, ChangeJob, ChangeSetting)):
            message.answer.set_exception(trouble)


def abandon(messages: Sequence[Message], failure: Exception) -> None:
    """Answer with an error, as the thread has ended; what was stored of these is found by the next server."""
    for message in messages:
        if isinstance(message, Request) and not message.answer.done():
            message.answer.set_exception(answer_after(failure))


def answer_after(failure: Exception) -> UnavailableError:
    """What requests are answered with when the thread has ended by an error."""
    if isinstance(failure, LeadershipLostError):
        return UnavailableError(failure.cause, failure.remedy)
    return UnavailableError("the scheduler stopped by a defect", "see the server's log, then start it again")
