"""Events that were turned down since the last cycle, and reservations that were agreed upon, as the log keeps them.

Both may hang on what the scheduler has learnt, and on the version that judges. So a redo takes them from the log and
judges none of these events again: what was agreed upon holds after a crash, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millpond.model.codec import from_plain, to_plain
from millpond.model.errors import ConflictError
from millpond.model.tenancy.reservations import AdvanceReservation


class EventVerdicts:
    """Those of one scheduler.

    Attributes:
        version: rises with each cycle before which there were any.
    """

    __slots__ = ("_agreed", "_expected", "_handled", "_latest", "_refused", "version")

    def __init__(self) -> None:
        self.version = 0
        self._handled = 0
        self._refused: list[int] = []
        self._agreed: list[AdvanceReservation] = []
        self._latest: tuple[list[int], list[AdvanceReservation]] = ([], [])
        self._expected: tuple[set[int], list[AdvanceReservation]] | None = None

    def next_event(self) -> None:
        """Another event is to be handled.

        Raises:
            ConflictError: by the log it was turned down.
        """
        self._handled += 1
        if self._expected is not None and self._handled in self._expected[0]:
            self._refused.append(self._handled)
            raise ConflictError("this was turned down when it happened")

    def refuse(self) -> None:
        """The event is turned down."""
        self._refused.append(self._handled)

    def agree(self, wanted: AdvanceReservation) -> None:
        """A reservation was agreed upon, as it is given."""
        self._agreed.append(wanted)

    def agreed_before(self, name: str) -> AdvanceReservation | None:
        """What was agreed upon, by the log, when a reservation of this name was made; None: it has to be judged."""
        found = [] if self._expected is None else [each for each in self._expected[1] if each.name == name]
        if not found or self._expected is None:
            return None
        self._expected[1].remove(found[0])
        return found[0]

    def begin_cycle(self) -> None:
        """What comes from now on belongs to the next cycle."""
        self._latest = self._refused, self._agreed
        self.version += bool(self._refused or self._agreed)
        self._handled, self._refused, self._agreed = 0, [], []

    # ---- the log --------------------------------------------------------------------------------------------------

    def plain(self) -> dict[str, Any]:
        """Those before the latest cycle, as plain data; empty if there are none."""
        refused, agreed = self._latest
        return {"refused": refused, "agreed": [to_plain(each) for each in agreed]} if refused or agreed else {}

    def expect(self, plain: Sequence[Any] | None) -> None:
        """What ``plain`` wrote of the events to come until the next cycle; None: they are judged by themselves."""
        self._expected = None
        for each in plain or ():
            if isinstance(each, dict) and "verdicts" in each:
                found = each["verdicts"]
                self._expected = set(found["refused"]), [from_plain(wanted) for wanted in found["agreed"]]
