"""Which running work a waiting job may displace: the one rule that every plan asks.

Two queues are compared below the nearest queue that both are below. A guarantee there belongs to one side alone; those
from there up are common to both.

0. Work in cells that its queue is owed (``tenancy.cells``) leaves for no other; work of a higher class in the same
   queue may have its cells, and it stays as a visitor. Whoever has got a place in cells of its queue displaces the
   visitors there, of other queues whatever their class, of the same queues those of a lower one.
   Nor does work on cards that are reserved leave for a job that may not have these.
1. A job that a guarantee of its side covers displaces what the other side has borrowed, of whatever class.
2. A guarantee is owed to the work that fits in it, first to what is in cells; then to what is not preemptible, which
   lives on guarantees alone; then to what is reserved, started there or not; then to what took its place back; then to
   what the guarantees below it are owed to, then to the highest class, and among equals to what got its place first.
   What is not preemptible may start where preemptible work of no higher class becomes borrowed by that. What is in
   cells keeps them from its own class, what is on reserved cards keeps these, and what has no preemption left keeps
   its guarantee. Work to which a guarantee of its own side is owed does not leave. Nor does work to which a common one
   is owed for a job that would borrow: a higher class takes the place of a lower one there if it fits beside all that
   is not below it.
3. Between the rest the class of priority decides, and between equals the ordering: by the rounds of their queues
   (``tenancy.queue_rank``), as they will be once the one that runs has left, then by their keys; not among those of a
   queue that have an ordering of their own (``ordering.turns``), of which none that runs leaves for another. Behind
   the first job of a pool that found no room no later queue takes room from others, or the weights would give way to
   whichever queue has the lower keys.
4. Background work (``Priority.BACKGROUND``) lives on no guarantee and displaces nothing: it leaves for all other work,
   before any of that leaves.
5. What leaves stays borrowed: no eviction lets a job that it ends be covered by a guarantee of its own side, nor one
   that has left for others by any; nor, where the newcomer borrows and would have to give the room back, one that waits
   by a guarantee of the side of what leaves.
6. What took a place back for a guarantee does not leave for the job that had borrowed it, but by a guarantee: another
   queue of its group may since have got what both lived on.

Protections come before all of this and are kept with the work itself: its minimum run time, its budget of preemptions,
and whether it is preemptible (``reclaiming.roster``).

So evictions end. Compare what is in cells first, in the higher classes first: whoever displaces for a place in cells
adds to that, and nothing else takes from it. Then compare what is not preemptible: it never leaves, so whatever else it
makes borrowed as it starts, it does so once. Then compare what is owed beside it: by guarantees below others first,
then in the higher classes. An eviction by
guarantee adds the newcomer to what its nearest guarantee that covers it is owed to, and takes nothing from guarantees
as deep; one by class within a guarantee puts a higher class in the place of a lower one. Whatever else leaves has been
borrowed, so what is owed stays as it is, and a higher class, or a key that is lower by a margin, takes the place of a
lower one in what is borrowed. None of this can go on for ever among finitely many jobs at one instant, where the
ordering displaces in one cycle only; and as time changes keys, preempted work has saved what it did, or all of it is
the price (``ordering.default``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from millpond.model.resources import Amount
from millpond.scheduling.ordering.queueing import group_of
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.queue_node import QueueNode
from millpond.scheduling.tenancy.queue_rank import QueueRank


class Entitlement(Enum):
    """By what a waiting job displaces running work."""

    GUARANTEE = "guarantee"
    """Asked only for a job that is within the guarantee of its queue."""
    PRIORITY = "priority"
    ORDERING = "ordering"
    OUTSIDE_QUOTAS = "outside quotas"
    """What leaves is background work, and the job is not."""


class ReservedWork:
    """What advance reservations of queues hold: who started on their cards, and what nobody has taken.

    Attributes:
        users: ids of those who started there.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.users = state.reserved.users if state.reserved.by_name else frozenset()

    def unused(self, guarantor: QueueNode) -> Amount:
        """How much of the reserved cards of the queues on a guarantee nobody has taken."""
        state = self._state
        rooms = (
            room
            for room in state.reserved.by_name.values()
            if room.wanted.covers(state.now) and guarantor in state.queues.by_name[room.wanted.queue].guarantors
        )
        return sum((state.unused_of(room) for room in rooms), Amount())


