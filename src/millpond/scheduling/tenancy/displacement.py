"""Which running work a waiting job may displace: the one rule that every plan asks.

1. A job within the guarantee of its queue displaces what other queues have borrowed, of whatever class.
2. Work within its guarantee is displaced by no job that lives on another guarantee. If a queue holds more than its
   guarantee, that is the work that took its place back, and then the work that got its place first.
3. Between the rest the class of priority decides, and between equals the ordering: by the rounds of their queues
   (``tenancy.queue_rank``), then by their keys. Behind the first job of a pool that found no room no later queue takes
   room from others, or the weights would give way to whichever queue has the lower keys.
4. What leaves stays borrowed: no eviction lets a job that it ends come within its guarantee; nor, where the newcomer
   borrows and would have to give the room back, one that waits.

Protections come before all of this and are kept with the work itself: its minimum run time, its budget of preemptions,
and whether it is preemptible (``reclaiming.roster``).

So evictions end. Where one job displaces another, either work within a guarantee takes the place of borrowed work, and
no borrower takes it back; or both live on the same guarantee or both borrow, and a higher class, or a key that is lower
by a margin, takes the place of a lower one. Neither can go on for ever among finitely many jobs at one instant; and as
time changes keys, preempted work has saved what it did, or all of it is the price (``ordering.default``).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import is_guaranteed
from millpond.scheduling.tenancy.queue_rank import QueueRank
from millpond.scheduling.tenancy.queues import QueueNode


class Entitlement(Enum):
    """By what a waiting job displaces running work."""

    GUARANTEE = "guarantee"
    """Asked only for a job that is within the guarantee of its queue."""
    PRIORITY = "priority"
    ORDERING = "ordering"


class Displacement:
    """The rule on one state, for as long as its lines of waiting jobs stay as they are."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._ranks = QueueRank(state)
        self._least_waiting: dict[QueueNode, float] = {}
        self._first_blocked: dict[str, JobRecord] = {}

    def begin(self, ranks: QueueRank) -> None:
        """The lines may have changed; ``ranks`` are those of now."""
        self._ranks = ranks
        self._least_waiting.clear()
        self._first_blocked.clear()

    def block(self, record: JobRecord) -> None:
        """A job is the first of its pool that has found no room, nor could any be made."""
        self._first_blocked[record.job.pool] = record

    def is_by_queue(self, by: Entitlement) -> bool:
        """Whether it can matter of which queues the two are, for work that the classes of priority allow."""
        return self._state.queues.has_guarantees or (by is Entitlement.ORDERING and self._ranks.has_rounds)

    def is_open(self, record: JobRecord, victim: JobRecord, by: Entitlement) -> bool:
        """Rules 1 to 3: whether work of the victim's queue and class may leave for a job, by what queues use now."""
        queues = self._state.queues
        if by is Entitlement.GUARANTEE:
            return victim.queue != record.queue and queues.may_take_back(record.queue, victim.queue)
        newcomer, holder = record.job.priority, victim.job.priority
        if holder >= newcomer if by is Entitlement.PRIORITY else holder != newcomer:
            return False
        if by is Entitlement.ORDERING and not self._has_turn(record, victim):
            return False
        return not queues.shields(victim.queue, record.queue)

    def _has_turn(self, record: JobRecord, victim: JobRecord) -> bool:
        """Whether it is the turn of a job's queue to take room from another one."""
        if record.queue == victim.queue:
            return True
        own, first = self._ranks.rounds(record.queue), self._first_blocked.get(record.job.pool)
        if first is not None and first.job.priority == record.job.priority and own > self._ranks.rounds(first.queue):
            return False
        return own <= self._ranks.rounds(victim.queue)

    def may_displace(
        self, record: JobRecord, victim: JobRecord, by: Entitlement, beside: Iterable[JobRecord] = ()
    ) -> bool:
        """Whether a job may have a running one end, by what queues use now.

        Args:
            beside: jobs that were asked to leave before it, and count as gone already; read where that matters.
        """
        if not self.is_open(record, victim, by):
            return False
        queues = self._state.queues
        guarantor = queues.guarantor(victim.queue)
        if guarantor is None or queues.is_below(record.queue, guarantor.queue.name):
            return True  # what leaves one child of a guarantee, another one takes
        if by is not Entitlement.GUARANTEE and self._is_owed(victim, guarantor):
            return False
        spare = guarantor.queue.guarantee.gpu_milli - (guarantor.gpu_milli - _held_milli(victim))
        leaving = (victim, *(job for job in beside if queues.guarantor(job.queue) is guarantor))
        if any(job.demand.least_amount.gpu_milli <= spare for job in leaving):
            return False
        return is_guaranteed(self._state, record) or self._smallest_waiting(guarantor) > spare

    def _is_owed(self, victim: JobRecord, guarantor: QueueNode) -> bool:
        """Whether running work fits in the guarantee beside all that comes before it there."""
        queues, place = self._state.queues, _place(victim)
        before = sum(
            _held_milli(job)
            for job in self._state.running.values()
            if _place(job) < place and queues.guarantor(job.queue) is guarantor
        )
        return before + victim.demand.least_amount.gpu_milli <= guarantor.queue.guarantee.gpu_milli

    def _smallest_waiting(self, guarantor: QueueNode) -> float:
        """The fewest cards (milli) with which a job that waits and lives on a guarantee could start; or infinity."""
        if guarantor not in self._least_waiting:
            heads = (line[0][2] for line in self._state.waiting.lines.values())
            self._least_waiting[guarantor] = min(
                (
                    float(head.demand.least_amount.gpu_milli)
                    for head in heads
                    if self._state.queues.guarantor(head.queue) is guarantor
                ),
                default=float("inf"),
            )
        return self._least_waiting[guarantor]


def _held_milli(record: JobRecord) -> int:
    return record.held_by([task for task in record.tasks if task.holding is not None]).gpu_milli


def _place(record: JobRecord) -> tuple[bool, int, int]:
    """Lower for what comes first in the guarantee of its queue."""
    return not record.took_back, record.placed_by, record.sequence
