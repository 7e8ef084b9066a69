"""Devices of a class that pods ask for by number, as an extended resource such as ``nvidia.com/gpu``.

Where a node has no device plugin for the resource, the scheduler of the pod answers such a request: it makes a claim
for the pod, and writes into the pod's status which container has what of it. Names and order of its lines are those of
kube-scheduler, as Kubernetes counts quotas by them.
https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/5004-dra-extended-resource
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lightkube.models.core_v1 import ContainerExtendedResourceRequest, PodExtendedResourceClaimStatus
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.models.resource_v1 import (
    CapacityRequirements,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from lightkube.resources.resource_v1 import ResourceClaim

from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.claims.card_shares import CardShares
from millpond.engines.kubernetes.claims.claim_objects import EXACT_COUNT, ClaimObject, ClassObject
from millpond.engines.kubernetes.claims.device_selectors import CardKind, UnreadableSelectorError, is_meant
from millpond.engines.kubernetes.cluster.cluster_nodes import AGENT_DRIVER, MILLI
from millpond.engines.kubernetes.cluster.objects import ContainerSpec
from millpond.engines.kubernetes.cluster.resource_amounts import quantity

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""Before the name of a class: the resource that stands for it, whatever else does."""
_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
_INFIX: Final = "-extended-resources-"
_LONGEST_NAME, _UID_LETTERS = 253, 8


def classes_by_resource(classes: Iterable[ClassObject]) -> dict[str, str]:
    """The class that stands for each extended resource: of several the latest, then the first by name."""
    by_name = sorted(classes, key=lambda each: each.metadata.name, reverse=True)
    found: dict[str, str] = {}
    for each in sorted(by_name, key=lambda each: each.metadata.creation_timestamp):
        found[f"{IMPLICIT}{each.metadata.name}"] = each.metadata.name
        if each.spec.extended_resource_name:
            found[each.spec.extended_resource_name] = each.metadata.name
    return found


def are_meant(of_class: ClassObject, kinds: Collection[CardKind]) -> bool:
    """Whether a class means all of these cards, as far as its selectors can be read."""
    try:
        return all(is_meant(each.cel.expression, kind) for each in of_class.spec.selectors for kind in kinds)
    except UnreadableSelectorError:
        return False


def special_name(pod: ScheduledPod) -> str:
    """The name of the claim for what a pod asks for by number; another pod of its name has another."""
    end = f"{_INFIX}{pod.metadata.uid[:_UID_LETTERS]}"
    return pod.metadata.name[: _LONGEST_NAME - len(end)].rstrip("-.") + end


def is_special(claim: ClaimObject, pod: ScheduledPod) -> bool:
    """Whether a claim was made for what a pod asks for by number."""
    return claim.metadata.annotations.get(_ANNOTATION) == "true" and pod.metadata.uid in claim.owners


@dataclass(frozen=True, slots=True)
class ExtendedRequest:
    """What a pod asks for of an extended resource, as lines of a claim.

    Attributes:
        lines: their names, and how many devices each has.
        mappings: which containers have which lines.
        capacity: so much of each device; empty: devices as a whole.
    """

    class_name: str
    lines: Sequence[tuple[str, int]]
    mappings: Sequence[ContainerExtendedResourceRequest]
    capacity: Mapping[str, str] = field(default_factory=dict)

    def claim(self, pod: ScheduledPod) -> ResourceClaim:
        """The claim to be made for a pod; it goes with it."""
        meta = pod.metadata
        owner = OwnerReference(apiVersion="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True)
        requests = [line_of(name, self.class_name, count, self.capacity) for name, count in self.lines]
        return ResourceClaim(
            metadata=ObjectMeta(
                name=special_name(pod),
                namespace=meta.namespace,
                ownerReferences=[owner],
                annotations={_ANNOTATION: "true"},
            ),
            spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)),
        )

    def is_asked_by(self, claim: ClaimObject) -> bool:
        """Whether a claim that is there asks for just this."""
        asked = [(each.name, each.exactly) for each in claim.spec.devices.requests]
        return asked == [(name, exact) for name, exact in asked if exact is not None] and [
            (name, exact.device_class_name, exact.count, exact.capacity.requests) for name, exact in asked if exact
        ] == [(name, self.class_name, count, dict(self.capacity)) for name, count in self.lines]

    def status(self, claim: str) -> PodExtendedResourceClaimStatus:
        """What is written on the pod."""
        return PodExtendedResourceClaimStatus(requestMappings=list(self.mappings), resourceClaimName=claim)


