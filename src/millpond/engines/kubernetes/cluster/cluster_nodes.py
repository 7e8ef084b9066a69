"""Nodes of a Kubernetes cluster as nodes of the pool.

What pods of others use is taken off what a node has: off its CPUs and its memory, and as many of its cards are shown as
used elsewhere. Vendors' device plugins choose the cards of a pod themselves and by number alone, so such a card is
known by its node and a number here, and only the count of them is real. Where NVIDIA's DRA driver publishes the cards
of the node, they are known by their UUIDs, and given out by claims. Where the node has Millpond's agent, its NVIDIA
cards are known by their UUIDs, and can be given out in parts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from millpond.engines.kubernetes.cluster.agent_report import AgentReport
from millpond.engines.kubernetes.cluster.objects import ContainerSpec, NodeImage, NodeObject
from millpond.engines.kubernetes.cluster.resource_amounts import ResourceAmounts, amounts_in, quantity
from millpond.model.contents import Content
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.node_selection import Labels
from millpond.model.hardware.nodes import DEFAULT_POOL, Node
from millpond.model.sharing import GPU_SLICES
from millpond.node.devices.nvidia import VENDOR as NVIDIA
from millpond.node.devices.nvidia import model_name
from millpond.specs.job.images import image_content, is_reference

POOL_LABEL = "millpond.io/pool"
"""On nodes that are Millpond's: the name of their pool. A taint of the same key keeps other pods off."""
RACK_LABEL = "millpond.io/rack"
MODEL_LABEL = "millpond.io/gpu-model"
"""On nodes whose cards no vendor's label describes."""
ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
VENDORS = {"nvidia.com/gpu": "nvidia", "amd.com/gpu": "amd"}
"""By extended resource."""
MILLI = "millpond.io/gpu-milli"
"""The extended resource of the agent: thousandths of NVIDIA cards that it hands out by UUID."""
DRIVER = "gpu.nvidia.com"
"""NVIDIA's DRA driver, whose cards are given out by claims; also the name of its class of whole cards, and what stands
before the UUIDs of such cards."""
AGENT_DRIVER = "gpu.millpond.io"
"""The agent as a DRA driver: it gives out shares of cards by claims, where Kubernetes can account for them."""
CARD_SOURCES = (MILLI, DRIVER, *VENDORS)
"""By what pods ask for cards."""
TOLERATED = (POOL_LABEL, *VENDORS)
"""Keys of taints that Millpond's pods tolerate: its own, and those that keep nodes with cards for work with cards."""
TAINT = "taint:"
"""What the pseudo-labels of taints begin with, see ``with_taints``."""
_OFFERED = "offers:"
_ANSWERED = f"{_OFFERED}claim:"
NAME_FIELD = "metadata.name"
"""A pseudo-label of every node: its name."""
_REPELLING = ("NoSchedule", "NoExecute")
_USED_ELSEWHERE = "pods that are not Millpond's have it"
_SILENT = "the agent of its node does not answer the kubelet: it is given to nobody until it does"
_MIXED = "a pod on its node has a card from the vendor's device plugin, and it is not known which"
SHARERS = 64
"""How many tasks at the most have parts of one card, which is what the gate has places for."""

FETCH_RATE = 50_000_000
"""Bytes per second at which a node is supposed to fetch images until that was measured: over one Gbit/s, with one core
that unpacks them. Those that come within a second are not told of."""


