"""A real control plane with nodes that are status alone, as many as asked for, and pods to fill them with."""

from __future__ import annotations

import itertools
import json
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "engines" / "kubernetes" / "real"))

import control_plane
from control_plane import ADMIN, ControlPlane

from benchmarks.kubernetes.api_client import ApiClient, Ask
from benchmarks.kubernetes.pod_ledger import CARD, PodLedger
from millpond.model.errors import UnavailableError

NAMESPACE = "millpond"
CARDS = 8
NODES_A_RACK = 16
MIX = ((0.7, 1), (0.2, 2), (0.1, 8))
"""Part of the pods, and cards of each."""
_PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
_OK = {200, 201}
_ASKED_FOR = ("name", "labels", "annotations")
"""What of a pod's metadata its maker has chosen."""
_NAME, _NODE = "@name@", "@node@"


def require_programs() -> None:
    """Whether a control plane can be started here.

    Raises:
        UnavailableError: it cannot.
    """
    if trouble := control_plane.missing():
        raise UnavailableError(f"no control plane: {trouble}", "build it once as root: make kubernetes")


@dataclass
class BenchCluster:
    """One control plane and what is in it; a context manager.

    Attributes:
        log_port: where the kubelet of every node is said to listen.
    """

    folder: Path
    nodes: int
    log_port: int
    plane: ControlPlane = field(init=False)
    api: ApiClient = field(init=False)
    ledger: PodLedger = field(init=False)

    def __enter__(self) -> Self:
        require_programs()
        self.plane = ControlPlane(self.folder, admission_off=("ServiceAccount", "TaintNodesByCondition", "Priority"))
        self.plane.start()
        self.api = ApiClient(self.plane.url, ADMIN)
        self._all(Ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}}) for name in (NAMESPACE,))
        nodes = (node_object(number, self.log_port) for number in range(self.nodes))
        self._store("/api/v1/nodes", "/registry/minions", nodes)
        self.ledger = PodLedger(self.plane.kubeconfig(), CARDS)
        return self

    def __exit__(self, *_exception: object) -> None:
        self.plane.stop()

    @property
    def way(self) -> Path:
        """A kubeconfig with the namespace of the benchmark."""
        return self.plane.kubeconfig(ADMIN, NAMESPACE)

    def create(self, pods: Iterable[dict[str, Any]]) -> None:
        """Pods that wait for a scheduler, by a request each."""
        self._all(Ask("POST", _PODS_PATH, pod) for pod in pods)

    def bare_copies(self) -> list[dict[str, Any]]:
        """All pods as whoever made them asked for them, but that nobody binds them."""
        found = self.api.ask("GET", _PODS_PATH)["items"]
        return [
            {
                "metadata": {name: each["metadata"][name] for name in _ASKED_FOR if name in each["metadata"]},
                "spec": {name: part for name, part in each["spec"].items() if name != "nodeName"}
                | {"schedulerName": "nobody"},
            }
            for each in found
        ]

    def store(self, prefix: str, count: int, scheduler: str) -> None:
        """The same pods, at once."""
        self._store(_PODS_PATH, f"/registry/pods/{NAMESPACE}", mixed_pods(prefix, count, scheduler))
        self._await_pods(prefix, count)

    def store_bound(self, prefix: str, count: int) -> None:
        """Pods of others without cards, on all nodes in turn, at once."""
        pods = (pod_object(f"{prefix}-{number}", 0, "other", node_name(number % self.nodes)) for number in range(count))
        self._store(_PODS_PATH, f"/registry/pods/{NAMESPACE}", pods)
        self._await_pods(prefix, count)

    def _await_pods(self, prefix: str, count: int) -> None:
        """Until the API server tells of them; the last is the last that it tells of."""
        self.ledger.wait(lambda: self.ledger.has(f"{prefix}-{count - 1}"), 60.0)

    def _store(self, path: str, place: str, objects: Iterable[dict[str, Any]]) -> None:
        """Of objects that are alike but for their names and nodes the API server makes the first; etcd gets copies."""
        self.plane.store((f"{place}/{plain['metadata']['name']}", text) for plain, text in self._copies(path, objects))

    def _copies(self, path: str, objects: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str]]:
        made: dict[str, tuple[str, str]] = {}
        """By what objects have in common, the first as the API server has it, with marks for what differs; its uid."""
        for plain in objects:
            name, node = plain["metadata"]["name"], plain.get("spec", {}).get("nodeName", "")
            alike = _marked(json.dumps(plain), name, node)
            if alike not in made:
                self._all(iter([Ask("POST", path, plain)]))
                found = self.api.ask("GET", f"{path}/{name}")
                del found["metadata"]["resourceVersion"]
                made[alike] = _marked(json.dumps(found), name, node), found["metadata"]["uid"]
                continue
            text, uid = made[alike]
            yield plain, text.replace(uid, str(uuid.uuid4())).replace(_NAME, name).replace(_NODE, node)

    def bind(self, pods: Sequence[dict[str, Any]]) -> None:
        """Bind pods to nodes, whichever: as many requests as a scheduler would make, with no thought at all."""
        names = [pod["metadata"]["name"] for pod in pods]
        self._all(
            Ask("POST", f"{_PODS_PATH}/{name}/binding", _binding(name, node))
            for name, node in zip(names, _rooms(map(_cards_of, pods)), strict=True)
        )

    def clear(self) -> None:
        """Delete all pods, and wait until they are gone."""
        self.api.ask("DELETE", f"{_PODS_PATH}?gracePeriodSeconds=0")
        while self.api.ask("GET", f"{_PODS_PATH}?limit=1")["items"]:
            self.api.ask("DELETE", f"{_PODS_PATH}?gracePeriodSeconds=0")
        self.ledger.wait(lambda: not self.ledger.phases, 10.0)
        self.ledger.forget()

    def _all(self, asks: Iterator[Ask]) -> None:
        seen = self.api.all(asks)
        if set(seen) - _OK:
            raise UnavailableError(f"the API server answered {dict(seen)}", f"see {self.folder}/kube-apiserver.log")


