"""The queue tree: what each queue is guaranteed, what it may not exceed, and what it uses.

Usage is charged along the path from a leaf to the root, and recorded in the journal, so a trial placement is charged
and uncharged with the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from millpond.model.errors import ConflictError, InconsistentStateError, InvalidInputError, NotFoundError
from millpond.model.policies import own_orderings_of, own_placements_of
from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import BACKGROUND_QUEUE, DEFAULT_QUEUE, ROOT_QUEUE, Queue
from millpond.scheduling.ledger.journal import Journal
from millpond.scheduling.tenancy.bounds import Beyond
from millpond.scheduling.tenancy.promises import keeps_promises
from millpond.scheduling.tenancy.queue_node import UNBOUNDED, GuaranteeUse, QueueNode


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
        self.version = 0
        """Rises with every charge, and with every change of the tree."""
        self._shielding: tuple[bool, ...] | None = None
        self._guarantee_uses: dict[QueueNode, GuaranteeUse] = {}
        """What ``guarantee_use`` has found, as long as it holds."""
        self._rooms: dict[str, tuple[float, float]] = {}
        """What ``room`` has found, as long as it holds."""
        self._bounded_alone: set[str] = set()
        """The leaves that share no limit or guarantee with others: what they hold changes no other's room."""
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
        self._forget_answers()

    def _forget_answers(self) -> None:
        """What follows from usage and bounds is found anew."""
        self.version += 1
        self._shielding = None
        self._guarantee_uses.clear()
        self._rooms.clear()

    def count_cards(self, held: Iterable[tuple[str, Amount]]) -> None:
        """Begin to count cards by what they are.

        Args:
            held: what work holds, each with its queue.
        """
        self.journal.require_no_trial()
        self._forget_answers()
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
            below = ", ".join(child.queue.name for child in node.children)
            raise ConflictError(f"queue {name!r} has queues below it ({below})", "remove these first")
        if node.gpu_milli or node.cpu_milli or node.memory_mib:
            raise ConflictError(f"jobs of queue {name!r} hold something", "wait for their end, or stop them")
        del self.by_name[name]
        node.parent.children.remove(node)
        self._weigh(node.parent)
        self._relate([])

    def _weigh(self, parent: QueueNode) -> None:
        parent.weights = sum(child.queue.weight for child in parent.children)

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
            left += node.children
            node.guarantors = tuple(each for each in node.path if each.queue.guarantee != Amount())
            node.limited_by = tuple(each for each in node.path if each.queue.limit is not None)
            confined = [each for each in node.path if not each.queue.borrows]
            node.confined_to = tuple(each for each in confined if each.queue.guarantee != Amount())
            node.is_confined = len(confined) > len(node.confined_to)
            stated = (each.queue.minimum_run_s for each in node.path)
            node.minimum_run_s = next((seconds for seconds in stated if seconds is not None), 0.0)
        self._forget_answers()
        self._bounded_alone = {
            name
            for name, node in self.by_name.items()
            if all(each is node for each in (*node.limited_by, *node.confined_to, *node.guarantors))
        }
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
        node = self.by_name[queue.name] = QueueNode(queue, parent)
        parent.children.append(node)

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
        counts_cards, self._shielding = self.counts_cards, None
        self.version += 1
        if name in self._bounded_alone:
            self._rooms.pop(name, None)
        else:
            self._rooms.clear()
        for node in self.by_name[name].path:
            self._guarantee_uses.pop(node, None)
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

    def blocks_guarantees(
        self, name: str, amount: Amount, recallable: Mapping[QueueNode, Amount] = MappingProxyType({})
    ) -> bool:
        """Whether ``amount`` more, held for good by a leaf, could block what others are guaranteed.

        Args:
            recallable: what of that which queues hold, with all below them, counts for no guarantee.
        """
        if not self.concern_guarantees(amount):
            return False
        leaf = self.by_name[name]
        return not any(keeps_promises(node, leaf, amount, recallable) for node in leaf.guarantors)

    def concern_guarantees(self, amount: Amount) -> bool:
        """Whether any guarantee names cards, CPUs or memory of cards that ``amount`` has some of."""
        return bool(
            (self.has_guarantees and amount.gpu_milli)
            or (self.guarantees_cpus and amount.cpu_milli)
            or (self.guarantees_card_memory and amount.card_mib)
        )

    @property
    def shielding(self) -> tuple[bool, ...]:
        """Which guarantees cover all that their queues hold with cards, and all without: ``shields`` hangs on no more.

        Found anew after each charge.
        """
        if self._shielding is None:
            guarantors = [node for node in self.by_name.values() if node in node.guarantors]
            self._shielding = tuple(each for node in guarantors for each in self.guarantee_use(node)[:2])
        return self._shielding

    def guarantee_use(self, node: QueueNode) -> GuaranteeUse:
        """How what a queue of the tree holds stands to its own guarantee; found anew once it was charged."""
        found = self._guarantee_uses.get(node)
        if found is None:
            found = self._guarantee_uses[node] = node.guarantee_use()
        return found

    def covering(self, name: str, *, with_cards: bool) -> frozenset[QueueNode]:
        """The queues whose guarantee covers all that a leaf and those beside it on it hold, with cards or without."""
        guarantors = self.by_name[name].guarantors
        return frozenset(node for node in guarantors if node.covers_all(with_cards=with_cards))

    def shields(self, name: str, newcomer: str, *, with_cards: bool) -> bool:
        """Whether a guarantee on which another leaf does not live covers what a leaf holds, with cards or without."""
        path, guarantors = self.by_name[newcomer].path, self.by_name[name].guarantors
        return any(node.covers_all(with_cards=with_cards) and node not in path for node in guarantors)

    def covers_all(self, name: str) -> bool:
        """Whether a guarantee covers all cards that a leaf and those beside it on that guarantee hold."""
        return any(node.covers_all(with_cards=True) for node in self.by_name[name].guarantors)

    def room(self, name: str) -> tuple[float, float]:
        """The most compute and CPU, in milli, of which ``limiting`` may name no queue for a leaf."""
        found = self._rooms.get(name)
        if found is None:
            found = self._rooms[name] = self._room(self.by_name[name])
        return found

    def _room(self, node: QueueNode) -> tuple[float, float]:
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