@dataclass(frozen=True, slots=True)
class NodeRules:
    """Which nodes of a cluster are Millpond's.

    Attributes:
        all_nodes: every one that takes pods; otherwise those with ``POOL_LABEL``.
        tell_labels: jobs select nodes by their labels.
        timeout_s: one that has not been ready for so long is lost.
        extras: what jobs call other extended resources of the cluster, with their names there.
        tolerated: keys of taints that Millpond's own pods tolerate.
    """

    all_nodes: bool = False
    tell_labels: bool = False
    timeout_s: float = 60.0
    extras: Mapping[str, str] = field(default_factory=dict)
    tolerated: Collection[str] = TOLERATED

    def why_closed(self, node: NodeObject) -> str:
        """Why nothing new may start on a node; empty when it may."""
        if node.spec.unschedulable:
            return "it is cordoned in Kubernetes (kubectl uncordon opens it)"
        if not is_ready(node):
            said = next((each.message for each in node.status.conditions if each.type == "Ready"), "")
            return f"Kubernetes has it as not ready ({said or 'its kubelet has not reported'})"
        repelling = (each.key for each in node.spec.taints if each.effect in _REPELLING)
        key = next((each for each in repelling if each not in self.tolerated), "")
        return f"it has the taint {key}, which Millpond's pods do not tolerate (kubernetes.tolerate)" if key else ""

    def extras_of(self, node: NodeObject, foreign: ResourceAmounts) -> tuple[tuple[str, int], ...]:
        """What a node has of these, as jobs call it, but for what pods of others have."""
        there = amounts_in(node.status.allocatable, round_up=False).others
        return tuple(
            (name, max(there.get(resource, 0) - foreign.others.get(resource, 0), 0))
            for name, resource in self.extras.items()
        )

    def pool_of(self, node: NodeObject) -> str:
        """The pool that a node is in; empty when it is not Millpond's."""
        named = node.metadata.labels.get(POOL_LABEL, "")
        return named or (DEFAULT_POOL if self.all_nodes else "")


@dataclass(frozen=True, slots=True)
class CardTaint:
    """What a taint of Kubernetes makes of a card."""

    health: DeviceHealth
    why: str

    def on(self, device: Device) -> Device:
        """The card with it; one that has failed anyway stays so."""
        if device.health is DeviceHealth.FAULTY:
            return device
        return replace(device, health=self.health, health_detail=self.why)


@dataclass(frozen=True, slots=True)
class AgentCards:
    """The cards of a node with Millpond's agent.

    Attributes:
        taken: those that pods have which the core does not know, by UUID, and who has them.
        tainted: those that a driver publishes too, and that have taints there, by UUID.
        publishes: the agent serves claims at this moment, if it does so at all.
    """

    report: AgentReport
    taken: Mapping[str, str] = field(default_factory=dict)
    tainted: Mapping[str, CardTaint] = field(default_factory=dict)
    publishes: bool = False

    @property
    def devices(self) -> tuple[Device, ...]:
        """As the agent has reported them, with what taints make of them."""
        found = self.report.devices
        return tuple(self.tainted[each.uuid].on(each) if each.uuid in self.tainted else each for each in found)


@dataclass(frozen=True, slots=True)
class DriverCards:
    """The cards of a node that a DRA driver publishes.

    Attributes:
        taken: those that claims of others have, by UUID, and why they are not given out.
        mark: by which nodes with other kinds of cards differ.
        tainted: by UUID, those that are not given out for their taints, which ``devices`` have already.
        answers: extended resources for which pods may ask instead, where the node has no plugin for them.
    """

    devices: tuple[Device, ...]
    taken: Mapping[str, str]
    mark: str
    tainted: Mapping[str, CardTaint] = field(default_factory=dict)
    answers: tuple[str, ...] = ()


def is_of_driver(uuid: str) -> bool:
    """Whether a card is given out by claims."""
    return uuid.startswith(f"{DRIVER}/")


def is_of_agent(uuid: str) -> bool:
    """Whether a card is known by its UUID, and not by its node, its extended resource and a number."""
    return "/" not in uuid


def resource_of(device: Device) -> str:
    """The extended resource by which pods ask for a device."""
    if is_of_driver(device.uuid):
        return DRIVER
    return MILLI if is_of_agent(device.uuid) else device.uuid.partition("/")[2].rpartition("/")[0]


def most_pods(node: NodeObject) -> float:
    """How many pods its kubelet takes; infinite where it does not say."""
    said = node.status.allocatable.get("pods")
    return math.inf if said is None else quantity(said)


