"""Which pods a pod must lie beside, or must not: its required affinities to pods, by a label of nodes.

Source: the Kubernetes API reference, PodAffinityTerm. What the API server has merged into a term's label selector
(``matchLabelKeys``) needs no care here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from millpond.engines.kubernetes.adoption.affinities.host_ports import PortSpec, host_ports
from millpond.engines.kubernetes.adoption.owner_table import value_at
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.cluster.cluster_nodes import NAME_FIELD
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
LONGEST_TEXT: Final = 350
"""Of a term in a pseudo-label, in characters."""


@dataclass(frozen=True, slots=True)
class NeighbourTerm:
    """Pods, and what it means to lie beside them: nodes with the same value of a label are one place.

    Attributes:
        topology_key: that label.
        namespaces: of the pods; empty: any.
        selector: what their labels must be; empty: any.
    """

    topology_key: str
    namespaces: tuple[str, ...]
    selector: tuple[NodeRequirement, ...]

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod is one of them."""
        is_there = not self.namespaces or namespace in self.namespaces
        return is_there and all(requirement.holds(labels) for requirement in self.selector)

    @property
    def text(self) -> str:
        """In words."""
        pods = " and ".join(each.text for each in self.selector) or "any"
        return f"{pods} of {', '.join(self.namespaces) or 'any namespace'}, by {self.topology_key}"

    @property
    def beside_label(self) -> str:
        """The pseudo-label of nodes where such a pod lies."""
        return f"pods({shortened(self.text)})"

    @property
    def averse_label(self) -> str:
        """The pseudo-label of nodes where a pod lies that keeps such pods away."""
        return f"keeps off({shortened(self.text)})"


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod that lies on a node, or is being bound to it.

    Attributes:
        averse_to: the pods that must not lie beside it.
        is_leaving: it was asked to end.
    """

    namespace: str
    labels: Mapping[str, str]
    node: str
    averse_to: tuple[NeighbourTerm, ...] = ()
    is_leaving: bool = False


def affinities(pod: ScheduledPod) -> tuple[NeighbourTerm, ...]:
    """The pods that it must lie beside."""
    return terms_in(value_at(pod.spec.affinity, f"podAffinity.{_REQUIRED}"), pod.metadata.namespace)


def aversions(pod: ScheduledPod) -> tuple[NeighbourTerm, ...]:
    """The pods that it must not lie beside."""
    required = value_at(pod.spec.affinity, f"podAntiAffinity.{_REQUIRED}")
    return terms_in(required, pod.metadata.namespace) + port_terms(pod.spec)


def port_terms(spec: PortSpec) -> tuple[NeighbourTerm, ...]:
    """The pods that have a port of the node which a pod has, too."""
    return tuple(
        NeighbourTerm(NAME_FIELD, (), (NodeRequirement(port, NodeOperator.EXISTS),)) for port in host_ports(spec)
    )


def terms_in(required: Iterable[Any] | None, namespace: str) -> tuple[NeighbourTerm, ...]:
    """Terms as the API has them; one without a label selector means no pod, and is left out.

    Namespaces that are selected by their labels count as all: what is kept off is never too little.

    Args:
        namespace: of the pod that has them.
    """
    found = []
    for term in required or ():
        selector = term.get("labelSelector")
        if selector is None:
            continue
        is_any = term.get("namespaceSelector") is not None
        named = () if is_any else tuple(sorted(term.get("namespaces") or [namespace]))
        found.append(NeighbourTerm(term["topologyKey"], named, tuple(label_requirements(selector))))
    return tuple(dict.fromkeys(found))


def trouble_with(pod: ScheduledPod) -> str:
    """Why its affinities to pods cannot be kept; empty when they can."""
    together = value_at(pod.spec.affinity, f"podAffinity.{_REQUIRED}") or []
    if len(together) > 1:
        return "it must lie beside several kinds of pods: Millpond keeps one required pod affinity"
    if any(term.get("namespaceSelector") for term in together):
        return "its pod affinity selects namespaces by their labels: name them"
    if any(term.get("labelSelector") is None for term in together):
        return "its pod affinity has no label selector, so that it means no pod"
    return ""


def shortened(text: str, whole: str = "") -> str:
    """A text that tells terms apart, however long they are.

    Args:
        whole: what tells them apart where the text leaves something out; empty: the text does.
    """
    digest = sha256((whole or text).encode()).hexdigest()[:16]
    return text if len(text) <= LONGEST_TEXT and not whole else f"{text[: LONGEST_TEXT - len(digest) - 1]}~{digest}"


def label_requirements(selector: Any) -> Iterable[NodeRequirement]:
    """What a label selector of the API means."""
    for key, value in sorted((selector.get("matchLabels") or {}).items()):
        yield NodeRequirement(key, NodeOperator.IN, (value,))
    for each in selector.get("matchExpressions") or ():
        yield NodeRequirement(each["key"], NodeOperator(each["operator"]), tuple(sorted(each.get("values") or ())))
