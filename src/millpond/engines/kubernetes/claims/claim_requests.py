"""What the resource claims of a pod ask for, in the scheduler's words: so many cards, and the nodes that have such."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from millpond.engines.kubernetes.adoption.pod_nodes import alternatives_in, within_both
from millpond.engines.kubernetes.adoption.pod_objects import PodClaim, ScheduledPod
from millpond.engines.kubernetes.claims.claim_book import ClaimBook
from millpond.engines.kubernetes.claims.claim_objects import EXACT_COUNT, ClaimObject, DeviceRequest, ExactRequest
from millpond.engines.kubernetes.claims.device_selectors import (
    CardKind,
    UnreadableSelectorError,
    amount_of,
    is_meant,
)
from millpond.engines.kubernetes.cluster.cluster_nodes import DRIVER, offered
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement, NodeSelection

MOST_CONSUMERS: Final = 256
"""Kubernetes lets no more pods have one claim."""


class ClaimTroubleError(Exception):
    """What of a pod's claims cannot be done, in words.

    Args:
        passes: trying again may help, with nobody doing anything.
    """

    def __init__(self, text: str, *, passes: bool = True) -> None:
        super().__init__(text)
        self.passes = passes


@dataclass(frozen=True, slots=True)
class ClaimDemand:
    """What the claims of a pod come to.

    Attributes:
        cards: to be allocated.
        resource: what it asks for by number besides, and a driver's cards answer; empty: nothing.
        selection: nodes that have such, or that reach what was allocated before; empty: any.
        trouble: what cannot be done; empty: nothing.
    """

    cards: int = 0
    selection: NodeSelection = ()
    trouble: str = ""
    resource: str = ""


def names_of(pod: ScheduledPod) -> Iterator[tuple[PodClaim, str]]:
    """The claims that a pod names, and their names; empty: it is not made yet."""
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    for each in pod.spec.resource_claims:
        name = each.resource_claim_name or made.get(each.name, "")
        if name is not None:  # none was needed
            yield each, name


def claims_of(pod: ScheduledPod, book: ClaimBook) -> list[ClaimObject]:
    """The claims of a pod.

    Raises:
        ClaimTroubleError: one is not there, or is none that the pod may have.
    """
    found = []
    for entry, name in names_of(pod):
        claim = book.claim(pod.metadata.namespace, name) if name else None
        if claim is None and entry.resource_claim_template_name:
            template = entry.resource_claim_template_name
            raise ClaimTroubleError(f"its claim of the template {template} is not made yet: see that there is one")
        if claim is None:
            raise ClaimTroubleError(f"there is no resource claim {name}: make it")
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimTroubleError(f"its claim {name} is being deleted: make it anew when it is gone")
        if not entry.resource_claim_name and pod.metadata.uid not in claim.owners:
            raise ClaimTroubleError(f"its claim {name} was made for another pod of its name, and will be made anew")
        if len(claim.status.reserved_for) >= MOST_CONSUMERS and claim.is_reserved_beside(pod.metadata.uid):
            raise ClaimTroubleError(f"{MOST_CONSUMERS} pods have its claim {name}: no more may")
        found.append(claim)
    return found


def demand_of_claims(pod: ScheduledPod, book: ClaimBook) -> ClaimDemand:
    """What the claims of a pod ask of its node."""
    if not pod.spec.resource_claims:
        return ClaimDemand()
    if not book.is_served:
        remedy = "see the line `resource claims` of `pond kube check`, and start the server again"
        return ClaimDemand(trouble=f"it has resource claims (DRA), of which this server sees nothing: {remedy}")
    cards, selection = 0, NodeSelection()
    try:
        for claim in claims_of(pod, book):
            if is_open(claim, pod.metadata.uid):
                asked = [(request.name, exact_of(claim, request)) for request in claim.spec.devices.requests]
                cards += sum(exact.count for _, exact in asked)
                for name, exact in asked:
                    selection = within_both(selection, _nodes_for(claim, name, exact, book))
            elif claim.status.allocation is not None:
                selection = within_both(selection, alternatives_in(claim.status.allocation.node_selector))
    except ClaimTroubleError as error:
        return ClaimDemand(trouble=str(error))
    return ClaimDemand(cards, selection)


def is_open(claim: ClaimObject, uid: str) -> bool:
    """Whether a claim is to be allocated for a pod: it has nothing, or what an earlier start of this pod left."""
    left = bool(claim.status.reserved_for) and not claim.is_reserved_beside(uid)
    return claim.status.allocation is None or left


def exact_of(claim: ClaimObject, request: DeviceRequest) -> ExactRequest:
    """What a line of a claim asks for.

    Raises:
        ClaimTroubleError: it asks in a way that Millpond does not serve.
    """
    name, devices, exact = claim.metadata.name, claim.spec.devices, request.exactly
    if exact is None:
        raise ClaimTroubleError(f"its claim {name} has alternatives (firstAvailable): name one in `exactly`")
    if exact.allocation_mode != EXACT_COUNT:
        raise ClaimTroubleError(f"its claim {name} asks for {exact.allocation_mode} devices: name their number")
    if exact.admin_access:
        raise ClaimTroubleError(f"its claim {name} asks for adminAccess: leave such pods to kube-scheduler")
    if devices.constraints and sum(each.exactly.count if each.exactly else 1 for each in devices.requests) > 1:
        remedy = "leave `constraints` out: cards of a node are chosen near each other"
        raise ClaimTroubleError(f"its claim {name} has constraints between devices: {remedy}")
    return exact


def is_for(exact: ExactRequest, kind: CardKind, book: ClaimBook) -> bool:
    """Whether a card of a kind is one that a request means.

    Raises:
        ClaimTroubleError: its class is not there, or a selector is one that Millpond does not read.
    """
    of_class = book.device_class(exact.device_class_name)
    if of_class is None:
        text = f"there is no device class {exact.device_class_name}: see kubectl get deviceclasses"
        raise ClaimTroubleError(text, passes=False)
    has = dict(kind.capacity)
    try:
        return all(
            is_meant(each.cel.expression, kind) for each in (*of_class.spec.selectors, *exact.selectors)
        ) and all(
            has.get(name.removeprefix(f"{DRIVER}/"), 0.0) >= amount_of(least)
            for name, least in exact.capacity.requests.items()
        )
    except UnreadableSelectorError as error:
        raise ClaimTroubleError(f"a selector of it or of its class {exact.device_class_name}: {error}") from error


def _nodes_for(claim: ClaimObject, name: str, exact: ExactRequest, book: ClaimBook) -> NodeSelection:
    """The nodes all of whose cards are such that a request means."""
    try:
        fit = [mark for mark, kinds in book.marks.items() if all(is_for(exact, kind, book) for kind in kinds)]
    except ClaimTroubleError as error:
        raise ClaimTroubleError(f"its claim {claim.metadata.name}, request {name}: {error}") from error
    if not fit:
        what = f"class {exact.device_class_name}" + (" and its selectors" if exact.selectors else "")
        raise ClaimTroubleError(
            f"its claim {claim.metadata.name}, request {name}: no node has only cards of {DRIVER} that its {what} "
            "mean; see kubectl get resourceslices"
        )
    return ((NodeRequirement(offered(DRIVER), NodeOperator.IN, tuple(sorted(fit))),),)