class GuaranteeHolders:
    """Who runs on one guarantee.

    Attributes:
        owed: those that fit in it beside all that are owed it and come before.
    """

    def __init__(
        self, guarantor: QueueNode, jobs: Sequence[JobRecord], owed_below: Collection[str], state: State
    ) -> None:
        reserved, in_cells = ReservedWork(state), {job.id for job in jobs if state.cluster.cells.is_in_cells(job)}
        staying = {job.id for job in jobs if not job.job.preemptible}
        self.owed: set[str] = set()
        amounts = {job.id: state.amounts.least_held(job) for job in jobs}
        self._present = {
            job.id: (job.job.priority, amounts[job.id])
            for job in jobs
            if not any(job.id in each for each in (owed_below, in_cells, staying))
        }
        filled = guarantor.unused()
        filled.add(reserved.unused(guarantor), 1)

        def turn(job: JobRecord) -> tuple[object, ...]:
            is_reserved = job.id in reserved.users
            comes_first = job.id in in_cells, job.id in staying, is_reserved, job.took_back, job.id not in self._present
            return tuple(not each for each in comes_first), _place(job)

        for job in sorted(jobs, key=turn):
            amount = amounts[job.id]
            if job.id in in_cells or filled.within_guarantee(amount):
                self.owed.add(job.id)
                filled.add(amount, 1)

    def leave(self, record: JobRecord) -> None:
        """A job has been asked to leave."""
        self._present.pop(record.id, None)

    def least_below(self, priority: int) -> Amount:
        """What those of lower classes of priority need at least who have not left.

        Without those who are in cells, or to whom a guarantee below this one is owed.
        """
        return sum((amount for of_class, amount in self._present.values() if of_class < priority), Amount())


class HoldersInTurn:
    """Running work of one class of priority, by whose turn it is, for as long as turns stay as they are.

    Attributes:
        rounds: all that queues of theirs are in, ascending.
        positions: (records,) in ``rounds``.
        of_queue: which of the records are of a queue.
    """

    def __init__(self, records: Sequence[JobRecord], ranks: QueueRank) -> None:
        of_records = [ranks.rounds(record.queue) for record in records]
        self.records = records
        self.rounds = sorted(set(of_records))
        numbers = {each: number for number, each in enumerate(self.rounds)}
        self.positions = np.array([numbers[each] for each in of_records], dtype=np.int64)
        self.of_queue: dict[str, list[int]] = {}
        for number, record in enumerate(records):
            self.of_queue.setdefault(record.queue, []).append(number)


