"""Shares of cards as claims have them: what the agent of a node publishes, and what the server writes.

A card is one device that many claims may have, each with so much of its memory and its thousandths ("consumable
capacity"). Kubernetes adds up what they have; what holds a program to its share is the agent's gate.
https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/5075-dra-consumable-capacity
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.models.resource_v1 import Device as PublishedDevice
from lightkube.models.resource_v1 import (
    DeviceAttribute,
    DeviceCapacity,
    DeviceRequestAllocationResult,
    DeviceTaint,
    ResourcePool,
    ResourceSliceSpec,
)
from lightkube.resources.resource_v1 import ResourceSlice

from millpond.engines.kubernetes.claims.claim_objects import AllocatedDevice
from millpond.engines.kubernetes.cluster.cluster_nodes import AGENT_DRIVER
from millpond.engines.kubernetes.cluster.resource_amounts import quantity
from millpond.model.decisions import Grant
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.resources import CARD_MILLI
from millpond.model.units import MIB

MEMORY, MILLI_OF_CARD = "memory", "milli"
_NOT_IN_NAMES: Final = re.compile("[^a-z0-9]+")
_FAILED: Final = f"{AGENT_DRIVER}/failed"


def share_name(card: str) -> str:
    """The name of a card in its slice, by its UUID."""
    return f"card-{_NOT_IN_NAMES.sub('-', card.lower()).strip('-')}"


def slice_name(node: str) -> str:
    """The name of the slice of a node."""
    return f"{node}-{AGENT_DRIVER}"


def slice_of(node: str, devices: Iterable[Device], owner: OwnerReference | None) -> ResourceSlice:
    """What the agent of a node publishes of its cards.

    Args:
        owner: with which it goes.
    """
    pool = ResourcePool(name=node, generation=1, resourceSliceCount=1)
    published = [_published(each) for each in sorted(devices, key=lambda each: (each.index, each.uuid))]
    return ResourceSlice(
        metadata=ObjectMeta(name=slice_name(node), ownerReferences=None if owner is None else [owner]),
        spec=ResourceSliceSpec(driver=AGENT_DRIVER, pool=pool, nodeName=node, devices=published),
    )


def _published(card: Device) -> PublishedDevice:
    failed = [DeviceTaint(key=_FAILED, effect="NoSchedule")] if card.health is DeviceHealth.FAULTY else None
    return PublishedDevice(
        name=share_name(card.uuid),
        allowMultipleAllocations=True,
        attributes={
            "uuid": DeviceAttribute(string=card.uuid),
            "productName": DeviceAttribute(string=card.model),
            "index": DeviceAttribute(int=card.index),
        },
        capacity={name: DeviceCapacity(value=amount) for name, amount in _amounts(CARD_MILLI, card.memory_mib).items()},
        taints=failed,
    )


def _amounts(compute_milli: int, memory_mib: int) -> dict[str, Any]:
    return {MEMORY: f"{memory_mib}Mi", MILLI_OF_CARD: str(compute_milli)}


@dataclass(frozen=True, slots=True)
class CardShares:
    """What a task is given of the cards of an agent: a part of one, or whole ones.

    Attributes:
        devices: the cards of the node, by UUID.
    """

    node: str
    grants: Sequence[Grant]
    devices: Mapping[str, Device]

    @property
    def asked(self) -> dict[str, str]:
        """Of each card, as a line of a claim asks for it."""
        return self._consumed(self.grants[0])

    def results(self, claim: str, line: str) -> list[DeviceRequestAllocationResult]:
        """As a claim has them; each share has an id that is the same whenever it is written.

        Args:
            claim: its uid.
            line: its only one.
        """
        return [
            DeviceRequestAllocationResult(
                driver=AGENT_DRIVER,
                pool=self.node,
                device=share_name(grant.device),
                request=line,
                consumedCapacity=self._consumed(grant),
                shareID=str(uuid.uuid5(uuid.NAMESPACE_OID, f"{claim}/{grant.device}")),
            )
            for grant in self.grants
        ]

    def _consumed(self, grant: Grant) -> dict[str, str]:
        return _amounts(grant.compute_milli, memory_of(grant, self.devices.get(grant.device)))


def memory_of(grant: Grant, card: Device | None) -> int:
    """The MiB that a grant takes of its card: all of it, where it names none."""
    return grant.memory_mib or (0 if card is None else card.memory_mib)


def differs(has: Iterable[AllocatedDevice], grants: Iterable[Grant], devices: Mapping[str, Device]) -> bool:
    """Whether a claim has something else than a pod was granted."""
    granted = {
        (share_name(each.device), float(each.compute_milli), float(memory_of(each, devices.get(each.device))))
        for each in grants
    }
    return granted != {
        (each.device, quantity(amounts.get(MILLI_OF_CARD, "0")), quantity(amounts.get(MEMORY, "0")) / MIB)
        for each in has
        for amounts in [each.consumed_capacity]
    }
