"""The scheduler's thread as other threads see it: they send it messages and read what it publishes.

What the thread does in a turn is in ``turn_processor``, which owns the core. The core is reached by ``query`` alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from millpond.model import events
from millpond.model.errors import MillpondError
from millpond.model.reasons import Cause
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
    is_wanted,
    wall_clock,
)
from millpond.server.runtime.loop_dependencies import AdoptingEngine, LoopDependencies
from millpond.server.runtime.turn_processor import TurnProcessor
from millpond.server.store.store import Store
from millpond.server.views.job_cache import JobCache
from millpond.specs.api.jobs import JobInfo
from millpond.specs.api.reasons import ReasonInfo

log = logging.getLogger(__name__)


class Loop:
    """The scheduler's thread and its inbox.

    Args:
        core: as ``recovery.recover`` returns it; from now on the loop's alone.
        job_cache: where the views of living jobs are put for readers.

    Attributes:
        lookup: finds jobs.
    """

    def __init__(self, store: Store, core: Core, job_cache: JobCache, dependencies: LoopDependencies) -> None:
        self.job_cache = job_cache
        self._processor = TurnProcessor(store, core, job_cache, dependencies)
        self.lookup = self._processor.lookup
        self._inbox = Inbox()
        self._failure: Future[Exception] = Future()
        self._closing = False
        self._taken: list[Message] = []
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    # ---- requests, from any thread ----------------------------------------------------------------------------------

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
        self._inbox.put(ServerEvents(tuple(told)))

    def note(self, job: str, text: str) -> None:
        """Have a text stand in a job's history."""
        self.tell([events.Noted(wall_clock(), job, text)])

    def wake(self) -> None:
        """The engine has events, or a job that waited has all that it needs."""
        self._inbox.put(Wake())

    # ---- what is published, for any thread --------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        """Why nothing can be accepted now (the store cannot be written); empty when all is well."""
        return self._processor.trouble

    @property
    def paused(self) -> Mapping[Cause, str]:
        """Why nothing new starts, by cause, as of the latest turn."""
        return self._processor.paused

    @property
    def read_only(self) -> MillpondError | None:
        """Why no request is accepted at all, as the state is another server's; None where it is this server's."""
        return self._processor.read_only

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def failure(self) -> Exception | None:
        """What ended the thread when it ended by itself: always a defect."""
        return self._failure.result() if self._failure.done() else None

    def when_failed(self, callback: Callable[[], None]) -> None:
        """Call back once the thread has ended by a defect; at once if it has already."""
        self._failure.add_done_callback(lambda _: callback())

    # ---- start and end ----------------------------------------------------------------------------------------------

    def settle(self, engine: AdoptingEngine, configured: Sequence[events.Event] = ()) -> None:
        """Make core and engine agree after a start: before ``start``, and before any request.

        Args:
            engine: carries out what the core decides from now on.
            configured: pools and queues of the configuration.
        """
        changes = self._processor.settle(engine)
        self.tell((*configured, *changes))
        self.turn(0.0)

    def serve_read_only(self, why: MillpondError) -> None:
        """Show what is known and accept nothing, instead of ``settle``: the state is another server's."""
        self._processor.serve_read_only(why)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout_s: float = 30.0) -> None:
        """Finish what is in the queue, keep a last snapshot, and end the thread."""
        self._closing = True
        self.wake()
        self._thread.join(timeout_s)

    # ---- the scheduler's thread -------------------------------------------------------------------------------------

    def turn(self, timeout_s: float) -> None:
        """One turn; waits for something to do at most ``timeout_s``."""
        self._taken = [message for message in self._inbox.drain(timeout_s) if is_wanted(message)]
        self._processor.process(self._taken)

    def reason_outside_core(self, job: str, explain: Callable[[str], ReasonInfo | None]) -> ReasonInfo | None:
        """Why a job or an array waits that the core does not know; None of all others. Only from within a query.

        Args:
            explain: why a job waits that the core knows.
        """
        return self._processor.reason_outside_core(job, explain)

    def _run(self) -> None:
        try:
            while not self._closing:
                self.turn(self._processor.sleep_s())
            self.turn(0.0)
            self._processor.keep_snapshot()
        except Exception as error:
            log.critical("the scheduler stopped by a defect", exc_info=error)
            self._failure.set_result(error)
            abandon([*self._taken, *self._inbox.drain(0.0)])

    def _put(self, message: Message) -> None:
        """Send a message; when the thread has failed, the latest sender answers all that wait."""
        self._inbox.put(message)
        if self.failure is not None:
            abandon(self._inbox.drain(0.0))