def silent_s(node: NodeObject, now: float) -> float:
    """For how long a node that is not ready has been so, as far as the cluster says.

    Args:
        now: seconds since 1970.
    """
    since = next((each.last_transition_time for each in node.status.conditions if each.type == "Ready"), None)
    return 0.0 if since is None else max(now - datetime.fromisoformat(since).timestamp(), 0.0)


def is_ready(node: NodeObject) -> bool:
    """Whether its kubelet says so."""
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)


def images_of(containers: Iterable[ContainerSpec]) -> set[str]:
    """The images that containers name, as ``contents_of`` has them."""
    return {image_content(each.image) for each in containers if is_reference(each.image)}


def contents_of(images: Iterable[NodeImage]) -> tuple[Content, ...]:
    """The images that a node holds, by each of their names."""
    large = [image for image in images if image.size_bytes >= FETCH_RATE]
    named = {
        image_content(name): image.size_bytes for image in large for name in image.names or () if is_reference(name)
    }
    return tuple(Content(name, size) for name, size in sorted(named.items()))


def is_silent(node: NodeObject, cards: AgentCards) -> bool:
    """Whether its agent does not answer the kubelet."""
    if cards.report.by_claims:
        return not cards.publishes
    return quantity(node.status.allocatable.get(MILLI, "0")) == 0


def driver_away(report: AgentReport) -> str:
    """Why nothing is known of an agent's cards at this moment; empty where all is."""
    return f"the driver does not say how the cards are: {report.driver_away}" if report.driver_away else ""


def with_taints(node: NodeObject) -> Mapping[str, str]:
    """The labels of a node, and ``taint:KEY:EFFECT`` with its value for each of its taints that keep pods off."""
    taints = {f"{TAINT}{each.key}:{each.effect}": each.value for each in node.spec.taints if each.effect in _REPELLING}
    return {**node.metadata.labels, **taints} if taints else node.metadata.labels


def with_name(node: NodeObject) -> Mapping[str, str]:
    """The same, and its name."""
    return {**with_taints(node), NAME_FIELD: node.metadata.name}


def taint_in(label: str) -> tuple[str, str] | None:
    """The key and the effect of a taint that a label stands for; None: it is another label."""
    key, _, effect = label.removeprefix(TAINT).rpartition(":")
    return (key, effect) if label.startswith(TAINT) else None


def offered(resource: str) -> str:
    """The pseudo-label of nodes that offer cards as this extended resource."""
    return f"{_OFFERED}{resource}"


def answered(resource: str) -> str:
    """The pseudo-label of nodes where a driver's cards answer requests for this extended resource."""
    return f"{_ANSWERED}{resource}"


def answered_in(label: str) -> str:
    """The extended resource of such a label; empty: it is another."""
    return label.removeprefix(_ANSWERED) if label.startswith(_ANSWERED) else ""


def labels_of(node: NodeObject, cards: AgentCards | DriverCards | None) -> Labels:
    """By what jobs may select a node: its labels, its name, its taints, and the kinds of cards that it offers."""
    found = dict(with_name(node))
    there = [name for name in (MILLI, *VENDORS) if node.status.allocatable.get(name, "0") != "0"]
    if MILLI in there or cards is not None:  # the vendor's plugin would give out the same cards
        there = [name for name in there if VENDORS.get(name) != NVIDIA]
    found |= {offered(name): "" for name in there}
    if isinstance(cards, DriverCards) and cards.mark:
        found[offered(DRIVER)] = cards.mark
        found |= {answered(name): "" for name in cards.answers if node.status.allocatable.get(name, "0") == "0"}
    if isinstance(cards, AgentCards) and cards.report.by_claims and cards.publishes:
        found[answered(MILLI)] = ""
    return tuple(sorted(found.items()))


