"""The parts of ``resource.k8s.io/v1`` that the engine reads, decoded by msgspec.

Field names are the API's own. What is written to the cluster is made of lightkube's complete models instead.
"""

from __future__ import annotations

from typing import Any, Final

from lightkube.models.resource_v1 import DeviceToleration
from msgspec import Struct, field

from millpond.engines.kubernetes.adoption.pod_objects import OwnerReference
from millpond.engines.kubernetes.cluster.cluster_nodes import AGENT_DRIVER, DRIVER
from millpond.engines.kubernetes.cluster.objects import ObjectMeta, Taint
from millpond.engines.kubernetes.cluster.reflector import ObjectKind

GROUP: Final = "/apis/resource.k8s.io"
API: Final = f"{GROUP}/v1"
EXACT_COUNT: Final = "ExactCount"


class SliceDevice(Struct, rename="camel"):
    """One device of a node; of attributes and capacities the values as the API writes them, by their types."""

    name: str
    attributes: dict[str, dict[str, Any]] = {}
    capacity: dict[str, dict[str, Any]] = {}
    taints: list[Taint] = []
    allow_multiple_allocations: bool = False
    binding_conditions: list[str] = []

    def said(self, name: str) -> str:
        """An attribute that is a text; empty where there is none."""
        return str(self.attributes.get(name, {}).get("string", ""))


class SlicePool(Struct, rename="camel"):
    """What several slices are parts of."""

    name: str
    generation: int = 0
    resource_slice_count: int = 1


class SliceSpec(Struct, rename="camel"):
    """What a driver publishes."""

    driver: str
    pool: SlicePool
    node_name: str = ""
    devices: list[SliceDevice] = []


class SliceObject(Struct):
    """Devices of one driver."""

    metadata: ObjectMeta
    spec: SliceSpec


class TaintSelector(Struct):
    """Which devices a rule is about; empty: all."""

    driver: str = ""
    pool: str = ""
    device: str = ""


class TaintRuleSpec(Struct, rename="camel"):
    """What a rule does: without a selector, nothing."""

    taint: Taint
    device_selector: TaintSelector | None = None


class TaintRuleObject(Struct):
    """A taint that an admin gives devices, whatever their driver says of them."""

    metadata: ObjectMeta
    spec: TaintRuleSpec

    def is_about(self, driver: str, pool: str, device: str) -> bool:
        """Whether it taints a device."""
        chosen = self.spec.device_selector
        return chosen is not None and all(
            wanted in ("", name)
            for wanted, name in ((chosen.driver, driver), (chosen.pool, pool), (chosen.device, device))
        )


class CelSelector(Struct):
    """An expression about a device."""

    expression: str = ""


class DeviceSelector(Struct):
    """What a device must be."""

    cel: CelSelector = field(default_factory=CelSelector)


class ClassMeta(ObjectMeta, rename="camel"):
    """What is said of a class as an object."""

    creation_timestamp: str = ""


class ClassSpec(Struct, rename="camel"):
    """Which devices a class has, how they are set up, and for which extended resource pods may ask instead of them."""

    selectors: list[DeviceSelector] = []
    config: list[dict[str, Any]] = []
    extended_resource_name: str | None = None


class ClassObject(Struct):
    """A class of devices."""

    metadata: ClassMeta
    spec: ClassSpec = field(default_factory=ClassSpec)


class CapacityNeeds(Struct):
    """What a device must have of its capacities."""

    requests: dict[str, str] = {}


class ExactRequest(Struct, rename="camel"):
    """Devices that are alike."""

    device_class_name: str
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool = False
    selectors: list[DeviceSelector] = []
    capacity: CapacityNeeds = field(default_factory=CapacityNeeds)
    tolerations: list[DeviceToleration] = []


class DeviceRequest(Struct):
    """One line of a claim."""

    name: str
    exactly: ExactRequest | None = None


class ClaimDevices(Struct):
    """What a claim asks for."""

    requests: list[DeviceRequest] = []
    constraints: list[dict[str, Any]] = []
    config: list[dict[str, Any]] = []


class ClaimSpec(Struct):
    """What is wanted of a claim; it never changes."""

    devices: ClaimDevices = field(default_factory=ClaimDevices)


class AllocatedDevice(Struct, rename="camel"):
    """A device that a claim has."""

    driver: str
    pool: str
    device: str
    admin_access: bool = False
    consumed_capacity: dict[str, str] = {}


class AllocatedDevices(Struct):
    """All of them."""

    results: list[AllocatedDevice] = []


class ClaimAllocation(Struct, rename="camel"):
    """What a claim has, and from where it can be used."""

    devices: AllocatedDevices = field(default_factory=AllocatedDevices)
    node_selector: dict[str, Any] | None = None


class ClaimConsumer(Struct):
    """Who may use a claim: a pod."""

    resource: str
    name: str
    uid: str


class ClaimStatus(Struct, rename="camel"):
    """What has become of a claim."""

    allocation: ClaimAllocation | None = None
    reserved_for: list[ClaimConsumer] = []


class ClaimMeta(ObjectMeta, rename="camel"):
    """What is said of a claim as an object."""

    owner_references: list[OwnerReference] = field(default_factory=list)


class ClaimObject(Struct):
    """Devices that pods ask for together, or have."""

    metadata: ClaimMeta
    spec: ClaimSpec = field(default_factory=ClaimSpec)
    status: ClaimStatus = field(default_factory=ClaimStatus)

    @property
    def key(self) -> str:
        """Its namespace and name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def owners(self) -> frozenset[str]:
        """UIDs of what it goes with."""
        return frozenset(each.uid for each in self.metadata.owner_references)

    def is_reserved_beside(self, uid: str) -> bool:
        """Whether other pods than this one may use it."""
        return any(each.uid != uid for each in self.status.reserved_for)


SLICES: Final = ObjectKind(f"{API}/resourceslices", SliceObject, {"fieldSelector": f"spec.driver={DRIVER}"})
SHARES: Final = ObjectKind(f"{API}/resourceslices", SliceObject, {"fieldSelector": f"spec.driver={AGENT_DRIVER}"})
"""Those of Millpond's agents."""
CLASSES: Final = ObjectKind(f"{API}/deviceclasses", ClassObject)
CLAIMS: Final = ObjectKind(f"{API}/resourceclaims", ClaimObject)
TAINT_RULES: Final = tuple(
    ObjectKind(f"{GROUP}/{version}/devicetaintrules", TaintRuleObject) for version in ("v1", "v1beta2")
)
"""In the versions that have them, the newest first: Kubernetes 1.37, and 1.36 where an admin has it serve betas."""
