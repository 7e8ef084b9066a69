"""What the tasks of a gang must keep between them, as the search for cells reads it: machines of chains, as bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from millpond.scheduling.placement.spacing import Spacing


class SpacedTasks:
    """The tasks of one gang.

    Args:
        roles: of each task that is placed, by index.
        machines: of each chain, the index of each of its machines in the ledger.
    """

    def __init__(self, spacing: Spacing, roles: Sequence[int], machines: Mapping[str, Sequence[int]]) -> None:
        self._spacing = spacing
        self._roles = roles
        self._machines = machines

    def begin(self) -> None:
        """A try begins: none of them lies anywhere yet."""
        self._spacing.begin_again()

    def open_to(self, task: int, chain: str) -> int | None:
        """The machines of a chain that a task may have beside those before it, as bits; None: all."""
        mask = self._spacing.within(self._roles[task], None)
        return None if mask is None else as_bits(mask[list(self._machines[chain])])

    def take(self, task: int, chain: str, machine: int) -> None:
        """A task lies on a machine of a chain."""
        self._spacing.take(self._roles[task], self._machines[chain][machine])


def as_bits(flags: NDArray[np.uint8]) -> int:
    """Which of the flags are not 0."""
    return int.from_bytes(np.packbits(flags != 0, bitorder="little").tobytes(), "little")