def describe_node(
    node: NodeObject,
    pool: str,
    foreign: ResourceAmounts,
    held: Collection[str],
    cards: AgentCards | DriverCards | None = None,
) -> Node:
    """A node of the cluster as the core knows it.

    Args:
        foreign: what pods of others use of it.
        held: UUIDs of the devices that Millpond's own pods were given.
        cards: those that are known by their UUIDs; None: the node has no agent, and no driver publishes any.
    """
    there = amounts_in(node.status.allocatable, round_up=False)
    labels, name = node.metadata.labels, node.metadata.name
    by_uuid = () if cards is None else _known_devices(node, cards, foreign, held)
    report = cards.report if isinstance(cards, AgentCards) else None
    return Node(
        name,
        max(there.cpu_milli - foreign.cpu_milli, 0),
        max(there.memory_mib - foreign.memory_mib, 0),
        (*by_uuid, *_devices(node, there, foreign, held, without="" if cards is None else NVIDIA)),
        pool,
        rack_name=labels.get(RACK_LABEL, ""),
        zone_name=next((labels[label] for label in ZONE_LABELS if label in labels), ""),
        link_map="" if report is None else report.link_map,
        swap_mib=0 if report is None else report.swap_mib,
        extras=((GPU_SLICES, SHARERS * len(by_uuid)),) if report is not None and not report.unsliced else (),
        keeps_cpu=True,
        is_silent=not is_ready(node),
    )


def with_held_cards(described: Node, before: Node, held: Collection[str]) -> Node:
    """A node with the cards that our pods have, though their driver publishes them no more.

    A driver that is being replaced has its slices removed, and no pod loses its card by that.
    """
    there = {device.uuid for device in described.devices}
    kept = (each for each in before.devices if each.uuid in held and each.uuid not in there and is_of_driver(each.uuid))
    why = "its driver does not publish it now"
    late = tuple(replace(each, health=DeviceHealth.BUSY_ELSEWHERE, health_detail=why) for each in kept)
    return replace(described, devices=described.devices + late) if late else described


def _known_devices(
    node: NodeObject, cards: AgentCards | DriverCards, foreign: ResourceAmounts, held: Collection[str]
) -> tuple[Device, ...]:
    """The cards of a node that are known by their UUIDs."""
    devices, others, away = cards.devices, dict[str, str](), ""
    if isinstance(cards, AgentCards):
        others = dict(cards.report.others)
        away = _SILENT if is_silent(node, cards) else driver_away(cards.report)
    plugin = next(name for name, vendor in VENDORS.items() if vendor == NVIDIA)
    is_mixed = foreign.cards.get(plugin, 0) > len(others)
    taken = {uuid: f"pod {pod} has it from the vendor's device plugin" for uuid, pod in others.items()}
    taken |= cards.taken

    def described(device: Device) -> Device:
        why = taken.get(device.uuid, "") or away
        if not why and is_mixed and device.uuid not in held:
            why = _MIXED
        if not why or device.health is not DeviceHealth.OK:
            return device
        return replace(device, health=DeviceHealth.BUSY_ELSEWHERE, health_detail=why)

    return tuple(map(described, devices))


def _devices(
    node: NodeObject, there: ResourceAmounts, foreign: ResourceAmounts, held: Collection[str], *, without: str
) -> tuple[Device, ...]:
    """The cards that vendors' plugins offer, but for those of one vendor."""
    labels, found = node.metadata.labels, []
    memory_mib = int(quantity(labels.get("nvidia.com/gpu.memory", "0")))
    for resource, vendor in VENDORS.items():
        if vendor == without:
            continue
        product = labels.get("nvidia.com/gpu.product", "").replace("_", "-") if vendor == "nvidia" else ""
        model = labels.get(MODEL_LABEL) or (model_name(product) if product else vendor)
        uuids = [f"{node.metadata.name}/{resource}/{number}" for number in range(there.cards.get(resource, 0))]
        elsewhere = [uuid for uuid in reversed(uuids) if uuid not in held][: foreign.cards.get(resource, 0)]
        found += [
            Device(
                uuid,
                number,
                vendor,
                model,
                memory_mib if vendor == "nvidia" else 0,
                health=DeviceHealth.BUSY_ELSEWHERE if uuid in elsewhere else DeviceHealth.OK,
                health_detail=_USED_ELSEWHERE if uuid in elsewhere else "",
            )
            for number, uuid in enumerate(uuids)
        ]
    return tuple(found)
