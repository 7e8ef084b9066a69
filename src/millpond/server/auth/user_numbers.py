"""The numbers (uids) under which users' tasks run on the machine: one for each user, never given to another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from millpond.model.errors import UnavailableError
from millpond.server.auth.account_store import AccountStore


class UserNumbers:
    """Gives numbers, and remembers them."""

    def __init__(self, store: AccountStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._numbers = store.numbers()

    def of(self, user: str, numbers: Sequence[int], is_taken: Callable[[int], bool]) -> int:
        """The number under which a user's tasks run: it never changes, and no other user has it.

        Args:
            numbers: those that may be given.
            is_taken: whether something else on the machine has one already.

        Raises:
            UnavailableError: they are used up.
        """
        with self._lock:
            number = self._numbers.get(user)
            if number is None:
                given = set(self._numbers.values())
                number = next((each for each in numbers if each not in given and not is_taken(each)), None)
                if number is None:
                    raise UnavailableError(
                        f"no user number from {numbers[0]} to {numbers[-1]} is left for {user!r}",
                        "widen run_as.range in the configuration",
                    )
                self._store.save_number(user, number)
                self._numbers[user] = number
            return number
