"""Cards that several holdings have together: the first takes them, the last gives them back."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.scheduling.ledger.holdings import Holding


class SharedCards:
    """Counts, by index of a device, how many shared holdings have its compute and its memory, in one cluster."""

    def __init__(self) -> None:
        self._compute_users: dict[int, int] = {}
        self._memory_users: dict[int, int] = {}

    def copy_from(self, other: SharedCards) -> None:
        """Have the same counts."""
        self._compute_users, self._memory_users = dict(other._compute_users), dict(other._memory_users)

    def moves_compute(self, holding: Holding, sign: int) -> bool:
        """A holding gives back the compute of its cards (``sign`` -1: takes it): whether that is free then (was)."""
        return not holding.is_shared or _alone(self._compute_users, holding.devices, sign)

    def moves_memory(self, holding: Holding, sign: int) -> bool:
        """The same of their memory."""
        return not holding.is_shared or _alone(self._memory_users, holding.devices, sign)


def _alone(users: dict[int, int], devices: Sequence[int], sign: int) -> bool:
    """Count a user of some devices less (``sign`` -1: more), and say whether they are without any other.

    They are shared all together or not at all.
    """
    for device in devices:
        count = users.get(device, 0) - sign
        if count:
            users[device] = count
        else:
            del users[device]
    return users.get(devices[0], 0) == (1 if sign < 0 else 0)
