"""What a pod asks of its node, and what of it the scheduler cannot do: that is said, never passed over.

Wishes that Kubernetes may leave unfulfilled (preferred affinities, ``ScheduleAnyway``) are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from millpond.engines.kubernetes.adoption.affinities.neighbour_terms import trouble_with
from millpond.engines.kubernetes.adoption.gangs import ANNOTATION_PREFIX, QUEUE_LABEL, GangTerms
from millpond.engines.kubernetes.adoption.grouping import GANG_ANNOTATION, SIZE_ANNOTATION
from millpond.engines.kubernetes.adoption.pod_nodes import asks_for_too_much, pool_of, selection_of
from millpond.engines.kubernetes.adoption.pod_objects import LET_GO_ANNOTATION, NODE_ANNOTATION, ScheduledPod
from millpond.engines.kubernetes.claims.claim_requests import ClaimDemand
from millpond.engines.kubernetes.cluster.cluster_nodes import MILLI, POOL_LABEL, VENDORS
from millpond.engines.kubernetes.cluster.resource_amounts import asked_by, quantity
from millpond.engines.kubernetes.pods.pod_marks import SERVER_LABEL, TASK_ANNOTATION
from millpond.engines.kubernetes.pods.slice_order import ORDER_ANNOTATION
from millpond.model.hardware.node_selection import NodeSelection
from millpond.model.resources import CARD_MILLI, SHARE_OF_CARD, SliceRequest, TaskRequest
from millpond.model.sharing import GIVEN_VARIABLES, GPU_SLICES

FIELDS: Final = {
    f"{ANNOTATION_PREFIX}{field.replace('_', '-')}": field
    for field in (
        "pool", "topology", "gpu_models", "preemptible", "min_run_time", "deadline", "reservation", "window",
    )
}  # fmt: skip
"""Annotations that stand for fields of the job file, with the values that these take."""
_OURS: Final = frozenset(
    {
        GANG_ANNOTATION,
        SIZE_ANNOTATION,
        QUEUE_LABEL,
        TASK_ANNOTATION,
        ORDER_ANNOTATION,
        NODE_ANNOTATION,
        LET_GO_ANNOTATION,
        SERVER_LABEL,
    }
)
GPU_MEMORY: Final = f"{ANNOTATION_PREFIX}gpu-memory-mib"
"""Device memory of a part of a card: an annotation, or a resource that no node has, which kubelets pass over."""
_LONGEST_NAME: Final = 253
"""Of an object of Kubernetes."""
_LONGEST_VALUE: Final = 2_000
"""Of an annotation for a field of the job file: every look at the gang reads it, and the cluster takes 256 KiB."""
_PERCENT_MILLI: Final = CARD_MILLI // 100
_A_NUMBER: Final = re.compile("[0-9]{1,9}")
_COUNTED: Final = frozenset({"cpu", "memory", "ephemeral-storage", MILLI, GPU_MEMORY, *VENDORS})


@dataclass(frozen=True, slots=True)
class PodDemand:
    """What one pod asks for.

    Attributes:
        trouble: what of it cannot be done, in words; empty: nothing.
        selection: nodes that have the cards its claims mean; empty: any.
    """

    request: TaskRequest
    trouble: str = ""
    selection: NodeSelection = ()


def demand_of(pod: ScheduledPod, claims: ClaimDemand, extras: Mapping[str, str]) -> PodDemand:
    """What a pod asks of its node.

    Args:
        claims: what its resource claims come to.
        extras: what jobs call other extended resources, by their names in the cluster.
    """
    amounts = asked_by(pod.spec)
    trouble = next(_troubles(pod, extras, claims.resource), "") or claims.trouble
    others = tuple(sorted((extras[name], count) for name, count in amounts.others.items() if name in extras))
    devices = sum(amounts.cards.values()) + amounts.others.get(claims.resource, 0) + claims.cards
    whole = TaskRequest(amounts.cpu_milli, amounts.memory_mib, devices, extras=others)
    milli, memory_mib = _asked_of_agent(pod)
    if trouble or not milli:
        return PodDemand(whole, trouble, claims.selection)
    cards, part = divmod(milli, CARD_MILLI)
    return PodDemand(
        replace(
            whole,
            devices=cards or 1,
            slice=SliceRequest(part, memory_mib or SHARE_OF_CARD, part) if part else SliceRequest(),
            extras=tuple(sorted((*others, (GPU_SLICES, 1)))),
        )
    )


def terms_of(pod: ScheduledPod, marks: frozenset[str]) -> GangTerms:
    """What a pod says about its gang.

    Args:
        marks: see ``pod_nodes.selection_of``.
    """
    meta, spec = pod.metadata, pod.spec
    said = {**meta.labels, **meta.annotations}
    if pool := pool_of(pod):
        said[POOL_LABEL] = pool
    fields = tuple(sorted((FIELDS[name], said[name]) for name in FIELDS if name in said))
    return GangTerms(
        spec.service_account_name,
        said.get(QUEUE_LABEL, ""),
        spec.priority,
        spec.priority_class_name,
        fields,
        selection_of(pod, marks),
        spec.termination_grace_period_seconds,
    )


def _troubles(pod: ScheduledPod, extras: Mapping[str, str], by_number: str) -> Iterator[str]:
    """What of a pod cannot be done; ``by_number``: the resource for which a driver's cards are claimed."""
    yield from _of_annotations(pod)
    yield from _of_resources(pod, extras, by_number)
    yield from _of_places(pod)
    spec = pod.spec
    if spec.preemption_policy == "Never":
        yield "its priority class never preempts, which Millpond cannot promise: choose one without preemptionPolicy"


