"""What tasks and reservations count for: by what their cards are, where a limit or guarantee names models or memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millpond.model.resources import Amount
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.scheduling.elastic.gang_sizes import least_tasks, spare_tasks
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.ledger.holdings import FROZEN, RUNNING, Holding
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.reserving.reserved_rooms import ReservedRoom
from millpond.scheduling.tenancy.card_models import choices_of_reserved, on_models, on_nodes
from millpond.scheduling.tenancy.queues import QueueTree


class CountedAmounts:
    """Counts for one scheduler."""

    def __init__(self, cluster: Cluster, queues: QueueTree) -> None:
        self.cluster = cluster
        self.queues = queues

    def least_held(self, record: JobRecord) -> Amount:
        """The least size of a running job; by models of the cards that it has, where limits or guarantees name any."""
        least = record.demand.least_amount
        if not (self.queues.counts_cards and least.has_cards):
            return least
        tasks = least_tasks(record.job, record.holding_tasks())
        return on_models(self.cluster, least, [task.holding for task in tasks if task.holding is not None])

    def recallable(self, record: JobRecord) -> Amount:
        """What a running job counts for now, but for a minimum that stays: its queue need not cover that for good."""
        if record.job.preemptible:
            return self.held(record, record.holding_tasks())
        if not record.job.rest_preemptible:
            return Amount()
        present = [task for task in record.tasks if task.holding is not None and task.holding.hold in (RUNNING, FROZEN)]
        return self.held(record, spare_tasks(record.job, present))

    def of_reserved(self, room: ReservedRoom, by_node: Mapping[str, int]) -> Amount:
        """What so much of the cards of nodes, by name, counts for that are kept for a reservation."""
        if not self.queues.counts_cards:
            return Amount(sum(by_node.values()))
        return on_nodes(self.cluster, room.wanted, by_node)

    def of_reservation(self, wanted: AdvanceReservation) -> Amount:
        """What a reservation will count for: of several models, cards of the first of which enough are guaranteed."""
        choices = choices_of_reserved(self.cluster, wanted) if self.queues.counts_cards else ()
        guarantors = self.queues.by_name[wanted.queue].guarantors
        fits = (each for each in choices if any(node.unused().within_guarantee(each) for node in guarantors))
        return next(fits, choices[0] if choices else Amount(wanted.gpu_milli))

    def held(self, record: JobRecord, tasks: Sequence[TaskRecord]) -> Amount:
        """What tasks of a job count for now, see ``JobRecord.held_by``."""
        return self.held_by_model(record, tasks) if self.queues.counts_cards else record.held_by(tasks)

    def held_by_model(self, record: JobRecord, tasks: Sequence[TaskRecord]) -> Amount:
        """The same by models of cards, whether or not any limit names one."""
        amount = record.held_by(tasks)
        if not amount.has_cards:
            return amount
        holdings = [task.holding for task in tasks if task.holding is not None]
        return on_models(self.cluster, amount, [each for each in holdings if each.hold in (RUNNING, FROZEN)])

    def asked(self, record: JobRecord, tasks: Sequence[TaskRecord]) -> Amount:
        """What tasks of a job count for while they run where they are."""
        amount = record.amount_of(tasks)
        if not (self.queues.counts_cards and amount.has_cards):
            return amount
        return on_models(self.cluster, amount, [task.holding for task in tasks if task.holding is not None])

    def of_placed(self, record: JobRecord, placed: Sequence[tuple[TaskRecord, Holding]]) -> Amount:
        """What tasks of a job count for on the places that they get."""
        amount = record.amount_of([task for task, _ in placed])
        if not (self.queues.counts_cards and amount.has_cards):
            return amount
        return on_models(self.cluster, amount, [holding for _, holding in placed])
