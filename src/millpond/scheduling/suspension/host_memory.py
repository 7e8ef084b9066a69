"""Host memory that nodes set aside for swapped work: which work starts near it, and the reasons where it is too little.

Work with ``suspend: swap`` prefers nodes whose host memory takes its device memory. Where no such node has room the job
starts elsewhere, and is ended where it would have been swapped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millpond.model.amounts import memory_text
from millpond.model.workloads import Suspendable
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.ledger.holdings import Holding
from millpond.scheduling.placement.arrays import WHOLE_CARD_MILLI, Int64Array, NodeMask
from millpond.scheduling.placement.shapes import MEMORY_BY_SHARE, Shape
from millpond.scheduling.records import JobRecord


def nodes_that_swap(cluster: Cluster, record: JobRecord, mask: NodeMask | None) -> NodeMask | None:
    """Nodes whose host memory takes the device memory of any task of a job; None where that is no choice to make."""
    pool = cluster.pools.get(record.job.pool)
    if record.job.suspendable is not Suspendable.SWAP or pool is None or not pool.suspends:
        return None
    needs = [_device_memory_mib(cluster, shape) for shape in cluster.words.shapes_of(record.demand)]
    count = cluster.arrays.node_count
    takes = np.minimum.reduce([cluster.arrays.swap_free_mib[:count] >= need for need in needs])
    allowed = takes.astype(np.uint8) if mask is None else takes * mask[:count]
    is_choice = bool(allowed.any()) and not bool(takes.all())
    return allowed if is_choice else None


def short_of_host_memory(cluster: Cluster, holdings: Sequence[Holding]) -> str:
    """What host memory is missing for device memory that is to leave, on the first node where some is."""
    index = next((each.node for each in holdings if not cluster.has_swap_space((each,))), holdings[0].node)
    node, asked = cluster.nodes[index], sum(sum(each.memory_mib) for each in holdings if each.node == index)
    if node is None or not node.swap_mib:
        where = cluster.node_name(index)
        return f"node {where} can keep no device memory in host memory (`pond doctor` there says why, or swap_memory)"
    free = int(cluster.arrays.swap_free_mib[index])
    return (
        f"its {memory_text(asked)} of device memory do not fit into host memory: node {node.name} sets "
        f"{memory_text(node.swap_mib)} aside (swap_memory), and {memory_text(free)} of it are free"
        + ("" if asked > free else ", which others on their way there need")
    )


def _device_memory_mib(cluster: Cluster, shape: Shape) -> Int64Array:
    """What a task of this shape has of each node's devices, (nodes,), as if all were like the first."""
    arrays, count = cluster.arrays, cluster.arrays.node_count
    if shape.device_memory_mib != MEMORY_BY_SHARE and not shape.whole_cards:
        return np.full(count, shape.devices * shape.device_memory_mib, dtype=np.int64)
    has_devices = arrays.device_total[:count] > 0
    capacity = np.zeros(count, dtype=np.int64)
    capacity[has_devices] = arrays.device_memory_mib[arrays.first_device[:count][has_devices]]
    return shape.devices * capacity * shape.compute_milli // WHOLE_CARD_MILLI
