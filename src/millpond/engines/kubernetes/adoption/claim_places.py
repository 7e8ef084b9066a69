"""Where the volumes of pods are: nodes that these can be bound to, if their claims are bound to volumes already."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from millpond.engines.kubernetes.adoption.owner_table import value_at
from millpond.engines.kubernetes.adoption.pod_nodes import alternatives_in, within_both
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_refusals import StatusError
from millpond.model.hardware.node_selection import NodeSelection

_FORBIDDEN: Final = 403


@dataclass(frozen=True, slots=True)
class ClaimPlaces:
    """What follows from the volumes of the pods of a gang that wait.

    Attributes:
        selection: nodes that reach all of them; empty: any.
        trouble: why they cannot be used; empty when they can.
        claims: the names of those that were looked at.
    """

    selection: NodeSelection = ()
    trouble: str = ""
    claims: frozenset[str] = frozenset()


def claims_of(pod: ScheduledPod) -> tuple[str, ...]:
    """The names of the claims that a pod has volumes of."""
    names = []
    for volume in pod.spec.volumes:
        if "ephemeral" in volume:
            names.append(f"{pod.metadata.name}-{volume.get('name', '')}")
        elif name := value_at(volume, "persistentVolumeClaim.claimName"):
            names.append(name)
    return tuple(names)


async def read_places(api: ClusterApi, pods: Collection[ScheduledPod]) -> ClaimPlaces:
    """Where the pods of a gang can be for their volumes."""
    selection: NodeSelection = ()
    for namespace, name in sorted({(pod.metadata.namespace, name) for pod in pods for name in claims_of(pod)}):
        try:
            claim = await _got(api, f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
            if value_at(claim, "status.phase") != "Bound":
                return ClaimPlaces(trouble=_unbound(name))
            volume = await _got(api, f"/api/v1/persistentvolumes/{value_at(claim, 'spec.volumeName')}")
        except StatusError as error:
            if error.code == _FORBIDDEN:
                rights = "Millpond may not get persistentvolumeclaims and persistentvolumes: grant it that"
                return ClaimPlaces(trouble=f"{rights} (deploy/kubernetes/adopt-roles.yaml)")
            return ClaimPlaces(trouble=f"its claim {name} cannot be looked at: {error}")
        selection = within_both(selection, alternatives_in(value_at(volume, "spec.nodeAffinity.required")))
    return ClaimPlaces(selection)


async def _got(api: ClusterApi, path: str) -> Any:
    return msgspec.json.decode(await api.ask("GET", path))


def _unbound(name: str) -> str:
    return (
        f"its claim {name} is not bound to a volume, and Millpond does not choose places for volumes: use a storage "
        "class that binds at once (volumeBindingMode: Immediate), or bind it beforehand"
    )
