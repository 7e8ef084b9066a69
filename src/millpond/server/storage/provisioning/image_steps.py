"""Work on images, done on a thread and reported line by line; a client that leaves ends it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Final

from millpond.model.errors import ConflictError, MillpondError
from millpond.node.containers.images import Notify
from millpond.server.http.error_responses import refusal_of
from millpond.server.storage.provisioning.catalogue import CatalogueImage
from millpond.specs.api.jobs.images import ImageInfo, ImageStep

Work = Callable[[Notify], CatalogueImage]
Ended = Callable[[int, str], Future[None] | None]
"""Hears how something came out: the status that its answer would have, and a few words. Done when that is kept."""

_KEPT_WITHIN_S: Final = 10.0
"""After that the answer ends all the same, as where a full disk keeps nothing."""
_AT_ONCE: Final = 4
_MOST_LEFT_BEHIND: Final = 4
"""So many more may go on whose clients are gone, as nothing that could end them has happened since."""
MOST_UNTAKEN: Final = 256
"""Lines that a client has yet to take; the work that says more waits for it."""
_LEAVES_WITHIN_S: Final = 1.0
_LEFT: Final = "the client that asked for it is gone"


class ImageSteps:
    """Does work on images, so much at once.

    Args:
        shown: an image as the last line shows it.
    """

    def __init__(self, shown: Callable[[CatalogueImage], ImageInfo]) -> None:
        self._shown = shown
        self._room = asyncio.Semaphore(_AT_ONCE)
        # Its own: a registry that does not answer must not keep all other requests from the threads they need.
        self._threads = ThreadPoolExecutor(_AT_ONCE + _MOST_LEFT_BEHIND, "image")

    async def run(self, work: Work, ended: Ended) -> AsyncIterator[ImageStep]:
        """Do it, line by line; the last line has the image, or why there is none.

        Args:
            ended: hears how it came out, on another thread, once, whatever happens. The last line waits for what it
                returns.
        """
        loop, lines = asyncio.get_running_loop(), asyncio.Queue[ImageStep | None]()
        left, room = threading.Event(), threading.Semaphore(MOST_UNTAKEN)

        def put(step: ImageStep | None) -> None:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(lines.put_nowait, step)

        def notify(line: str) -> None:
            while not left.is_set() and not room.acquire(timeout=_LEAVES_WITHIN_S):
                pass
            if left.is_set():
                raise ConflictError(_LEFT, "ask again")
            put(ImageStep(line=line))

        def do() -> None:
            status, words, last = 500, "a defect", None
            try:
                entry = work(notify)
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
                for line in (last, None) if last is not None else (None,):
                    put(line)

        doing: Future[None] | None = None
        try:
            async with self._room:
                doing = self._threads.submit(do)
                while (step := await lines.get()) is not None:
                    room.release()
                    yield step
                await asyncio.wrap_future(doing)
        finally:
            left.set()
            if doing is None or doing.cancel():  # it was not begun
                ended(409, _LEFT)
