"""What the agent of a node says of its cards: an annotation on the agent's own pod.

There it needs no right to change nodes, the server reads it with the pods that it follows anyway, and it goes with the
pod. It changes when cards do, never with their use: whether the agent is alive, the kubelet says, which offers no
thousandths of cards once their plugin is gone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from millpond.engines.kubernetes.cluster.objects import PodObject, read_annotation
from millpond.model.hardware.devices import Device
from millpond.model.resources import CARD_MILLI

REPORT_ANNOTATION: Final = "millpond.io/cards"
LOADS_ANNOTATION: Final = "millpond.io/card-loads"
"""Of the same pod: the mean use of each card in milli, by UUID. It changes only when one has changed enough."""
AGENT_NAMESPACE: Final = "millpond-agents"
"""Pods elsewhere are not believed."""
AGENT_LABEL: Final = ("app.kubernetes.io/name", "millpond-agent")


@dataclasses.dataclass(frozen=True, slots=True)
class AgentReport:
    """The cards of one node.

    Attributes:
        link_map: as ``Node.link_map``.
        unsliced: why nothing would hold tasks to parts of these cards; empty: something does.
        others: which of them pods have that the vendor's own plugin gave them, by UUID.
        swap_mib: host memory of the node for device memory of suspended pods.
        driver_away: why the driver does not say how the cards are; empty: it does.
        by_claims: the agent gives its cards out by claims, and not as a device plugin.
    """

    devices: tuple[Device, ...] = ()
    link_map: str = ""
    unsliced: str = ""
    others: Mapping[str, str] = dataclasses.field(default_factory=dict)
    swap_mib: int = 0
    driver_away: str = ""
    by_claims: bool = False

    def text(self) -> str:
        """As the agent's pod carries it: without what is as usual."""
        return msgspec.json.encode(_unusual(self)).decode()

    @staticmethod
    def of(annotations: Mapping[str, str]) -> AgentReport | None:
        """That of a pod; None of one that has none, or one that cannot be read."""
        return read_annotation(annotations, REPORT_ANNOTATION, AgentReport)


def loads_text(loads: Mapping[str, int]) -> str:
    """The mean use of cards as the agent's pod carries it."""
    return msgspec.json.encode(loads).decode()


def loads_of(annotations: Mapping[str, str]) -> dict[str, int]:
    """That of an agent's pod, 0..1000; none of one that has none, or one that cannot be read."""
    loads = read_annotation(annotations, LOADS_ANNOTATION, dict[str, int]) or {}
    return {uuid: min(max(milli, 0), CARD_MILLI) for uuid, milli in loads.items()}


def is_agent(pod: PodObject) -> bool:
    """Whether a pod is the agent of its node."""
    name, value = AGENT_LABEL
    return pod.metadata.namespace == AGENT_NAMESPACE and pod.metadata.labels.get(name) == value


def _unusual(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults."""
    found = {}
    for field in dataclasses.fields(value):
        usual = field.default_factory() if callable(field.default_factory) else field.default
        if (content := getattr(value, field.name)) != usual:
            found[field.name] = [_unusual(each) for each in content] if field.name == "devices" else content
    return found
