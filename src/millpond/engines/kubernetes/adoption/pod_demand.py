"""What a pod asks of its node, and what of it the scheduler cannot do: that is said, never passed over.

Wishes that Kubernetes may leave unfulfilled (preferred affinities, ``ScheduleAnyway``) are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from millpond.engines.kubernetes.adoption.gangs import ANNOTATION_PREFIX, GangTerms
from millpond.engines.kubernetes.adoption.grouping import GANG_ANNOTATION, SIZE_ANNOTATION
from millpond.engines.kubernetes.adoption.owner_table import value_at
from millpond.engines.kubernetes.adoption.pod_nodes import asks_for_too_much, pool_of, selection_of
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.cluster.cluster_nodes import POOL_LABEL, VENDORS
from millpond.engines.kubernetes.cluster.resource_amounts import asked_by
from millpond.engines.kubernetes.pods.pod_template import TASK_ANNOTATION
from millpond.model.resources import TaskRequest

QUEUE_LABEL: Final = "millpond.io/queue"
FIELDS: Final = {
    f"{ANNOTATION_PREFIX}{field.replace('_', '-')}": field
    for field in (
        "pool", "topology", "gpu_models", "preemptible", "min_run_time", "deadline", "reservation", "window",
    )
}  # fmt: skip
"""Annotations that stand for fields of the job file, with the values that these take."""
_OURS: Final = frozenset({GANG_ANNOTATION, SIZE_ANNOTATION, QUEUE_LABEL, TASK_ANNOTATION, f"{ANNOTATION_PREFIX}server"})
_PARTS: Final = (f"{ANNOTATION_PREFIX}gpu-milli", f"{ANNOTATION_PREFIX}gpu-memory-mib")
_COUNTED: Final = frozenset({"cpu", "memory", "ephemeral-storage", *VENDORS})


@dataclass(frozen=True, slots=True)
class PodDemand:
    """What one pod asks for.

    Attributes:
        trouble: what of it cannot be done, in words; empty: nothing.
    """

    request: TaskRequest
    trouble: str = ""


def demand_of(pod: ScheduledPod) -> PodDemand:
    """What a pod asks of its node."""
    amounts = asked_by(pod.spec)
    request = TaskRequest(amounts.cpu_milli, amounts.memory_mib, sum(amounts.cards.values()))
    return PodDemand(request, next(_troubles(pod), ""))


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


def _troubles(pod: ScheduledPod) -> Iterator[str]:
    yield from _of_annotations(pod)
    yield from _of_resources(pod)
    yield from _of_places(pod)
    spec = pod.spec
    if spec.resource_claims:
        yield "it has resource claims (DRA), which Millpond does not allocate: ask for cards by nvidia.com/gpu"
    if spec.preemption_policy == "Never":
        yield "its priority class never preempts, which Millpond cannot promise: choose one without preemptionPolicy"


def _of_annotations(pod: ScheduledPod) -> Iterator[str]:
    meta = pod.metadata
    for name in sorted({*meta.labels, *meta.annotations}):
        if name in _PARTS:
            yield f"{name}: parts of cards are not given to pods of others; ask for whole cards (nvidia.com/gpu)"
        elif name.startswith(ANNOTATION_PREFIX) and name not in _OURS and name not in FIELDS:
            known = ", ".join(sorted({*FIELDS, GANG_ANNOTATION, SIZE_ANNOTATION}))
            yield f"there is no annotation {name}; there are {known}, and the label {QUEUE_LABEL}"


def _of_resources(pod: ScheduledPod) -> Iterator[str]:
    containers = [*pod.spec.containers, *pod.spec.init_containers]
    for name in sorted({name for each in containers for name in each.resources.requests}):
        if name in _PARTS:
            yield f"it asks for {name}: parts of cards are not given to pods of others; ask for nvidia.com/gpu"
        elif name not in _COUNTED:
            yield f"it asks for {name}, which Millpond does not count"
    kinds = {name for each in containers for name in each.resources.requests if name in VENDORS}
    if len(kinds) > 1:
        yield f"it asks for cards of several kinds ({', '.join(sorted(kinds))}); a pod has those of one"


def _of_places(pod: ScheduledPod) -> Iterator[str]:
    spec = pod.spec
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    if asks_for_too_much(pod):
        yield "its node affinity has more alternatives than Millpond looks at (50)"
    for kind, words in (("podAffinity", "pod affinity"), ("podAntiAffinity", "pod anti-affinity")):
        if value_at(spec.affinity, f"{kind}.{required}"):
            yield f"its required {words} cannot be kept"
    hard = [
        each.topology_key for each in spec.topology_spread_constraints if each.when_unsatisfiable == "DoNotSchedule"
    ]
    if hard:
        yield f"its spread over {hard[0]} (DoNotSchedule) cannot be kept; ScheduleAnyway can"
