"""What queues hold and are promised, counted anew from jobs: to hold the books of the core against."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple

from millpond.model.resources import Amount
from millpond.model.tenants import ROOT_QUEUE, Queue


class CountedTree:
    """Queues, and what the jobs of a world hold in them, counted from the jobs.

    Args:
        held: what each job holds, and in which leaf.
    """

    def __init__(self, queues: Iterable[Queue], held: Iterable[tuple[str, Amount]]) -> None:
        self.queues = {each.name: each for each in queues}
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

    def covers(self, name: str, amount: Amount, held: Amount | None = None) -> bool:
        """Whether the guarantee of a queue covers ``amount`` more than it holds: all that is asked for and named."""
        given, has = self.queues[name].guarantee, self.held[name] if held is None else held
        if not (given.gpu_milli if amount.gpu_milli else given.cpu_milli):
            return False
        rows = zip(astuple(amount), astuple(given), astuple(has), strict=True)
        return all(held + more <= most for more, most, held in rows if more and most)

    def guarantor(self, leaf: str, amount: Amount) -> str | None:
        """The nearest queue whose guarantee covers ``amount`` more for a leaf."""
        return next((name for name in self.path(leaf) if self.covers(name, amount)), None)

    def admits(self, leaf: str, amount: Amount) -> bool:
        """Whether no limit keeps ``amount`` more out, nor that a queue may not borrow."""
        for name in self.path(leaf):
            limit, has = self.queues[name].limit, self.held[name].gpu_milli
            if limit is not None and amount.gpu_milli and has + amount.gpu_milli > limit.gpu_milli:
                return False
            if not self.queues[name].borrows:
                is_guaranteed = self.queues[name].guarantee != Amount()
                if not (self.covers(name, amount) if is_guaranteed else self.guarantor(leaf, amount)):
                    return False
        return True

    def keeps_promises(self, name: str, asked: Amount) -> bool:
        """Whether what is spoken for below a queue is no more than it is guaranteed, of all that is asked for."""
        below = (self._spoken_for(each.name) for each in self.queues.values() if each.parent == name)
        spoken_for, given = sum(below, Amount()), self.queues[name].guarantee
        rows = zip(astuple(asked), astuple(given), astuple(spoken_for), strict=True)
        return all(spoken <= most for more, most, spoken in rows if more and most)

    def _spoken_for(self, name: str) -> Amount:
        """What a queue and those below it hold, or are guaranteed beyond that."""
        below = (self._spoken_for(each.name) for each in self.queues.values() if each.parent == name)
        parts = (self.held[name], self.queues[name].guarantee, sum(below, Amount()))
        return Amount(*map(max, zip(*map(astuple, parts), strict=True)))
