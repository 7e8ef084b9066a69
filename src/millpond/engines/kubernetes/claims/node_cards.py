"""The cards of a node as the ResourceSlices of its driver have them.

Whole cards are given out. Parts of cards that the driver publishes beside them (MIG, virtual ones) are not, but what
others have of a card keeps it from being given out.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from millpond.engines.kubernetes.claims.claim_objects import SliceDevice, SliceObject
from millpond.engines.kubernetes.claims.device_selectors import (
    KIND_ATTRIBUTES,
    CardKind,
    UnreadableSelectorError,
    version_of,
)
from millpond.engines.kubernetes.cluster.cluster_nodes import DRIVER, CardTaint, DriverCards
from millpond.engines.kubernetes.cluster.objects import Taint
from millpond.engines.kubernetes.cluster.resource_amounts import quantity
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.units import MIB
from millpond.node.devices.nvidia import VENDOR, model_name

_WHOLE_CARD: Final = "gpu"
_LAST_NUMBER: Final = re.compile(r"(\d+)$")
_PCIE_ROOT, _NUMA_NODE = "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"
_HEALTH_OF_TAINTS: Final = {"NoSchedule": DeviceHealth.BUSY_ELSEWHERE, "NoExecute": DeviceHealth.FAULTY}
"""Kubernetes itself ends the pods on a device with the second."""
_BY_DRIVER: Final = "its driver, or an admin,"

DeviceName = tuple[str, str]
"""Of a device of the driver: its pool, and its name there."""
RuleTaints = Callable[[str, str], Iterable[tuple[str, Taint]]]
"""The taints that rules give a device, by its pool and name, and who says so."""


@dataclass(frozen=True, slots=True)
class DriverCard:
    """A whole card of a node.

    Attributes:
        name: by which claims have it.
        device: as the core knows it.
    """

    name: DeviceName
    device: Device
    kind: CardKind


@dataclass(frozen=True, slots=True)
class NodeCards:
    """All that a driver publishes of one node.

    Attributes:
        parts: for each of its devices, the UUID of the card that it is, or is a part of.
        tainted: cards that taints keep from being given out, by UUID.
        kinds: of its cards, each once.
        mark: by which nodes with other kinds of cards differ.
    """

    cards: tuple[DriverCard, ...]
    parts: Mapping[DeviceName, str]
    tainted: Mapping[str, CardTaint]
    kinds: tuple[CardKind, ...]
    mark: str

    def given(self, holders: Mapping[DeviceName, Collection[str]], held: Collection[str]) -> DriverCards:
        """As the node is described.

        Args:
            holders: of devices, the claims that have them.
            held: UUIDs of what Millpond's own pods were given.
        """
        claims = {uuid: claim for name, uuid in self.parts.items() for claim in holders.get(name, ())}
        taken = {uuid: f"claim {claim} has it" for uuid, claim in claims.items() if uuid not in held}
        return DriverCards(tuple(card.device for card in self.cards), taken, self.mark, self.tainted)


def whole_pool(slices: Iterable[SliceObject]) -> list[SliceObject]:
    """The slices of a pool that count: those of its last generation, as soon as all of them are there."""
    found = list(slices)
    latest = max((each.spec.pool.generation for each in found), default=0)
    last = [each for each in found if each.spec.pool.generation == latest]
    return last if last and len(last) == last[0].spec.pool.resource_slice_count else []


def _no_rules(_pool: str, _device: str) -> Iterable[tuple[str, Taint]]:
    return ()


def cards_of(slices: Iterable[SliceObject], rule_taints: RuleTaints = _no_rules) -> NodeCards:
    """What the slices of a node come to."""
    parts: dict[DeviceName, str] = {}
    tainted: dict[str, CardTaint] = {}
    numbers: defaultdict[str, dict[str, int]] = defaultdict(dict)
    cards = []
    for each in slices:
        for device in each.spec.devices:
            name = each.spec.pool.name, device.name
            uuid = device.said("parentUUID") or device.said("uuid") or "/".join(name)
            parts[name] = f"{DRIVER}/{uuid}"
            if device.said("type") == _WHOLE_CARD:
                taint = _worst((*((_BY_DRIVER, taint) for taint in device.taints), *rule_taints(*name)))
                if taint is not None:
                    tainted[parts[name]] = taint
                cards.append(_card(name, parts[name], device, numbers, taint))
    cards.sort(key=lambda card: (card.device.index, card.name))
    kinds = tuple(dict.fromkeys(card.kind for card in cards))
    return NodeCards(tuple(cards), parts, tainted, kinds, " + ".join(sorted(map(_name_of, kinds))))


def _name_of(kind: CardKind) -> str:
    """Its product, with a few letters by which kinds of one product differ."""
    product = dict(kind.attributes).get("productName", "")
    return f"{product} {hashlib.sha256(repr(kind).encode()).hexdigest()[:6]}"


def _card(
    name: DeviceName,
    uuid: str,
    device: SliceDevice,
    numbers: Mapping[str, dict[str, int]],
    taint: CardTaint | None,
) -> DriverCard:
    product = device.said("productName")
    number = _LAST_NUMBER.search(device.name)
    roots, sockets = numbers[_PCIE_ROOT], numbers[_NUMA_NODE]
    whole = Device(
        uuid,
        int(number[1]) if number else 0,
        VENDOR,
        model_name(product) if product else VENDOR,
        int(quantity(str(device.capacity.get("memory", {}).get("value", "0"))) / MIB),
        switch=roots.setdefault(str(device.attributes.get(_PCIE_ROOT)), len(roots)),
        socket=sockets.setdefault(str(device.attributes.get(_NUMA_NODE)), len(sockets)),
    )
    return DriverCard(name, _with_health(whole, device) if taint is None else taint.on(whole), _kind_of(device))


def _worst(taints: Iterable[tuple[str, Taint]]) -> CardTaint | None:
    """What taints come to, each with who says so; None where they are of no effect."""
    found = [each for each in taints if each[1].effect in _HEALTH_OF_TAINTS]
    if not found:
        return None
    who, taint = max(found, key=lambda each: each[1].effect == "NoExecute")
    said = f"{taint.key}={taint.value}" if taint.value else taint.key
    return CardTaint(_HEALTH_OF_TAINTS[taint.effect], f"{who} has tainted it: {said}:{taint.effect}")


def _with_health(whole: Device, device: SliceDevice) -> Device:
    shared = "its driver lets several claims have it" if device.allow_multiple_allocations else ""
    late = "its driver wants a say before a pod is bound" if device.binding_conditions else ""
    if why := shared or late:
        detail = f"{why}, and Millpond gives out whole cards at once"
        return replace(whole, health=DeviceHealth.BUSY_ELSEWHERE, health_detail=detail)
    return whole


def _kind_of(device: SliceDevice) -> CardKind:
    attributes = ((name, _plain(value)) for name, value in device.attributes.items() if name in KIND_ATTRIBUTES)
    capacity = ((name, quantity(str(each.get("value", "0")))) for name, each in device.capacity.items())
    return CardKind(tuple(sorted(attributes)), tuple(sorted(capacity)))


def _plain(value: Mapping[str, Any]) -> Any:
    """The value of an attribute, of whatever type; a version that is none of three numbers is a text."""
    kind, content = next(iter(value.items()), ("string", ""))
    if kind != "version":
        return content if isinstance(content, str | int | bool) else str(content)
    try:
        return version_of(content)
    except UnreadableSelectorError:
        return content
