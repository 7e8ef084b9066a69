"""Tasks that must lie together: the groups of nodes among which a job has to stay."""

from __future__ import annotations

import numpy as np

from millpond.model.topology import Level
from millpond.model.workloads import Job
from millpond.scheduling.cluster import Cluster
from millpond.scheduling.placement.arrays import Int64Array


def required_groups(cluster: Cluster, job: Job) -> Int64Array | None:
    """(nodes,) the number of the rack, or of the node, that each node is in, when one has to take all tasks of the job.

    None when they may lie anywhere.
    """
    if not job.together_required or job.together > Level.RACK:
        return None
    count = cluster.arrays.node_count
    return cluster.arrays.rack[:count] if job.together is Level.RACK else np.arange(count, dtype=np.int64)
