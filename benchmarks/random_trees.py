"""Trees of queues drawn at random, as large as small worlds need them."""

from __future__ import annotations

import random
from dataclasses import replace

from millpond.model.resources import CARD_MILLI, Amount
from millpond.model.tenants import ROOT_QUEUE, Queue

MOST_QUEUES = 9
DEEPEST = 4


def random_tree(draws: random.Random, cards: int) -> tuple[Queue, ...]:
    """Queues on up to four floors, parents first, of which none is guaranteed more than the one above it leaves.

    Some have limits, some may not borrow, some are guaranteed CPUs or memory with their cards.

    Args:
        cards: what all are guaranteed together at most.
    """
    found: list[Queue] = []
    left, depth = {ROOT_QUEUE: cards}, {ROOT_QUEUE: 0}
    for number in range(draws.randint(2, MOST_QUEUES)):
        name = f"q{number}"
        parent = draws.choice([each for each, floor in depth.items() if floor < DEEPEST])
        given = draws.randint(0, left[parent]) if draws.random() < 0.7 else 0
        left[name] = given or left[parent]
        left[parent] -= given
        depth[name] = depth[parent] + 1
        guarantee = Amount(given * CARD_MILLI)
        if given and draws.random() < 0.2:
            guarantee = replace(guarantee, cpu_milli=given * draws.choice((1_000, 2_000)))
        if given and draws.random() < 0.1:
            guarantee = replace(guarantee, memory_mib=given * 1_000)
        limit = None if draws.random() < 0.8 else Amount((given + draws.randint(0, 4)) * CARD_MILLI)
        weight = draws.choice((1.0, 1.0, 2.0, 5.0))
        found.append(Queue(name, parent, guarantee, limit, weight, borrows=draws.random() < 0.8))
    return tuple(found)


def leaves_of(queues: tuple[Queue, ...]) -> list[str]:
    """The names of the queues that take jobs."""
    parents = {each.parent for each in queues}
    return [each.name for each in queues if each.name not in parents]
