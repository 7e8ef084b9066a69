"""Views of queues for display: what each holds, has borrowed and lent, what waits in it, and for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from millpond.model.resources import Amount
from millpond.model.states import JobState
from millpond.model.tenancy.cells import CellUsage
from millpond.model.tenancy.tenants import ROOT_QUEUE, Queue
from millpond.scheduling.ledger.journal import Journal
from millpond.scheduling.records import JobRecord
from millpond.scheduling.reserving.agreement import require_kept
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.bounds import OTHER_MODELS
from millpond.scheduling.tenancy.cells.cell_room import require_room
from millpond.scheduling.tenancy.cells.cell_usage import usage_of
from millpond.scheduling.tenancy.queue_shares import QueueShare, queue_shares
from millpond.scheduling.tenancy.queues import QueueTree


class QueueWork:
    """The jobs of a queue or of one of its users.

    Attributes:
        running: jobs that hold something, suspended ones too.
        waiting: jobs that wait for room, for the end of a pause or for their hours.
        asked_milli: the cards that these ask for.
        held: what the others hold.
        background_milli: the cards that background work holds, which counts for no queue.
        background_asked_milli: those of ``asked_milli`` that background work asks for.
    """

    __slots__ = ("asked_milli", "background_asked_milli", "background_milli", "held", "running", "waiting")

    def __init__(self) -> None:
        self.running = self.waiting = self.asked_milli = self.background_milli = self.background_asked_milli = 0
        self.held = Amount()

    def add(self, record: JobRecord, held: Amount | None) -> None:
        """Count a job; ``held`` is None if it waits."""
        if held is None:
            self.waiting += 1
            self.asked_milli += record.demand.amount.gpu_milli
            if record.job.is_background:
                self.background_asked_milli += record.demand.amount.gpu_milli
            return
        self.running += 1
        if record.job.is_background:
            self.background_milli += held.gpu_milli
        else:
            self.held += held


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """A queue with what it and those below it hold and ask for.

    Attributes:
        takes_jobs: it has none below it.
        shares: of each model of cards that guarantees name, and of ``OTHER_MODELS``; ``share`` is their sum.
        has_guarantee: cards are guaranteed to some queue of the tree; else there is nothing to borrow or to lend.
        minimum_run_s: how long its work runs before it may be asked to leave, by its own word or that of one above.
        open_card_mib: the memory of all cards that may be handed out, whosever they are.
    """

    queue: Queue
    takes_jobs: bool
    shares: Mapping[str, QueueShare]
    has_guarantee: bool
    work: QueueWork
    minimum_run_s: float
    open_card_mib: int

    @property
    def share(self) -> QueueShare:
        """Of all cards together."""
        return _sum(self.shares)


@dataclass(frozen=True, slots=True)
class QueueDetail:
    """More of one queue, those below it included.

    Attributes:
        users: what the jobs of each of its users hold and ask for; most cards first.
        borrowers: where some of its guarantee is lent, the queues of others that have borrowed, and how many milli;
            most first.
        largest, largest_milli: id of the waiting job that asks for most cards, the first of them, and how many; empty
            where none waits.
        cells: what became of those that it is owed.
    """

    users: tuple[tuple[str, QueueWork], ...]
    borrowers: tuple[tuple[str, int], ...]
    largest: str
    largest_milli: int
    cells: tuple[CellUsage, ...]


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue's cards.

    Attributes:
        unpromised_milli: how much of what it holds is borrowed; negative: so much is left of its guarantee, or of one
            above it. None where no queue is guaranteed anything.
        limit_milli: what it may not exceed; None without a limit.
    """

    used_milli: int
    unpromised_milli: int | None
    limit_milli: int | None


def queue_statuses(state: State, changed: Sequence[Queue] = ()) -> list[QueueStatus]:
    """Every queue, each behind its parent; with ``changed`` as it would be if these were defined so."""
    tree = _changed_tree(state, changed) if changed else state.queues
    shares = queue_shares(tree, _idle_milli(state))
    works = {name: QueueWork() for name in tree.by_name}
    for record, held in _unended(state):
        for node in tree.by_name[record.job.queue].path:
            works[node.queue.name].add(record, held)
    has_guarantee = any(node.queue.guarantee.gpu_milli for node in tree.by_name.values())
    open_card_mib = state.cluster.capacity.open_card_mib()
    found: list[QueueStatus] = []
    left = [tree.by_name[ROOT_QUEUE]]
    while left:
        node = left.pop()
        name = node.queue.name
        found.append(
            QueueStatus(
                node.queue,
                tree.is_leaf(name),
                shares[name],
                has_guarantee,
                works[name],
                node.minimum_run_s,
                open_card_mib,
            )
        )
        left += reversed(node.children)
    return found


