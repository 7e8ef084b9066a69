"""Work on images, done on a thread and reported line by line; a client that leaves ends it."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, wait
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
_LEFT: Final = "the client that asked for it is gone"


class ImageSteps:
    """Does work on images, so much at once.

    Args:
        shown: an image as the last line shows it.
    """

    def __init__(self, shown: Callable[[CatalogueImage], ImageInfo]) -> None:
        self._shown = shown
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def run(self, work: Work, ended: Ended) -> AsyncIterator[ImageStep]:
        """Do it, line by line; the last line has the image, or why there is none.

        Args:
            ended: hears how it came out, on another thread, once, whatever happens. The last line waits for what it
                returns.
        """
        lines: queue.SimpleQueue[ImageStep | None] = queue.SimpleQueue()
        left = threading.Event()

        def notify(line: str) -> None:
            if left.is_set():
                raise ConflictError(_LEFT, "ask again")
            lines.put(ImageStep(line=line))

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
                    lines.put(line)

        begun = False
        try:
            async with self._room:
                doing, begun = asyncio.create_task(asyncio.to_thread(do)), True
                while (step := await asyncio.to_thread(lines.get)) is not None:
                    yield step
                await doing
        finally:
            left.set()
            if not begun:
                ended(409, _LEFT)
