"""Which running work a waiting job may displace: the one rule that every plan asks.

1. A job within the guarantee of its queue displaces what other queues have borrowed, of whatever class.
2. A guarantee is owed to the work that fits in it, the highest class first; among equals first to what took its place
   back, and then to what got its place first. Work that is owed its place leaves for no job that lives on another
   guarantee, but one below its own; nor for one on the same guarantee that would borrow: a higher class takes the place
   of a lower one there if it fits beside all that is not below it.
3. Between the rest the class of priority decides, and between equals the ordering: by the rounds of their queues
   (``tenancy.queue_rank``), then by their keys. Behind the first job of a pool that found no room no later queue takes
   room from others, or the weights would give way to whichever queue has the lower keys.
4. What leaves stays borrowed: no eviction lets a job that it ends come within its guarantee; nor, where the newcomer
   borrows and would have to give the room back, one that waits. That holds for all guarantees that count the room.

Protections come before all of this and are kept with the work itself: its minimum run time, its budget of preemptions,
and whether it is preemptible (``reclaiming.roster``).

So evictions end. Compare what is owed, in cards: guarantees below others first, then the higher classes. An eviction
by guarantee adds the newcomer to it and takes nothing from guarantees as deep; one by class within a guarantee puts a
higher class in the place of a lower one. Whatever else leaves has been borrowed, so what is owed stays as it is, and a
higher class, or a key that is lower by a margin, takes the place of a lower one in what is borrowed. None of this can
go on for ever among finitely many jobs at one instant, where the ordering displaces in one cycle only; and as time
changes keys, preempted work has saved what it did, or all of it is the price (``ordering.default``).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from millpond.model.workloads import Priority
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


class GuaranteeHolders:
    """Who runs on one guarantee.

    Attributes:
        owed: those that fit in it beside all that are owed it and come before.
        least_milli: for each class of priority, the cards (milli) that those of it need at least who have not left.
    """

    def __init__(self, guarantor: QueueNode, jobs: Sequence[JobRecord]) -> None:
        self.owed: set[str] = set()
        self.least_milli = [0] * len(Priority)
        self._present = {job.id for job in jobs}
        left = guarantor.queue.guarantee.gpu_milli
        for job in sorted(jobs, key=_place):
            milli = job.demand.least_amount.gpu_milli
            self.least_milli[job.job.priority] += milli
            if 0 < milli <= left:
                self.owed.add(job.id)
                left -= milli

    def leave(self, record: JobRecord) -> None:
        """A job has been asked to leave."""
        if record.id in self._present:
            self._present.remove(record.id)
            self.least_milli[record.job.priority] -= record.demand.least_amount.gpu_milli


class Displacement:
    """The rule on one state, for as long as its lines of waiting jobs stay as they are."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._ranks = QueueRank(state)
        self._least_waiting: dict[QueueNode, float] = {}
        self._first_blocked: dict[str, JobRecord] = {}
        self._by_guarantor: dict[QueueNode | None, list[JobRecord]] = {}
        self._on_guarantee: dict[QueueNode, GuaranteeHolders] = {}
        self._ahead: dict[str, int] = {}
        self._leaving: list[JobRecord] = []

    def begin(self, ranks: QueueRank) -> None:
        """The lines may have changed; ``ranks`` are those of now."""
        self._ranks = ranks
        self._least_waiting.clear()
        self._first_blocked.clear()
        self._by_guarantor.clear()
        self._on_guarantee.clear()
        self._ahead.clear()
        self._leaving.clear()

    def block(self, record: JobRecord) -> None:
        """A job is the first of its pool that has found no room, nor could any be made."""
        self._first_blocked[record.job.pool] = record

    def leave(self, record: JobRecord) -> None:
        """A job has been asked to leave, and counts as gone already."""
        self._leaving.append(record)
        guarantor = self._state.queues.guarantor(record.queue)
        if guarantor is not None:
            self._holders(guarantor).leave(record)

    @property
    def turns(self) -> tuple[int, int]:
        """Differs whenever it may have become the turn of other queues than before in this walk."""
        return (self._ranks.version, len(self._first_blocked)) if self._ranks.has_rounds else (0, 0)

    def is_by_queue(self, by: Entitlement) -> bool:
        """Whether it can matter of which queues the two are, for work that the classes of priority allow."""
        return self._state.queues.has_guarantees or (by is Entitlement.ORDERING and self._ranks.has_rounds)

    def is_open(self, record: JobRecord, victim: JobRecord, by: Entitlement) -> bool:
        """Rules 1 to 3: whether work of the victim's queue and class may leave for a job, by what queues use now."""
        if by is not Entitlement.GUARANTEE and self._state.queues.shields(victim.queue, record.queue):
            return False
        return self._is_below(record, victim, by)

    def _is_below(self, record: JobRecord, victim: JobRecord, by: Entitlement) -> bool:
        """Whether running work comes after a job, all guarantees but that of the job left aside."""
        if by is Entitlement.GUARANTEE:
            return victim.queue != record.queue and self._state.queues.may_take_back(record.queue, victim.queue)
        newcomer, holder = record.job.priority, victim.job.priority
        if by is Entitlement.PRIORITY:
            return holder < newcomer
        return holder == newcomer and self._has_turn(record, victim)

    def _has_turn(self, record: JobRecord, victim: JobRecord) -> bool:
        """Whether it is the turn of a job's queue to take room from another one."""
        if record.queue == victim.queue:
            return True
        own, first = self._ranks.rounds(record.queue), self._first_blocked.get(record.job.pool)
        if first is not None and first.job.priority == record.job.priority and own > self._ranks.rounds(first.queue):
            return False
        return own <= self._ranks.rounds(victim.queue)

    def may_displace(
        self, record: JobRecord, victim: JobRecord, by: Entitlement, beside: Sequence[JobRecord] = ()
    ) -> bool:
        """Whether a job may have a running one end, by what queues use now.

        Args:
            beside: jobs that leave with it, asked before it, and count as gone already.
        """
        if not self._is_below(record, victim, by):
            return False
        queues = self._state.queues
        guarantor = queues.guarantor(victim.queue)
        if guarantor is None:
            return True
        if victim.id in self._holders(guarantor).owed and not self._takes_its_part(record, victim, by, guarantor):
            return False
        return self._stays_borrowed(record, victim, beside)

    def _takes_its_part(self, record: JobRecord, victim: JobRecord, by: Entitlement, guarantor: QueueNode) -> bool:
        """Whether a job may have that part of a guarantee which running work is owed."""
        if by is Entitlement.GUARANTEE:
            return self._state.queues.is_below(record.queue, guarantor.queue.name)
        return self._state.queues.guarantor(record.queue) is guarantor and self._would_be_owed(
            record, victim, guarantor
        )

    def _stays_borrowed(self, record: JobRecord, victim: JobRecord, beside: Sequence[JobRecord]) -> bool:
        """Rule 4, for each guarantee that running work counts for."""
        queues, milli, held_milli = self._state.queues, record.demand.least_amount.gpu_milli, _held_milli(victim)
        own, is_within = queues.guarantor(record.queue), is_guaranteed(self._state, record)
        for node in queues.by_name[victim.queue].path:
            is_shared = queues.is_below(record.queue, node.queue.name)
            if node.queue.guarantee.gpu_milli == 0 or node is own or (is_within and is_shared):
                continue  # what leaves one child of a guarantee, another one takes
            spare = node.queue.guarantee.gpu_milli - (node.gpu_milli - held_milli + is_shared * milli)
            if spare < 0:
                continue
            if any(
                job.demand.least_amount.gpu_milli <= spare and queues.guarantor(job.queue) is node
                for job in (victim, *beside, *self._leaving)
            ) or (not is_within and self._smallest_waiting(node) <= spare):
                return False
        return True

    def _would_be_owed(self, record: JobRecord, victim: JobRecord, guarantor: QueueNode) -> bool:
        """Whether a job fits in its guarantee beside all that is not of a lower class, nor the work it displaces."""
        found = self._ahead.get(record.id)
        if found is None:
            below = self._holders(guarantor).least_milli[: record.job.priority]
            found = self._ahead[record.id] = guarantor.gpu_milli - sum(below)
        place = _held_milli(victim) if victim.job.priority == record.job.priority else 0
        return found - place + record.demand.least_amount.gpu_milli <= guarantor.queue.guarantee.gpu_milli

    def _holders(self, guarantor: QueueNode) -> GuaranteeHolders:
        """Who holds a guarantee; sought once until ``begin``."""
        found = self._on_guarantee.get(guarantor)
        if found is None:
            if not self._by_guarantor:
                self._sort_running()
            found = GuaranteeHolders(guarantor, self._by_guarantor.get(guarantor, ()))
            self._on_guarantee[guarantor] = found
        return found

    def _sort_running(self) -> None:
        """Tell apart on which guarantees running work lives."""
        queues, suspended = self._state.queues.by_name, self._state.suspended
        for job in self._state.running.values():
            if job.kept is None and job.id not in suspended:
                self._by_guarantor.setdefault(queues[job.queue].guarantor, []).append(job)

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


def _place(record: JobRecord) -> tuple[int, bool, int, int]:
    """Lower for what comes first in the guarantee of its queue."""
    return -record.job.priority, not record.took_back, record.placed_by, record.sequence
