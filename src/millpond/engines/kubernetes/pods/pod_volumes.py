"""Storage of the cluster in pods: which volumes a pod has, and which folder of each lies where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lightkube.models.core_v1 import (
    EmptyDirVolumeSource,
    HostPathVolumeSource,
    PersistentVolumeClaimVolumeSource,
    Volume,
    VolumeMount,
)

PREFIX = "volume-"
"""Before the configuration's names of volumes, so that none is called as one of ours."""
SHARED_MEMORY = "/dev/shm"
_SHARED_MEMORY_VOLUME = "shared-memory"


@dataclass(frozen=True, slots=True)
class PodMount:
    """A folder of a volume in a pod.

    Attributes:
        volume: its name in the configuration.
        claim, host_path: one of the two says what it is.
        place: where the folder lies in the pod.
        below: its path in the volume; empty: the volume as a whole.
    """

    volume: str
    place: str
    claim: str = ""
    host_path: str = ""
    below: str = ""
    read_only: bool = True


def merged(mounts: Sequence[PodMount]) -> list[PodMount]:
    """Each place once: writable where any of its mounts is; the outer before the inner."""
    by_place: dict[str, PodMount] = {}
    for mount in mounts:
        known = by_place.get(mount.place)
        if known is None or known.read_only:
            by_place[mount.place] = mount
    return [by_place[place] for place in sorted(by_place)]


def volumes_of(mounts: Sequence[PodMount]) -> list[Volume]:
    """The volumes that a pod has for these, and for its shared memory.

    A claim that it only reads is mounted read-only on the node too. Container runtimes give a pod 64 MiB of shared
    memory, too little for the workers of a data loader and the ranks of a node; this has no bound but the pod's memory.
    """
    found = []
    if _lacks_shared_memory(mounts):
        found.append(Volume(name=_SHARED_MEMORY_VOLUME, emptyDir=EmptyDirVolumeSource(medium="Memory")))
    for name in sorted({mount.volume for mount in mounts}):
        same = [mount for mount in mounts if mount.volume == name]
        if claim := same[0].claim:
            source = PersistentVolumeClaimVolumeSource(
                claimName=claim, readOnly=all(each.read_only for each in same) or None
            )
            found.append(Volume(name=PREFIX + name, persistentVolumeClaim=source))
        else:
            host = HostPathVolumeSource(path=same[0].host_path, type="Directory")
            found.append(Volume(name=PREFIX + name, hostPath=host))
    return found


def volume_mounts_of(mounts: Sequence[PodMount]) -> list[VolumeMount]:
    """Where a container has them."""
    own = [VolumeMount(name=_SHARED_MEMORY_VOLUME, mountPath=SHARED_MEMORY)] if _lacks_shared_memory(mounts) else []
    return own + [
        VolumeMount(
            name=PREFIX + mount.volume,
            mountPath=mount.place,
            subPath=mount.below or None,
            readOnly=mount.read_only or None,
        )
        for mount in mounts
    ]


def _lacks_shared_memory(mounts: Sequence[PodMount]) -> bool:
    return all(mount.place != SHARED_MEMORY for mount in mounts)
