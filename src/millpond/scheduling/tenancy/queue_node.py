"""One queue of the tree with what it holds now, and what its own limit and guarantee say of so much more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import Queue
from millpond.scheduling.tenancy.bounds import OTHER_MODELS, Beyond, Bound

UNBOUNDED = (math.inf, math.inf)


class GuaranteeUse(NamedTuple):
    """How what a queue holds stands to its own guarantee.

    Attributes:
        covers_cards: the guarantee covers all that it holds with cards,
        covers_others: and all without.
        left: whether (1 or 0) the guarantee has CPUs for work without cards, and memory of cards; what it leaves of
            that memory (MiB), of CPU (milli) and of memory (MiB); then of cards (milli) of each model that any
            guarantee names, and of all others together.
    """

    covers_cards: bool
    covers_others: bool
    left: tuple[float, ...]


class QueueNode:
    """One queue with its present usage (guaranteed GPU milli, CPU milli, memory MiB of what it holds)."""

    __slots__ = (
        "accounts", "card_mib", "children", "confined_to", "cpu_milli", "gpu_milli", "guarantee", "guarantors",
        "is_confined", "limit", "limited_by", "memory_mib", "minimum_run_s", "models", "parent", "path", "queue",
        "weights",
    )  # fmt: skip

    def __init__(self, queue: Queue, parent: QueueNode | None) -> None:
        self.queue = queue
        self.parent = parent
        self.children: list[QueueNode] = []
        self.weights = 0.0
        """Those of its children, added up."""
        self.gpu_milli = 0
        self.cpu_milli = 0
        self.memory_mib = 0
        self.models: dict[str, int] = {}
        """How much of ``gpu_milli`` is of each model of cards; kept where cards are counted by what they are."""
        self.card_mib = 0
        """Memory of cards; kept there too."""
        self.limit: Bound | None = None
        self.guarantee = Bound(Amount())
        self.bind(())
        self.path: tuple[QueueNode, ...] = (self,) if parent is None else (self, *parent.path)
        """From this queue up to the root."""
        self.accounts = tuple(node.queue.name for node in self.path[:-1])
        """The names of these, without the root's: whose fair shares what it uses counts for."""
        self.guarantors: tuple[QueueNode, ...] = ()
        """The queues on whose guarantees it lives: those of its path that are guaranteed anything."""
        self.limited_by: tuple[QueueNode, ...] = ()
        """The queues of its path that have a limit."""
        self.confined_to: tuple[QueueNode, ...] = ()
        """The queues of its path that may not borrow beyond a guarantee of their own."""
        self.is_confined = False
        """A queue of its path may not borrow and has no guarantee of its own: another has to cover its work."""
        self.minimum_run_s = 0.0
        """How long its work runs before it is asked to leave: by the nearest queue of its path that says it."""

    @property
    def part(self) -> float:
        """Its part of what its parent gets, above 0: its weight among its siblings."""
        weights = 0.0 if self.parent is None else self.parent.weights
        return max(self.queue.weight / weights, 1e-9) if weights > 0 else 1.0

    def bind(self, named: Sequence[str]) -> None:
        """Judge by what the queue says now, in a tree in which guarantees name these models."""
        self.limit = None if self.queue.limit is None else Bound(self.queue.limit)
        self.guarantee = Bound.of_guarantee(self.queue.guarantee, named)

    # ---- what bounds say of so much more ------------------------------------------------------------------------

    def exceeds_limit(self, amount: Amount) -> bool:
        """Whether ``amount`` more would go beyond this queue's own limit; nothing more of a resource never does."""
        return self.limit is not None and self._exceeds(self.limit, amount)

    def within_guarantee(self, amount: Amount) -> bool:
        """Whether this queue's own guarantee covers ``amount`` more.

        Of cards or, for work without, of CPUs some have to be guaranteed, or for slices by memory alone of that. What
        else the guarantee does not name is not counted.
        """
        if not self._names_any(amount):
            return False
        return not self._exceeds(self.guarantee, amount)

    def keeps_out(self, amount: Amount) -> bool:
        """Whether work that may not exceed this queue's guarantee may not hold ``amount`` more.

        Work without cards is bounded only where CPUs are guaranteed; that on their memory alone, where that is too.
        """
        return self.judges(amount) and not self.within_guarantee(amount)

    def judges(self, amount: Amount) -> bool:
        """Whether this queue's guarantee says anything of work like ``amount``."""
        return bool(amount.gpu_milli or self._names_any(amount))

    def _names_any(self, amount: Amount) -> bool:
        """Whether this queue's own guarantee names what decides about ``amount``."""
        given = self.queue.guarantee
        if amount.gpu_milli:
            return given.gpu_milli > 0
        return given.cpu_milli > 0 or (given.card_mib > 0 and amount.card_mib > 0)

    def first_beyond(self, bound: Bound, amount: Amount) -> Beyond | None:
        """The first of cards, CPUs, memory and cards of single models of which ``amount`` more goes beyond a bound."""
        rows = (
            Beyond("gpus", amount.gpu_milli, self.gpu_milli, bound.gpu_milli),
            Beyond("cpus", amount.cpu_milli, self.cpu_milli, bound.cpu_milli),
            Beyond("memory", amount.memory_mib, self.memory_mib, bound.memory_mib),
        )
        found = next((row for row in rows if row.asked and row.held + row.asked > row.most), None)
        return found or self.cards_beyond(bound, amount)

    def cards_beyond(self, bound: Bound, amount: Amount) -> Beyond | None:
        """The first model of cards, or else the memory of cards, of which ``amount`` more goes beyond a bound."""
        if (found := self.model_beyond(bound, amount)) is not None:
            return found
        if amount.card_mib > 0 and self.card_mib + amount.card_mib > bound.card_mib:
            return Beyond("card_memory", amount.card_mib, self.card_mib, bound.card_mib)
        return None

    def model_beyond(self, bound: Bound, amount: Amount) -> Beyond | None:
        """The first model of cards of which ``amount`` more goes beyond a bound."""
        if not bound.models:
            return None
        others = amount.gpu_milli
        for model, milli in amount.models:
            most = bound.models.get(model)
            if most is not None:
                others -= milli
                held = self.models.get(model, 0)
                if milli > 0 and held + milli > most:
                    return Beyond("gpus", milli, held, most, model)
        if bound.other_milli is not None and others > 0:
            held = self._others_milli(bound)
            if held + others > bound.other_milli:
                return Beyond("gpus", others, held, bound.other_milli, OTHER_MODELS)
        return None

    def _exceeds(self, bound: Bound, amount: Amount) -> bool:
        """Whether ``amount`` more goes beyond a bound."""
        return (
            (amount.gpu_milli > 0 and self.gpu_milli + amount.gpu_milli > bound.gpu_milli)
            or (amount.cpu_milli > 0 and self.cpu_milli + amount.cpu_milli > bound.cpu_milli)
            or (amount.memory_mib > 0 and self.memory_mib + amount.memory_mib > bound.memory_mib)
            or (amount.card_mib > 0 and self.card_mib + amount.card_mib > bound.card_mib)
            or (bool(bound.models) and amount.gpu_milli > 0 and self.model_beyond(bound, amount) is not None)
        )

    def _others_milli(self, bound: Bound) -> int:
        """What it holds of cards of models that a bound does not name."""
        return self.gpu_milli - sum(self.models.get(model, 0) for model in bound.models)

    # ---- what bounds leave --------------------------------------------------------------------------------------

    @property
    def room(self) -> tuple[float, float]:
        """How much more compute and CPU, in milli, this queue's own limit allows; infinite where it bounds nothing."""
        if (limit := self.queue.limit) is None:
            return UNBOUNDED
        cpu = max(limit.cpu_milli - self.cpu_milli, 0) if limit.cpu_milli > 0 else math.inf
        return max(limit.gpu_milli - self.gpu_milli, 0), cpu

    def cards_guaranteed(self, model: str) -> int:
        """How much compute of cards of a model this queue is guaranteed, in milli: of one, or of ``OTHER_MODELS``."""
        bound = self.guarantee
        return bound.gpu_milli if bound.other_milli is None else bound.models.get(model, bound.other_milli)

    def cards_left(self, model: str) -> int:
        """What of these is left; below 0 where the queue holds more."""
        return self.cards_guaranteed(model) - self.cards_held(model)

    def cards_held(self, model: str) -> int:
        """What it holds of the cards that its guarantee judges with those of a model."""
        bound = self.guarantee
        if bound.other_milli is None:
            return self.gpu_milli
        return self.models.get(model, 0) if model in bound.models else self._others_milli(bound)

    @property
    def cards_left_of_each(self) -> list[int]:
        """The same of each model that any guarantee names, and of all others together."""
        return [self.cards_left(model) for model in (*self.guarantee.models, OTHER_MODELS)]

    @property
    def others_left(self) -> tuple[float, float]:
        """What this queue's guarantee leaves of CPU (milli) and memory (MiB); huge where it does not name them."""
        return self.guarantee.cpu_milli - self.cpu_milli, self.guarantee.memory_mib - self.memory_mib

    @property
    def card_mib_left(self) -> int:
        """What this queue's guarantee leaves of the memory of cards; huge where it does not name that."""
        return self.guarantee.card_mib - self.card_mib

    @property
    def confined_room(self) -> tuple[float, float]:
        """As ``room``, for work that may not exceed this queue's guarantee."""
        cpu, _ = self.others_left
        milli = sum(max(left, 0) for left in self.cards_left_of_each) if self.queue.guarantee.gpu_milli else 0
        return milli, max(cpu, 0) if self.queue.guarantee.cpu_milli else math.inf

    def covers_all(self, *, with_cards: bool) -> bool:
        """Whether this queue's own guarantee covers all that it holds with cards, or all without."""
        given, (cpu, memory) = self.queue.guarantee, self.others_left
        if not (given.gpu_milli if with_cards else given.cpu_milli or given.card_mib):
            return False
        if min(cpu, memory, self.card_mib_left) < 0:
            return False
        if not with_cards:
            return True
        bound = self.guarantee
        return self.gpu_milli <= bound.gpu_milli and (not bound.models or min(self.cards_left_of_each) >= 0)

    def guarantee_use(self) -> GuaranteeUse:
        """How what it holds stands to its own guarantee."""
        given = self.queue.guarantee
        named = float(given.cpu_milli > 0), float(given.card_mib > 0)
        return GuaranteeUse(
            self.covers_all(with_cards=True),
            self.covers_all(with_cards=False),
            (*named, float(self.card_mib_left), *self.others_left, *self.cards_left_of_each),
        )

    # ---- what it holds ------------------------------------------------------------------------------------------

    def add(self, amount: Amount, sign: int) -> None:
        """Hold ``amount`` more (``sign`` -1: less)."""
        self.gpu_milli += sign * amount.gpu_milli
        self.cpu_milli += sign * amount.cpu_milli
        self.memory_mib += sign * amount.memory_mib
        self.add_cards(amount, sign)

    def add_cards(self, amount: Amount, sign: int) -> None:
        """Hold so much more (``sign`` -1: less) of cards of each model, and of their memory."""
        self.card_mib += sign * amount.card_mib
        for model, milli in amount.models:
            self.models[model] = self.models.get(model, 0) + sign * milli

    @property
    def held(self) -> Amount:
        """What it holds, with all below it."""
        models = tuple(sorted((model, milli) for model, milli in self.models.items() if milli)) if self.models else ()
        return Amount(self.gpu_milli, self.cpu_milli, self.memory_mib, models, self.card_mib)

    def unused(self) -> QueueNode:
        """The same queue by itself, as if it held nothing."""
        twin = QueueNode(self.queue, None)
        twin.guarantee = self.guarantee
        return twin

    def less(self, amount: Amount) -> QueueNode:
        """The same queue by itself, as if it held ``amount`` less."""
        twin = self.unused()
        twin.gpu_milli, twin.cpu_milli, twin.memory_mib = self.gpu_milli, self.cpu_milli, self.memory_mib
        twin.models, twin.card_mib = dict(self.models), self.card_mib
        twin.add(amount, -1)
        return twin
