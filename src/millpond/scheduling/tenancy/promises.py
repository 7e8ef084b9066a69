"""What work that never leaves may hold of a guarantee: no more than it leaves beside those of the queues below it.

What the guarantee of a group leaves beyond those of the queues in it, all of these may have, and what one of these does
not use is lent to the others; it comes back by reclaim. From work that is not preemptible it would not come back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from millpond.model.resources import Amount
from millpond.scheduling.tenancy.queue_node import QueueNode


def keeps_promises(
    guarantor: QueueNode, leaf: QueueNode, amount: Amount, recallable: Mapping[QueueNode, Amount]
) -> bool:
    """Whether a guarantee covers ``amount`` more that a leaf never gives back, beside all that is promised below it.

    Args:
        recallable: what of that which queues hold, with all below them, counts for no guarantee.
    """
    holding = guarantor.less(recallable[guarantor]) if guarantor in recallable else guarantor
    if not holding.within_guarantee(amount):
        return False
    promised = [_spoken_for(child, leaf, amount, recallable) for child in guarantor.children]
    if not promised:
        return True
    spoken_for = guarantor.unused()
    spoken_for.add(sum(promised, Amount()) - amount, 1)
    return spoken_for.within_guarantee(amount)


def _spoken_for(node: QueueNode, leaf: QueueNode, amount: Amount, recallable: Mapping[QueueNode, Amount]) -> Amount:
    """What a queue holds, with ``amount`` more if it is on the leaf's way up, or is promised beyond that."""
    held = node.held
    if node in recallable:
        held -= recallable[node]
    if node in leaf.path:
        held += amount
    below = [_spoken_for(child, leaf, amount, recallable) for child in node.children]
    return _largest((held, node.queue.guarantee, sum(below, Amount())), node.guarantee.models)


def _largest(parts: Sequence[Amount], named: Collection[str]) -> Amount:
    """The most of each resource: of cards, of each model that guarantees name, and of all others together."""
    by_model = [dict(part.models) for part in parts] if named else []
    models = tuple((model, max(each.get(model, 0) for each in by_model)) for model in named)
    others = [part.gpu_milli for part in parts]
    for index, each in enumerate(by_model):
        others[index] -= sum(each.get(model, 0) for model in named)
    return Amount(
        max(others) + sum(milli for _, milli in models),
        max(part.cpu_milli for part in parts),
        max(part.memory_mib for part in parts),
        tuple(row for row in models if row[1]),
        max(part.card_mib for part in parts),
    )
