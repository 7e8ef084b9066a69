"""Claims that the agent has prepared for containers: files by which the node's container runtime gives them their part.

What a container gets is what a device plugin would answer (``ContainerGifts``), written as an edit of the Container
Device Interface (CDI). The files are not kept over a restart of the node, and then prepared anew.
https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final

from millpond.engines.kubernetes.agent.claim_plugin import NamedClaim, PreparedShare
from millpond.engines.kubernetes.agent.device_plugin import ContainerGifts
from millpond.engines.kubernetes.claims.claim_objects import AllocatedDevice, ClaimObject
from millpond.engines.kubernetes.cluster.cluster_nodes import AGENT_DRIVER
from millpond.model.errors import UnavailableError
from millpond.node.host.files import write_json

_VENDOR_AND_CLASS: Final = "millpond.io/share"
_PREFIX: Final = "millpond.io-share-"
_CDI_VERSION: Final = "0.5.0"


class PreparedClaims:
    """All of a node.

    Args:
        folder: where the runtime looks for such files.
        read: a claim as it is now; None where there is none of its name.
        give: the pods that may use a claim, its uid, and what it has, to what its container gets; None where the pod
            has it already. Raises a MillpondError.
    """

    def __init__(
        self,
        folder: Path,
        read: Callable[[NamedClaim], Awaitable[ClaimObject | None]],
        give: Callable[[Collection[str], str, Sequence[AllocatedDevice], bool], Awaitable[ContainerGifts | None]],
    ) -> None:
        self._folder, self._read, self._give = folder, read, give

    async def prepare(self, named: NamedClaim) -> PreparedShare:
        """Have the runtime know what the container of a claim gets.

        Raises:
            MillpondError: the claim is not one of this node's agent, or its pod cannot have it.
        """
        claim = await self._read(named)
        if claim is None or claim.metadata.uid != named.uid:
            raise UnavailableError(f"there is no claim {named.name} with the uid {named.uid} any more", "try again")
        allocation = claim.status.allocation
        has = [] if allocation is None else [each for each in allocation.devices.results if each.driver == AGENT_DRIVER]
        if not has:
            raise UnavailableError(f"claim {named.name} has nothing of {AGENT_DRIVER}", "see its status")
        users = [each.uid for each in claim.status.reserved_for]
        path = self._path(named.uid)
        gifts = await self._give(users, named.uid, has, path.exists())
        if gifts is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, _edits(named.uid, gifts))
            except OSError as error:
                raise UnavailableError(f"the node cannot prepare it: {error}", "see the agent's log") from error
        return PreparedShare(has[0].pool, has[0].device, f"{_VENDOR_AND_CLASS}={named.uid}")

    def unprepare(self, named: NamedClaim) -> None:
        """A claim is used no more; what its pod had is free when that is over.

        Raises:
            OSError: the file cannot be removed.
        """
        self._path(named.uid).unlink(missing_ok=True)

    def keep(self, uids: Collection[str]) -> None:
        """Claims that an earlier agent has prepared; files of all others are removed."""
        kept = {self._path(uid) for uid in uids}
        for path in self._folder.glob(f"{_PREFIX}*.json"):
            if path not in kept:
                path.unlink(missing_ok=True)

    def _path(self, uid: str) -> Path:
        return self._folder / f"{_PREFIX}{uid}.json"


def _edits(uid: str, gifts: ContainerGifts) -> dict[str, Any]:
    mounts = [
        {
            "hostPath": each.host_path,
            "containerPath": each.container_path,
            "options": ["bind", "nosuid", "nodev", "ro" if each.read_only else "rw"],
        }
        for each in gifts.mounts
    ]
    edits = {"env": [f"{name}={value}" for name, value in gifts.env.items()], **({"mounts": mounts} if mounts else {})}
    devices = [{"name": uid, "containerEdits": edits}]
    return {"cdiVersion": _CDI_VERSION, "kind": _VENDOR_AND_CLASS, "devices": devices}