def queue_detail(state: State, name: str) -> QueueDetail:
    """More of one queue."""
    tree, users = state.queues, dict[str, QueueWork]()
    largest: JobRecord | None = None
    for record, held in _unended(state):
        if tree.is_below(record.job.queue, name):
            users.setdefault(record.job.user, QueueWork()).add(record, held)
            asked = record.demand.amount.gpu_milli
            if held is None and (largest is None or asked > largest.demand.amount.gpu_milli):
                largest = record
    by_cards = sorted(users.items(), key=lambda each: (-each[1].held.gpu_milli, -each[1].asked_milli, each[0]))
    found = ("", 0) if largest is None else (largest.id, largest.demand.amount.gpu_milli)
    below = [queue for queue in tree.by_name if tree.is_below(queue, name)]
    cells = tuple(usage_of(state.cluster.cells, below))
    return QueueDetail(tuple(by_cards), _borrowers(state, name), *found, cells)


def queue_view(state: State, name: str, models: Sequence[str] = ()) -> QueueView:
    """What a queue uses, borrows, and may not exceed.

    Args:
        models: where guarantees name models of cards, it is about that of these of which most is left; empty: of all.
    """
    path = state.queues.by_name[name].path
    unpromised = None
    if state.queues.has_guarantees:
        guarantors = path[0].guarantors or path[:1]
        judged = models or (*state.queues.guaranteed_models, OTHER_MODELS)
        unpromised = min(-node.cards_left(model) for node in guarantors for model in judged)
    limits = [node.queue.limit.gpu_milli for node in path[:1] if node.queue.limit is not None]
    return QueueView(path[0].gpu_milli, unpromised, limits[0] if limits else None)


def _borrowers(state: State, lender: str) -> tuple[tuple[str, int], ...]:
    tree = state.queues
    shares = queue_shares(tree, _idle_milli(state))
    lent = [model for model, share in shares[lender].items() if share.lent]
    others = [node.queue.name for node in tree.leaves() if not tree.is_below(node.queue.name, lender)]
    borrowed = ((name, sum(shares[name][model].borrowed for model in lent)) for name in others)
    found = [each for each in borrowed if each[1]]
    return tuple(sorted(found, key=lambda each: (-each[1], each[0])))


def _unended(state: State) -> Iterator[tuple[JobRecord, Amount | None]]:
    """Jobs that hold something, with that, and jobs that wait, with None."""
    for record in state.jobs.values():
        if record.id in state.running:
            yield record, state.amounts.held_by_model(record, record.holding_tasks())
        elif record.state is JobState.QUEUED and not record.is_parked and not record.scaled_to_zero:
            yield record, None


def _changed_tree(state: State, changed: Sequence[Queue]) -> QueueTree:
    tree = QueueTree(Journal())
    tree.copy_from(state.queues)
    tree.set_queues(changed)
    if tree.counts_cards and not state.queues.counts_cards:
        tree.count_cards(
            (record.queue, state.amounts.held_by_model(record, record.holding_tasks()))
            for record in state.running.values()
        )
    require_room(state.cluster, state.queues.queues(), tree.queues())
    require_kept(state, tree)
    return tree


def _sum(shares: Mapping[str, QueueShare]) -> QueueShare:
    first, *others = shares.values()
    return sum(others, first)


def _idle_milli(state: State) -> Mapping[str, int]:
    """By model, what is free for the queues: background work leaves for any of them."""
    idle = Counter(state.cluster.capacity.idle_by_model(state.cluster.words.models.names))
    for record in state.running.values() if state.queues.background.gpu_milli else ():
        if record.job.is_background:
            held = state.amounts.held_by_model(record, record.holding_tasks())
            idle.update(dict(held.models))
    return idle
