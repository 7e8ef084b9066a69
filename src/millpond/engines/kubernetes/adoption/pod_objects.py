"""The parts of pods that count for scheduling them, decoded by msgspec; of other pods ``objects.PodObject`` suffices.

Field names are the API's own. Pods of which these are kept are those alone that name Millpond as their scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, field

from millpond.engines.kubernetes.adoption.affinities.host_ports import host_ports, with_ports
from millpond.engines.kubernetes.cluster.objects import (
    ContainerSpec,
    ContainerStatus,
    InitContainer,
    NodeCondition,
    ObjectMeta,
    ResourceNeeds,
)
from millpond.engines.kubernetes.pods.pod_marks import SCHEDULER

GATE: Final = "millpond.io/gate"
"""The scheduling gate that holds pods for Millpond which another scheduler binds."""
NODE_ANNOTATION: Final = "millpond.io/node"
"""On pods that were released from it: the node that was chosen."""
LET_GO_ANNOTATION: Final = "millpond.io/claims-let-go"
"""On pods with claims: differs each time that one of these is about to lose what was allocated for the pod."""


class OwnerReference(Struct, rename="camel"):
    """Who made an object."""

    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool = False


class PodMeta(ObjectMeta, rename="camel"):
    """What is said of a pod as an object."""

    creation_timestamp: str = ""
    owner_references: list[OwnerReference] = field(default_factory=list)


class Toleration(Struct, frozen=True):
    """A taint that keeps the pod off no node."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def is_about(self, key: str, effect: str) -> bool:
        """Whether it speaks of taints of a key and an effect, perhaps with another value."""
        is_any = not self.key and self.operator == "Exists"
        return (self.key == key or is_any) and self.effect in ("", effect)


class VariableName(Struct):
    """A variable of a container, whatever its value."""

    name: str


class ScheduledContainer(ContainerSpec):
    """One container of a pod."""

    env: list[VariableName] = field(default_factory=list)


class SchedulingGate(Struct):
    """Something that somebody waits for before the pod may be scheduled."""

    name: str


class SchedulingGroup(Struct, rename="camel"):
    """The group that a pod belongs to (``scheduling.k8s.io``)."""

    pod_group_name: str = ""


class SpreadConstraint(Struct, rename="camel"):
    """How evenly pods are to lie."""

    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    max_skew: int = 1
    min_domains: int = 1
    label_selector: dict[str, Any] | None = None
    match_label_keys: list[str] = []
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"


class PodClaim(Struct, rename="camel"):
    """A resource claim that a pod names, or the template that one is made of for it."""

    name: str
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class MadeClaim(Struct, rename="camel"):
    """The claim that was made for a pod of a template; without a name where none was needed."""

    name: str
    resource_claim_name: str | None = None


class ScheduledSpec(Struct, rename="camel"):
    """What is wanted of a pod."""

    node_name: str = ""
    scheduler_name: str = ""
    service_account_name: str = "default"
    containers: list[ScheduledContainer] = []
    init_containers: list[InitContainer] = []
    resources: ResourceNeeds | None = None
    overhead: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    affinity: dict[str, Any] = {}
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[SpreadConstraint] = []
    scheduling_gates: list[SchedulingGate] = []
    scheduling_group: SchedulingGroup | None = None
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    termination_grace_period_seconds: float = 30.0
    volumes: list[dict[str, Any]] = []
    resource_claims: list[PodClaim] = []


class ScheduledStatus(Struct, rename="camel"):
    """What a kubelet says of a pod."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: list[NodeCondition] = []
    container_statuses: list[ContainerStatus] = []
    resource_claim_statuses: list[MadeClaim] = []
    extended_resource_claim_status: dict[str, Any] | None = None


class ScheduledPod(Struct):
    """A pod that names Millpond as its scheduler."""

    metadata: PodMeta
    spec: ScheduledSpec = field(default_factory=ScheduledSpec)
    status: ScheduledStatus = field(default_factory=ScheduledStatus)

    @property
    def key(self) -> str:
        """Its namespace and name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def is_over(self) -> bool:
        """Whether it uses nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def node(self) -> str:
        """Where it is bound, or where Millpond has released it for; empty: nowhere yet."""
        is_released = self.spec.scheduler_name != SCHEDULER and not self.spec.scheduling_gates
        return self.spec.node_name or (self.metadata.annotations.get(NODE_ANNOTATION, "") if is_released else "")

    @property
    def waits(self) -> bool:
        """Whether it could be bound: nothing holds it, or where another scheduler binds it, Millpond's gate alone."""
        gates = self.spec.scheduling_gates
        is_due = not gates if self.spec.scheduler_name == SCHEDULER else {gate.name for gate in gates} == {GATE}
        is_leaving = self.metadata.deletion_timestamp is not None
        return is_due and not (self.node or self.is_over or is_leaving)

    @property
    def labels(self) -> Mapping[str, str]:
        """By which affinities mean it: its labels, and the ports of its node that it has."""
        return with_ports(self.metadata.labels, host_ports(self.spec))

    @property
    def let_go(self) -> str:
        """By which it is seen whether its claims may have lost anything since."""
        return self.metadata.annotations.get(LET_GO_ANNOTATION, "")

    @property
    def asks_of_others(self) -> bool:
        """Whether it asks anything of where other pods lie."""
        spec = self.spec
        return bool(spec.affinity or spec.topology_spread_constraints or host_ports(spec))

    @property
    def controller(self) -> OwnerReference | None:
        """Who made it, and makes another if need be."""
        return next((owner for owner in self.metadata.owner_references if owner.controller), None)
