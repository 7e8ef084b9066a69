"""The very cards that jobs get in the cells that their queues are owed, whoever is on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from millpond.model.resources import CARD_MILLI
from millpond.scheduling.cycle.job_placement import Placed
from millpond.scheduling.elastic.gang_sizes import least_tasks
from millpond.scheduling.ledger.holdings import RUNNING
from millpond.scheduling.nodes.topology_groups import preferred_groups, spacing_in_groups
from millpond.scheduling.placement.arrays import Int64Array, NodeMask
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placement.spaced_gangs import MOST_STARTS
from millpond.scheduling.placement.spacing import Spacing
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import uses_cells
from millpond.scheduling.tenancy.cells.losses import CellLosses
from millpond.scheduling.tenancy.cells.requests import CellRequest
from millpond.scheduling.tenancy.cells.spaced_tasks import SpacedTasks
from millpond.scheduling.tenancy.cells.stakes import class_in_cells
from millpond.scheduling.tenancy.cells.uses import CardPart


def place_in_cells(
    state: State,
    record: JobRecord,
    tasks: Sequence[TaskRecord],
    mask: NodeMask | None,
    losses: CellLosses | None = None,
    *,
    preempts: bool = True,
) -> Placed | None:
    """Holdings in cells, not taken yet, of the tasks that take cards, whoever is on these; None if there are none.

    Args:
        mask: (nodes,), 0 keeps a node out.
        losses: what visitors would lose; with None they count alike.
        preempts: work of a lower class in the same queue may lose its cells.
    """
    cluster, book = state.cluster, state.cluster.cells
    tasks, shapes = _with_cards(state, record, tasks)
    models = {record.job.roles[task.role_index].request.models for task in tasks}
    request = CellRequest(
        record.id,
        book.clusters_of(record.queue),
        tuple(shape.devices for shape in shapes),
        next(iter(models)) if len(models) == 1 else (),
        None,
        record.job.priority,
        preempts=preempts,
        parts={task: partial(_part_of, state, each) for task, each in enumerate(shapes) if not each.whole_cards},
    )
    allowed = state.entitlements.allowed_nodes(record, tasks)
    if mask is not None:
        allowed = mask if allowed is None else mask & allowed
    for variant in _variants(state, record, tasks, request, allowed) if tasks else ():
        found = book.places_for(record, variant.request, allowed, losses)
        if found is not None and not (
            variant.is_nearer and any(map(book.is_visited, chain(*(each for each, _ in found))))
        ):
            break
    else:
        return None
    placed = []
    for task, shape, (devices, stake) in zip(tasks, shapes, found, strict=True):
        holding = cluster.holding(cluster.node_of(devices[0]), shape, devices)
        holding.stake = stake
        placed.append((task, holding))
    return placed


def cells_would_do(state: State, record: JobRecord) -> bool:
    """Whether the cells of its queue, if nobody used any, had a place for a job in its least size."""
    if not uses_cells(state, record):
        return False
    with state.cluster.cells.unused():
        return place_in_cells(state, record, least_tasks(record.job, record.queued()), None, preempts=False) is not None


def grow_in_cells(state: State, record: JobRecord, tasks: Sequence[TaskRecord], mask: NodeMask | None) -> Placed:
    """Take holdings on free cards of cells for as many of these tasks with cards as there are, first to last."""
    placed: Placed = []
    with_cards = _with_cards(state, record, tasks)[0] if uses_cells(state, record) else ()
    spacing = spacing_in_groups(state.cluster, record.job, record.tasks)
    for task in with_cards:
        within = mask if spacing is None else spacing.within(task.role_index, mask)
        found = place_in_cells(state, record, [task], within, preempts=False)
        mark = state.journal.begin()
        if found is None or state.cluster.cells.has_visitors(found[0][1]):
            state.journal.rollback(mark)
            break
        holding = found[0][1]
        state.cluster.change(holding, RUNNING)
        if state.cluster.is_overdrawn(holding) or not state.settle(record, [holding]):
            state.journal.rollback(mark)
            break
        state.journal.commit()
        placed += found
        if spacing is not None:
            spacing.take(task.role_index, holding.node)
    return placed


class _Variant(NamedTuple):
    """A request, with what its tasks keep between them.

    Attributes:
        is_nearer: its tasks lie nearer to each other than they must, and so nobody leaves for that.
    """

    request: CellRequest
    is_nearer: bool


def _variants(
    state: State, record: JobRecord, tasks: Sequence[TaskRecord], request: CellRequest, mask: NodeMask | None
) -> Iterator[_Variant]:
    """The request, with what its tasks must keep between them, for each place in which they may begin.

    Where they only should lie together, that comes first, the nearest first.
    """
    cluster, job = state.cluster, record.job
    roles = [task.role_index for task in tasks]
    asked = [
        (role, 0 if number in request.parts else cards)
        for number, (role, cards) in enumerate(zip(roles, request.cards, strict=True))
    ]

    def begun(spacing: Spacing | None, *, is_nearer: bool) -> Iterator[_Variant]:
        if spacing is None:
            yield _Variant(request, is_nearer)
            return
        free = _free_cards(state, record, are_visited=not is_nearer)
        spaced = SpacedTasks(spacing, roles, cluster.cells.machines)
        variant = replace(request, spaced=spaced, preempts=request.preempts and not is_nearer)
        for _ in islice(spacing.starts(free if mask is None else free * mask[: len(free)], asked), MOST_STARTS):
            yield _Variant(variant, is_nearer)

    for groups in preferred_groups(cluster, job) if len(tasks) > 1 else ():
        yield from begun(spacing_in_groups(cluster, job, record.tasks, groups), is_nearer=True)
    is_alone = len(record.tasks) == 1 and not job.spacing
    yield from begun(None if is_alone else spacing_in_groups(cluster, job, record.tasks), is_nearer=False)


def _free_cards(state: State, record: JobRecord, *, are_visited: bool) -> Int64Array:
    """(nodes,) no fewer cards than a job may have there in cells of its queue.

    Args:
        are_visited: those on which visitors are, too.
    """
    book, own = state.cluster.cells, class_in_cells(record)
    free = np.zeros(state.cluster.arrays.node_count, dtype=np.int64)
    for domain in (each for owner in book.clusters_of(record.queue) for each in book.domains_of(owner)):
        cells = domain.chain
        usable = np.array(cells.gone[0]) == 0
        taken = (leaf for leaf, use in cells.holders.items() if use.priority >= own and leaf not in cells.parts)
        usable[list(taken)] = False
        if not are_visited:
            usable &= np.array(cells.visitors[0]) == 0
        for (level, cell), user in cells.bound.items():
            if user is not domain:
                usable[cell * cells.size[level] : (cell + 1) * cells.size[level]] = False
        nodes = book.machines[cells.spec.name]
        free[nodes] = np.maximum(free[nodes], usable.reshape(len(nodes), -1).sum(axis=1))
    return free


def _with_cards(state: State, record: JobRecord, tasks: Sequence[TaskRecord]) -> tuple[list[TaskRecord], list[Shape]]:
    """Those of a job's tasks that take cards, and what each asks for."""
    shapes = state.cluster.words.shapes_of(record.demand)
    found = [task for task in tasks if shapes[task.role_index].devices]
    return found, [shapes[task.role_index] for task in found]


def _part_of(state: State, shape: Shape, chain: str, leaf: int) -> CardPart | None:
    """What a task takes of a card beside the parts that are on it by right; None if these leave too little."""
    cluster = state.cluster
    device = cluster.cells.device_of(chain, leaf)
    node = cluster.nodes[cluster.node_of(device)]
    memory_mib = cluster.arrays.device_memory_cells[device]
    part = CardPart(shape.compute_milli, shape.limit_milli, shape.memory_on(memory_mib))
    compute, limit, memory = map(sum, zip(part, *cluster.cells.parts_on(chain, leaf), strict=True))
    limit_milli = CARD_MILLI if node is None else cluster.pools[node.pool].limit_capacity_milli
    return part if compute <= CARD_MILLI and limit <= limit_milli and memory <= memory_mib else None