class Displacement:
    """The rule on one state, for as long as its lines of waiting jobs stay as they are.

    Attributes:
        ranks: the turns of the queues.
        turned_down: how often running work stayed in this walk as its queue would have its turn first without it.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.ranks = QueueRank(state)
        self._waiting: dict[QueueNode, set[Amount]] = {}
        self._first_blocked: dict[str, JobRecord] = {}
        self._off_roster: list[JobRecord] | None = None
        """Running work that may not be asked to leave, found when it is asked for."""
        self._heads: dict[str, list[JobRecord]] = {}
        self._on_guarantee: dict[QueueNode, GuaranteeHolders] = {}
        self._ahead: dict[tuple[str, QueueNode], QueueNode] = {}
        self._leaving: list[JobRecord] = []
        self.turned_down = 0

    def begin(self, ranks: QueueRank) -> None:
        """The lines may have changed; ``ranks`` are those of now."""
        self.ranks = ranks
        self._waiting.clear()
        self._first_blocked.clear()
        self._off_roster = None
        self._heads.clear()
        self._on_guarantee.clear()
        self._ahead.clear()
        self._leaving.clear()
        self.turned_down = 0

    def block(self, record: JobRecord) -> None:
        """A job is the first of its pool that has found no room, nor could any be made."""
        self._first_blocked[record.job.pool] = record

    def leave(self, record: JobRecord) -> None:
        """A job has been asked to leave, and counts as gone already."""
        self._leaving.append(record)
        for guarantor in self._guarantors(record):
            self._holders(guarantor).leave(record)

    @property
    def turns(self) -> tuple[object, ...]:
        """Differs whenever it may have become the turn of other queues than before in this walk, or others may lose.

        And once any work was turned down.
        """
        turns = *self.rounds, self.turned_down > 0
        return (*turns, self._state.queues.shielding) if self._state.queues.has_guarantees else turns

    @property
    def rounds(self) -> tuple[object, ...]:
        """Differs whenever it may have become the turn of other queues, guarantees left aside."""
        return (self.ranks.round_changes, len(self._first_blocked)) if self.ranks.has_rounds else ()

    def turn_of(self, record: JobRecord) -> tuple[object, ...]:
        """Equal for those of a class whose turn it is before the same work of that class, see ``_has_turn``."""
        own, is_behind = self.ranks.rounds(record.queue), self._is_behind_first(record)
        return own, is_behind, (record.queue, record.group) if is_behind or record.group is not None else None

    def is_by_queue(self, by: Entitlement) -> bool:
        """Whether it can matter of which queues the two are, for work that the classes of priority allow."""
        return self._state.queues.has_guarantees or (by is Entitlement.ORDERING and self.ranks.has_rounds)

    def is_open(self, record: JobRecord, victim: JobRecord, by: Entitlement) -> bool:
        """Rules 1 to 3: whether work of the victim's owner and class may leave for a job, by what queues use now."""
        queues, with_cards = self._state.queues, victim.gpu_milli > 0
        if by is not Entitlement.GUARANTEE and queues.shields(victim.queue, record.queue, with_cards=with_cards):
            return False  # ``DisplacementBounds.open_to`` asks the same of all owners at once
        return self.comes_after(record, victim, by)

    def comes_after(self, record: JobRecord, victim: JobRecord, by: Entitlement) -> bool:
        """Whether running work comes after a job, all guarantees but that of the job left aside."""
        if by is Entitlement.GUARANTEE:
            queues, with_cards = self._state.queues, victim.gpu_milli > 0
            return any(
                queues.may_take_back(record.queue, each, victim.queue, with_cards=with_cards)
                for each in self._choices(record)
            )
        if by is Entitlement.OUTSIDE_QUOTAS:
            return victim.job.is_background and not record.job.is_background
        newcomer, holder = record.job.priority, victim.job.priority
        if by is Entitlement.PRIORITY:
            return holder < newcomer
        return holder == newcomer and self._has_turn(record, victim)

    def in_turn(self, records: Sequence[JobRecord]) -> HoldersInTurn:
        """Running work of one class, for ``come_after``."""
        return HoldersInTurn(records, self.ranks)

    def come_after(self, record: JobRecord, holders: HoldersInTurn) -> NDArray[np.bool_]:
        """(holders,) whether each comes after a job of its class by the ordering, as ``comes_after`` says of one."""
        after: NDArray[np.bool_] = holders.positions >= bisect_left(holders.rounds, self.ranks.rounds(record.queue))
        if self._is_behind_first(record):
            after[:] = False
        for number in holders.of_queue.get(record.queue, ()):
            after[number] = self._has_turn(record, holders.records[number])
        return after

    def _has_reserved_from(self, record: JobRecord, victim: JobRecord) -> bool:
        """Whether running work has cards that are reserved now, and for no queue of a job: it could not have them."""
        state = self._state
        return any(
            room.has_user(victim)
            and room.wanted.covers(state.now)
            and not state.queues.is_below(record.queue, room.wanted.queue)
            for room in state.reserved.by_name.values()
        )

    def may_displace_visitor(self, record: JobRecord, visitor: JobRecord, owner: str) -> bool:
        """Whether a job that gets a cell of a queue may have work end that is on cards of it without being in one.

        Args:
            owner: the queue that is owed the cell, that of the job or one above it.
        """
        return visitor.job.priority < record.job.priority or not self._state.queues.is_below(visitor.queue, owner)

    def _has_turn(self, record: JobRecord, victim: JobRecord) -> bool:
        """Whether it is the turn of a job's queue to take room from another one, or of the job within its queue."""
        if record.queue == victim.queue:
            return record.group is None or group_of(self._state, victim) != record.group
        if self._is_behind_first(record):
            return False
        return self.ranks.rounds(record.queue) <= self.ranks.rounds(victim.queue)

    def _keeps_turn(self, record: JobRecord, victim: JobRecord) -> bool:
        """Whether it is the turn of a job's queue also once running work has left, which would wait by its own."""
        if record.queue == victim.queue or not self.ranks.has_rounds:
            return True
        return self.ranks.has_turn_before(record.queue, victim.queue, self.held(victim))

    def _is_behind_first(self, record: JobRecord) -> bool:
        """Whether a queue has had its turn later than that of the first job of its pool that found no room."""
        first = self._first_blocked.get(record.job.pool)
        if first is None or first.job.priority != record.job.priority:
            return False
        return self.ranks.rounds(record.queue) > self.ranks.rounds(first.queue)

    def may_displace(
        self, record: JobRecord, victim: JobRecord, by: Entitlement, beside: Sequence[JobRecord] = ()
    ) -> bool:
        """Whether a job may have a running one end, by what queues use now.

        Args:
            beside: jobs that leave with it, asked before it, and count as gone already.
        """
        if self._state.cluster.cells.is_in_cells(victim) or not self.comes_after(record, victim, by):
            return False
        if self._has_reserved_from(record, victim):
            return False
        if by is not Entitlement.GUARANTEE and victim.took_back and record.left_for == victim.id:
            return False
        if by is Entitlement.ORDERING and not self._keeps_turn(record, victim):
            self.turned_down += 1
            return False
        guarantors = self._guarantors(victim)
        if not guarantors:
            return True
        owes = self.owing(victim)
        if owes is not None and not self._takes_its_part(record, victim, by, owes):
            return False
        return self._stays_borrowed(record, victim, beside)

    def owing(self, record: JobRecord) -> QueueNode | None:
        """The nearest queue whose guarantee is owed to running work, as it was when the lines were looked at."""
        return next((node for node in self._guarantors(record) if record.id in self._holders(node).owed), None)

    def _takes_its_part(self, record: JobRecord, victim: JobRecord, by: Entitlement, guarantor: QueueNode) -> bool:
        """Whether a job may have that part of a guarantee which is owed to running work, the nearest of these."""
        if not self._state.queues.is_below(record.queue, guarantor.queue.name):
            return False
        return by is Entitlement.GUARANTEE or self._would_be_owed(record, victim, guarantor)

    def _asked(self, record: JobRecord, victim: JobRecord) -> Sequence[Amount]:
        """With how much a job may start in the place of running work, by models of cards."""
        choices = self._choices(record)
        if len(choices) == 1:
            return choices
        held = {model for model, _ in self.held(victim).models}
        return [each for each in choices if each.models[0][0] in held] or choices

    def _stays_borrowed(self, record: JobRecord, victim: JobRecord, beside: Sequence[JobRecord]) -> bool:
        """Rule 5: for guarantees of the side of running work, and for common ones of those that left for others."""
        return all(self._stays_borrowed_for(record, each, victim, beside) for each in self._asked(record, victim))

    def _stays_borrowed_for(
        self, record: JobRecord, amount: Amount, victim: JobRecord, beside: Sequence[JobRecord]
    ) -> bool:
        queues = self._state.queues
        path, covers = queues.by_name[record.queue].path, queues.guarantor(record.queue, amount)
        borrows = covers is None or covers in queues.by_name[victim.queue].path
        held = self.held(victim)
        for node in self._guarantors(victim):
            without, is_common = node.less(held), node in path
            if is_common:
                without.add(amount, 1)
            left = self._leaving if is_common else (victim, *beside, *self._leaving)
            returning = [self._choices(job) for job in left if node in self._guarantors(job)]
            if any(self._would_cover(without, each, amount) for each in returning):
                return False
            if borrows and not is_common and self._would_cover(without, self._waiting_on(node), amount):
                return False
        return True

    def _would_cover(self, guarantor: QueueNode, returning: Iterable[Amount], newcomer: Amount) -> bool:
        """Whether a guarantee covers one of those that would start then, on cards such as the newcomer takes."""
        if self._state.queues.guaranteed_models and newcomer.models:
            models = {model for model, _ in newcomer.models}
            returning = (each for each in returning if not models.isdisjoint(model for model, _ in each.models))
        return any(map(guarantor.within_guarantee, returning))

    def _choices(self, record: JobRecord) -> Sequence[Amount]:
        return self._state.entitlements.choices(record, record.demand.least_amount)

    def _would_be_owed(self, record: JobRecord, victim: JobRecord, guarantor: QueueNode) -> bool:
        """Whether a job fits in a guarantee beside all that is not of a lower class, nor the work it displaces."""
        ahead = self._ahead.get((record.id, guarantor))
        if ahead is None:
            below = self._holders(guarantor).least_below(record.job.priority)
            ahead = self._ahead[record.id, guarantor] = guarantor.less(below)
        if victim.job.priority == record.job.priority:
            ahead = ahead.less(self.held(victim))
        return all(map(ahead.within_guarantee, self._asked(record, victim)))

    def held(self, record: JobRecord) -> Amount:
        """What running work holds."""
        return self._state.amounts.held(record, record.holding_tasks())

    def _guarantors(self, record: JobRecord) -> tuple[QueueNode, ...]:
        return self._state.queues.by_name[record.queue].guarantors

    def _holders(self, guarantor: QueueNode) -> GuaranteeHolders:
        """Who holds a guarantee; sought once until ``begin``."""
        found = self._on_guarantee.get(guarantor)
        if found is None:
            jobs = self._live_on(guarantor)
            owed_below: set[str] = set()
            for one in {job.queue: job for job in jobs}.values():
                for below in takewhile(lambda node: node is not guarantor, self._guarantors(one)):
                    owed_below |= self._holders(below).owed
            found = self._on_guarantee[guarantor] = GuaranteeHolders(guarantor, jobs, owed_below, self._state)
        return found

    def _live_on(self, guarantor: QueueNode) -> list[JobRecord]:
        """The running work that lives on a guarantee."""
        state, by_name = self._state, self._state.queues.by_name
        if self._off_roster is None:
            self._off_roster = state.off_roster()

        def lives_on_it(queue: str) -> bool:
            return queue in by_name and guarantor in by_name[queue].guarantors

        jobs = state.roster.of_queues(lives_on_it)
        jobs += [job for job in self._off_roster if lives_on_it(job.queue)]
        return [job for job in jobs if job.kept is None and job.id not in state.suspended]

    def _waiting_on(self, guarantor: QueueNode) -> set[Amount]:
        """With how much the first jobs of the lines that live on a guarantee could start."""
        found = self._waiting.get(guarantor)
        if found is None:
            if not self._heads:
                # Where cards are counted by model, which of those a job may have can be its own.
                self._heads = self._state.waiting.firsts_by_queue(all_alike=not self._state.queues.counts_cards)
            by_name = self._state.queues.by_name
            found = self._waiting[guarantor] = {
                each
                for queue, heads in self._heads.items()
                if guarantor in by_name[queue].guarantors
                for head in heads
                for each in self._choices(head)
            }
        return found


def _place(record: JobRecord) -> tuple[int, int, int]:
    """Lower for what comes first in a guarantee among those that took their places back, and among the others."""
    return -record.job.priority, record.placed_by, record.sequence
