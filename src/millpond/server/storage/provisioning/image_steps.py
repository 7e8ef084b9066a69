"""Work on images, done on a thread and reported line by line; a client that leaves ends it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Final

from millpond.model.errors import ConflictError, MillpondError
from millpond.node.containers.programs import Notify
from millpond.server.http.error_responses import refusal_of
from millpond.server.http.user_turns import UserTurns
from millpond.server.storage.provisioning.catalogue import CatalogueImage
from millpond.specs.api.jobs.images import ImageInfo, ImageStep

Work = Callable[[Notify], CatalogueImage]
Ended = Callable[[int, str], Future[None] | None]
"""Hears how something came out: the status that its answer would have, and a few words. Done when that is kept."""

_KEPT_WITHIN_S: Final = 10.0
"""After that the answer ends all the same, as where a full disk keeps nothing."""
_CLOSES_WITHIN_S: Final = 12.0
"""A build needs ten to leave nothing."""
_AT_ONCE: Final = 8
"""Each of another user: a registry that never answers keeps waiting those alone who name it."""
_MOST_LEFT_BEHIND: Final = 4
"""So many more may go on whose clients are gone, as nothing that could end them has happened since."""
MOST_UNTAKEN: Final = 256
"""Lines that a client has yet to take; the work that says more waits for it."""
_LEAVES_WITHIN_S: Final = 1.0
_LEFT: Final = "the client that asked for it is gone"


class ImageSteps:
    """Does work on images, so much at once, and one piece after the other for each user.

    Args:
        shown: an image as the last line shows it.
    """

    def __init__(self, shown: Callable[[CatalogueImage], ImageInfo]) -> None:
        self._shown = shown
        self._turns = UserTurns(_AT_ONCE)
        # Its own: a registry that does not answer must not keep all other requests from the threads they need.
        self._threads = ThreadPoolExecutor(_AT_ONCE + _MOST_LEFT_BEHIND, "image")
        self._under_way = set[Future[None]]()

    async def run(self, work: Work, user: str, ended: Ended) -> AsyncIterator[ImageStep]:
        """Do it, line by line; the last line has the image, or why there is none.

        Args:
            user: whose work it is.
            ended: hears how it came out, on another thread, once, whatever happens. The last line waits for what it
                returns.
        """
        stream = _StepStream()
        doing: Future[None] | None = None
        try:
            async with self._turns.own(user):
                doing = self._threads.submit(self._perform, stream, work, ended)
                self._under_way.add(doing)
                doing.add_done_callback(self._under_way.discard)
                async for step in stream.steps():
                    yield step
                await asyncio.wrap_future(doing)
        finally:
            stream.leave()
            if doing is None or doing.cancel():  # it was not begun
                ended(409, _LEFT)

    def close(self) -> None:
        """Wait, within a bound, for work whose clients are gone: what it comes to is told before all else ends."""
        wait([*self._under_way], _CLOSES_WITHIN_S)

    def _perform(self, stream: _StepStream, work: Work, ended: Ended) -> None:
        status, words, last = 500, "a defect", None
        try:
            entry = work(stream.notify)
            status, words, last = 200, entry.digest, ImageStep(image=self._shown(entry))
        except MillpondError as error:
            known = refusal_of(error)
            if known is None:
                raise
            (status, body), words = known, error.cause
            last = ImageStep(error=body)
        finally:
            if (kept := ended(status, words)) is not None:
                wait([kept], _KEPT_WITHIN_S)
            stream.end(last)


class _StepStream:
    """Steps on their way from the thread that does the work to the client that reads them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._steps = asyncio.Queue[ImageStep | None]()
        self._left = threading.Event()
        self._room = threading.Semaphore(MOST_UNTAKEN)

    async def steps(self) -> AsyncIterator[ImageStep]:
        """All of them, to the end."""
        while (step := await self._steps.get()) is not None:
            self._room.release()
            yield step

    def leave(self) -> None:
        """The client is gone, or has read all: the work ends with the next thing that it says."""
        self._left.set()

    def notify(self, line: str) -> None:
        """Say something, on the thread of the work; waits for a client that has much to take.

        Raises:
            ConflictError: the client is gone.
        """
        while not self._left.is_set() and not self._room.acquire(timeout=_LEAVES_WITHIN_S):
            pass
        if self._left.is_set():
            raise ConflictError(_LEFT, "ask again")
        self._put(ImageStep(line=line))

    def end(self, last: ImageStep | None) -> None:
        """Nothing comes behind this step; None: not even that."""
        if last is not None:
            self._put(last)
        self._put(None)

    def _put(self, step: ImageStep | None) -> None:
        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._steps.put_nowait, step)
