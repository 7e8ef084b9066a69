"""The requests by which claims are made, changed, let go and deleted, each as it was last seen or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from lightkube.models.resource_v1 import ResourceClaimConsumerReference
from lightkube.resources.resource_v1 import ResourceClaim

from millpond.engines.kubernetes.claims.claim_book import ClaimBook
from millpond.engines.kubernetes.claims.claim_objects import API, ClaimObject
from millpond.engines.kubernetes.claims.claim_requests import ClaimTroubleError
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_refusals import StatusError, may_be_mended
from millpond.engines.kubernetes.cluster.request_turns import BINDING

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Keeps a claim that is in use from being deleted; Kubernetes' controller takes it away."""
CONFLICT, NOT_FOUND = 409, 404
MOST_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class ClaimUser:
    """A pod as claims name it."""

    namespace: str
    name: str
    uid: str

    @property
    def reference(self) -> ResourceClaimConsumerReference:
        """As claims have it."""
        return ResourceClaimConsumerReference(resource="pods", name=self.name, uid=self.uid)


class ClaimApi:
    """Lives on the engine's loop.

    Args:
        book: told at once of what was written.
    """

    def __init__(self, api: ClusterApi, book: ClaimBook) -> None:
        self._api, self._book = api, book

    async def make(self, wanted: ResourceClaim, user: ClaimUser) -> ClaimObject:
        """A new claim of a pod, or the one that an earlier start has made.

        Raises:
            ClaimTroubleError: the cluster does not take it, or another has its name.
        """
        assert wanted.metadata is not None
        name = wanted.metadata.name or ""
        try:
            path = f"{API}/namespaces/{user.namespace}/resourceclaims"
            return msgspec.json.decode(await self._api.ask("POST", path, wanted), type=ClaimObject)
        except StatusError as error:
            if error.code != CONFLICT:
                raise ClaimTroubleError(
                    f"the cluster does not take its resource claim: {error}", passes=may_be_mended(error)
                ) from error
            claim = await self.read(user.namespace, name)
            if user.uid not in claim.owners:
                raise ClaimTroubleError(f"there is another resource claim {name}: delete it if it stays") from error
            if claim.metadata.deletion_timestamp is not None:
                raise ClaimTroubleError(f"its claim {name} is being deleted, and made anew when it is gone") from error
            return claim

    async def let_go(self, claim: ClaimObject, uid: str) -> ClaimObject:
        """Take a pod off a claim, and its devices if no other has it; as it is then.

        Raises:
            ClaimTroubleError: it is gone, or may not be changed.
        """
        name, namespace = claim.metadata.name, claim.metadata.namespace
        for _ in range(MOST_TRIES):
            left = [each for each in claim.status.reserved_for if each.uid != uid]
            status: dict[str, Any] = {"reservedFor": left} if left else {"allocation": None, "reservedFor": None}
            try:
                return await self.write(claim, status)
            except StatusError as error:
                if error.code != CONFLICT:
                    raise ClaimTroubleError(f"its claim {name} cannot be let go: {error}") from error
            claim = await self.read(namespace, name, of=claim.metadata.uid)
        raise ClaimTroubleError(is_contended(name))

    async def remove(self, claim: ClaimObject, uid: str) -> None:
        """Delete a claim that was made for a pod.

        Raises:
            ClaimTroubleError: it may not be changed.
        """
        meta = claim.metadata
        path = f"{API}/namespaces/{meta.namespace}/resourceclaims/{meta.name}"
        try:
            claim = await self.let_go(claim, uid) if claim.status.reserved_for else claim
            await self.write(claim, {}, finalizers=[each for each in claim.metadata.finalizers if each != FINALIZER])
            await self._api.ask("DELETE", path, {"preconditions": {"uid": meta.uid}})
        except StatusError as error:
            if error.code != NOT_FOUND:
                raise ClaimTroubleError(f"its claim {meta.name} cannot be deleted: {error}") from error

    async def read(self, namespace: str, name: str, of: str = "") -> ClaimObject:
        """A claim as it is at this moment.

        Raises:
            ClaimTroubleError: it is gone, or another has its name, or the server may not look.
        """
        try:
            path = f"{API}/namespaces/{namespace}/resourceclaims/{name}"
            claim = msgspec.json.decode(await self._api.ask("GET", path), type=ClaimObject)
        except StatusError as error:
            what = "is gone" if error.code == NOT_FOUND else "cannot be looked at"
            raise ClaimTroubleError(f"its claim {name} {what}: {error}") from error
        if of and claim.metadata.uid != of:
            raise ClaimTroubleError(f"its claim {name} was deleted, and another made by this name")
        return claim

    async def write(
        self, claim: ClaimObject, status: Mapping[str, Any], finalizers: Sequence[str] | None = None
    ) -> ClaimObject:
        """Change the status of a claim, or its finalizers, as it was seen; as it is then.

        Raises:
            StatusError: another has changed it, or it may not be changed.
        """
        meta = claim.metadata
        path = f"{API}/namespaces/{meta.namespace}/resourceclaims/{meta.name}"
        as_seen = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        if finalizers is not None:
            item: dict[str, Any] = {"metadata": {**as_seen, "finalizers": finalizers}}
        else:
            path, item = f"{path}/status", {"metadata": as_seen, "status": status}
        answer = await self._api.ask("PATCH", path, item, patch="merge", turn=BINDING)
        written = msgspec.json.decode(answer, type=ClaimObject)
        self._book.written(written)
        return written


def is_contended(name: str) -> str:
    """What is said of a claim that cannot be changed as it was seen."""
    return f"its claim {name} is changed by others all the time"
