"""Throttle guessing: after some failed logins, an account and an address have to wait, longer each time.

An attempt counts as failed until it has succeeded, so that many attempts at once do not slip through together. Waiting
is reported, not slept: a request that comes too early is refused and costs nothing.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from millpond.model.errors import TooManyTriesError
from millpond.node.host.clocks import WallClock
from millpond.server.http.origins import network_of

FREE_PER_ACCOUNT: Final = 5
FREE_PER_ADDRESS: Final = 20
"""Failures in a row that cost nothing; many people may share an address."""
LONGEST_PAUSE_S: Final = 900.0
_FORGOTTEN_AFTER_S: Final = 3_600.0
_MOST_REMEMBERED: Final = 20_000


@dataclass(slots=True)
class _Failures:
    count: int
    last_at: float


class Throttle:
    """Failed attempts by account and by address, in memory: a restart forgives.

    Args:
        clock: where it runs back, a pause begins anew.
    """

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()

    def attempt(self, user: str, address: str) -> None:
        """Note an attempt to log in; it counts as failed until ``succeeded``.

        Raises:
            TooManyTriesError: this account, or this address, has to wait; the attempt is not looked at.
        """
        with self._lock:
            self.check(user, address)
            self.failed(user, address)

    def check(self, user: str, address: str) -> None:
        """Check an attempt where many at once are usual; ``failed`` or ``forgive`` follows at its end.

        Raises:
            TooManyTriesError: this account, or this address, has to wait.
        """
        now = self._clock()
        with self._lock:
            for key, free in _keys(user, address).items():
                wait = self._wait_s(key, free, now)
                if wait > 0:
                    cause = f"too many logins failed for this {key[0]}"
                    raise TooManyTriesError(cause, f"try again in {math.ceil(wait)} s")

    def failed(self, user: str, address: str) -> None:
        """A login failed that had begun with ``check``."""
        now = self._clock()
        with self._lock:
            for key in _keys(user, address):
                known = self._failures.pop(key, None) or _Failures(0, now)
                self._failures[key] = _Failures(known.count + 1, now)
            while len(self._failures) > _MOST_REMEMBERED:
                self._failures.popitem(last=False)

    def succeeded(self, user: str, address: str) -> None:
        """The last attempt was good: the account starts anew, and the address is as it was before it."""
        account, place = _keys(user, address)
        with self._lock:
            self._failures.pop(account, None)
            known = self._failures.get(place)
            if known is not None:
                known.count -= 1

    def forgive(self, user: str) -> None:
        """A login succeeded that had begun with ``check``: the account starts anew."""
        with self._lock:
            self._failures.pop(("account", user), None)

    def _wait_s(self, key: tuple[str, str], free: int, now: float) -> float:
        known = self._failures.get(key)
        if known is None or now - known.last_at > _FORGOTTEN_AFTER_S:
            self._failures.pop(key, None)
            return 0.0
        if known.count < free:
            return 0.0
        known.last_at = min(known.last_at, now)
        pause = min(2.0 ** min(known.count - free, 30), LONGEST_PAUSE_S)
        return known.last_at + pause - now


def _keys(user: str, address: str) -> dict[tuple[str, str], int]:
    """What is counted, and how many failures of it are free."""
    return {("account", user): FREE_PER_ACCOUNT, ("address", network_of(address)): FREE_PER_ADDRESS}
