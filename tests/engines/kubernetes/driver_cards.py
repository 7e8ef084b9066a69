"""A cluster with NVIDIA's DRA driver: what that publishes, what users ask for, and what Kubernetes' controller does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lightkube.models.resource_v1 import DeviceTaintRule
from standin_cluster import NAMESPACE, StandinCluster

from millpond.model.decisions import Grant, Placement, Start
from millpond.model.reasons import Cause

SLICES, CLASSES, CLAIMS, RULES = (
    f"{kind}.resource.k8s.io" for kind in ("resourceslices", "deviceclasses", "resourceclaims", "devicetaintrules")
)
DRIVER = "gpu.nvidia.com"
WHOLE_CARDS = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"


def card(number: int, node: str = "n1", product: str = "NVIDIA H100 80GB HBM3", **more: Any) -> dict[str, Any]:
    """A card as the driver publishes it."""
    attributes = {
        "type": {"string": "gpu"},
        "uuid": {"string": more.pop("uuid", uuid_of(number, node))},
        "productName": {"string": product},
        "architecture": {"string": more.pop("architecture", "Hopper")},
        "cudaComputeCapability": {"version": "9.0.0"},
        "driverVersion": {"version": "580.126.20"},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{number // 2}"},
    }
    memory = {"memory": {"value": more.pop("memory", "81559Mi")}}
    return {"name": f"gpu-{number}", "attributes": attributes, "capacity": memory, **more}


def uuid_of(number: int, node: str = "n1") -> str:
    return f"GPU-{node}-{number}"


def device_of(number: int, node: str = "n1") -> str:
    """A card as the core knows it."""
    return f"{DRIVER}/{uuid_of(number, node)}"


@dataclass
class DriverBench:
    """What others do to a cluster that serves claims."""

    cluster: StandinCluster

    def publish(self, node: str = "n1", *devices: Any, generation: int = 1, count: int = 1, part: int = 0) -> None:
        """The slice of a node, or one of several."""
        pool = {"name": node, "generation": generation, "resourceSliceCount": count}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": list(devices)}
        self.cluster.put(SLICES, f"{node}-gpu-{part}", {"spec": spec})

    def add_class(self, name: str = DRIVER, expression: str = WHOLE_CARDS, since: str = "", **more: Any) -> None:
        spec = {"selectors": [{"cel": {"expression": expression}}], **more}
        self.cluster.put(CLASSES, name, {"metadata": {"creationTimestamp": since}, "spec": spec})

    def add_claim(self, name: str, count: int = 1, *selectors: str, owner: str = "", **more: Any) -> None:
        """A claim for cards.

        Args:
            owner: the pod that it was made for, of a template.
        """
        exactly = {
            "deviceClassName": more.pop("of_class", DRIVER),
            "allocationMode": "ExactCount",
            "count": count,
            "selectors": [{"cel": {"expression": each}} for each in selectors],
            **more.pop("exactly", {}),
        }
        devices = {"requests": [{"name": "gpu", "exactly": exactly}], **more}
        meta: dict[str, Any] = {}
        if owner:
            uid = (self.cluster.get("pods", owner) or {})["metadata"]["uid"]
            meta["ownerReferences"] = [{"kind": "Pod", "name": owner, "uid": uid, "controller": True}]
        self.cluster.put(CLAIMS, name, {"metadata": meta, "spec": {"devices": devices}}, NAMESPACE)

    def taint(self, name: str, taint: str, selector: dict[str, str] | None) -> None:
        """A rule of an admin: ``KEY=VALUE:EFFECT`` on the devices that a selector has."""
        said, _, effect = taint.partition(":")
        key, _, value = said.partition("=")
        spec = {"taint": {"key": key, "value": value, "effect": effect}, "deviceSelector": selector}
        rule = DeviceTaintRule.from_dict({"metadata": {"name": name}, "spec": spec})  # as the newest cluster has it
        self.cluster.put(RULES, name, rule.to_dict())

    def allocate(self, claim: str, *numbers: int, node: str = "n1", pod: str = "other") -> None:
        """Another scheduler gives a claim devices."""
        results = [{"driver": DRIVER, "pool": node, "device": f"gpu-{number}", "request": "gpu"} for number in numbers]
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
        allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": terms}}
        there = self.cluster.get("pods", pod)
        uid = f"uid-of-{pod}" if there is None else there["metadata"]["uid"]
        reserved = [{"resource": "pods", "name": pod, "uid": uid}]
        self.change(claim, {"allocation": allocation, "reservedFor": reserved})

    def deallocate(self, claim: str) -> None:
        """What Kubernetes' controller does when the pods of a claim have ended."""
        self.change(claim, {})

    def change(self, claim: str, status: dict[str, Any]) -> None:
        self.cluster.put(CLAIMS, claim, {**self.claim(claim), "status": status}, NAMESPACE)

    def claim(self, name: str) -> dict[str, Any]:
        plain = self.cluster.get(CLAIMS, name)
        assert plain is not None
        return plain

    def devices_of(self, name: str) -> list[tuple[str, str]]:
        """The pools and names of what a claim has."""
        allocation = self.claim(name).get("status", {}).get("allocation") or {"devices": {"results": []}}
        return [(each["pool"], each["device"]) for each in allocation["devices"]["results"]]

    def users_of(self, name: str) -> list[str]:
        return [each["name"] for each in self.claim(name).get("status", {}).get("reservedFor") or ()]


def with_driver(cluster: StandinCluster) -> DriverBench:
    """A cluster of two nodes whose driver publishes four cards of the first."""
    cluster.serves_claims = True
    cluster.add_node("n1", cards=0)
    cluster.add_node("n2", cards=0)
    driver = DriverBench(cluster)
    driver.add_class(config=[{"opaque": {"driver": DRIVER, "parameters": {"kind": "GpuConfig"}}}])
    driver.publish("n1", *(card(number) for number in range(4)))
    return driver


def start_on(number: int, job: str, *cards: int, node: str = "n1", task: int = 0, attempt: int = 1) -> Start:
    """A decision that starts a task with these cards of a driver."""
    grants = tuple(Grant(device_of(each, node), 1000, 1000, 0) for each in cards)
    return Start(number, job, attempt, Cause.FITS, (Placement(task, "worker", node, grants),))
