"""The parts of Kubernetes objects that the engine reads, decoded by msgspec: everything else in an answer is skipped.

Field names are the API's own. What is written to the cluster is made of lightkube's complete models instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct, field

Annotated = TypeVar("Annotated")


def read_annotation(annotations: Mapping[str, str], name: str, kind: type[Annotated]) -> Annotated | None:
    """What an object carries as JSON in an annotation; None of one that has none, or one that was tampered with."""
    try:
        return msgspec.json.decode(annotations[name], type=kind)
    except (KeyError, msgspec.MsgspecError):
        return None


class ObjectMeta(Struct, rename="camel"):
    """What every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: tuple[str, ...] = ()

    @property
    def is_kept_by_finalizers(self) -> bool:
        """Whether nothing else keeps an object that is deleted: of a pod, its kubelet has said that it has ended."""
        return bool(self.finalizers) and self.deletion_grace_period_seconds == 0


class Taint(Struct):
    """Keeps what does not tolerate it off: pods off a node, or claims off a device."""

    key: str
    effect: str
    value: str = ""


class NodeCondition(Struct, rename="camel"):
    """One of the things that a kubelet, or the scheduler, says of a node or a pod."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class NodeSpec(Struct):
    """What is wanted of a node."""

    unschedulable: bool = False
    taints: list[Taint] = []


class NodeImage(Struct, frozen=True, rename="camel"):
    """An image that a node holds, under all its names; with tags, and with digests."""

    names: tuple[str, ...] | None = None
    size_bytes: int = 0


class NodeStatus(Struct):
    """What a kubelet says of its node."""

    allocatable: dict[str, str] = {}
    conditions: list[NodeCondition] = []
    images: tuple[NodeImage, ...] | None = None


class NodeObject(Struct):
    """A machine of the cluster."""

    metadata: ObjectMeta
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


class ResourceNeeds(Struct):
    """What a container asks for, or a pod as a whole."""

    requests: dict[str, str] = {}


class ContainerPort(Struct, frozen=True, rename="camel"):
    """A port of a container; ``host_port``: that of the node which leads to it, 0: none does."""

    host_port: int = 0
    protocol: str = "TCP"


class ContainerSpec(Struct):
    """One container of a pod."""

    name: str
    image: str = ""
    resources: ResourceNeeds = field(default_factory=ResourceNeeds)
    ports: tuple[ContainerPort, ...] = ()


class InitContainer(ContainerSpec, rename="camel"):
    """One that runs before the others, or as long as these."""

    restart_policy: str = ""

    @property
    def is_sidecar(self) -> bool:
        """Whether it goes on beside those that start behind it."""
        return self.restart_policy == "Always"


class PodAntiAffinity(Struct):
    """Beside which pods it must not lie; terms as the API has them."""

    required: list[dict[str, Any]] = field(default_factory=list, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodAffinities(Struct, rename="camel"):
    """What a pod that is there says of those that come."""

    pod_anti_affinity: PodAntiAffinity | None = None


class PodSpec(Struct, rename="camel"):
    """What is wanted of a pod."""

    node_name: str = ""
    containers: list[ContainerSpec] = []
    init_containers: list[InitContainer] = []
    resources: ResourceNeeds | None = None
    overhead: dict[str, str] = {}
    affinity: PodAffinities | None = None


class WaitingState(Struct):
    """A container that does not run yet."""

    reason: str = ""
    message: str = ""


class RunningState(Struct, rename="camel"):
    """A container that runs."""

    started_at: str | None = None


class TerminatedState(Struct, rename="camel"):
    """A container that has ended."""

    exit_code: int
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(Struct):
    """One of the three."""

    waiting: WaitingState | None = None
    running: RunningState | None = None
    terminated: TerminatedState | None = None


class ContainerStatus(Struct):
    """What a kubelet says of a container."""

    name: str
    state: ContainerState = field(default_factory=ContainerState)


class PodStatus(Struct, rename="camel"):
    """What a kubelet says of a pod, and of the claim that its scheduler made for the cards it asks for by number."""

    pod_ip: str = field(default="", name="podIP")
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    extended_resource_claim_status: dict[str, Any] | None = None


class PodObject(Struct):
    """A pod."""

    metadata: ObjectMeta
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)

    @property
    def is_over(self) -> bool:
        """Whether it uses nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")


class EventObject(Struct):
    """Something that happened to an object, in the words of who saw it."""

    reason: str = ""
    message: str = ""


class EventsOfObject(Struct):
    """Events, the oldest first."""

    items: list[EventObject] = []


class ListMeta(Struct, rename={"go_on": "continue", "resource_version": "resourceVersion"}):
    """Where a list stands in the cluster's history, and where it goes on."""

    resource_version: str = ""
    go_on: str = ""


class WatchLine(Struct):
    """One line of a watch; what the object is depends on the type."""

    type: str
    object: Raw


class StatusCause(Struct):
    """One part of why something failed."""

    reason: str = ""
    message: str = ""


class StatusDetails(Struct):
    """More about why something failed."""

    causes: list[StatusCause] = []


class StatusObject(Struct):
    """How something went, as the API writes it."""

    code: int = 0
    reason: str = ""
    message: str = ""
    status: str = ""
    details: StatusDetails = field(default_factory=StatusDetails)


class MetaOnly(Struct):
    """An object of which the metadata matters alone, as in a bookmark."""

    metadata: ObjectMeta
