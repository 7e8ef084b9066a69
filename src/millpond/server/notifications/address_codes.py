"""Codes that confirm mail addresses: sent there, good for some minutes, for some tries, and seldom.

So nobody has mail sent to others: an address gets a few codes a day at most, whoever asks for them. Codes are kept in
memory; a restart of the server ends what was under way.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from millpond.model.errors import InvalidInputError, NotFoundError, TooManyTriesError
from millpond.model.units import DAY_S
from millpond.node.host.clocks import WallClock
from millpond.server.auth.secrets import digest_of, is_same

GOOD_FOR_S: Final = 1_800.0
MOST_TRIES: Final = 5
"""Of one code."""
MOST_CODES: Final = 5
"""Within a day, to one address, and for one user."""
_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class _Pending:
    address: str
    digest: str
    until: float
    tries: int = 0


@dataclass(frozen=True, slots=True)
class _Sent:
    at: float
    user: str
    address: str


class AddressCodes:
    """The codes of all users, one for each."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: dict[str, _Pending] = {}
        self._sent: list[_Sent] = []

    def begin(self, user: str, address: str) -> str:
        """A new code for an address; one that the user had before counts no more.

        Raises:
            TooManyTriesError: the user, or the address, has had too many.
        """
        now, place = self._clock(), address.lower()
        with self._lock:
            self._sent = [sent for sent in self._sent if now - sent.at < DAY_S]
            for of in ("user", "address"):
                same = sum(getattr(sent, of) == {"user": user, "address": place}[of] for sent in self._sent)
                if same >= MOST_CODES:
                    cause = f"{MOST_CODES} codes were sent for this {of} within a day"
                    raise TooManyTriesError(cause, "use the last one, or wait until tomorrow")
            code = "".join(secrets.choice("0123456789") for _ in range(_DIGITS))
            self._sent.append(_Sent(now, user, place))
            self._pending[user] = _Pending(address, digest_of(code), now + GOOD_FOR_S)
        return code

    def not_sent(self, user: str) -> None:
        """The last code of a user could not be sent: it does not count."""
        with self._lock:
            self._pending.pop(user, None)
            last = next((sent for sent in reversed(self._sent) if sent.user == user), None)
            if last is not None:
                self._sent.remove(last)

    def pending(self, user: str) -> str:
        """The address that a user has to confirm; empty when there is none."""
        pending = self._pending.get(user)
        return pending.address if pending is not None and self._clock() < pending.until else ""

    def forget(self, user: str) -> None:
        """A user's code counts no more."""
        with self._lock:
            self._pending.pop(user, None)

    def redeem(self, user: str, code: str, take: Callable[[str], None]) -> None:
        """Have the address taken that a code confirms. It counts once, and not at all where that fails.

        Raises:
            NotFoundError: no code waits, or it is too old, or it was guessed too often.
            InvalidInputError: it is another one.
        """
        with self._lock:
            pending = self._pending.get(user)
            if pending is None or self._clock() >= pending.until:
                raise NotFoundError("no code is waited for, or it is too old", "have a new one sent")
            if is_same(digest_of("".join(code.split())), pending.digest):
                take(pending.address)
                del self._pending[user]
                return
            left = MOST_TRIES - pending.tries - 1
            if left <= 0:
                del self._pending[user]
                raise NotFoundError("that was another code too often", "have a new one sent")
            self._pending[user] = replace(pending, tries=pending.tries + 1)
        raise InvalidInputError("this is another code", f"read it again; {left} more tries")
