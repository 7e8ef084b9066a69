"""Which gang a pod belongs to, by the pod alone; how many pods that has is asked of the cluster (``gang_sizes``).

In this order: a group that the pod names, its owner by the table, annotations; otherwise it is a gang by itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from millpond.engines.kubernetes.adoption.gangs import POD, GangKey
from millpond.engines.kubernetes.adoption.owner_table import MAKERS, ORDER_LABELS, OwnerKind
from millpond.engines.kubernetes.adoption.pod_objects import OwnerReference, ScheduledPod

GANG_ANNOTATION: Final = "millpond.io/gang"
SIZE_ANNOTATION: Final = "millpond.io/gang-size"
GROUP_LABELS: Final = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
ANNOTATED: Final = "gang"
"""The kind of a gang that annotations name."""
_LATE: Final = 2**31


@dataclass(frozen=True, slots=True)
class GroupKind:
    """A kind of object that groups pods and does not make them.

    Attributes:
        least: path of the number of pods that start together.
    """

    name: str
    api: str
    least: str

    def path(self, namespace: str, name: str) -> str:
        """Where it is found."""
        return f"/apis/{self.api}/namespaces/{namespace}/podgroups/{name}"

    @property
    def right(self) -> str:
        """Its resource, as roles name it."""
        return f"podgroups.{self.api.partition('/')[0]}"


UPSTREAM: Final = GroupKind(
    "PodGroup (scheduling.k8s.io)", "scheduling.k8s.io/v1beta1", "spec.schedulingPolicy.gang.minCount"
)
SIGS: Final = GroupKind("PodGroup (scheduling.x-k8s.io)", "scheduling.x-k8s.io/v1alpha1", "spec.minMember")
GROUPS: Final = {kind.name: kind for kind in (UPSTREAM, SIGS)}
OWNERS_BY_KIND: Final = {kind.kind: kind for kind in MAKERS}


def gang_of(pod: ScheduledPod) -> GangKey:
    """What it starts together with."""
    meta, spec = pod.metadata, pod.spec
    if spec.scheduling_group is not None and spec.scheduling_group.pod_group_name:
        return GangKey(meta.namespace, UPSTREAM.name, spec.scheduling_group.pod_group_name)
    for label in GROUP_LABELS:
        if meta.labels.get(label):
            return GangKey(meta.namespace, SIGS.name, meta.labels[label])
    owner = pod.controller
    for kind in MAKERS:
        found = _owned(pod, owner, kind)
        if found is not None:
            return found
    if name := meta.annotations.get(GANG_ANNOTATION):
        return GangKey(meta.namespace, ANNOTATED, name)
    return GangKey(meta.namespace, POD, meta.name, meta.uid)


def _owned(pod: ScheduledPod, owner: OwnerReference | None, kind: OwnerKind) -> GangKey | None:
    meta = pod.metadata
    part = meta.labels.get(kind.part, "") if kind.part else ""
    if kind.label:
        name = meta.labels.get(kind.label, "")
        return GangKey(meta.namespace, kind.kind, name, "", part) if name else None
    if owner is None or owner.kind != kind.kind or owner.api_version.partition("/")[0] != kind.api.partition("/")[0]:
        return None
    return GangKey(meta.namespace, kind.kind, owner.name, owner.uid, part)


def role_of(pod: ScheduledPod) -> str:
    """The name of its role, as its labels have it, in small letters, digits and hyphens; empty where they do not."""
    labels = pod.metadata.labels
    kinds = (label for kind in MAKERS for label in kind.role)
    named = next((labels[label] for label in kinds if labels.get(label)), "")
    return re.sub(r"[^a-z0-9]+", "-", named.lower()).strip("-")


def place_of(pod: ScheduledPod) -> tuple[int, str, str]:
    """By which the pods of a role are in order: their numbers where they have any, else their ages."""
    labels = pod.metadata.labels
    number = next((labels[label] for label in ORDER_LABELS if labels.get(label, "").isdecimal()), None)
    return (_LATE if number is None else int(number), pod.metadata.creation_timestamp, pod.metadata.name)
