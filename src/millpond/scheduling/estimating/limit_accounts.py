"""What limits of queues and users leave to the jobs of a future, as numbered accounts with what each may hold more.

Limits on CPU and memory are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from millpond.model.resources import Amount
from millpond.scheduling.estimating.possible_jobs import Charges
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.bounds import OTHER_MODELS

EVERY_KIND = -1
"""A mask of all kinds of nodes."""


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
        self.spare: list[int] = []

    def charges(self, record: JobRecord) -> tuple[tuple[int, Charges], ...]:
        """What a job counts for of each limit on its queue, the queues above, its user and its group.

        Where limits or guarantees name models of cards, for each choice of these: with a mask of the kinds of nodes.
        """
        state = self._state
        if record.job.preemptible and not state.has_bounds:
            return ((EVERY_KIND, ()),)
        models: dict[Charges, int] = {}
        for choice in state.entitlements.choices(record, record.demand.least_amount):
            numbers = (state.cluster.words.models.known(model) for model, _ in choice.models)
            mask = sum(1 << number for number in numbers if number is not None) if choice.models else EVERY_KIND
            charges = tuple(self._charges(record, choice))
            models[charges] = models.get(charges, 0) | mask
        return tuple((mask, charges) for charges, mask in models.items())

    def charges_of_running(self, record: JobRecord) -> Charges:
        """The same of a running job, on the cards that it has."""
        is_free = record.job.preemptible and not self._state.has_bounds
        return () if is_free else tuple(self._charges(record, self._state.amounts.least_held(record)))

    def _charges(self, record: JobRecord, amount: Amount) -> Iterator[tuple[int, int]]:
        limits, milli = self._state.limits, amount.gpu_milli
        if milli:
            yield from self._charges_of_limits(record, amount)
            yield from self._charges_of_guarantees(record, amount)
        for account in limits.accounts_of(record.job):
            bound, held = limits.bounds.get(account), limits.held.get(account)
            if bound is not None and bound.jobs is not None:
                yield self._account(("jobs", account), bound.jobs - (held.jobs if held else 0)), 1
            if bound is not None and bound.gpu_milli is not None and milli:
                yield self._account(("cards", account), bound.gpu_milli - (held.gpu_milli if held else 0)), milli

    def _charges_of_limits(self, record: JobRecord, amount: Amount) -> Iterator[tuple[int, int]]:
        for node in self._state.queues.by_name[record.queue].path:
            limit, name = node.limit, node.queue.name
            if limit is not None:
                yield self._account(("queue", name), limit.gpu_milli - node.gpu_milli), amount.gpu_milli
                for model, milli in amount.models if limit.models else ():
                    if (most := limit.models.get(model)) is not None:
                        yield self._account(("queue", name, model), most - node.models.get(model, 0)), milli

    def _charges_of_guarantees(self, record: JobRecord, amount: Amount) -> Iterator[tuple[int, int]]:
        queues = self._state.queues
        leaf, named = queues.by_name[record.queue], queues.guaranteed_models
        must_be_covered = leaf.is_confined or not record.job.preemptible
        if not (must_be_covered or leaf.confined_to):
            return
        for model, milli in amount.models if named else ((OTHER_MODELS, amount.gpu_milli),):
            judged = model if model in named else OTHER_MODELS
            covering = [node for node in leaf.guarantors if node.cards_guaranteed(judged)] or leaf.guarantors
            for node in (*leaf.confined_to, *(covering[-1:] if must_be_covered else ())):
                yield self._account(("guarantee", node.queue.name, judged), node.cards_left(judged)), milli

    def _account(self, key: object, spare: int) -> int:
        number = self._numbers.setdefault(key, len(self.spare))
        if number == len(self.spare):
            self.spare.append(spare // self._every)
        return number
