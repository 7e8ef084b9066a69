"""What the parts that look after pods of others know of the cluster around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from millpond.engines.kubernetes.claims.claim_writing import ClaimWriter
from millpond.engines.kubernetes.cluster.api_channel import ApiChannel
from millpond.engines.kubernetes.cluster.bind_turns import BindTurns
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.outbox import Outbox


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """What else there is of a cluster.

    Attributes:
        channel: by which the cluster is followed.
        state_dir: where people look for the output of tasks.
        has_node: whether there is a node of that name.
        places_left: how many more pods the kubelet of a node takes.
        marks: the pseudo-labels by which nodes differ, see ``pod_nodes``.
        changed: called with the name of a node whose pods have become ours, or no longer are.
        turns: of pods with cards of an agent.
        claims: of pods with cards of a driver.
    """

    channel: ApiChannel
    api: ClusterApi
    outbox: Outbox
    state_dir: Path
    has_node: Callable[[str], bool]
    places_left: Callable[[str], float]
    marks: Callable[[], frozenset[str]]
    changed: Callable[[str], None]
    turns: Callable[[], BindTurns]
    claims: ClaimWriter
