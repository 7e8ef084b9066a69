"""Writes what the scheduler decided into claims, before a pod is bound: their cards, and that the pod may use them.

A claim is written as it was last seen, or not at all: whoever changes it in between has it looked at anew. What a pod
was allocated and never used, since its binding failed, is taken back. When a pod has ended, Kubernetes' own controller
does so.
https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/4381-dra-structured-parameters
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from lightkube.models.core_v1 import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodExtendedResourceClaimStatus,
)
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.models.resource_v1 import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceClaim,
    DeviceRequestAllocationResult,
    OpaqueDeviceConfiguration,
    ResourceClaimSpec,
)
from lightkube.resources.resource_v1 import ResourceClaim

from millpond.engines.kubernetes.adoption.pod_objects import LET_GO_ANNOTATION, ScheduledPod
from millpond.engines.kubernetes.claims.card_shares import CardShares
from millpond.engines.kubernetes.claims.claim_api import (
    CONFLICT,
    FINALIZER,
    MOST_TRIES,
    NOT_FOUND,
    ClaimApi,
    ClaimUser,
    is_contended,
)
from millpond.engines.kubernetes.claims.claim_book import ClaimBook
from millpond.engines.kubernetes.claims.claim_objects import ClaimObject, ExactRequest
from millpond.engines.kubernetes.claims.claim_requests import (
    ClaimTroubleError,
    claims_of,
    exact_of,
    is_for,
    is_open,
    names_of,
)
from millpond.engines.kubernetes.claims.extended_resources import (
    extended_request,
    is_special,
    line_of,
    share_request,
    special_name,
)
from millpond.engines.kubernetes.claims.node_cards import DriverCard
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_nodes import AGENT_DRIVER, DRIVER, NAME_FIELD, is_of_driver
from millpond.engines.kubernetes.cluster.cluster_refusals import StatusError
from millpond.engines.kubernetes.cluster.request_turns import BINDING
from millpond.engines.kubernetes.pods.pod_marks import CARDS_CLAIM
from millpond.engines.kubernetes.pods.slice_order import of_agent
from millpond.model.decisions import Placement

_HAS_OTHERS: Final = "its claims were given devices by another scheduler meanwhile"


@dataclass(frozen=True, slots=True)
class ChosenDevices:
    """What lines of a claim are to have, and how it is set up."""

    node: str
    results: list[DeviceRequestAllocationResult]
    config: list[DeviceAllocationConfiguration] = field(default_factory=list)

    @property
    def allocation(self) -> AllocationResult:
        """As the claim has it, which can be used from that node alone."""
        here = NodeSelectorRequirement(key=NAME_FIELD, operator="In", values=[self.node])
        return AllocationResult(
            devices=DeviceAllocationResult(results=self.results, config=self.config or None),
            nodeSelector=NodeSelector(nodeSelectorTerms=[NodeSelectorTerm(matchFields=[here])]),
        )

    def are_of(self, claim: ClaimObject) -> bool:
        """Whether a claim has these already."""
        has = () if claim.status.allocation is None else claim.status.allocation.devices.results
        return [(each.pool, each.device) for each in has] == [(each.pool, each.device) for each in self.results]


Choice = Callable[[ClaimObject], ChosenDevices]
"""What a claim is to have; raises a ClaimTroubleError where it cannot."""


class ClaimWriter:
    """Lives on the engine's loop."""

    def __init__(self, api: ClusterApi, book: ClaimBook) -> None:
        self._api = api
        self.book = book
        self._requests = ClaimApi(api, book)
        self._name, self._times = secrets.token_hex(8), itertools.count()

    def has_written(self, let_go: str) -> bool:
        """Whether it was this writer that was last about to take something off the claims of a pod."""
        return let_go.startswith(self._name)

    async def take(self, pod: ScheduledPod, placed: Placement) -> str:
        """Give the cards of a placement to the claims of a pod of others; says why not, empty when done."""
        user = ClaimUser(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        try:
            if not pod.spec.resource_claims:
                await self._take_by_number(pod, user, placed)
                return ""
            cards = iter(self._cards_of(placed))
            for claim in claims_of(pod, self.book):
                await self._take_one(claim, user, placed.node, self._choice(placed.node, cards))
            if next(cards, None) is not None:
                raise ClaimTroubleError(_HAS_OTHERS)
        except ClaimTroubleError as error:
            return str(error)
        return ""

    async def _take_by_number(self, pod: ScheduledPod, user: ClaimUser, placed: Placement) -> None:
        """Make the claim of a pod that asks by number for cards that claims give out, and tell the pod of it.

        Raises:
            ClaimTroubleError: it cannot be done.
        """
        if not self.gives(placed):
            await self.give_back(pod)
            if pod.status.extended_resource_claim_status is not None:
                await self._tell(user, None)  # left by a start elsewhere: its kubelet would wait for that claim
            return
        shares = self._shares_of(placed)
        wanted = extended_request(pod, self.book.stands_for) if shares is None else share_request(pod, shares)
        if wanted is None:
            raise ClaimTroubleError("no device class stands any more for what it asks for by number", passes=False)
        claim = await self._requests.make(wanted.claim(pod), user)
        if not (is_special(claim, pod) and wanted.is_asked_by(claim)):
            await self._requests.remove(claim, user.uid)
            raise ClaimTroubleError(f"its claim {claim.metadata.name} asked for something else, and is made anew")
        choice = self._choice(placed.node, iter(self._cards_of(placed))) if shares is None else _shared(shares)
        await self._take_one(claim, user, placed.node, choice)
        await self._tell(user, wanted.status(claim.metadata.name))

    async def _tell(self, user: ClaimUser, status: PodExtendedResourceClaimStatus | None) -> None:
        """Write on a pod which claim it has for what it asks for by number.

        Raises:
            ClaimTroubleError: it is gone, or the cluster does not take that.
        """
        path = f"/api/v1/namespaces/{user.namespace}/pods/{user.name}/status"
        said = {"metadata": {"uid": user.uid}, "status": {"extendedResourceClaimStatus": status}}
        try:
            answer = await self._api.ask("PATCH", path, said, patch="merge", turn=BINDING)
        except StatusError as error:
            raise ClaimTroubleError(f"its claim cannot be written on it: {error}") from error
        there = msgspec.json.decode(answer, type=ScheduledPod).status.extended_resource_claim_status
        if status is not None and there is None:
            remedy = "have an admin switch its feature DRAExtendedResource on, or ask by a resource claim"
            raise ClaimTroubleError(f"this cluster keeps no claims for what pods ask for by number: {remedy}")

    def has_any(self, pod: ScheduledPod) -> bool:
        """Whether a pod has claims, of its own or made for it, that a start may have left."""
        return bool(pod.spec.resource_claims) or any(self._left(pod))

    def _left(self, pod: ScheduledPod) -> Iterator[ClaimObject]:
        """The claims of a pod that are there."""
        names = [name for _, name in names_of(pod)] if pod.spec.resource_claims else [special_name(pod)]
        for name in names:
            if (claim := self.book.claim(pod.metadata.namespace, name)) is not None:
                yield claim

    async def give_back(self, pod: ScheduledPod) -> None:
        """Take back what the claims of a pod have that was not bound; one that another server has bound uses it."""
        user = ClaimUser(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        has_it = [each for each in self._left(pod) if any(one.uid == user.uid for one in each.status.reserved_for)]
        if not has_it or await self._is_bound(user):
            return
        for claim in has_it:
            with contextlib.suppress(ClaimTroubleError):  # it is gone, or the next start says the same
                await self._requests.let_go(claim, user.uid)

    async def _is_bound(self, user: ClaimUser) -> bool:
        """Whether a pod has a node by now; where not, it gets none by a binding that was begun before.

        Another server may have written its claims and be about to bind it: a change of the pod makes that one look
        again (``adoption.pod_binding``).
        """
        path = f"/api/v1/namespaces/{user.namespace}/pods/{user.name}/status"
        annotation = {LET_GO_ANNOTATION: f"{self._name} {next(self._times)}"}
        said = {"metadata": {"uid": user.uid, "annotations": annotation}}
        try:
            answer = await self._api.ask("PATCH", path, said, patch="merge", turn=BINDING)
            there = msgspec.json.decode(answer, type=ScheduledPod)
        except StatusError:
            return False
        return there.metadata.uid == user.uid and bool(there.node)

    async def make(self, name: str, user: ClaimUser, placed: Placement) -> None:
        """Make the claim of a pod of this server, with the cards of its placement; it goes with the pod.

        Raises:
            ClaimTroubleError: it cannot be made, or not have these cards.
        """
        shares, cards = self._shares_of(placed), self._cards_of(placed)
        if shares is None and not cards:
            raise ClaimTroubleError(f"the agent of node {placed.node} gives out nothing by claims any more")
        if shares is None:
            line, choice = line_of(CARDS_CLAIM, DRIVER, len(cards), {}), self._choice(placed.node, iter(cards))
        else:
            line, choice = line_of(CARDS_CLAIM, AGENT_DRIVER, len(shares.grants), shares.asked), _shared(shares)
        owner = OwnerReference(apiVersion="v1", kind="Pod", name=user.name, uid=user.uid)
        meta = ObjectMeta(name=name, namespace=user.namespace, ownerReferences=[owner], finalizers=[FINALIZER])
        spec = ResourceClaimSpec(devices=DeviceClaim(requests=[line]))
        claim = await self._requests.make(ResourceClaim(metadata=meta, spec=spec), user)
        await self._take_one(claim, user, placed.node, choice)

    def gives(self, placed: Placement) -> bool:
        """Whether the cards of a placement are given out by claims."""
        return self._shares_of(placed) is not None or any(is_of_driver(grant.device) for grant in placed.grants)

    def _shares_of(self, placed: Placement) -> CardShares | None:
        """What a placement has of cards of an agent that gives them out by claims; None: nothing."""
        grants, devices = of_agent(placed.grants), self.book.shared.get(placed.node)
        return CardShares(placed.node, grants, devices) if grants and devices is not None else None

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

    async def _take_one(self, claim: ClaimObject, user: ClaimUser, node: str, choose: Choice) -> None:
        """Have one claim be of a pod, with what is chosen for it if it has nothing yet.

        Raises:
            ClaimTroubleError: it cannot.
        """
        name, chosen = claim.metadata.name, None
        for _ in range(MOST_TRIES):
            if is_open(claim, user.uid):
                is_first, chosen = chosen is None, chosen or choose(claim)
                if claim.status.allocation is not None:
                    if chosen.are_of(claim):
                        self.book.written(claim)
                        return  # written by an earlier server, or by a request whose answer was lost
                    if not is_first or await self._is_bound(user):
                        raise ClaimTroubleError(_HAS_OTHERS)
                    claim = await self._requests.let_go(claim, user.uid)  # left by an earlier start, on other cards
                    continue
                status = {"allocation": chosen.allocation, "reservedFor": [user.reference]}
            else:
                if chosen is not None:
                    raise ClaimTroubleError(_HAS_OTHERS)
                status = {"reservedFor": [*claim.status.reserved_for, user.reference]}
                self._require_at(claim, node)
                if any(each.uid == user.uid for each in claim.status.reserved_for):
                    return
            try:
                if FINALIZER not in claim.metadata.finalizers:
                    claim = await self._requests.write(claim, {}, finalizers=[*claim.metadata.finalizers, FINALIZER])
                await self._requests.write(claim, status)
                return
            except StatusError as error:
                if error.code not in (CONFLICT, NOT_FOUND):
                    raise ClaimTroubleError(f"its claim {name} cannot be allocated: {error}") from error
            claim = await self._requests.read(user.namespace, name, of=claim.metadata.uid)
        raise ClaimTroubleError(is_contended(name))

    def _choice(self, node: str, cards: Iterator[DriverCard]) -> Choice:
        """The next of the cards of a driver, line by line; they are not for a claim, or another has one: it raises."""

        def choose(claim: ClaimObject) -> ChosenDevices:
            chosen = ChosenDevices(node, [])
            for request in claim.spec.devices.requests:
                exact = exact_of(claim, request)
                mine = [card for _, card in zip(range(exact.count), cards, strict=False)]
                if len(mine) < exact.count:
                    few = f"its claim {claim.metadata.name} asks for more cards than it was placed with"
                    raise ClaimTroubleError(few)
                for card in mine:
                    self._require_free(claim, exact, card)
                chosen.results.extend(_result(request.name, exact, card) for card in mine)
                of_class = self.book.device_class(exact.device_class_name)
                configs = [] if of_class is None else of_class.spec.config
                chosen.config.extend(_config("FromClass", each, [request.name]) for each in configs)
            chosen.config.extend(_config("FromClaim", each, each.get("requests")) for each in claim.spec.devices.config)
            return chosen

        return choose

    def _require_free(self, claim: ClaimObject, exact: ExactRequest, card: DriverCard) -> None:
        """A card is one for a line of a claim, and no other has it.

        Raises:
            ClaimTroubleError: it is not.
        """
        others = set(self.book.holders(card.name)) - {claim.key}
        if others:
            raise ClaimTroubleError(f"claim {min(others)} has the card {card.device.uuid} by now")
        if not is_for(exact, card.kind, self.book):
            raise ClaimTroubleError(f"the card {card.device.uuid} is none for its claim {claim.metadata.name}")

    def _require_at(self, claim: ClaimObject, node: str) -> None:
        """What was allocated before can be used from a node."""
        allocation = claim.status.allocation
        fields = ((allocation.node_selector or {}) if allocation else {}).get("nodeSelectorTerms") or ()
        named = {value for term in fields for each in term.get("matchFields") or () for value in each.get("values", ())}
        if named and node not in named:
            raise ClaimTroubleError(f"its claim {claim.metadata.name} has devices of {min(named)} by now")


def _shared(shares: CardShares) -> Choice:
    """Shares of cards, for the only line of a claim."""
    return lambda claim: ChosenDevices(
        shares.node, shares.results(claim.metadata.uid, claim.spec.devices.requests[0].name)
    )


def _result(line: str, exact: ExactRequest, card: DriverCard) -> DeviceRequestAllocationResult:
    pool, device = card.name
    return DeviceRequestAllocationResult(
        driver=DRIVER, pool=pool, device=device, request=line, tolerations=exact.tolerations or None
    )


def _config(source: str, config: Mapping[str, Any], requests: Sequence[str] | None) -> DeviceAllocationConfiguration:
    opaque = config.get("opaque")
    return DeviceAllocationConfiguration(
        source=source,
        opaque=None if opaque is None else OpaqueDeviceConfiguration(opaque["driver"], opaque["parameters"]),
        requests=list(requests) if requests else None,
    )
