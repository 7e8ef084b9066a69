"""What the engine sees of a node with Millpond's agent, on the stand-in cluster."""

from __future__ import annotations

from typing import Any

from standin_cluster import StandinCluster

from millpond.engines.kubernetes.claims.card_shares import slice_name, slice_of
from millpond.engines.kubernetes.cluster.agent_report import AGENT_LABEL, AGENT_NAMESPACE, AgentReport
from millpond.engines.kubernetes.cluster.cluster_nodes import MILLI
from millpond.model.hardware.devices import Device

CARDS = tuple(Device(f"GPU-{n}", n, "nvidia", "H200", 16_384, context_mib=512) for n in range(2))


def add_agent(cluster: StandinCluster, node: str = "n1", milli: int = 2128, **report: Any) -> None:
    """A node whose agent has reported its cards, and serves so much of them."""
    amounts = {"cpu": "32", "memory": "128Gi", MILLI: str(milli)}
    status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"millpond.io/pool": "default"}
    cluster.put("nodes", node, {"metadata": {"labels": labels}, "spec": {}, "status": status})
    annotations = {"millpond.io/cards": AgentReport(**{"devices": CARDS, **report}).text()}
    meta = {"labels": dict([AGENT_LABEL]), "annotations": annotations}
    pod = {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": "Running"}}
    cluster.put("pods", f"agent-of-{node}", pod, AGENT_NAMESPACE)


def add_claiming_agent(cluster: StandinCluster, node: str = "n1") -> None:
    """A node whose agent gives its cards out by claims, and has published them."""
    cluster.serves_claims = True
    add_agent(cluster, node, 0, by_claims=True)
    cluster.put("resourceslices.resource.k8s.io", slice_name(node), slice_of(node, CARDS, None).to_dict())
