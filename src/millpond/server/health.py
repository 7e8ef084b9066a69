"""Whether this server is well: whether it runs at all, and whether it can take work on."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import Final

from sqlalchemy.exc import DBAPIError

from millpond.server.asking import Asking
from millpond.server.loop import Loop
from millpond.server.store.store import Store

STORE_ANSWERS_WITHIN_S: Final = 5.0


class Health:
    """Looks how the server is.

    Args:
        closing: set when the server is about to stop.
    """

    def __init__(self, loop: Loop, asking: Asking, store: Store, closing: Event) -> None:
        self._loop = loop
        self._asking = asking
        self._store = store
        self._closing = closing

    def dead(self) -> str:
        """Why this process will never take work on again; empty while it may."""
        return self._asking.dead()

    async def unready(self) -> str:
        """Why no work can be taken on; empty when it can."""
        known = self._asking.dead() or ("the server is stopping" if self._closing.is_set() else self._loop.trouble)
        if known:
            return known
        try:
            await asyncio.wait_for(asyncio.to_thread(self._store.latest_snapshot_seq), STORE_ANSWERS_WITHIN_S)
        except DBAPIError as error:
            return f"the store cannot be read ({error.orig})"
        except TimeoutError:
            return f"the store does not answer within {STORE_ANSWERS_WITHIN_S:g} s"
        return ""
