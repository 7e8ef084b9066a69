"""Jobs as the futures of an estimate see them: those that wait, run, or may come."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from millpond.scheduling.estimating.lengths import Length
from millpond.scheduling.estimating.rooms import Part, Rooms, Taken
from millpond.scheduling.estimating.spaced_rooms import SpacedParts
from millpond.scheduling.ordering.forecasts import NEVER

Rank = tuple[float, ...]


Charges = tuple[tuple[int, int], ...]
"""Numbers of accounts, and what of each."""


class Guarantor(NamedTuple):
    """A queue on whose guarantee a job lives.

    Attributes:
        charges: what the job counts for there; none where the guarantee says nothing of such work.
    """

    number: int
    charges: Charges

    def covers(self, spare: Sequence[int]) -> bool:
        """Whether the guarantee covers the job, by how much each account may hold more."""
        for account, charge in self.charges:
            if spare[account] < charge:
                return False
        return bool(self.charges)


class Counted(NamedTuple):
    """What a job counts for.

    Attributes:
        limits: of what it may not go beyond.
        guarantors: the nearest first.
        booked: of both of them.
    """

    limits: Charges = ()
    guarantors: tuple[Guarantor, ...] = ()
    booked: Charges = ()


@dataclass(slots=True)
class Demand:
    """What alike jobs ask for; never changed, see ``lengths.Length``.

    Attributes:
        parts: their tasks, the largest first.
        total: the amount of all tasks.
        counted: against limits and guarantees.
        choices: where limits or guarantees name models of cards, the same on some models alone: they start on the first
            that is admitted and has room.
        spaced: the parts, where their tasks must lie together, apart or evenly.
    """

    parts: tuple[Part, ...]
    total: int
    counted: Counted = Counted()
    choices: tuple[Demand, ...] = ()
    spaced: SpacedParts | None = None

    def covering(self, spare: Sequence[int]) -> Guarantor | None:
        """The nearest whose guarantee covers them, on the first of their choices for which there is one."""
        for demand in self.choices or (self,):
            for guarantor in demand.counted.guarantors:
                if guarantor.covers(spare):
                    return guarantor
        return None

    def take(self, rooms: Rooms, avoided: Collection[int]) -> Taken | None:
        """Take a place for all tasks; None, and nothing taken, if there is none."""
        return rooms.take(self.parts, avoided) if self.spaced is None else self.spaced.take(rooms, avoided)

    def nodes_of(self, rooms: Rooms, ends: Iterable[tuple[float, Taken]]) -> tuple[float, set[int]] | None:
        """The nodes that first have room for all tasks, and when; None if they never do.

        Args:
            ends: when what is given back, in order of time.
        """
        return rooms.nodes_of(self.parts, ends) if self.spaced is None else self.spaced.nodes_of(rooms, list(ends))


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


@dataclass(slots=True)
class Candidate:
    """A job that waits or comes; never changed, see ``lengths.Length``.

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
        minimum_run_s: not before it has run for so long.
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
    minimum_run_s: float = 0.0
    displaces_above: float = NEVER
    weighing: Weighing | None = None
    group: int = -1
    strict: bool = False


class InLine(NamedTuple):
    """A job in a line, in the order of its fields.

    Attributes:
        submitted_s: when it was submitted (seconds from now).
    """

    rank: Rank
    sequence: int
    submitted_s: float
    candidate: Candidate


@dataclass(slots=True)
class HeldRoom:
    """A job that holds room; never changed, see ``lengths.Length``.

    Attributes:
        entry: the job as it waited.
        expected_s: when it ends, as the scheduler expects (seconds from now).
        begun_s: when it had no service but ``served_s`` of its own (seconds from now).
        counted: against limits and guarantees, on the cards that it has.
        protected_s: until when it is not asked to leave (seconds from now).
        took_back: others left for it by a guarantee.
        amount: all that is taken.
    """

    entry: InLine
    taken: Taken
    expected_s: float
    begun_s: float
    counted: Counted
    protected_s: float = 0.0
    took_back: bool = False
    amount: int = field(init=False)

    def __post_init__(self) -> None:
        self.amount = sum(amount for _, amount in self.taken)
