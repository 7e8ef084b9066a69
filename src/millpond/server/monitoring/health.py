"""Whether this server is well: whether it runs at all, whether requests should come here, and what it does not do."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import Final

from sqlalchemy.exc import DBAPIError

from millpond.server.operations.disk_use import DiskBooks
from millpond.server.runtime.loop import Loop
from millpond.server.runtime.queries import CoreQueries
from millpond.server.store.store import Store

STORE_ANSWERS_WITHIN_S: Final = 5.0


class ServerHealth:
    """Looks how the server is.

    Args:
        closing: set when the server is about to stop.
    """

    def __init__(self, loop: Loop, queries: CoreQueries, store: Store, disk: DiskBooks, closing: Event) -> None:
        self._loop = loop
        self._queries = queries
        self._store = store
        self._disk = disk
        self._closing = closing

    def dead(self) -> str:
        """Why this process will never take work on again; empty while it may."""
        return self._queries.dead()

    async def unready(self) -> str:
        """Why requests should not come here; empty when they should."""
        known = self._queries.dead() or ("the server is stopping" if self._closing.is_set() else self._loop.trouble)
        if known:
            return known
        try:
            await asyncio.wait_for(asyncio.to_thread(self._store.latest_snapshot_seq), STORE_ANSWERS_WITHIN_S)
        except DBAPIError as error:
            return f"the store cannot be read ({error.orig})"
        except TimeoutError:
            return f"the store does not answer within {STORE_ANSWERS_WITHIN_S:g} s"
        return ""

    def degraded(self) -> str:
        """Why no new work is taken on, or none started, although all else is answered; empty when it is."""
        if self._loop.read_only is not None:
            return self._loop.read_only.cause
        full = self._disk.full()
        if full:
            return f"nothing is taken on: {full}"
        held = next(iter(self._loop.paused.values()), "")
        return f"nothing new starts: {held}" if held else ""
