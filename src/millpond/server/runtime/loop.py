"""The scheduler as other threads see it: they send it requests and queries, and read what it publishes.

The scheduler runs on a thread of its own (``scheduler_thread``), which owns the core. The core is reached by a query
alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, TypeVar

from millpond.model import events
from millpond.model.errors import MillpondError, UnavailableError
from millpond.model.reasons import Cause
from millpond.server.runtime.active_jobs.job_cache import JobCache
from millpond.server.runtime.core import Core
from millpond.server.runtime.inbox import (
    ChangeJob,
    ChangeSetting,
    Inbox,
    JointSubmission,
    Message,
    Query,
    ServerEvents,
    Submission,
    Wake,
    abandon,
    answer_after,
)
from millpond.specs.api.jobs.jobs import JobInfo

Answer = TypeVar("Answer")

ANSWER_WITHIN_S: Final = 30.0
ASK_AGAIN: Final = "try again in a moment"
LOOK_FIRST: Final = "look whether it was done before you try again"
"""What helps where no answer came in time: to a question, by which nothing is done; to a change."""


class Loop:
    """The scheduler's inbox, and what its thread publishes: the attributes, which that thread alone sets.

    Attributes:
        job_cache: the views of living jobs.
        alive: whether the scheduler's thread runs.
        trouble: why nothing can be accepted now (the store cannot be written); empty when all is well.
        paused: why nothing new starts, by cause, as of the latest turn; replaced as a whole.
        seq: place in the log of the latest that was handled.
        now: the scheduler's time, as of the latest turn; ahead of the machine's clock after that was set back.
        read_only: why no request is accepted at all, as the state is another server's; None where it is this server's.
    """

    def __init__(self, job_cache: JobCache) -> None:
        self.job_cache = job_cache
        self.inbox = Inbox()
        self.alive = False
        self.trouble = ""
        self.paused: Mapping[Cause, str] = {}
        self.seq = 0
        self.now = 0.0
        self.read_only: MillpondError | None = None
        self._failure: Future[Exception] = Future()

    # ---- requests, from any thread ----------------------------------------------------------------------------------

    def submit(self, *submissions: Submission) -> Future[list[JobInfo]]:
        """Submit jobs that are taken together or not at all; answered once they are durable."""
        joint = JointSubmission(submissions)
        self._put(joint)
        return joint.answer

    def stop_job(self, job: str, by: str) -> Future[JobInfo]:
        """Ask for the end of a job; answered once the request is durable."""
        return self.change_job(ChangeJob(job, lambda _, now: events.StopRequested(now, job, by), by))

    def change_job(self, change: ChangeJob) -> Future[JobInfo]:
        """Request a change of a job; answered once it is durable, with the core's refusal if there is one."""
        self._put(change)
        return change.answer

    def change_setting(self, event: Callable[[float], events.Event]) -> Future[None]:
        """Request a change of a node or a queue; answered as ``change_job``."""
        message = ChangeSetting(event)
        self._put(message)
        return message.answer

    def query(self, question: Callable[[Core], Answer], *, is_long: bool = False) -> Future[Answer]:
        """Evaluate a function of the core between two turns; one that is long, when others leave time for it."""
        message = Query(question, is_long)
        self._put(message)
        return message.answer

    async def ask(self, question: Callable[[Core], Answer], *, is_long: bool = False) -> Answer:
        """What ``query`` answers, for those who answer requests: see ``answered``."""
        return await self.answered(self.query(question, is_long=is_long), ASK_AGAIN)

    async def answered(self, future: Future[Answer], remedy: str = LOOK_FIRST) -> Answer:
        """Wait for the answer to a request; nobody waits for a scheduler that has ended.

        Args:
            remedy: what helps where no answer comes in time.

        Raises:
            UnavailableError: the scheduler is not running, or takes too long.
        """
        self._require_running()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), ANSWER_WITHIN_S)
        except TimeoutError as error:
            raise _unanswered(remedy) from error

    def look_up(self, question: Callable[[Core], Answer], *, is_long: bool = False) -> Answer:
        """What ``query`` answers, for threads that may wait: see ``wait_for``."""
        return self.wait_for(self.query(question, is_long=is_long), ASK_AGAIN)

    def wait_for(self, future: Future[Answer], remedy: str = LOOK_FIRST) -> Answer:
        """As ``answered``, for threads that may wait."""
        self._require_running()
        try:
            return future.result(ANSWER_WITHIN_S)
        except TimeoutError as error:
            future.cancel()  # what the scheduler has not taken up by now is not done later either
            raise _unanswered(remedy) from error

    def notify(self, happened: Sequence[events.Event]) -> None:
        """Report events of the server itself, such as a configuration that was read again."""
        self.inbox.put(ServerEvents(tuple(happened)))

    def note(self, job: str, text: str) -> None:
        """Add a text to a job's history."""
        self.notify([events.Noted(time.time(), job, text)])

    def wake(self) -> None:
        """The engine has events, or a job that waited has all that it needs."""
        self.inbox.put(Wake())

    # ---- the end of the scheduler's thread by itself --------------------------------------------------------------

    @property
    def failure(self) -> Exception | None:
        """What ended the thread when it ended by itself: a defect, or that another server has taken over."""
        return self._failure.result() if self._failure.done() else None

    def dead(self) -> str:
        """Why this process will never take work on again; empty while it may."""
        if self.failure is not None:
            return answer_after(self.failure).cause
        return "" if self.alive else "the scheduler is not running"

    def when_failed(self, callback: Callable[[], None]) -> None:
        """Call back once the thread has ended by itself; at once if it has already."""
        self._failure.add_done_callback(lambda _: callback())

    def fail(self, error: Exception) -> None:
        """The thread has ended by itself; what is in the inbox is answered with an error, from now on too."""
        self._failure.set_result(error)
        abandon(self.inbox.drain(0.0), error)

    def _require_running(self) -> None:
        if self.failure is not None:
            raise answer_after(self.failure)
        if dead := self.dead():
            raise UnavailableError(dead, "see the server's log, then start it again")

    def _put(self, message: Message) -> None:
        """Send a message; when the thread has failed, the latest sender answers all that wait."""
        self.inbox.put(message)
        if self.failure is not None:
            abandon(self.inbox.drain(0.0), self.failure)


def _unanswered(remedy: str) -> UnavailableError:
    return UnavailableError(f"no answer from the scheduler within {ANSWER_WITHIN_S:g} s", remedy)
