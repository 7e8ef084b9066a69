"""What limits and guarantees leave to the jobs of a future, as numbered accounts with what each may hold more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from millpond.model.resources import Amount
from millpond.scheduling.estimating.possible_jobs import Charges, Counted, Guarantor
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.bounds import NO_BOUND, OTHER_MODELS, Bound
from millpond.scheduling.tenancy.limits import Account, AccountUsage
from millpond.scheduling.tenancy.queue_node import QueueNode

EVERY_KIND = -1
"""A mask of all kinds of nodes."""

Row = tuple[str, int, int, int | None]
"""Of what, how much more a job wants, how much is held, and the most."""

_Alike = tuple[RequestClass, str, tuple[Account, ...], bool]
"""What jobs ask for, their queue, their accounts with limits, and whether they may leave."""
_FREE = ((EVERY_KIND, Counted()),)


class ReservedCharges(NamedTuple):
    """What an advance reservation holds of accounts from one instant to another, in seconds from now."""

    begin_s: float
    until_s: float
    charges: Charges


class LimitAccounts:
    """The accounts that jobs were seen to count against.

    Args:
        every: the model is so many times smaller than the cluster, and so are its limits.

    Attributes:
        spare: how much each account may hold beyond what it does.
    """

    def __init__(self, state: State, every: int) -> None:
        self._state = state
        self._every = every
        self._numbers: dict[object, int] = {}
        self._guarantors: dict[QueueNode, int] = {}
        self._known: dict[tuple[Amount, str, tuple[Account, ...], bool], Counted] = {}
        """By amount, queue, accounts with limits, and whether it may leave."""
        self._of_requests: dict[_Alike, tuple[tuple[int, Counted], ...]] = {}
        self._of_queues: dict[str, list[tuple[int, int]]] = {}
        self._for_good: dict[QueueNode, QueueNode] = {}
        self.spare: list[int] = []

    def counted(self, record: JobRecord) -> tuple[tuple[int, Counted], ...]:
        """What a job counts for of limits and guarantees of its queue and the queues above, of its user and its group.

        Where limits or guarantees name models of cards, for each choice of these: with a mask of the kinds of nodes.
        """
        limited = self._limited(record)
        if self._is_free(record, limited):
            return _FREE
        alike = record.demand, record.queue, limited, record.job.preemptible
        found = self._of_requests.get(alike)
        if found is None:
            found = self._of_requests[alike] = self._by_models(record, limited)
        return found

    def _by_models(self, record: JobRecord, limited: tuple[Account, ...]) -> tuple[tuple[int, Counted], ...]:
        state = self._state
        choices = state.entitlements.choices(record, record.demand.least_amount)
        if not choices[0].models:
            return ((EVERY_KIND, self._count(record, choices[0], limited)),)
        models: dict[Counted, int] = {}
        for choice in choices:
            numbers = (state.cluster.words.models.known(model) for model, _ in choice.models)
            mask = sum(1 << number for number in numbers if number is not None)
            counted = self._counted(record, choice, limited)
            models[counted] = models.get(counted, 0) | mask
        return tuple((mask, counted) for counted, mask in models.items())

    def counted_of_running(self, record: JobRecord) -> Counted:
        """The same of a running job, on the cards that it has."""
        amount = self._state.amounts.least_held(record)
        if amount is record.demand.least_amount:
            return self.counted(record)[0][1]
        limited = self._limited(record)
        return Counted() if self._is_free(record, limited) else self._counted(record, amount, limited)

    def _limited(self, record: JobRecord) -> tuple[Account, ...]:
        """The accounts of a job that have a limit."""
        limits = self._state.limits
        return tuple(filter(limits.bounds.__contains__, limits.accounts_of(record.job))) if limits.bounds else ()

    def _is_free(self, record: JobRecord, limited: tuple[Account, ...]) -> bool:
        """Whether no limit or guarantee can say anything of a job."""
        leaf = self._state.queues.by_name[record.queue]
        bound = limited or leaf.limited_by or leaf.guarantors or leaf.confined_to or leaf.is_confined
        return record.job.preemptible and not bound

    def _counted(self, record: JobRecord, amount: Amount, limited: tuple[Account, ...]) -> Counted:
        key = amount, record.queue, limited, record.job.preemptible
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._count(record, amount, limited)
        return found

    def _count(self, record: JobRecord, amount: Amount, limited: tuple[Account, ...]) -> Counted:
        limits = tuple(self._charges(record, amount, limited))
        nodes = self._state.queues.by_name[record.queue].guarantors
        guarantors = tuple(self._guarantor(node, amount) for node in nodes)
        booked = dict(limits)
        for guarantor in guarantors:
            booked.update(guarantor.charges)
        return Counted(limits, guarantors, tuple(booked.items()))

    def _guarantor(self, node: QueueNode, amount: Amount) -> Guarantor:
        charges = {
            account: charge
            for judged, milli in self._judged(amount)
            for account, charge in self._charges_of_guarantee(node, judged, milli, amount)
        }
        return Guarantor(self._guarantors.setdefault(node, len(self._guarantors)), tuple(charges.items()))

    def reserved(self) -> list[ReservedCharges]:
        """What advance reservations hold: of those that have begun, what nobody has taken yet."""
        state, found = self._state, list[ReservedCharges]()
        for room in state.reserved.by_name.values():
            wanted, jobs = room.wanted, 1
            if not wanted.covers(state.now):
                amount = state.amounts.of_reservation(wanted)
            elif room.cards_on:
                amount, jobs = state.unused_of(room), state.reserved.awaited_jobs(room, state.running)
            else:
                continue
            charges = tuple(
                (number, -(-charge // self._every)) for number, charge in self._kept(wanted.queue, amount, jobs)
            )
            found.append(ReservedCharges(wanted.begin - state.now, wanted.until - state.now, charges))
        return found

    def _kept(self, queue: str, amount: Amount, jobs: int) -> Iterator[tuple[int, int]]:
        """What is kept for a queue counts for of every bound on it."""
        yield from self._charges_of_limits(queue, amount)
        for judged, milli in self._judged(amount):
            for node in self._state.queues.by_name[queue].path:
                yield from self._charges_of_guarantee(node, judged, milli, amount)
                if (held_for_good := self._for_good.get(node)) is not None:
                    yield from self._charges_of_guarantee(held_for_good, judged, milli, amount, "stays")
        for account in self._state.limits.accounts_of_queue(queue):
            yield from self._charges_of_account(account, amount, jobs)

    def _charges(self, record: JobRecord, amount: Amount, limited: tuple[Account, ...]) -> Iterator[tuple[int, int]]:
        yield from self._charges_of_limits(record.queue, amount)
        yield from self._charges_of_guarantees(record, amount)
        for account in limited:
            yield from self._charges_of_account(account, amount, 1)

    def _charges_of_account(self, account: Account, amount: Amount, jobs: int) -> Iterator[tuple[int, int]]:
        limits = self._state.limits
        bound, held = limits.bounds.get(account), limits.held.get(account) or AccountUsage()
        if bound is not None:
            yield from self._charges_of_bound(
                ("account", account),
                ("jobs", jobs, held.jobs, bound.jobs),
                ("cards", amount.gpu_milli, held.gpu_milli, bound.gpu_milli),
                ("cpus", amount.cpu_milli, held.cpu_milli, bound.cpu_milli),
                ("card memory", amount.card_mib, held.card_mib, bound.card_mib),
            )

    def _charges_of_limits(self, queue: str, amount: Amount) -> Iterator[tuple[int, int]]:
        asked = amount.gpu_milli, amount.cpu_milli, amount.memory_mib, amount.card_mib
        for account, which in self._limits_of(queue):
            if asked[which]:
                yield account, asked[which]
        for node in self._state.queues.by_name[queue].limited_by if amount.models else ():
            most_of = {} if node.limit is None else node.limit.models
            rows = ((model, milli, node.models.get(model, 0), most_of.get(model)) for model, milli in amount.models)
            yield from self._charges_of_bound(("limit", node.queue.name), *rows)

    def _limits_of(self, queue: str) -> list[tuple[int, int]]:
        """The accounts of what a queue and those above it may hold at most of cards, CPU, memory and memory of cards.

        Each with which of these it is, by number.
        """
        found = self._of_queues.get(queue)
        if found is None:
            found = self._of_queues[queue] = []
            for node in self._state.queues.by_name[queue].limited_by:
                if (limit := node.limit) is None:
                    continue
                rows = (("cards", 0, node.gpu_milli, limit.gpu_milli), *_others(node, limit, Amount()))
                found += [
                    (self._account(("limit", node.queue.name, what), most - held), which)
                    for which, (what, _, held, most) in enumerate(rows)
                    if most is not None and most < NO_BOUND
                ]
        return found

    def _charges_of_guarantees(self, record: JobRecord, amount: Amount) -> Iterator[tuple[int, int]]:
        """Work that borrows nothing has no more than what is guaranteed."""
        leaf = self._state.queues.by_name[record.queue]
        if record.job.preemptible and not (leaf.confined_to or leaf.is_confined):
            return
        for judged, milli in self._judged(amount):
            covering = [node for node in leaf.guarantors if node.cards_guaranteed(judged)] or leaf.guarantors
            for node in (*leaf.confined_to, *(covering[-1:] if leaf.is_confined else ())):
                yield from self._charges_of_guarantee(node, judged, milli, amount)
            for node in () if record.job.preemptible else covering[-1:]:
                yield from self._charges_of_guarantee(self._held_for_good(node, record), judged, milli, amount, "stays")

    def _held_for_good(self, node: QueueNode, record: JobRecord) -> QueueNode:
        """A queue on whose guarantee a job lives that stays, without what others hold there that may leave."""
        found = self._for_good.get(node)
        if found is None:
            recallable = self._state.entitlements.recallable(record).get(node, Amount())
            found = self._for_good[node] = node.less(recallable)
        return found

    def _judged(self, amount: Amount) -> Iterable[tuple[str, int]]:
        """Of which models of cards, as guarantees name them, an amount has how much."""
        named = self._state.queues.guaranteed_models
        if not named or not amount.models:
            return ((OTHER_MODELS, amount.gpu_milli),)
        found = Counter[str]()
        for model, milli in amount.models:
            found[model if model in named else OTHER_MODELS] += milli
        return found.items()

    def _charges_of_guarantee(
        self, node: QueueNode, judged: str, milli: int, amount: Amount, kind: str = "guarantee"
    ) -> Iterator[tuple[int, int]]:
        if node.judges(amount):
            yield from self._charges_of_bound(
                (kind, node.queue.name),
                (judged, milli, node.cards_held(judged), node.cards_guaranteed(judged)),
                *_others(node, node.guarantee, amount),
            )

    def _charges_of_bound(self, bound: tuple[str, object], *rows: Row) -> Iterator[tuple[int, int]]:
        for what, more, held, most in rows:
            if more and most is not None and most < NO_BOUND:
                yield self._account((*bound, what), most - held), more

    def _account(self, key: object, spare: int) -> int:
        number = self._numbers.setdefault(key, len(self.spare))
        if number == len(self.spare):
            self.spare.append(spare // self._every)
        return number


def _others(node: QueueNode, bound: Bound, amount: Amount) -> tuple[Row, ...]:
    """What a bound on a queue says of all but cards."""
    return (
        ("cpus", amount.cpu_milli, node.cpu_milli, bound.cpu_milli),
        ("memory", amount.memory_mib, node.memory_mib, bound.memory_mib),
        ("card memory", amount.card_mib, node.card_mib, bound.card_mib),
    )
