"""What queues hold and are promised, counted anew from jobs: to hold the books of the core against."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import ROOT_QUEUE, Queue

OTHERS = "others"
"""In place of a model of cards: those that no guarantee names."""


class CountedTree:
    """Queues, and what the jobs of a world hold in them, counted from the jobs.

    Args:
        held: what each job holds, and in which leaf; by models of cards where guarantees name any.
    """

    def __init__(self, queues: Iterable[Queue], held: Iterable[tuple[str, Amount]]) -> None:
        self.queues = {each.name: each for each in queues}
        self.models = sorted({model for each in self.queues.values() for model, _ in each.guarantee.models})
        self.held = dict.fromkeys((*self.queues, ROOT_QUEUE), Amount())
        for leaf, amount in held:
            self.add(leaf, amount)

    def add(self, leaf: str, amount: Amount) -> None:
        """A leaf and all above it hold more."""
        for name in (*self.path(leaf), ROOT_QUEUE):
            self.held[name] += amount

    def path(self, leaf: str) -> list[str]:
        """From a leaf up to below the root."""
        found, name = [], leaf
        while name in self.queues:
            found.append(name)
            name = self.queues[name].parent
        return found

    def cards(self, amount: Amount) -> dict[str, int]:
        """How much compute of cards an amount has, of each model that guarantees name and of all others."""
        by_model = dict(amount.models)
        named = {model: by_model.get(model, 0) for model in self.models}
        return {**named, OTHERS: amount.gpu_milli - sum(named.values())}

    def covers(self, name: str, amount: Amount, held: Amount | None = None) -> bool:
        """Whether the guarantee of a queue covers ``amount`` more than it holds: all that is asked for and named."""
        given, has = self.queues[name].guarantee, self.held[name] if held is None else held
        if not (given.gpu_milli if amount.gpu_milli else given.cpu_milli):
            return False
        return self._is_within(amount, has + amount, given)

    def is_within(self, name: str, asked: Amount) -> bool:
        """Whether a queue holds no more than it is guaranteed, of all that is asked for."""
        given = self.queues[name].guarantee
        return given.gpu_milli > 0 and self._is_within(asked, self.held[name], given)

    def _is_within(self, asked: Amount, held: Amount, given: Amount) -> bool:
        """Whether what is held of all that is asked for is no more than what is given of it."""
        of_asked, of_held, of_given = self.cards(asked), self.cards(held), self.cards(given)
        if any(of_held[model] > of_given[model] for model, more in of_asked.items() if more):
            return False
        cpus = (asked.cpu_milli, held.cpu_milli, given.cpu_milli)
        memory = (asked.memory_mib, held.memory_mib, given.memory_mib)
        return all(has <= most for more, has, most in (cpus, memory) if more and most)

    def guarantor(self, leaf: str, amount: Amount) -> str | None:
        """The nearest queue whose guarantee covers ``amount`` more for a leaf."""
        return next((name for name in self.path(leaf) if self.covers(name, amount)), None)

    def admits(self, leaf: str, amount: Amount) -> bool:
        """Whether no limit keeps ``amount`` more out, nor that a queue may not borrow."""
        for name in self.path(leaf):
            limit, has = self.queues[name].limit, self.held[name]
            if limit is not None and amount.gpu_milli and has.gpu_milli + amount.gpu_milli > limit.gpu_milli:
                return False
            most = {} if limit is None else dict(limit.models)
            asked, held = dict(amount.models), dict(has.models)
            if any(more and held.get(model, 0) + more > most.get(model, 2**60) for model, more in asked.items()):
                return False
            if not self.queues[name].borrows:
                is_guaranteed = self.queues[name].guarantee != Amount()
                if not (self.covers(name, amount) if is_guaranteed else self.guarantor(leaf, amount)):
                    return False
        return True

    def keeps_promises(self, name: str, asked: Amount) -> bool:
        """Whether what is spoken for below a queue is no more than it is guaranteed, of all that is asked for."""
        below = (self._spoken_for(each.name) for each in self.queues.values() if each.parent == name)
        return self._is_within(asked, sum(below, Amount()), self.queues[name].guarantee)

    def _spoken_for(self, name: str) -> Amount:
        """What a queue and those below it hold, or are guaranteed beyond that."""
        below = (self._spoken_for(each.name) for each in self.queues.values() if each.parent == name)
        parts = (self.held[name], self.queues[name].guarantee, sum(below, Amount()))
        cards = {model: max(self.cards(part)[model] for part in parts) for model in (*self.models, OTHERS)}
        return Amount(
            sum(cards.values()),
            max(part.cpu_milli for part in parts),
            max(part.memory_mib for part in parts),
            tuple((model, milli) for model, milli in cards.items() if model != OTHERS and milli),
        )
