"""Tasks that must lie together: the groups of nodes among which a job has to stay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millpond.model.hardware.topology import Level
from millpond.model.task_spacing import SpacingKind, SpacingRule
from millpond.model.workloads import Job
from millpond.scheduling.cycle.job_placement import Placed, spacing_of
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.placement.arrays import Int64Array, NodeMask
from millpond.scheduling.placement.spacing import PlaceTable, Spacing
from millpond.scheduling.records import TaskRecord


def required_groups(cluster: Cluster, job: Job) -> Int64Array | None:
    """(nodes,) the number of the zone, rack, node or place that each node is in, when one has to take all tasks.

    None when they may lie anywhere.
    """
    if not job.together_required:
        label = _common_label(job)
        return cluster.hardware_index.places_by(label).of if label else None
    arrays, count = cluster.arrays, cluster.arrays.node_count
    match job.together:
        case Level.ZONE:
            return arrays.zone[:count]
        case Level.RACK:
            return arrays.rack[:count]
        case _:
            return np.arange(count, dtype=np.int64)


def _common_label(job: Job) -> str:
    """By which label the nodes of all tasks of a job must be one place; empty: they need not."""
    roles = {role.name for role in job.roles}
    together = (rule for rule in job.spacing if rule.kind is SpacingKind.TOGETHER)
    return next((rule.label for rule in together if roles.issubset(rule.roles)), "")


def spacing_in_groups(
    cluster: Cluster, job: Job, tasks: Sequence[TaskRecord] = (), groups: Int64Array | None = None
) -> Spacing | None:
    """What tasks of a job must keep between them, that one group of nodes has to take all of them included.

    Args:
        tasks: as for ``spacing_of``.
        groups: (nodes,) those of which one has to, where the job does not say that one must.
    """
    if groups is None and job.together_required:
        groups = required_groups(cluster, job)
    if groups is None:
        return spacing_of(cluster, job, tasks)
    table = PlaceTable({str(number): number for number in range(int(groups.max(initial=-1)) + 1)}, groups)
    together = SpacingRule(SpacingKind.TOGETHER, "", tuple(role.name for role in job.roles))

    def places(label: str) -> PlaceTable:
        return cluster.hardware_index.places_by(label) if label else table

    lying = [(task.role_index, task.holding.node) for task in tasks if task.holding is not None]
    return Spacing((together, *job.spacing), together.roles, places, lying)


def preferred_groups(cluster: Cluster, job: Job) -> list[Int64Array]:
    """The same for a job whose tasks should lie together, the nearest first; empty if they may lie anywhere."""
    if job.together_required or job.together > Level.ZONE:
        return []
    arrays, count = cluster.arrays, cluster.arrays.node_count
    nearest_first = [np.arange(count, dtype=np.int64), arrays.rack[:count], arrays.zone[:count]]
    return nearest_first[max(job.together, Level.NODE) - Level.NODE :]


def lie_together(placed: Placed, groups: Int64Array) -> bool:
    """Whether all of these places are in one group."""
    return len({int(groups[holding.node]) for _, holding in placed}) == 1


def near(cluster: Cluster, job: Job, node: int, mask: NodeMask | None) -> NodeMask | None:
    """The mask for tasks that join others on ``node``: their own group alone, where all have to lie together."""
    groups = required_groups(cluster, job)
    if groups is None:
        return mask
    own: NodeMask = (groups == groups[node]).astype(np.uint8)
    if mask is not None:
        own &= mask
    return own
