"""Tells open pages that something has changed, so that none of them asks in vain.

One task serves all of them. It compares two numbers in memory, and says nothing while they stay. The more pages are
open, the less often it speaks, so that all of them together cost the server a bounded part of its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

LOOK_EVERY_S: Final = 0.5
PAGES_A_SECOND: Final = 15.0
"""So many pages are made anew each second at the most."""
KEEP_ALIVE_S: Final = 20.0


class ChangeFeed:
    """Streams of server-sent events.

    Args:
        version: a number that rises with each change.
        closing: whether the server is about to stop; streams end then.
    """

    def __init__(self, version: Callable[[], int], closing: Callable[[], bool]) -> None:
        self._version = version
        self._closing = closing
        self._open: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None

    async def events(self, still_may: Callable[[], bool]) -> AsyncIterator[bytes]:
        """One page's stream.

        Args:
            still_may: whether its reader is logged in still; it ends when they are not.
        """
        changed = asyncio.Event()
        self._open.add(changed)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._watch())
        try:
            yield b"event: hello\ndata: \n\n"
            while not self._closing() and still_may():
                try:
                    await asyncio.wait_for(changed.wait(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield b": \n\n"
                    continue
                changed.clear()
                if not self._closing():
                    yield b"event: changed\ndata: \n\n"
        finally:
            self._open.discard(changed)

    async def _watch(self) -> None:
        """Wake the streams when there is something to say, until nobody listens."""
        said = self._version()
        while self._open:
            await asyncio.sleep(max(LOOK_EVERY_S, len(self._open) / PAGES_A_SECOND))
            version = self._version()
            if version == said and not self._closing():
                continue
            said = version
            for changed in self._open:
                changed.set()
