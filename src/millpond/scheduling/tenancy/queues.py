"""The queue tree: what each queue is guaranteed, what it may not exceed, and what it uses.

Usage is charged along the path from a leaf to the root, and recorded in the journal, so a trial placement is charged
and uncharged with the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from millpond.model.errors import ConflictError, InconsistentStateError, InvalidInputError, NotFoundError
from millpond.model.policies import own_orderings_of, own_placements_of
from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import BACKGROUND_QUEUE, DEFAULT_QUEUE, ROOT_QUEUE, Queue
from millpond.scheduling.ledger.journal import Journal
from millpond.scheduling.tenancy.bounds import OTHER_MODELS, Beyond, Bound
from millpond.scheduling.tenancy.promises import keeps_promises

UNBOUNDED = (math.inf, math.inf)


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
        self.children: list[str] = []
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


def _require_sound(queue: Queue) -> None:
    """Refuse what no queue can be."""
    limit = queue.limit or Amount()
    if (queue.running_jobs or 0) < 0 or not 0 <= (queue.minimum_run_s or 0.0) < math.inf:
        raise InvalidInputError(f"queue {queue.name!r} bounds its jobs by less than nothing", "use zero or more")
    if BACKGROUND_QUEUE in (queue.name, queue.parent):
        raise InvalidInputError(f"a queue called {BACKGROUND_QUEUE}, or below it", "choose another name")
    if not 0 < queue.weight < math.inf:
        raise InvalidInputError(f"queue {queue.name!r} has a weight of {queue.weight}", "use a number above 0")
    own_orderings_of(queue.ordering)
    own_placements_of(queue.placement)
    for each in (queue.guarantee, limit):
        if min(each.gpu_milli, each.cpu_milli, each.memory_mib, each.card_mib, *(most for _, most in each.models)) < 0:
            raise InvalidInputError(f"queue {queue.name!r} is given less than nothing ({each})", "use zero or more")
    if sum(milli for _, milli in queue.guarantee.models) > queue.guarantee.gpu_milli:
        raise InvalidInputError(
            f"queue {queue.name!r} is guaranteed more cards of single models than cards ({queue.guarantee})",
            "cards of single models are among all that it is guaranteed",
        )
    if queue.limit is not None and QueueNode(queue, None).exceeds_limit(queue.guarantee):
        raise InvalidInputError(
            f"queue {queue.name!r} is guaranteed {queue.guarantee}, and may hold at most {limit}",
            "raise the limit, or lower the guarantee",
        )


class QueueTree:
    """All queues. There is always a root and, under it, the leaf that takes jobs naming no other.

    Beside the tree stands the queue that all background work is counted for: it is guaranteed nothing and has no limit.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.by_name: dict[str, QueueNode] = {}
        self.has_guarantees = False
        """Whether any queue is guaranteed anything."""
        self.guarantees_cpus = False
        """Whether any queue is guaranteed CPUs or memory."""
        self.has_bounds = False
        """Whether any queue has a limit or may not borrow."""
        self.names_cards = False
        """Whether a limit or a guarantee of any queue names models of cards, or their memory."""
        self.limits_accounts_by_card = False
        """Whether a limit of any user or group names the memory of cards."""
        self.guaranteed_models: tuple[str, ...] = ()
        """The models that guarantees name, sorted."""
        self.guarantees_card_memory = False
        """Whether any guarantee names the memory of cards."""
        self.depth = 0
        """Queues from the deepest one up to the root, without that."""
        self.set_queue(Queue(ROOT_QUEUE, parent=""))
        self.set_queue(Queue(DEFAULT_QUEUE))
        self.background = self.by_name[BACKGROUND_QUEUE] = QueueNode(Queue(BACKGROUND_QUEUE, parent=""), None)

    @property
    def counts_cards(self) -> bool:
        """Whether cards are counted by what they are, their models and their memory, as a limit or guarantee says so.

        Where this is not so, amounts are no more than sums of what is asked for.
        """
        return self.names_cards or self.limits_accounts_by_card

    @property
    def guarantees_by_card(self) -> bool:
        """Whether it can matter to guarantees of which model the cards of a job are."""
        return bool(self.guaranteed_models) or self.guarantees_card_memory

    def copy_from(self, other: QueueTree) -> None:
        """Become like another tree, with the same usage."""
        self.set_queues(other.queues())
        self.limits_accounts_by_card = other.limits_accounts_by_card
        for node in other.by_name.values():
            own = self.by_name[node.queue.name]
            own.gpu_milli, own.cpu_milli, own.memory_mib = node.gpu_milli, node.cpu_milli, node.memory_mib
            own.models, own.card_mib = dict(node.models), node.card_mib

    def count_cards(self, held: Iterable[tuple[str, Amount]]) -> None:
        """Begin to count cards by what they are.

        Args:
            held: what work holds, each with its queue.
        """
        self.journal.require_no_trial()
        for node in self.by_name.values():
            node.models.clear()
            node.card_mib = 0
        for name, amount in held:
            for node in self.by_name[name].path:
                node.add_cards(amount, 1)

    def queues(self) -> list[Queue]:
        """All queues of the tree, each behind its parent."""
        return [node.queue for node in self.by_name.values() if node is not self.background]

    def set_queue(self, queue: Queue) -> None:
        """Define or redefine a queue; its parent comes first.

        Raises:
            InvalidInputError: the parent is unknown, or another than before; or no weight, guarantee or limit is like
                this.
        """
        self.set_queues([queue])

    def set_queues(self, queues: Sequence[Queue]) -> None:
        """Define or redefine queues, each after its parent; much faster than one by one.

        Raises:
            InvalidInputError: as ``set_queue``; queues before the wrong one may be defined.
        """
        self.journal.require_no_trial()
        for queue in queues:
            _require_sound(queue)
            self._define(queue)
        self._relate([self.by_name[queue.name] for queue in queues])

    def remove_queue(self, name: str) -> None:
        """Forget a queue; what its jobs used once still counts for fair shares if there is one of this name again.

        Raises:
            NotFoundError: there is none.
            ConflictError: it is always there, has queues below it, or holds something.
        """
        self.journal.require_no_trial()
        node = self.by_name.get(name)
        if node is None:
            raise NotFoundError(f"no queue {name!r}", "`pond queue show` lists them")
        if node.parent is None or name == DEFAULT_QUEUE:
            raise ConflictError(f"queue {name!r} is always there", "remove another one")
        if node.children:
            raise ConflictError(
                f"queue {name!r} has queues below it ({', '.join(node.children)})", "remove these first"
            )
        if node.gpu_milli or node.cpu_milli or node.memory_mib:
            raise ConflictError(f"jobs of queue {name!r} hold something", "wait for their end, or stop them")
        del self.by_name[name]
        node.parent.children.remove(name)
        self._weigh(node.parent)
        self._relate([])

    def _weigh(self, parent: QueueNode) -> None:
        parent.weights = sum(self.by_name[child].queue.weight for child in parent.children)

    def _relate(self, changed: Sequence[QueueNode]) -> None:
        """Note what follows from how queues stand to each other, when these have changed."""
        for parent in {node.parent for node in changed if node.parent is not None}:
            self._weigh(parent)
        left, seen = list(changed), set[QueueNode]()
        while left:
            node = left.pop()
            if node in seen:
                continue
            seen.add(node)
            left += [self.by_name[child] for child in node.children]
            node.guarantors = tuple(each for each in node.path if each.queue.guarantee != Amount())
            node.limited_by = tuple(each for each in node.path if each.queue.limit is not None)
            confined = [each for each in node.path if not each.queue.borrows]
            node.confined_to = tuple(each for each in confined if each.queue.guarantee != Amount())
            node.is_confined = len(confined) > len(node.confined_to)
            stated = (each.queue.minimum_run_s for each in node.path)
            node.minimum_run_s = next((seconds for seconds in stated if seconds is not None), 0.0)
        self.depth = max(len(node.path) for node in self.by_name.values()) - 1
        given = [node.queue.guarantee for node in self.by_name.values()]
        self.has_guarantees = any(each != Amount() for each in given)
        self.guarantees_cpus = any(each.cpu_milli or each.memory_mib for each in given)
        self.has_bounds = any(node.queue.limit is not None or not node.queue.borrows for node in self.by_name.values())
        self.guaranteed_models = tuple(sorted({model for each in given for model, _ in each.models}))
        self.guarantees_card_memory = any(each.card_mib for each in given)
        for node in self.by_name.values():
            node.bind(self.guaranteed_models)
        limits = [node.queue.limit for node in self.by_name.values() if node.queue.limit is not None]
        self.names_cards = self.guarantees_by_card or any(each.models or each.card_mib for each in limits)

    def _define(self, queue: Queue) -> None:
        existing = self.by_name.get(queue.name)
        if existing is not None:
            if existing.queue.parent != queue.parent:
                raise InvalidInputError(
                    f"queue {queue.name!r} would move from {existing.queue.parent!r} to {queue.parent!r}",
                    "define a new queue under the new parent",
                )
            existing.queue = queue
            return
        if queue.name == ROOT_QUEUE:
            self.by_name[queue.name] = QueueNode(queue, None)
            return
        parent = self.by_name.get(queue.parent)
        if parent is None:
            raise InvalidInputError(
                f"queue {queue.name!r} names an unknown parent {queue.parent!r}", "define the parent first"
            )
        parent.children.append(queue.name)
        self.by_name[queue.name] = QueueNode(queue, parent)

    def is_leaf(self, name: str) -> bool:
        """Whether the queue exists and takes jobs."""
        node = self.by_name.get(name)
        return node is not None and not node.children and name not in (ROOT_QUEUE, BACKGROUND_QUEUE)

    def leaves(self) -> Iterator[QueueNode]:
        """Queues that take jobs, in order of definition."""
        return (node for name, node in self.by_name.items() if self.is_leaf(name))

    def charge(self, name: str, amount: Amount, sign: int) -> None:
        """Count ``amount`` for a leaf and all queues above it (``sign`` -1: no longer)."""
        self.journal.record(self._add, name, amount, -sign)
        self._add(name, amount, sign)

    def _add(self, name: str, amount: Amount, sign: int) -> None:
        gpu, cpu, memory = sign * amount.gpu_milli, sign * amount.cpu_milli, sign * amount.memory_mib
        counts_cards = self.counts_cards
        for node in self.by_name[name].path:
            node.gpu_milli += gpu
            node.cpu_milli += cpu
            node.memory_mib += memory
            if sign < 0 and (node.gpu_milli < 0 or node.cpu_milli < 0 or node.memory_mib < 0):
                raise InconsistentStateError(f"usage of queue {node.queue.name!r} fell below zero")
            if counts_cards:
                node.add_cards(amount, sign)
                if sign < 0 and min(node.card_mib, *(node.models[model] for model, _ in amount.models), 0) < 0:
                    raise InconsistentStateError(f"usage of cards of queue {node.queue.name!r} fell below zero")

    def limiting(self, name: str, amount: Amount) -> QueueNode | None:
        """The first queue on the way up whose limit ``amount`` would break, or its guarantee where that is a limit.

        None when all allow it.
        """
        if not self.has_bounds:
            return None
        leaf = self.by_name[name]
        for node in leaf.path:
            if node.exceeds_limit(amount):
                return node
        bounds = leaf.confined_to
        if leaf.is_confined and self.guarantor(name, amount) is None:
            bounds = (*bounds, next(iter(leaf.guarantors), self.by_name[ROOT_QUEUE]))
        return next((node for node in bounds if node.keeps_out(amount)), None)

    def guarantor(self, name: str, amount: Amount) -> QueueNode | None:
        """The queue whose guarantee covers ``amount`` more for a leaf: the nearest on the way up; None if none does.

        What the guarantee of a group leaves beyond those of the queues in it, all of these may have.
        """
        for node in self.by_name[name].guarantors:
            if node.within_guarantee(amount):
                return node
        return None

    def borrows(self, name: str, amount: Amount) -> bool:
        """Whether no guarantee covers ``amount`` more for this leaf."""
        return self.guarantor(name, amount) is None

    def blocks_guarantees(self, name: str, amount: Amount) -> bool:
        """Whether ``amount`` more, held for good by a leaf, could block what others are guaranteed."""
        if not self.concern_guarantees(amount):
            return False
        leaf = self.by_name[name]
        return not any(keeps_promises(self, node, leaf, amount) for node in leaf.guarantors)

    def concern_guarantees(self, amount: Amount) -> bool:
        """Whether any guarantee names cards, CPUs or memory of cards that ``amount`` has some of."""
        return bool(
            (self.has_guarantees and amount.gpu_milli)
            or (self.guarantees_cpus and amount.cpu_milli)
            or (self.guarantees_card_memory and amount.card_mib)
        )

    def shields(self, name: str, newcomer: str, *, with_cards: bool) -> bool:
        """Whether a guarantee on which another leaf does not live covers what a leaf holds, with cards or without."""
        path, guarantors = self.by_name[newcomer].path, self.by_name[name].guarantors
        return any(node.covers_all(with_cards=with_cards) and node not in path for node in guarantors)

    def covers_all(self, name: str) -> bool:
        """Whether a guarantee covers all cards that a leaf and those beside it on that guarantee hold."""
        return any(node.covers_all(with_cards=True) for node in self.by_name[name].guarantors)

    def room(self, name: str) -> tuple[float, float]:
        """The most compute and CPU, in milli, of which ``limiting`` may name no queue for a leaf."""
        node = self.by_name[name]
        rooms = [each.room for each in node.limited_by] + [each.confined_room for each in node.confined_to]
        if node.is_confined:
            covered = [each.confined_room for each in node.guarantors] or [(0.0, math.inf)]
            rooms.append((max(milli for milli, _ in covered), max(cpu for _, cpu in covered)))
        milli, cpu = rooms.pop() if rooms else UNBOUNDED
        for own_milli, own_cpu in rooms:
            milli, cpu = min(milli, own_milli), min(cpu, own_cpu)
        return milli, cpu

    def cards_limit(self, name: str, amount: Amount) -> tuple[str, Beyond] | None:
        """The first queue on the way up whose limit of a model of cards, or of their memory, ``amount`` would break."""
        for node in self.by_name[name].path if amount.models else ():
            if node.limit is not None and (beyond := node.cards_beyond(node.limit, amount)) is not None:
                return node.queue.name, beyond
        return None

    def closed_to(self, name: str, priority: int) -> QueueNode | None:
        """The first queue on the way up whose jobs may not have a class; None when all allow it."""
        path = self.by_name[name].path
        return next((node for node in path if node.queue.priorities and priority not in node.queue.priorities), None)

    def is_below(self, name: str, ancestor: str) -> bool:
        """Whether a queue is another one, or one below it."""
        return self.by_name[ancestor] in self.by_name[name].path

    def may_take_back(self, name: str, amount: Amount, victim: str, *, with_cards: bool) -> bool:
        """Whether a leaf may take ``amount`` back of what another leaf holds, because that is borrowed.

        Queues are compared below the nearest that both are below: there a guarantee on the leaf's way up covers
        ``amount`` more, and none on the other's way up covers what is held.

        Args:
            with_cards: it is about work of the other that has cards, else about work that has none.
        """
        guarantor, path = self.guarantor(name, amount), self.by_name[victim].path
        return guarantor is not None and guarantor not in path and not self.shields(victim, name, with_cards=with_cards)
