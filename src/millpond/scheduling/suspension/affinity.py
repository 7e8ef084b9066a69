"""Which size of job each node is for: the first three steps of Gandiva's order of placement (see ``time_slicing``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.ledger.holdings import Holding
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.records import JobRecord, TaskRecord


class Affinities:
    """Which size of job each node is for; an empty node is for none."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.by_node: dict[str, int] = {}

    def masks(self, record: JobRecord, mask: NodeMask | None) -> Iterator[NodeMask]:
        """Node masks of steps 1, 2 and 3 for this job, in order."""
        cluster = self._cluster
        count = cluster.arrays.node_count
        allowed = np.ones(count, dtype=np.uint8) if mask is None else mask[:count]
        marks = np.zeros(count, dtype=np.int64)
        for name, milli in self.by_node.items():
            index = cluster.node_index.get(name)
            if index is not None and cluster.held_on(index) > 0:
                marks[index] = milli
        yield allowed * (marks == record.gpu_milli)
        yield allowed * (marks == 0)
        yield allowed * ((marks != 0) & (marks != record.gpu_milli))

    def mark(self, record: JobRecord, placed: Sequence[tuple[TaskRecord, Holding]]) -> None:
        """The job starts there: nodes that were empty before are now for its size."""
        cluster = self._cluster
        taken: dict[int, int] = {}
        for _, holding in placed:
            taken[holding.node] = taken.get(holding.node, 0) + holding.shape.compute_milli * len(holding.devices)
        for node, milli in taken.items():
            if cluster.held_on(node) == milli:
                self.by_node[cluster.node_name(node)] = record.gpu_milli
