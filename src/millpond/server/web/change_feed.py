"""Tells open pages that something has changed, so that none of them asks in vain.

One task serves all of them. It compares two numbers in memory, and says nothing while they stay. The more pages are
open, the longer each of them waits, so that all of them together cost the server a bounded part of its time; they are
told one after the other, as pages that are all made at one moment would hold up everybody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

LOOK_EVERY_S: Final = 0.5
PAGES_A_LOOK: Final = 6
"""So many pages at the most are told, and made anew, at each look."""
KEEP_ALIVE_S: Final = 20.0
"""After so long in which nothing changed, that is said: a page takes a longer silence for a lost connection."""


@dataclass(eq=False, slots=True)
class _OpenPage:
    """A page that is open.

    Attributes:
        said: the number that it has heard of last.
    """

    said: int
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class ChangeFeed:
    """Streams of server-sent events.

    Args:
        version: a number that rises with each change.
        closing: whether the server is about to stop; streams end then.
    """

    def __init__(self, version: Callable[[], int], closing: Callable[[], bool]) -> None:
        self._version = version
        self._closing = closing
        self._open: dict[_OpenPage, None] = {}
        """Those first that were told least recently."""
        self._task: asyncio.Task[None] | None = None

    async def events(self, still_may: Callable[[], bool]) -> AsyncIterator[bytes]:
        """One page's stream. It begins with the number as it is now, so that a page made at that number stays as it is.

        Args:
            still_may: whether its reader is logged in still; it ends when they are not.
        """
        page = _OpenPage(self._version())
        self._open[page] = None
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._watch())
        try:
            yield f"event: hello\ndata: {page.said}\n\n".encode()
            while not self._closing() and still_may():
                try:
                    await asyncio.wait_for(page.changed.wait(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield b"event: alive\n\n"
                    continue
                page.changed.clear()
                if not self._closing():
                    yield f"event: changed\ndata: {page.said}\n\n".encode()
        finally:
            del self._open[page]

    async def _watch(self) -> None:
        """Wake the streams when there is something to say, until nobody listens."""
        while self._open:
            await asyncio.sleep(LOOK_EVERY_S)
            version, closing = self._version(), self._closing()
            behind = [page for page in self._open if closing or page.said != version]
            for page in behind if closing else behind[:PAGES_A_LOOK]:
                page.said = version
                page.changed.set()
                del self._open[page]
                self._open[page] = None