def line_of(name: str, of_class: str, count: int, capacity: Mapping[str, str]) -> DeviceRequest:
    """A line of a claim.

    Args:
        capacity: so much of each device; empty: devices as a whole.
    """
    amounts = CapacityRequirements(requests=dict(capacity)) if capacity else None
    exact = ExactDeviceRequest(deviceClassName=of_class, allocationMode=EXACT_COUNT, count=count, capacity=amounts)
    return DeviceRequest(name=name, exactly=exact)


def share_request(pod: ScheduledPod, shares: CardShares) -> ExtendedRequest:
    """What the container of a pod asks for of the cards of an agent, as a line of a claim."""
    number, container = next((n, each) for n, each in enumerate(_containers(pod)) if _count(each, MILLI))
    line = _line_name(number, container, MILLI)
    mapping = ContainerExtendedResourceRequest(container.name, line, MILLI)
    return ExtendedRequest(AGENT_DRIVER, [(line, len(shares.grants))], [mapping], shares.asked)


def extended_request(pod: ScheduledPod, classes: Mapping[str, str]) -> ExtendedRequest | None:
    """What a pod asks for by number that a class stands for; None where that is nothing.

    Args:
        classes: by the resources that they stand for.
    """
    asked = {name for each in _containers(pod) for name in each.resources.requests if _count(each, name)}
    resource = next((name for name in sorted(asked) if name in classes), None)
    return None if resource is None else _request(pod, resource, classes[resource])


def _request(pod: ScheduledPod, resource: str, class_name: str) -> ExtendedRequest:
    """Containers that run together have a line each; those that run before them use these, and one more if need be."""
    asking = [(n, each, _count(each, resource)) for n, each in enumerate(_containers(pod)) if _count(each, resource)]
    before = len(pod.spec.init_containers)
    lines = [(_line_name(number, each, resource), count) for number, each, count in asking if number >= before]
    used = [(each, name) for (_, each, _), (name, _) in zip(asking[len(asking) - len(lines) :], lines, strict=True)]
    together = sum(count for _, count in lines)
    first = asking[: len(asking) - len(lines)]
    largest = max(first, key=lambda each: each[2], default=None)
    more = [(_line_name(largest[0], largest[1], resource), largest[2] - together)] if largest is not None else []
    more = [each for each in more if each[1] > 0]
    for _, container, count in first:
        used += [(container, name) for name in _up_to(count, (*lines, *more))]
    mappings = [ContainerExtendedResourceRequest(each.name, name, resource) for each, name in used]
    return ExtendedRequest(class_name, sorted([*lines, *more]), mappings)


def _up_to(count: int, lines: Iterable[tuple[str, int]]) -> Iterator[str]:
    """The first of these lines that have so many devices together."""
    for name, has in lines:
        if count <= 0:
            return
        yield name
        count -= has


def _containers(pod: ScheduledPod) -> list[ContainerSpec]:
    return [*pod.spec.init_containers, *pod.spec.containers]


def _count(container: ContainerSpec, resource: str) -> int:
    return int(quantity(container.resources.requests.get(resource, "0")))


def _line_name(number: int, container: ContainerSpec, resource: str) -> str:
    return f"container-{number}-request-{sorted(container.resources.requests).index(resource)}"
