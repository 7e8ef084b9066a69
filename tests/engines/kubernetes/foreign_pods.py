"""Pods that somebody else makes, and an engine that adopts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pod_bench import PodBench, eventually
from standin_cluster import NAMESPACE, StandinCluster

from millpond.engines.kubernetes.adoption.foreign_pods import AdoptionRules
from millpond.engines.kubernetes.adoption.gangs import FoundGang, GangKey
from millpond.engines.kubernetes.cluster.cluster_nodes import TOLERATED, NodeRules
from millpond.engines.kubernetes.engine import KubernetesOptions
from millpond.model.hardware.node_selection import selects

JOB = "theirs-abcde"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "theirs", "uid": "uid-of-theirs", "controller": True}


def foreign_pod(cluster: StandinCluster, name: str, cards: int = 1, **more: Any) -> None:
    """A pod that waits for Millpond.

    Args:
        more: ``labels``, ``annotations``, ``owner``, ``namespace``; all else is of its specification.
    """
    meta = {
        "labels": more.pop("labels", {}),
        "annotations": more.pop("annotations", {}),
        "creationTimestamp": "2026-11-24T10:00:00Z",
        "ownerReferences": [owner] if (owner := more.pop("owner", None)) else [],
    }
    namespace = more.pop("namespace", NAMESPACE)
    amounts = {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": str(cards)}
    containers = more.pop("containers", [{"name": "task", "resources": {"requests": amounts}}])
    spec = {"schedulerName": "millpond", "serviceAccountName": "default", "containers": containers, **more}
    cluster.put("pods", name, {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}, namespace)


def condition(cluster: StandinCluster, pod: str, kind: str = "PodScheduled") -> str:
    """What the condition of a pod says; empty while it has none."""
    conditions = (cluster.get("pods", pod) or {}).get("status", {}).get("conditions", [])
    return next((each["message"] for each in conditions if each["type"] == kind), "")


def events_of(cluster: StandinCluster, pod: str) -> list[str]:
    """What events say of a pod, as ``reason: message``."""
    found = [cluster.get("events", name) for name in cluster.names("events")]
    return [f"{each['reason']}: {each['message']}" for each in found if each and each["involvedObject"]["name"] == pod]


class AdoptingBench(PodBench):
    """An engine that adopts the pods of all namespaces, for a server that the test stands for."""

    stands_for: dict[str, GangKey]
    server: str = "this-server"

    def __init__(self, cluster: StandinCluster, folder: Path, *, gated: bool = False) -> None:
        super().__init__(cluster, folder)
        self.stands_for, self.gated = {}, gated
        self.extras: dict[str, str] = {}
        self.tolerated: tuple[str, ...] = TOLERATED

    def open(self, expected: Any = (), unanswered: Any = ()) -> None:
        names = {resource: name for name, resource in self.extras.items()}
        adopts = AdoptionRules(frozenset("*"), self.stands_for, self.gated, names)
        nodes = NodeRules(extras=self.extras, tolerated=self.tolerated)
        self.options = KubernetesOptions(nodes=nodes, servers=(self.server,), adopts=adopts)
        super().open(expected, unanswered)

    def gang(self) -> FoundGang:
        """The only gang that is ready, as soon as there is one."""
        found = eventually(lambda: [gang for gang in self.engine.gangs() if not gang.trouble])
        assert len(found) == 1
        return found[0]  # type: ignore[no-any-return]

    def stand_for(self, key: GangKey, job: str = JOB) -> None:
        """A job is submitted for a gang."""
        self.stands_for[job] = key
        self.engine.entrust({job: key})


def nodes_of(bench: AdoptingBench, gang: FoundGang) -> list[str]:
    """The nodes that a gang may have."""
    nodes = bench.engine.inventory().nodes
    return sorted(each.name for each in nodes if selects(gang.terms.selection, each.labels))
