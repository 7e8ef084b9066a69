"""What a job may hold more: by the limits and guarantees of its queues, its user, its pool, and the models of cards.

Where limits or guarantees name models of cards, or their memory, a job that takes several models has a choice for each,
and every question is asked for one choice at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import Limit
from millpond.scheduling.elastic.gang_sizes import is_enough
from millpond.scheduling.reclaiming.roster import Roster
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.reserving.reserved_rooms import ReservedRooms
from millpond.scheduling.tenancy.card_models import choices_of
from millpond.scheduling.tenancy.counted_amounts import CountedAmounts
from millpond.scheduling.tenancy.limits import AccountLimitUsage
from millpond.scheduling.tenancy.queue_node import QueueNode


class Entitlements:
    """Answers for one scheduler. It changes nothing.

    Args:
        elastic: those of the running jobs that can run with fewer tasks, as they are at any time.
        roster: the running work that may be asked to leave, as it is at any time.

    Attributes:
        unlent: names of the pools that do not lend now.
    """

    def __init__(
        self,
        amounts: CountedAmounts,
        limits: AccountLimitUsage,
        elastic: Mapping[str, JobRecord],
        roster: Roster,
        reserved: ReservedRooms,
    ) -> None:
        self.cluster, self.queues = amounts.cluster, amounts.queues
        self.limits = limits
        self._amounts, self._elastic, self._roster, self._reserved = amounts, elastic, roster, reserved
        self.unlent: set[str] = set()
        self._recallable: dict[tuple[tuple[QueueNode, ...], int], dict[QueueNode, Amount]] = {}
        """What ``recallable`` has found, while nothing was charged and nothing has come or gone."""
        self._recallable_at = (-1, -1)
        self._chosen: tuple[JobRecord, int] | None = None

    def admits(self, record: JobRecord, amount: Amount) -> bool:
        """Whether a job may hold ``amount`` more, by its queue, all queues above, its user, and what its pool lends.

        Work that is not preemptible could not give back what it borrows: it borrows nothing, but for tasks beyond its
        minimum that may be taken from it.
        """
        if not self.queues.counts_cards:
            return self._opens(record, amount)
        return any(self._opens(record, each) for each in self.choices(record, amount))

    def _opens(self, record: JobRecord, amount: Amount) -> bool:
        """The same for one choice of models."""
        if (
            self.limits.exceeded(record.job, amount) is not None
            or self._blocks(record, amount)
            or self.queues.limiting(record.queue, amount) is not None
        ):
            return False
        return self._lends(record, amount)

    def _blocks(self, record: JobRecord, amount: Amount) -> bool:
        """Whether a job would hold for good what others are guaranteed, for one choice of models."""
        if record.job.preemptible:
            return False
        kept = amount if not record.job.rest_preemptible else self._beyond_recall(record, amount)
        return self._holds_for_good(record, kept)

    def _holds_for_good(self, record: JobRecord, amount: Amount) -> bool:
        """Whether ``amount`` more, never given back, is beyond the guarantees that a job lives on.

        What leaves when an owner asks takes nothing of a guarantee: from then on that is borrowed.
        """
        if not self.queues.blocks_guarantees(record.queue, amount):
            return False
        recallable = self.recallable(record)
        return not recallable or self.queues.blocks_guarantees(record.queue, amount, recallable)

    def recallable(self, record: JobRecord) -> dict[QueueNode, Amount]:
        """What queues hold, with all below them, that comes after a job on the guarantees it lives on and may leave.

        Of gangs whose minimum stays that is what they have beyond it.
        """
        now = self.queues.version, self._roster.version
        if now != self._recallable_at:
            self._recallable_at = now
            self._recallable.clear()
        key = self.queues.by_name[record.queue].guarantors[-1:], record.job.priority
        found = self._recallable.get(key)
        if found is None:
            found = self._recallable[key] = self._summed_up(self._behind_what_stays(record))
        return found

    def _summed_up(self, others: Sequence[JobRecord]) -> dict[QueueNode, Amount]:
        """What queues hold by these jobs and by gangs whose minimum stays, and may be asked to give back."""
        gangs = (other for other in self._elastic.values() if other.job.rest_preemptible)
        by_queue: dict[str, Amount] = {}
        for other in (*gangs, *others):
            by_queue[other.queue] = by_queue.get(other.queue, Amount()) + self._amounts.recallable(other)
        found: dict[QueueNode, Amount] = {}
        for queue, amount in by_queue.items():
            for node in self.queues.by_name[queue].path if amount != Amount() else ():
                found[node] = found.get(node, Amount()) + amount
        return found

    def _behind_what_stays(self, record: JobRecord) -> list[JobRecord]:
        """The running work that is borrowed once a job starts on a guarantee of both for good."""
        on_guarantee = self.preemptible_beside(record)
        return [other for other in on_guarantee if not self.keeps_guarantee(other, record.job.priority)]

    def preemptible_beside(self, record: JobRecord) -> list[JobRecord]:
        """The running work that lives on a guarantee of a job, and is preemptible as a whole."""
        top = self.queues.by_name[record.queue].guarantors[-1:]
        jobs = self._roster.of_queues(lambda queue: bool(top) and top[0] in self.queues.by_name[queue].path)
        return [job for job in jobs if job.job.preemptible]

    def keeps_guarantee(self, holder: JobRecord, priority: int) -> str:
        """Why preemptible work keeps its guarantee from a job of a class that stays; empty if it is borrowed then.

        The rule is the second of ``tenancy.displacement``.
        """
        if holder.job.priority > priority:
            return "of a higher class"
        if holder.preemptions >= holder.job.preemption_budget:
            return "that has used up its budget of preemptions"
        if holder.job.priority == priority and self.cluster.cells.is_in_cells(holder):
            return "in cells"
        return "on reserved cards" if self._reserved.has_user(holder) else ""

    def _beyond_recall(self, record: JobRecord, amount: Amount) -> Amount:
        """What of ``amount`` more a job would not give back whose tasks beyond the minimum may be taken."""
        held = record.holding_tasks()
        if not held:
            least, models = record.demand.least_amount, [model for model, _ in amount.models]
            alike = (each for each in self.choices(record, least) if [model for model, _ in each.models] == models)
            return next(alike, least)
        return Amount() if is_enough(record.job, held) else amount

    def keeps_limits(self, record: JobRecord, amount: Amount) -> bool:
        """The same for a job whose room is claimed: which guarantee covers it was asked when the claim was made."""
        return any(self._is_within(record, each) and self._lends(record, each) for each in self.choices(record, amount))

    def keeps_limits_as_reserved(self, record: JobRecord, amount: Amount) -> bool:
        """The same for cards that its queue has reserved: these it has though its pool lends nothing now."""
        return any(self._is_within(record, each) for each in self.choices(record, amount))

    def _is_within(self, record: JobRecord, amount: Amount) -> bool:
        """Whether limits allow ``amount`` more, for one choice of models."""
        is_within = self.limits.exceeded(record.job, amount) is None
        return is_within and self.queues.limiting(record.queue, amount) is None

    def exceeded(self, record: JobRecord, amount: Amount) -> Limit | None:
        """A limit of its user or its group that keeps ``amount`` more from a job, on every model that it takes."""
        found = [self.limits.exceeded(record.job, each) for each in self.choices(record, amount)]
        return None if None in found else found[0]

    def limiting(self, record: JobRecord, amount: Amount) -> QueueNode | None:
        """As ``QueueTree.limiting``, for a job: None if nothing is in its way on some model of cards that it takes."""
        if not self.queues.counts_cards:
            return self.queues.limiting(record.queue, amount)
        in_the_way = [self.queues.limiting(record.queue, each) for each in self.choices(record, amount)]
        return None if None in in_the_way else in_the_way[0]

    def guarantor(self, record: JobRecord, amount: Amount) -> QueueNode | None:
        """As ``QueueTree.guarantor``, for a job: on the first of the models of cards that it takes that has one."""
        if not self.queues.guarantees_by_card:
            return self.queues.guarantor(record.queue, amount)
        found = (self.queues.guarantor(record.queue, each) for each in self.choices(record, amount))
        return next((node for node in found if node is not None), None)

    def borrows(self, record: JobRecord, amount: Amount) -> bool:
        """Whether no guarantee covers ``amount`` more for a job, on any model of cards that it takes."""
        return self.guarantor(record, amount) is None

    def blocks_guarantees(self, record: JobRecord, amount: Amount) -> bool:
        """As ``QueueTree.blocks_guarantees``, for a job: on every model of cards that it takes."""
        return all(self._holds_for_good(record, each) for each in self.choices(record, amount))

    def lends(self, record: JobRecord, amount: Amount) -> bool:
        """Whether ``amount`` is within the guarantee of a job's queue, or its pool lends now."""
        return any(self._lends(record, each) for each in self.choices(record, amount))

    def _lends(self, record: JobRecord, amount: Amount) -> bool:
        if not amount.gpu_milli or record.job.pool not in self.unlent:
            return True
        return not self.queues.borrows(record.queue, amount)

    def choices(self, record: JobRecord, amount: Amount) -> tuple[Amount, ...]:
        """The ways in which a job may hold ``amount`` more, by models of cards where any limit or guarantee names one.

        Within ``on_choice`` that one alone.
        """
        if not (self.queues.counts_cards and amount.has_cards) or amount.models:
            return (amount,)
        found = choices_of(self.cluster, record.demand, amount)
        if self._chosen is not None and self._chosen[0] is record:
            return (found[self._chosen[1]],)
        return found

    def guaranteed_choices(self, record: JobRecord) -> list[int]:
        """By number, the choices on which a guarantee covers the least size of a job, where guarantees name models."""
        if not self.queues.guarantees_by_card:
            return []
        choices = enumerate(self.choices(record, record.demand.least_amount))
        covered = ((number, each) for number, each in choices if not self.queues.borrows(record.queue, each))
        return [number for number, each in covered if not self._blocks(record, each)]

    def open_choices(self, record: JobRecord, amount: Amount) -> list[Amount]:
        """The choices on which its queues admit ``amount`` more for a job."""
        return [each for each in self.choices(record, amount) if self._opens(record, each)]

    @contextmanager
    def on_choice(self, record: JobRecord, number: int) -> Iterator[None]:
        """Judge a job meanwhile as if it took cards of one choice alone, and keep it off those of all others."""
        self._chosen = (record, number)
        try:
            yield
        finally:
            self._chosen = None

    def allowed_nodes(self, record: JobRecord, tasks: Sequence[TaskRecord]) -> NDArray[np.uint8] | None:
        """(nodes,), 0 for those that these tasks of a job may not have: by its own choice, or by ``model_mask``.

        None keeps nothing out.
        """
        models, selection = self.model_mask(record, tasks), record.job.only_on
        if not selection:
            return models
        selected = self.cluster.hardware_index.nodes_selected(selection)
        return selected if models is None else selected & models

    def model_mask(self, record: JobRecord, tasks: Sequence[TaskRecord]) -> NDArray[np.uint8] | None:
        """(nodes,), 0 for those with cards of models of which its queues do not admit these tasks of a job.

        None keeps nothing out: also where no model is left, so that others have to leave for the job.
        """
        amount = record.amount_of(tasks)
        if not (self.queues.counts_cards and amount.has_cards):
            return None
        every, own = choices_of(self.cluster, record.demand, amount), self.choices(record, amount)
        left = (self.open_choices(record, amount) if len(own) > 1 else ()) or own
        closed = tuple(each.models[0][0] for each in every if each not in left)
        return self.cluster.hardware_index.nodes_without(closed) if closed else None
