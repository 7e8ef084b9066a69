"""What queues would be promised beyond what machines have, before any of them changes: with the queue and the field."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from millpond.model.amounts import count_text, gpus_text
from millpond.model.hardware.nodes import Node, amount_of_nodes
from millpond.model.resources import CARD_MILLI, Amount
from millpond.model.tenancy.tenants import Queue
from millpond.scheduling.tenancy.cells.cell_room import cards_of_cells, cell_faults
from millpond.specs.config.cluster import ClusterConfig
from millpond.specs.config.queue_documents import at_its_line
from millpond.specs.config.queues import beyond_cluster
from millpond.specs.errors import Problem


def promised_beyond(config: ClusterConfig) -> list[Problem]:
    """What a file promises beyond the pretended machines that it names, with its lines; nothing where it names none."""
    machines = amount_of_nodes(config.nodes, {pool.name: pool for pool in config.pools})
    bound = [name for name, document in config.queue_documents.items() if not document.get("may_exceed_cluster")]
    found = (*beyond_cells((), config.queues, config.nodes), *beyond_machines((), config.queues, bound, machines))
    return [at_its_line(problem, config.located) for problem in found]


def beyond_machines(
    before: Sequence[Queue], after: Sequence[Queue], bound: Collection[str], machines: Amount
) -> list[Problem]:
    """Guarantees that are raised beyond what all machines have, once there are any.

    What machines lack already, as some are gone, bars no other change.

    Args:
        before, after: all queues as they are and as they would be, each behind its parent.
        bound: names of those that may not be ahead of machines.
    """
    known = {queue.name: queue.guarantee for queue in before}
    raised = [
        queue.name
        for queue in after
        if queue.name in bound and _promises_more(known.get(queue.name, Amount()), queue.guarantee)
    ]
    if not raised or machines == Amount():
        return []
    lacked = beyond_cluster(before, machines)
    remedy = "lower it, or add may_exceed_cluster: true where more machines will join"
    return [
        Problem(message, remedy, f"{name}.guarantee")
        for name in raised
        for resource, (missing, message) in beyond_cluster(after, machines).items()
        if missing > lacked.get(resource, (0, ""))[0]
    ]


def _promises_more(before: Amount, after: Amount) -> bool:
    """Whether a guarantee is of more of anything, or of other models of cards."""
    more = after - before
    return max(more.gpu_milli, more.cpu_milli, more.memory_mib, more.card_mib) > 0 or before.models != after.models


def beyond_cells(before: Sequence[Queue], after: Sequence[Queue], nodes: Sequence[Node]) -> Iterator[Problem]:
    """Cells that come to be owed without hardware, or as more cards than are guaranteed; arguments as above."""
    for fault in cell_faults(nodes, before, after):
        yield Problem(fault.message, fault.remedy, f"{fault.queue}.{fault.field}")
    known = {queue.name: (queue.cells, queue.pinned, queue.guarantee) for queue in before}
    for queue in after:
        if not (queue.cells or queue.pinned) or known.get(queue.name) == (queue.cells, queue.pinned, queue.guarantee):
            continue
        cards = cards_of_cells(nodes, queue)
        if CARD_MILLI * cards > queue.guarantee.gpu_milli:
            guaranteed = gpus_text(queue.guarantee.gpu_milli)
            message = f"cells of at least {count_text(cards, 'card')}, but {queue.name} is guaranteed {guaranteed}"
            field = "cells" if queue.cells else "pinned"
            yield Problem(message, "let its guarantee cover its cells", f"{queue.name}.{field}")
