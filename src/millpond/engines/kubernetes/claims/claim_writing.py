"""Writes what the scheduler decided into claims, before a pod is bound: their cards, and that the pod may use them.

A claim is written as it was last seen, or not at all: whoever changes it in between has it looked at anew. What a pod
was allocated and never used, since its binding failed, is taken back. When a pod has ended, Kubernetes' own controller
does so.
https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/4381-dra-structured-parameters
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from lightkube.models.core_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.models.resource_v1 import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceClaim,
    DeviceRequest,
    DeviceRequestAllocationResult,
    ExactDeviceRequest,
    OpaqueDeviceConfiguration,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
)
from lightkube.resources.resource_v1 import ResourceClaim

from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.claims.claim_book import ClaimBook
from millpond.engines.kubernetes.claims.claim_objects import API, EXACT_COUNT, ClaimObject, ExactRequest
from millpond.engines.kubernetes.claims.claim_requests import (
    ClaimTroubleError,
    claims_of,
    exact_of,
    is_for,
    is_open,
    names_of,
)
from millpond.engines.kubernetes.claims.node_cards import DriverCard
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi, StatusError
from millpond.engines.kubernetes.cluster.cluster_nodes import DRIVER, NAME_FIELD, is_of_driver
from millpond.engines.kubernetes.cluster.request_turns import BINDING
from millpond.engines.kubernetes.pods.pod_marks import CARDS_CLAIM
from millpond.model.decisions import Placement

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Keeps a claim that is in use from being deleted; Kubernetes' controller takes it away."""
_CONFLICT, _NOT_FOUND = 409, 404
_MOST_TRIES: Final = 5
_HAS_OTHERS: Final = "its claims were given devices by another scheduler meanwhile"


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


@dataclass(frozen=True, slots=True)
class ChosenCards:
    """The cards that lines of a claim are to have."""

    node: str
    lines: Sequence[tuple[str, ExactRequest, Sequence[DriverCard]]]


