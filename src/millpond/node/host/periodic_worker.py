"""A worker that repeats one pass in the background; a pass that fails does not stop the next."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from millpond.model.errors import MillpondError

log = logging.getLogger(__name__)

CLOSES_WITHIN_S: Final = 10.0
EXPECTED: Final = (MillpondError, OSError)
UNTIL_WOKEN: Final = math.inf

Item = TypeVar("Item")


def for_each(items: Iterable[Item], work: Callable[[Item], None]) -> None:
    """Do a part of a pass for each item: one that fails keeps none of the others waiting.

    Raises:
        Exception: the first that was raised, behind the last item.
    """
    first: Exception | None = None
    for item in items:
        try:
            work(item)
        except Exception as error:
            first = first or error
    if first is not None:
        raise first


class PassTrouble:
    """What passes end with: logged once, until one succeeds or fails with another text.

    Args:
        trouble: begins the log line of an error, such as "the disk cannot be measured".
        expected: errors that are logged in one line; all others are logged with their traceback.
    """

    def __init__(self, trouble: str, expected: tuple[type[Exception], ...] = EXPECTED) -> None:
        self._trouble = trouble
        self._expected = expected
        self._logged = ""

    def over(self) -> None:
        """A pass has succeeded."""
        self._logged = ""

    def note(self, error: Exception) -> None:
        """A pass has failed."""
        text = str(getattr(error, "orig", error)) or type(error).__name__  # of a database's error, the driver's words
        if text == self._logged:
            return
        self._logged = text
        if isinstance(error, self._expected):
            log.warning("%s: %s", self._trouble, text)
        else:
            log.error("%s", self._trouble, exc_info=error)


class PeriodicWorker:
    """Calls a function every so many seconds, or when it is woken, on a daemon thread of its own.

    An error ends the pass, not the thread (``PassTrouble``); the next pass comes after ``every_s``.

    Args:
        name: of the thread.
        work: one pass. Returns the seconds until the next, None for ``every_s``, or ``UNTIL_WOKEN``.
        trouble, expected: as ``PassTrouble`` has them.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], float | None],
        every_s: float,
        trouble: str,
        expected: tuple[type[Exception], ...] = EXPECTED,
    ) -> None:
        self._work = work
        self._every_s = every_s
        self._trouble = PassTrouble(trouble, expected)
        self._first_after_s = 0.0
        self._woken = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def closing(self) -> bool:
        """Whether it is to end; a long pass looks at this."""
        return self._closing

    def start(self, after_s: float = 0.0) -> None:
        """Start the thread; its first pass comes after so many seconds."""
        self._first_after_s = after_s
        self._thread.start()

    def wake(self) -> None:
        """Begin the next pass at once, or right after the present one. Any thread."""
        self._woken.set()

    def close(self, within_s: float = CLOSES_WITHIN_S) -> bool:
        """End after the pass under way; also if it was never started.

        Args:
            within_s: waits at most so long for that pass.

        Returns:
            Whether the thread is over.
        """
        self._closing = True
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(within_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        pause_s = self._first_after_s
        while True:
            self._woken.wait(None if pause_s == UNTIL_WOKEN else pause_s)
            self._woken.clear()  # before the look at ``_closing``, or a close just now would be slept over
            if self._closing:
                return
            pause_s = self._pass()

    def _pass(self) -> float:
        """One pass; returns the seconds until the next."""
        try:
            pause_s = self._work()
        except Exception as error:
            self._trouble.note(error)
            return self._every_s
        self._trouble.over()
        return self._every_s if pause_s is None else pause_s


class Periodic:
    """Something that a worker of its own looks after again and again; a subclass makes the worker."""

    _worker: PeriodicWorker
    _first_after_s: float = 0.0

    def start(self) -> None:
        """Begin."""
        self._worker.start(self._first_after_s)

    def close(self) -> None:
        """End after the pass under way."""
        self._worker.close()
