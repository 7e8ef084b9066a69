"""Whose cards are whose: what each queue holds within guarantees, has borrowed, and has lent.

Amounts are compared, not jobs: of 10 cards on a guarantee of 6, 4 are borrowed. They are judged at every level of the
tree, as reclaim does. From the leaves up, a guarantee covers what its queue and those below it hold, up to its size.
From the root down, what a guarantee leaves beyond those of the queues below it covers these in proportion to what each
of them holds beyond its own. So a group can be within its guarantee as a whole while one of its queues holds what
another one of the group is guaranteed: that is borrowed, and lent, inside the group.

Where guarantees name models of cards, each model is judged by itself, and so are all others together; a queue's shares
are the sums.

Cards carry no names. What a queue does not use of its guarantee is free as far as cards are idle, and lent as far as
others hold beyond theirs; where machines are away, the rest is neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millpond.model.resources import CARD_MILLI
from millpond.model.tenancy.tenants import ROOT_QUEUE
from millpond.scheduling.tenancy.bounds import OTHER_MODELS
from millpond.scheduling.tenancy.queue_node import QueueNode
from millpond.scheduling.tenancy.queues import QueueTree


@dataclass(frozen=True, slots=True)
class QueueShare:
    """The cards of a queue and of those below it, in milli.

    Attributes:
        used: what they hold: ``within`` and ``borrowed`` together.
        guaranteed: the queue's guarantee or, if that is less, those of the queues below it together.
        within: what guarantees cover of ``used``: its own, those below it, or those above it.
        borrowed: what no guarantee covers, and what one covers that is promised to another queue of the same group.
        lent: what others hold of its guarantee.
        free: what it would get of its guarantee without anything having to leave.
    """

    used: int
    guaranteed: int
    within: int
    borrowed: int
    lent: int
    free: int

    def __add__(self, other: QueueShare) -> QueueShare:
        return QueueShare(
            self.used + other.used,
            self.guaranteed + other.guaranteed,
            self.within + other.within,
            self.borrowed + other.borrowed,
            self.lent + other.lent,
            self.free + other.free,
        )


class _Owed:
    """What follows from guarantees for one queue, in milli.

    Attributes:
        used: what it holds with all below it.
        promised: ``QueueShare.guaranteed``.
        covered: what its own guarantee, or those below it, cover of ``used``.
        within, free, missing: as in ``QueueShare``; ``missing`` is neither free nor lent.
    """

    __slots__ = ("below", "covered", "free", "guarantee", "missing", "promised", "used", "within")

    def __init__(self, node: QueueNode, model: str, below: Sequence[_Owed]) -> None:
        self.below = below
        self.used, self.guarantee = node.cards_held(model), node.cards_guaranteed(model)
        self.promised: int = max(self.guarantee, sum(each.promised for each in below))
        self.covered: int = max(min(self.used, self.guarantee), sum(each.covered for each in below))
        self.within = self.free = self.missing = 0

    @property
    def unused(self) -> int:
        """What is not used of its guarantee."""
        return self.promised - self.covered

    def pass_on(self) -> None:
        """Share out among the queues below what is within guarantees, free and missing here."""
        below = self.below
        beyond = [each.used - each.covered for each in below]
        own = self.used - sum(each.used for each in below)  # held by jobs from before there were queues below
        left = max(self.guarantee - sum(each.promised for each in below), 0) + self.within - self.covered
        *parts, own_part = _in_proportion(min(left, sum(beyond) + own), [*beyond, own])
        for each, part in zip(below, parts, strict=True):
            each.within = each.covered + part
        borrowed = sum(each.used - each.within for each in below) + own - own_part
        lent_inside = borrowed - (self.used - self.within)
        unused = [each.unused for each in below]
        available = max(min(sum(unused) - lent_inside, self.free), 0)
        for each, part in zip(below, _in_proportion(available, unused), strict=True):
            each.free = part
        taken = [each.unused - each.free for each in below]
        for each, part in zip(below, _in_proportion(min(self.missing, sum(taken)), taken), strict=True):
            each.missing = part

    def share(self) -> QueueShare:
        """The same for others to read."""
        lent = self.unused - self.free - self.missing
        return QueueShare(self.used, self.promised, self.within, self.used - self.within, lent, self.free)


def queue_shares(tree: QueueTree, idle_milli: Mapping[str, int]) -> dict[str, dict[str, QueueShare]]:
    """The shares of all queues, by name, of each model that guarantees name and of ``OTHER_MODELS``.

    Args:
        idle_milli: by model, compute of all cards that is free and may be handed out now.
    """
    found: dict[str, dict[str, QueueShare]] = {name: {} for name in tree.by_name}
    idle = dict.fromkeys((*tree.guaranteed_models, OTHER_MODELS), 0)
    for model, milli in idle_milli.items():
        idle[model if model in idle else OTHER_MODELS] += milli
    for model, milli in idle.items():
        for name, share in _shares_of(tree, model, milli).items():
            found[name][model] = share
    return found


def _shares_of(tree: QueueTree, model: str, idle_milli: int) -> dict[str, QueueShare]:
    owed: dict[str, _Owed] = {}
    for node in reversed(tree.by_name.values()):  # each of them before its parent
        owed[node.queue.name] = _Owed(node, model, [owed[child.queue.name] for child in node.children])
    root = owed[ROOT_QUEUE]
    root.within, root.free = root.covered, min(root.unused, idle_milli)
    root.missing = max(root.unused - root.free - (root.used - root.within), 0)
    for name in tree.by_name:
        owed[name].pass_on()
    return {name: owed[name].share() for name in tree.by_name}


def _in_proportion(total: int, sizes: Sequence[int]) -> list[int]:
    """``total`` in parts as the sizes are, at most these; what the division leaves goes to the largest remainders.

    Whole cards are shared out as whole cards.
    """
    whole = sum(sizes)
    if total <= 0 or not whole:
        return [0] * len(sizes)
    unit = 1 if any(milli % CARD_MILLI for milli in (total, *sizes)) else CARD_MILLI
    parts = [total * size // (whole * unit) * unit for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda index: (-(total * sizes[index] % (whole * unit)), index))
    for index in by_remainder[: (total - sum(parts)) // unit]:
        parts[index] += unit
    return parts
