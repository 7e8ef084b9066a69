"""Publishes the cards of a node as devices of resource claims: one slice, kept as long as the agent's pod is there.

A cluster that does not account for shares of devices drops the mark of it from what it is given: then nothing is
published. A kubelet removes the slices of drivers that it does not find, so it is looked whether the slice is there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import msgspec
from lightkube.models.meta_v1 import OwnerReference
from lightkube.resources.resource_v1 import ResourceSlice

from millpond.engines.kubernetes.agent.claim_plugin import NamedClaim
from millpond.engines.kubernetes.claims.card_shares import slice_name, slice_of
from millpond.engines.kubernetes.claims.claim_objects import API, ClaimObject, SliceObject
from millpond.engines.kubernetes.cluster.api_channel import ApiChannel
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_refusals import StatusError
from millpond.engines.kubernetes.cluster.reflector import ObjectKind, Reflector
from millpond.model.errors import UnavailableError
from millpond.model.hardware.devices import Device

log = logging.getLogger(__name__)

_PATH: Final = f"{API}/resourceslices"
_NOT_FOUND, _CONFLICT = 404, 409
_MOST_TRIES: Final = 3


class SlicePublisher:
    """The slice of one node. Lives on one event loop.

    Args:
        owner: the agent's pod, with which the slice goes.
        begin: has something run beside all else.
    """

    def __init__(
        self,
        api: ClusterApi,
        channel: ApiChannel,
        node: str,
        owner: Callable[[], OwnerReference | None],
        begin: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._api, self._node, self._owner, self._begin = api, node, owner, begin
        self._published: ResourceSlice | None = None
        self._is_followed = False
        kind = ObjectKind(_PATH, SliceObject, {"fieldSelector": f"metadata.name={slice_name(node)}"})
        self._own = Reflector(channel, kind, lambda _: None, lambda _: None)

    async def publish(self, devices: Sequence[Device]) -> bool:
        """Have the cluster know these cards; False where it does not account for shares of them."""
        wanted = slice_of(self._node, devices, self._owner())
        is_seen = not self._own.ready.is_set() or f"/{slice_name(self._node)}" in self._own.objects
        if not devices or (wanted == self._published and is_seen):
            return bool(devices)
        try:
            there = await self._write(wanted)
        except StatusError as error:
            if error.code != _NOT_FOUND:
                log.warning("the cards are not published for claims: %s", error)
            return self._published is not None
        if not all(each.allow_multiple_allocations for each in there.spec.devices):
            log.info("the cluster does not account for shares of devices (DRAConsumableCapacity)")
            await self.withdraw()
            return False
        self._published = wanted
        if not self._is_followed:
            self._is_followed = True
            self._begin(self._own.run())
        return True

    async def withdraw(self) -> None:
        """Publish nothing any more."""
        self._published = None
        try:
            await self._api.ask("DELETE", f"{_PATH}/{slice_name(self._node)}")
        except StatusError as error:
            if error.code != _NOT_FOUND:
                log.warning("the cards stay published for claims: %s", error)

    async def read(self, claim: NamedClaim) -> ClaimObject | None:
        """A claim as it is now; None where there is none of its name.

        Raises:
            UnavailableError: the agent may not look at it.
        """
        try:
            answer = await self._api.ask("GET", f"{API}/namespaces/{claim.namespace}/resourceclaims/{claim.name}")
        except StatusError as error:
            if error.code == _NOT_FOUND:
                return None
            said = f"the agent may not look at claim {claim.name}: {error}"
            raise UnavailableError(said, "deploy/kubernetes-agent/roles.yaml") from error
        return msgspec.json.decode(answer, type=ClaimObject)

    async def _write(self, wanted: ResourceSlice) -> SliceObject:
        owners = [] if wanted.metadata is None else wanted.metadata.ownerReferences or []
        item = {"metadata": {"ownerReferences": owners}, "spec": wanted.spec}
        path = f"{_PATH}/{slice_name(self._node)}"
        for _ in range(_MOST_TRIES):
            try:
                return msgspec.json.decode(await self._api.ask("POST", _PATH, wanted), type=SliceObject)
            except StatusError as error:
                if error.code != _CONFLICT:
                    raise
            try:  # one of an earlier agent, or of this one
                return msgspec.json.decode(await self._api.ask("PATCH", path, item, patch="merge"), type=SliceObject)
            except StatusError as error:
                if error.code != _NOT_FOUND:
                    raise
                gone = error  # it went meanwhile, with the pod of the earlier agent
        raise gone
