"""Whether a gang fits on an empty cluster, by trying everything: the yardstick for what is accepted and for placement.

Written from the meaning of a request alone: no filter, no score and no array of the scheduler is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from millpond.model.hardware.nodes import Node, Pool
from millpond.model.hardware.topology import Level
from millpond.model.resources import CARD_MILLI, SHARE_OF_CARD, TaskRequest
from millpond.model.workloads import Job


@dataclass(frozen=True)
class Card:
    """What is left of one card."""

    model: str
    capacity_mib: int
    compute: int
    limit: int
    memory_mib: int


@dataclass(frozen=True)
class Box:
    """What is left of one node."""

    cpu: int
    memory_mib: int
    extras: tuple[tuple[str, int], ...]
    cards: tuple[Card, ...]


def fits(job: Job, nodes: Sequence[Node], pool: Pool) -> bool:
    """Whether the least number of tasks of every role has a place, near enough to each other."""
    groups: dict[object, list[Node]] = {}
    for node in nodes:
        where: object = None
        if job.together_required and job.together <= Level.NODE:
            where = node.name
        elif job.together_required and job.together is Level.RACK:
            where = (node.zone_name, node.rack_name)
        elif job.together_required:
            where = node.zone_name
        groups.setdefault(where, []).append(node)
    tasks = [role.request for role in job.roles for _ in range(role.minimum)]
    return any(_fit(tasks, tuple(_box(node, pool) for node in group), set()) for group in groups.values())


def _box(node: Node, pool: Pool) -> Box:
    cards = (
        Card(device.model, device.memory_mib, CARD_MILLI, pool.limit_capacity_milli, device.memory_mib)
        for device in node.devices
    )
    return Box(pool.cpu_capacity_milli(node), node.memory_mib, node.extras, tuple(cards))


def _fit(tasks: Sequence[TaskRequest], boxes: tuple[Box, ...], seen: set[object]) -> bool:
    if not tasks:
        return True
    state = (len(tasks), boxes)
    if state in seen:
        return False
    seen.add(state)
    for index, box in enumerate(boxes):
        for left in _after(tasks[0], box):
            if _fit(tasks[1:], (*boxes[:index], left, *boxes[index + 1 :]), seen):
                return True
    return False


def _after(request: TaskRequest, box: Box) -> Iterator[Box]:
    """What may be left of the node once it has taken the task."""
    extras = dict(box.extras)
    for name, amount in request.extras:
        extras[name] = extras.get(name, 0) - amount
    if box.cpu < request.cpu_milli or box.memory_mib < request.memory_mib or min(extras.values(), default=0) < 0:
        return
    for chosen in combinations(range(len(box.cards)), request.devices):
        cards = list(box.cards)
        for index in chosen:
            card = _cut(cards[index], request)
            if card is None:
                break
            cards[index] = card
        else:
            named = tuple(sorted(extras.items()))
            yield Box(box.cpu - request.cpu_milli, box.memory_mib - request.memory_mib, named, tuple(cards))


def _cut(card: Card, request: TaskRequest) -> Card | None:
    piece = request.slice
    if request.models and card.model not in request.models:
        return None
    memory = piece.memory_mib
    if piece.compute_milli == CARD_MILLI:
        untouched = card.compute == CARD_MILLI and card.memory_mib == card.capacity_mib
        if not untouched or (card.capacity_mib and card.capacity_mib < memory):
            return None
        memory = card.capacity_mib
    elif memory == SHARE_OF_CARD:
        memory = card.capacity_mib * piece.compute_milli // CARD_MILLI
    elif card.capacity_mib == 0:
        if piece.compute_milli == 0:
            return None
        memory = 0
    left = Card(
        card.model,
        card.capacity_mib,
        card.compute - piece.compute_milli,
        card.limit - piece.limit_milli,
        card.memory_mib - memory,
    )
    return left if min(left.compute, left.limit, left.memory_mib) >= 0 else None