def _of_annotations(pod: ScheduledPod) -> Iterator[str]:
    meta = pod.metadata
    for name in sorted({*meta.labels, *meta.annotations}):
        if name == MILLI:
            yield f"{MILLI} is no annotation: ask for it in the resources of the container"
        elif name.startswith(ANNOTATION_PREFIX) and name not in _OURS and name not in (*FIELDS, GPU_MEMORY):
            known = ", ".join(sorted({*FIELDS, GANG_ANNOTATION, SIZE_ANNOTATION, GPU_MEMORY}))
            yield f"there is no annotation {name}; there are {known}, and the label {QUEUE_LABEL}"
        elif name in FIELDS and len(meta.annotations.get(name, "")) > _LONGEST_VALUE:
            yield f"{name}: write at most {_LONGEST_VALUE} characters"
    memory = meta.annotations.get(GPU_MEMORY, "0")
    if not _A_NUMBER.fullmatch(memory):
        yield f"the annotation {GPU_MEMORY} is {memory[:_LONGEST_NAME]!r}; write a number of MiB, such as 16384"
    gang = meta.annotations.get(GANG_ANNOTATION, "")
    if len(gang) > _LONGEST_NAME or not gang.isprintable():
        yield f"{GANG_ANNOTATION}: write at most {_LONGEST_NAME} printable characters"


def _of_resources(pod: ScheduledPod, extras: Mapping[str, str], by_number: str) -> Iterator[str]:
    containers = [*pod.spec.containers, *pod.spec.init_containers]
    whole = () if pod.spec.resources is None else pod.spec.resources.requests
    for name in sorted({name for each in containers for name in each.resources.requests}.union(whole)):
        if name not in _COUNTED and name not in extras and name != by_number:
            counts = "/" in name and not name.startswith(ANNOTATION_PREFIX)
            remedy = "have an admin name it in kubernetes.extras" if counts else "leave it out"
            yield f"it asks for {name}, which Millpond does not count: {remedy}"
    yield from _of_parts(pod)
    sidecars = (each for each in pod.spec.init_containers if each.is_sidecar)
    if by_number and any(by_number in each.resources.requests for each in sidecars):
        yield f"an init container that goes on asks for {by_number}: let a container ask for it"
    kinds = {name for each in containers for name in each.resources.requests if name in (MILLI, *VENDORS, by_number)}
    kinds |= {"resource claims"} if pod.spec.resource_claims and kinds else set()
    if len(kinds) > 1:
        yield f"it asks for cards of several kinds ({', '.join(sorted(kinds))}); a pod has those of one"


def _asked_of_agent(pod: ScheduledPod) -> tuple[int, int]:
    """Thousandths of cards, and the device memory in MiB of a part; 0: as much of it as of its compute."""
    requests = [each.resources.requests for each in pod.spec.containers]
    milli = sum(int(quantity(each.get(MILLI, "0"))) for each in requests)
    said = [pod.metadata.annotations.get(GPU_MEMORY, "0"), *(each.get(GPU_MEMORY, "0") for each in requests)]
    return milli, max(int(quantity(text)) for text in said)


def _of_parts(pod: ScheduledPod) -> Iterator[str]:
    """What cannot be done of a request for cards of an agent."""
    containers = pod.spec.containers
    milli, memory_mib = _asked_of_agent(pod)
    if any(MILLI in each.resources.requests for each in pod.spec.init_containers):
        yield f"an init container asks for {MILLI}: let the container ask that runs"
    elif sum(MILLI in each.resources.requests for each in containers) > 1:
        yield f"several of its containers ask for {MILLI}: one of a pod can have cards of an agent"
    elif milli > CARD_MILLI and milli % CARD_MILLI:
        yield f"it asks for {milli} {MILLI}: ask for a part of one card, or for whole cards (multiples of 1000)"
    elif milli % _PERCENT_MILLI:
        yield f"it asks for {milli} {MILLI}: parts of cards are given out in steps of 10, one percent of a card"
    elif memory_mib and not milli % CARD_MILLI:
        yield f"{GPU_MEMORY} is of a part of a card: ask for less than 1000 {MILLI} beside it"
    own = next((each for each in containers if MILLI in each.resources.requests), None)
    given = sorted({each.name for each in own.env} & GIVEN_VARIABLES) if own is not None else []
    if given:
        yield f"its container sets {given[0]}, by which it is given its part of a card: leave that out"


def _of_places(pod: ScheduledPod) -> Iterator[str]:
    if asks_for_too_much(pod):
        yield "its node affinity has more alternatives than Millpond looks at (50)"
    if trouble := trouble_with(pod):
        yield trouble
