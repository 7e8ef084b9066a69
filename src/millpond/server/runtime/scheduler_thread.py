"""The thread that runs the scheduler, from the start of a server to its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from millpond.engines.server_engine import AdoptingEngine
from millpond.model import events
from millpond.model.errors import LeadershipLostError, MillpondError
from millpond.server.runtime.inbox import Message, abandon, is_wanted
from millpond.server.runtime.long_questions import LongQuestions
from millpond.server.runtime.loop import Loop
from millpond.server.runtime.turn_processor import TurnProcessor

log = logging.getLogger(__name__)


class SchedulerThread:
    """Takes what is in the inbox of a loop, turn by turn."""

    def __init__(self, loop: Loop, processor: TurnProcessor) -> None:
        self._loop = loop
        self._processor = processor
        self._closing = False
        self._taken: list[Message] = []
        self._questions = LongQuestions()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def settle(self, engine: AdoptingEngine, configured: Callable[[], Sequence[events.Event]] = tuple) -> None:
        """Make core and engine agree after a start: before ``start``, and before any request.

        Args:
            engine: carries out what the core decides from now on.
            configured: gives what the configuration says that the core does not know, once it is known which jobs
                there are.
        """
        changes = self._processor.settle(engine)
        self._loop.notify((*configured(), *changes))
        self.turn(0.0)

    def serve_read_only(self, why: MillpondError) -> None:
        """Show what is known and accept nothing, instead of ``settle``: the state is another server's."""
        self._processor.serve_read_only(why)

    def start(self) -> None:
        """Start the thread."""
        self._loop.alive = True
        self._thread.start()

    def close(self, timeout_s: float = 30.0) -> None:
        """Finish what is in the inbox, keep a last snapshot, and end the thread."""
        self._closing = True
        self._loop.wake()
        self._thread.join(timeout_s)

    def turn(self, timeout_s: float) -> None:
        """One turn; waits for something to do at most ``timeout_s``."""
        came = self._questions.take(self._loop.inbox.drain(0.0 if self._questions else timeout_s))
        self._taken = [message for message in came if is_wanted(message)]
        self._processor.process(self._taken, self._questions)

    def _run(self) -> None:
        try:
            while not self._closing:
                self.turn(self._processor.sleep_s())
            self.turn(0.0)
            self._processor.keep_snapshot()
        except LeadershipLostError as error:
            log.critical("%s", error)
            self._fail(error)
        except Exception as error:
            log.critical("the scheduler stopped by a defect", exc_info=error)
            self._fail(error)
        finally:
            self._loop.alive = False
            self._questions.turn_away()

    def _fail(self, error: Exception) -> None:
        self._loop.fail(error)
        abandon(self._taken, error)