def _rooms(asked: Iterable[int]) -> Iterator[str]:
    """A node with room for each of some pods: no card twice, as the ledger would say."""
    place, left = 0, CARDS
    for cards in asked:
        if cards > left:
            place, left = place + 1, CARDS
        left -= cards
        yield node_name(place)


def _cards_of(pod: dict[str, Any]) -> int:
    return sum(int(each["resources"]["requests"].get(CARD, "0")) for each in pod["spec"]["containers"])


def _marked(text: str, name: str, node: str) -> str:
    """JSON of an object with marks in place of its name and its node."""
    marked = text.replace(f'"{node}"', f'"{_NODE}"') if node else text
    return marked.replace(f'"{name}"', f'"{_NAME}"')


def mixed_pods(prefix: str, count: int, scheduler: str) -> Iterator[dict[str, Any]]:
    """Pods in the mix of cards, that wait for a scheduler."""
    return (pod_object(f"{prefix}-{number}", cards, scheduler) for number, cards in enumerate(mixed(count)))


def mixed(count: int) -> list[int]:
    """The cards of each of so many pods, evenly mixed, always in the same order."""
    counts = [round(part * count) for part, _ in MIX]
    counts[0] += count - sum(counts)
    turns = [[(turn + 0.5) / each for turn in range(each)] for each in counts]
    order = sorted((at, cards) for (_, cards), each in zip(MIX, turns, strict=True) for at in each)
    return [cards for _, cards in order]


def node_name(number: int) -> str:
    """Of the nodes in their order."""
    return f"node-{number:05}"


def node_object(number: int, log_port: int) -> dict[str, Any]:
    """A node as a kubelet would have registered it."""
    labels = {
        "millpond.io/pool": "default",
        "millpond.io/rack": f"rack-{number // NODES_A_RACK:04}",
        "kubernetes.io/hostname": node_name(number),
        "topology.kubernetes.io/zone": "zone-a",
        "nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB",
        "nvidia.com/gpu.memory": "32768",
    }
    amounts = {"cpu": "96", "memory": "768Gi", "pods": "110", CARD: str(CARDS)}
    return {
        "metadata": {"name": node_name(number), "labels": labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [{"type": "Hostname", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": log_port}},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod_object(name: str, cards: int, scheduler: str, node: str = "") -> dict[str, Any]:
    """A pod that asks for so many cards."""
    amounts = {CARD: str(cards)} if cards else {}
    requests = {"cpu": f"{4 * cards}" if cards else "10m", "memory": f"{32 * cards}Gi" if cards else "10Mi", **amounts}
    container = {"name": "task", "image": "none", "resources": {"requests": requests, "limits": amounts}}
    spec = {"schedulerName": scheduler, "containers": [container], "restartPolicy": "Never"}
    return {"metadata": {"name": name}, "spec": spec | ({"nodeName": node} if node else {})}


def _binding(pod: str, node: str) -> dict[str, Any]:
    return {"metadata": {"name": pod}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}


def batches(total: int, size: int) -> Iterator[int]:
    """``total`` in parts of at most ``size``."""
    return (min(size, total - begin) for begin in itertools.takewhile(lambda at: at < total, itertools.count(0, size)))
