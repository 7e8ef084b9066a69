"""The container runtime of the server's machine, looked for when it is first needed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from millpond.model.errors import UnavailableError
from millpond.node.containers.container import state_mark
from millpond.node.containers.detection import Containers, RuntimeChoice, find_containers
from millpond.node.host.clocks import MonotonicClock

LOOK_AGAIN_S: Final = 30.0
"""After nothing was found, it is not looked for again for so long."""


class ContainerHost:
    """What runs containers here.

    Attributes:
        state_dir: the server's; kept out of all containers.

    Args:
        choice: as the configuration says.
        has_cards: there are NVIDIA cards on the machine.
    """

    def __init__(self, choice: RuntimeChoice, state_dir: Path, clock: MonotonicClock, has_cards: bool = False) -> None:
        self._choice = choice
        self.state_dir = state_dir.resolve()
        self._clock = clock
        self._has_cards = has_cards
        self._lock = threading.Lock()
        self._found: Containers | None = None
        self._trouble: UnavailableError | None = None
        self._looked_at = 0.0

    @property
    def mark(self) -> str:
        """Distinguishes this server's containers from those of others."""
        return state_mark(self.state_dir)

    @property
    def found(self) -> Containers | None:
        """What was found, if it was looked for; does not block."""
        return self._found

    def containers(self) -> Containers:
        """What runs containers here; takes some tenths of a second the first time.

        Raises:
            UnavailableError: nothing does, with what was looked for.
        """
        with self._lock:
            if self._found is not None:
                return self._found
            if self._trouble is None or self._clock() - self._looked_at >= LOOK_AGAIN_S:
                try:
                    self._found = find_containers(self._choice, self.state_dir)
                except UnavailableError as error:
                    self._trouble, self._looked_at = error, self._clock()
                else:
                    return self._found
            raise UnavailableError(self._trouble.cause, self._trouble.remedy)

    def card_trouble(self) -> str:
        """Why containers cannot be given the machine's cards; empty when they can, or when it has none."""
        return self.containers().card_trouble if self._has_cards else ""
