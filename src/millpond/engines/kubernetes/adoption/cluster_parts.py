"""What the parts that look after pods of others know of the cluster around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from millpond.engines.kubernetes.claims.claim_writing import ClaimWriter
from millpond.engines.kubernetes.cluster.bind_turns import BindTurns
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.outbox import Outbox


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """The parts of a cluster's engine that pods of others share with the pods that Millpond makes.

    Attributes:
        state_dir: the server's state directory, where the output of tasks is looked for.
        has_node: whether there is a node of that name.
        places_left: how many more pods the kubelet of a node takes.
        marks: the pseudo-labels by which nodes differ, see ``pod_nodes``.
        changed: called with the name of a node where a pod has become a task, or is one no longer.
        turns: gives the turns in which pods with cards of a node agent are bound, one at a time on a node.
        claims: writes the resource claims of pods whose cards a DRA driver gives.
    """

    api: ClusterApi
    outbox: Outbox
    state_dir: Path
    has_node: Callable[[str], bool]
    places_left: Callable[[str], float]
    marks: Callable[[], frozenset[str]]
    changed: Callable[[str], None]
    turns: Callable[[], BindTurns]
    claims: ClaimWriter
