"""Jobs as the futures of an estimate see them: those that wait, run, or may come."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from millpond.scheduling.estimating.lengths import Length
from millpond.scheduling.estimating.rooms import Part, Rooms, Taken
from millpond.scheduling.estimating.spaced_rooms import SpacedParts
from millpond.scheduling.ordering.forecasts import NEVER

Rank = tuple[float, ...]


Charges = tuple[tuple[int, int], ...]
"""Numbers of accounts, and what of each."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What alike jobs ask for.

    Attributes:
        parts: their tasks, the largest first.
        total: the amount of all tasks.
        charges: (account, amount) of every limit that they count against.
        choices: where limits or guarantees name models of cards, the same on some models alone: they start on the first
            that is admitted and has room.
        spaced: the parts, where their tasks must lie together, apart or evenly.
    """

    parts: tuple[Part, ...]
    total: int
    charges: Charges = ()
    choices: tuple[Demand, ...] = ()
    spaced: SpacedParts | None = None

    def take(self, rooms: Rooms, avoided: Collection[int]) -> Taken | None:
        """Take a place for all tasks; None, and nothing taken, if there is none."""
        return rooms.take(self.parts, avoided) if self.spaced is None else self.spaced.take(rooms, avoided)


@dataclass(frozen=True, slots=True)
class Weighing:
    """How a selective ordering weighs a job while it runs, see ``ordering.default``.

    Attributes:
        whole_s: its length by a forecast that is trusted; infinite: by the learnt ranks of its size class.
        is_exact: it cannot outlive that.
        weight: of its size.
        charge, loss: by how much more a key that displaces it must be lower: at once, and for each second of its run.
        stretch: by what its key is multiplied in its rank, for what its user has had.
    """

    whole_s: float
    is_exact: bool
    size_class: int
    weight: float
    charge: float
    loss: float
    stretch: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that waits or comes.

    Attributes:
        line: jobs of one line are alike: where the first finds no room, none does.
        rank: its place in the order as it is now, the lower the earlier.
        expected_s, cautious_s: how long it runs, and at most, as the scheduler expects.
        stays_s: for how long it needs a node that is to close, see ``nodes.cordon``.
        keeps_s: for how long it has its place at least, if it is asked to leave at once for who has reserved it.
        length_class, spared: of its length, -1 for unknown; it leaves so much free for much shorter classes,
        patience_s: but for no longer than this after its submission.
        work, length_s: card-seconds and seconds, by which it is found to be overdue.
        requeued_s: it waits since so many seconds after its submission.
        overdue: it has waited for so long that it goes first in its class.
        served_s: service that it has had.
        may_leave, restart_s, loses_run: whether it may be asked to leave once it runs, and what that costs it.
        displaces_above: it displaces equals whose keys are above this.
        weighing: None where equals displace nothing.
        group: the number of those whose order is their queue's or their kind's own, see ``ordering.turns``; -1: none.
        strict: one of the group that finds no room blocks those behind it in the group.
    """

    line: int
    demand: Demand
    rank: Rank
    length: Length
    expected_s: float
    cautious_s: float
    stays_s: float = 0.0
    keeps_s: float = 0.0
    length_class: int = -1
    spared: float = 0.0
    patience_s: float = 0.0
    work: float = 0.0
    length_s: float = 1.0
    requeued_s: float = 0.0
    overdue: bool = False
    served_s: float = 0.0
    may_leave: bool = False
    restart_s: float = 0.0
    loses_run: bool = False
    displaces_above: float = NEVER
    weighing: Weighing | None = None
    group: int = -1
    strict: bool = False


Entry = tuple[Rank, int, float, Candidate]
"""Rank, sequence, when it was submitted (seconds from now), and who: in the order of the line."""


@dataclass(frozen=True, slots=True)
class HeldRoom:
    """A job that holds room.

    Attributes:
        entry: the job as it waited.
        expected_s: when it ends, as the scheduler expects (seconds from now).
        begun_s: when it had no service but ``served_s`` of its own (seconds from now).
        charges: of its demand, on the cards that it has.
    """

    entry: Entry
    taken: Taken
    expected_s: float
    begun_s: float
    charges: Charges
