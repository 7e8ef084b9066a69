"""When a server goes away while a client follows something: look again, less and less often, not for ever.

A server that was killed and started again is found on whatever port it listens now.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from millpond.client.sdk.transport import failures
from millpond.client.sdk.transport.discovery import Address
from millpond.model.errors import UnavailableError

if TYPE_CHECKING:
    import httpx2

PATIENCE_S = 120.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


class Reconnecting(Protocol):
    """What patience needs of a client."""

    @property
    def address(self) -> Address: ...

    def reconnect(self) -> None: ...


class Patience:
    """Tries to find a lost server again.

    Args:
        sleep, clock: how to wait, and the time in seconds.
    """

    def __init__(
        self,
        connection: Reconnecting,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._sleep = sleep
        self._clock = clock
        self._lost_at: float | None = None
        self._pause_s = _FIRST_PAUSE_S

    def found(self) -> None:
        """The server answered."""
        self._lost_at, self._pause_s = None, _FIRST_PAUSE_S

    def lost(self, failure: httpx2.TransportError | UnavailableError | None) -> None:
        """The server did not answer (or ended its answer early, when ``failure`` is None): pause and look again.

        Raises:
            UnavailableError: it has been away for too long.
        """
        now = self._clock()
        self._lost_at = now if self._lost_at is None else self._lost_at
        if now - self._lost_at >= PATIENCE_S:
            raise self._explained(failure)
        self._sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        try:
            self._connection.reconnect()
        except UnavailableError:
            # Not up again yet. The next request fails likewise, and the clock decides.
            return

    def _explained(self, failure: httpx2.TransportError | UnavailableError | None) -> UnavailableError:
        url = self._connection.address.url
        if failure is None:
            return UnavailableError(f"the server at {url} keeps ending its answer early", "see its log")
        return failure if isinstance(failure, UnavailableError) else failures.from_transport(failure, url)
