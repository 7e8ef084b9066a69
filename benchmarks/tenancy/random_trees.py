"""Trees of queues drawn at random, as large as small worlds need them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from millpond.model.hardware.nodes import Node
from millpond.model.resources import CARD_MILLI, Amount, TaskRequest
from millpond.model.tenancy.tenants import ROOT_QUEUE, Queue

MOST_QUEUES = 9
DEEPEST = 4
MODELS = ("A100", "V100")


def random_tree_on(draws: random.Random, nodes: Iterable[Node], *, with_models: bool) -> tuple[Queue, ...]:
    """Queues that are guaranteed no more than nodes have; ``with_models``: of single models of cards."""
    cards = Counter(device.model for node in nodes for device in node.devices)
    return random_tree_of_models(draws, cards) if with_models else random_tree(draws, cards.total())


def of_model(node: Node, model: str) -> Node:
    """The same node with cards of another model."""
    return replace(node, devices=tuple(replace(device, model=model) for device in node.devices))


def of_some_models(draws: random.Random, request: TaskRequest) -> TaskRequest:
    """The same request, which may take cards of one model alone."""
    taken = ((), (), *((model,) for model in MODELS), MODELS)
    return replace(request, models=draws.choice(taken)) if request.devices else request


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


def random_tree_of_models(draws: random.Random, cards: Mapping[str, int]) -> tuple[Queue, ...]:
    """The same where guarantees name models of cards; in some trees those of one model go unnamed.

    Args:
        cards: what all are guaranteed together at most, of each model.
    """
    found: list[Queue] = []
    unnamed = draws.choice((*cards, "", ""))
    left, depth = {ROOT_QUEUE: dict(cards)}, {ROOT_QUEUE: 0}
    for number in range(draws.randint(2, MOST_QUEUES)):
        name = f"q{number}"
        parent = draws.choice([each for each, floor in depth.items() if floor < DEEPEST])
        given = {model: draws.randint(0, n) if draws.random() < 0.6 else 0 for model, n in left[parent].items()}
        left[name] = {model: given[model] or n for model, n in left[parent].items()}
        left[parent] = {model: n - given[model] for model, n in left[parent].items()}
        depth[name] = depth[parent] + 1
        models = tuple((model, n * CARD_MILLI) for model, n in sorted(given.items()) if n and model != unnamed)
        guarantee = Amount(sum(given.values()) * CARD_MILLI, models=models)
        limit = None
        if draws.random() < 0.2:
            most = {model: n + draws.randint(0, 4) for model, n in given.items() if draws.random() < 0.5}
            limit = Amount(2**50, models=tuple((model, n * CARD_MILLI) for model, n in sorted(most.items())))
        weight = draws.choice((1.0, 1.0, 2.0, 5.0))
        found.append(Queue(name, parent, guarantee, limit, weight, borrows=draws.random() < 0.8))
    return tuple(found)


def leaves_of(queues: tuple[Queue, ...]) -> list[str]:
    """The names of the queues that take jobs."""
    parents = {each.parent for each in queues}
    return [each.name for each in queues if each.name not in parents]