class ClaimWriter:
    """Lives on the engine's loop."""

    def __init__(self, api: ClusterApi, book: ClaimBook) -> None:
        self._api = api
        self.book = book

    async def take(self, pod: ScheduledPod, placed: Placement) -> str:
        """Give the cards of a placement to the claims of a pod of others; says why not, empty when done."""
        user = ClaimUser(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        if not pod.spec.resource_claims:
            return ""
        try:
            cards = iter(self._cards_of(placed))
            for claim in claims_of(pod, self.book):
                await self._take_one(claim, user, placed.node, cards)
            if next(cards, None) is not None:
                raise ClaimTroubleError(_HAS_OTHERS)
        except ClaimTroubleError as error:
            return str(error)
        return ""

    async def give_back(self, pod: ScheduledPod) -> None:
        """Take back what the claims of a pod have that was not bound."""
        uid = pod.metadata.uid
        for _, name in names_of(pod):
            claim = self.book.claim(pod.metadata.namespace, name)
            if claim is not None and any(each.uid == uid for each in claim.status.reserved_for):
                with contextlib.suppress(ClaimTroubleError):  # it is gone, or the next start says the same
                    await self._let_go(claim, uid)

    async def make(self, name: str, user: ClaimUser, placed: Placement) -> None:
        """Make the claim of a pod of this server, with the cards of its placement; it goes with the pod.

        Raises:
            ClaimTroubleError: it cannot be made, or not have these cards.
        """
        cards = self._cards_of(placed)
        exact = ExactDeviceRequest(deviceClassName=DRIVER, allocationMode=EXACT_COUNT, count=len(cards))
        owner = OwnerReference(apiVersion="v1", kind="Pod", name=user.name, uid=user.uid)
        meta = ObjectMeta(name=name, namespace=user.namespace, ownerReferences=[owner], finalizers=[FINALIZER])
        spec = ResourceClaimSpec(devices=DeviceClaim(requests=[DeviceRequest(name=CARDS_CLAIM, exactly=exact)]))
        try:
            path = f"{API}/namespaces/{user.namespace}/resourceclaims"
            answer = await self._api.ask("POST", path, ResourceClaim(metadata=meta, spec=spec))
            claim = msgspec.json.decode(answer, type=ClaimObject)
        except StatusError as error:
            if error.code != _CONFLICT:
                raise ClaimTroubleError(
                    f"the cluster does not take its resource claim: {error}", passes=False
                ) from error
            claim = await self._read(user.namespace, name)
            if user.uid not in claim.owners:
                raise ClaimTroubleError(f"there is another resource claim {name}: delete it if it stays") from error
        await self._take_one(claim, user, placed.node, iter(cards))

    def _cards_of(self, placed: Placement) -> list[DriverCard]:
        """The cards of a driver that a placement has.

        Raises:
            ClaimTroubleError: one of them is there no more.
        """
        named = [grant.device for grant in placed.grants if is_of_driver(grant.device)]
        cards = [(uuid, self.book.card(uuid)) for uuid in named]
        gone = [uuid for uuid, card in cards if card is None]
        if gone:
            raise ClaimTroubleError(f"its driver publishes the card {gone[0]} no more")
        return [card for _, card in cards if card is not None]

    async def _take_one(self, claim: ClaimObject, user: ClaimUser, node: str, cards: Iterator[DriverCard]) -> None:
        """Have one claim be of a pod, with the next of the cards if it has none yet.

        Raises:
            ClaimTroubleError: it cannot.
        """
        name, chosen = claim.metadata.name, None
        for _ in range(_MOST_TRIES):
            if is_open(claim, user.uid):
                chosen = chosen or self._chosen(claim, node, cards)
                if claim.status.allocation is not None:
                    if _has(claim, chosen):
                        self.book.written(claim)
                        return  # written by an earlier server, or by a request whose answer was lost
                    claim = await self._let_go(claim, user.uid)  # left by an earlier start, on other cards
                    continue
                status = {"allocation": self._allocation(claim, chosen), "reservedFor": [user.reference]}
            else:
                if chosen is not None:
                    raise ClaimTroubleError(_HAS_OTHERS)
                status = {"reservedFor": [*claim.status.reserved_for, user.reference]}
                self._require_at(claim, node)
                if any(each.uid == user.uid for each in claim.status.reserved_for):
                    return
            try:
                if FINALIZER not in claim.metadata.finalizers:
                    claim = await self._write(claim, {}, finalizers=[*claim.metadata.finalizers, FINALIZER])
                await self._write(claim, status)
                return
            except StatusError as error:
                if error.code not in (_CONFLICT, _NOT_FOUND):
                    raise ClaimTroubleError(f"its claim {name} cannot be allocated: {error}") from error
            claim = await self._read(user.namespace, name, of=claim.metadata.uid)
        raise ClaimTroubleError(_is_contended(name))

    def _chosen(self, claim: ClaimObject, node: str, cards: Iterator[DriverCard]) -> ChosenCards:
        """The next of the cards, line by line.

        Raises:
            ClaimTroubleError: they are not for it, or another claim has one.
        """
        lines = []
        for request in claim.spec.devices.requests:
            exact = exact_of(claim, request)
            mine = [card for _, card in zip(range(exact.count), cards, strict=False)]
            if len(mine) < exact.count:
                raise ClaimTroubleError(f"its claim {claim.metadata.name} asks for more cards than it was placed with")
            for card in mine:
                others = set(self.book.holders(card.name)) - {claim.key}
                if others:
                    raise ClaimTroubleError(f"claim {min(others)} has the card {card.device.uuid} by now")
                if not is_for(exact, card.kind, self.book):
                    raise ClaimTroubleError(f"the card {card.device.uuid} is none for its claim {claim.metadata.name}")
            lines.append((request.name, exact, mine))
        return ChosenCards(node, lines)

    def _allocation(self, claim: ClaimObject, chosen: ChosenCards) -> AllocationResult:
        results = [
            DeviceRequestAllocationResult(
                driver=DRIVER,
                pool=card.name[0],
                device=card.name[1],
                request=line,
                tolerations=exact.tolerations or None,
            )
            for line, exact, cards in chosen.lines
            for card in cards
        ]
        here = NodeSelectorRequirement(key=NAME_FIELD, operator="In", values=[chosen.node])
        return AllocationResult(
            devices=DeviceAllocationResult(results=results, config=list(self._configs(claim, chosen)) or None),
            nodeSelector=NodeSelector(nodeSelectorTerms=[NodeSelectorTerm(matchFields=[here])]),
        )

    def _configs(self, claim: ClaimObject, chosen: ChosenCards) -> Iterator[DeviceAllocationConfiguration]:
        """How the driver is to set devices up: as their classes say, then as the claim does."""
        for line, exact, _ in chosen.lines:
            of_class = self.book.device_class(exact.device_class_name)
            for each in () if of_class is None else of_class.spec.config:
                yield _config("FromClass", each, [line])
        for each in claim.spec.devices.config:
            yield _config("FromClaim", each, each.get("requests"))

    def _require_at(self, claim: ClaimObject, node: str) -> None:
        """What was allocated before can be used from a node."""
        allocation = claim.status.allocation
        fields = ((allocation.node_selector or {}) if allocation else {}).get("nodeSelectorTerms") or ()
        named = {value for term in fields for each in term.get("matchFields") or () for value in each.get("values", ())}
        if named and node not in named:
            raise ClaimTroubleError(f"its claim {claim.metadata.name} has devices of {min(named)} by now")

    async def _let_go(self, claim: ClaimObject, uid: str) -> ClaimObject:
        """Take a pod off a claim, and its devices if no other has it; as it is then.

        Raises:
            ClaimTroubleError: it is gone, or may not be changed.
        """
        name, namespace = claim.metadata.name, claim.metadata.namespace
        for _ in range(_MOST_TRIES):
            left = [each for each in claim.status.reserved_for if each.uid != uid]
            status: dict[str, Any] = {"reservedFor": left} if left else {"allocation": None, "reservedFor": None}
            try:
                return await self._write(claim, status)
            except StatusError as error:
                if error.code != _CONFLICT:
                    raise ClaimTroubleError(f"its claim {name} cannot be let go: {error}") from error
            claim = await self._read(namespace, name)
        raise ClaimTroubleError(_is_contended(name))

    async def _read(self, namespace: str, name: str, of: str = "") -> ClaimObject:
        """A claim as it is at this moment.

        Raises:
            ClaimTroubleError: it is gone, or another has its name.
        """
        try:
            path = f"{API}/namespaces/{namespace}/resourceclaims/{name}"
            claim = msgspec.json.decode(await self._api.ask("GET", path), type=ClaimObject)
        except StatusError as error:
            raise ClaimTroubleError(f"its claim {name} is gone: {error}") from error
        if of and claim.metadata.uid != of:
            raise ClaimTroubleError(f"its claim {name} was deleted, and another made by this name")
        return claim

    async def _write(
        self, claim: ClaimObject, status: Mapping[str, Any], finalizers: Sequence[str] | None = None
    ) -> ClaimObject:
        meta = claim.metadata
        path = f"{API}/namespaces/{meta.namespace}/resourceclaims/{meta.name}"
        as_seen = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        if finalizers is not None:
            item: dict[str, Any] = {"metadata": {**as_seen, "finalizers": finalizers}}
        else:
            path, item = f"{path}/status", {"metadata": as_seen, "status": status}
        answer = await self._api.ask("PATCH", path, item, patch="merge", turn=BINDING)
        written = msgspec.json.decode(answer, type=ClaimObject)
        self.book.written(written)
        return written


def _is_contended(name: str) -> str:
    return f"its claim {name} is changed by others all the time"


def _has(claim: ClaimObject, chosen: ChosenCards) -> bool:
    """Whether a claim has these cards already."""
    allocation = claim.status.allocation
    results = () if allocation is None else allocation.devices.results
    return [(each.pool, each.device) for each in results] == [
        card.name for _, _, cards in chosen.lines for card in cards
    ]


def _config(source: str, config: Mapping[str, Any], requests: Sequence[str] | None) -> DeviceAllocationConfiguration:
    opaque = config.get("opaque")
    return DeviceAllocationConfiguration(
        source=source,
        opaque=None if opaque is None else OpaqueDeviceConfiguration(opaque["driver"], opaque["parameters"]),
        requests=list(requests) if requests else None,
    )
