"""Which nodes a pod may be bound to: its nodeSelector, required node affinity and tolerations, in the core's words."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from millpond.engines.kubernetes.adoption.owner_table import value_at
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.cluster.cluster_nodes import (
    CARD_SOURCES,
    DRIVER,
    NAME_FIELD,
    POOL_LABEL,
    VENDORS,
    offered,
    taint_in,
)
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement, NodeSelection
from millpond.node.devices.nvidia import VENDOR as NVIDIA

REQUIRED_NODES: Final = "nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
_MOST_TERMS: Final = 50
_NOWHERE: Final = (NodeRequirement(NAME_FIELD, NodeOperator.IN),)


def pool_of(pod: ScheduledPod) -> str:
    """The pool that its nodeSelector names; empty where it names none."""
    return pod.spec.node_selector.get(POOL_LABEL, "")


def selection_of(pod: ScheduledPod, marks: Collection[str]) -> NodeSelection:
    """The nodes that a pod may have; empty: any of its pool.

    Args:
        marks: pseudo-labels by which nodes of this cluster differ: their taints, and the kinds of cards they offer.
    """
    common = tuple(
        NodeRequirement(key, NodeOperator.IN, (value,))
        for key, value in sorted(pod.spec.node_selector.items())
        if key != POOL_LABEL
    )
    common += tuple(_of_marks(pod, marks))
    return within_both((common,) if common else (), alternatives_in(value_at(pod.spec.affinity, REQUIRED_NODES)))


def alternatives_in(selector: Any) -> NodeSelection:
    """What a node selector of the API means; empty: any node."""
    terms = value_at(selector, "nodeSelectorTerms")
    if not isinstance(terms, list) or not terms:
        return ()
    # A term without expressions matches no node.
    wanted = [tuple(_of_term(term)) for term in terms[:_MOST_TERMS]]
    return tuple(term for term in wanted if term) or (_NOWHERE,)


def within_both(one: NodeSelection, other: NodeSelection) -> NodeSelection:
    """The nodes that both select."""
    if not one or not other:
        return one or other
    return tuple(dict.fromkeys((*term, *more) for term in one for more in other))


def given_by_claims(pod: ScheduledPod, marks: Collection[str]) -> str:
    """What to ask for instead of a vendor's cards that no node offers, where a driver gives these out; else empty."""
    for resource, vendor in VENDORS.items():
        asks = any(resource in each.resources.requests for each in (*pod.spec.containers, *pod.spec.init_containers))
        if asks and vendor == NVIDIA and offered(DRIVER) in marks and offered(resource) not in marks:
            return (
                f"no node offers {resource}: {DRIVER} has the cards, so ask for them by a resource claim of that class"
            )
    return ""


def asks_for_too_much(pod: ScheduledPod) -> bool:
    """Whether its node affinity has more alternatives than are looked at."""
    return len(value_at(pod.spec.affinity, f"{REQUIRED_NODES}.nodeSelectorTerms") or ()) > _MOST_TERMS


def _of_term(term: Any) -> Iterator[NodeRequirement]:
    for expression in term.get("matchExpressions") or ():
        yield _requirement(expression["key"], expression)
    for expression in term.get("matchFields") or ():
        yield _requirement(NAME_FIELD, expression)


def _requirement(key: str, expression: Any) -> NodeRequirement:
    return NodeRequirement(key, NodeOperator(expression["operator"]), tuple(expression.get("values") or ()))


def _of_marks(pod: ScheduledPod, marks: Collection[str]) -> Iterator[NodeRequirement]:
    """Nodes whose taints the pod does not tolerate are out, and those that offer no cards of its kind."""
    kinds = {name for name in CARD_SOURCES if offered(name) in marks}
    for resource in CARD_SOURCES:
        asks = any(resource in each.resources.requests for each in (*pod.spec.containers, *pod.spec.init_containers))
        if asks and kinds - {resource}:
            yield NodeRequirement(offered(resource), NodeOperator.EXISTS)
    for mark in sorted(marks):
        if (taint := taint_in(mark)) is not None:
            tolerations = [each for each in pod.spec.tolerations if each.is_about(*taint)]
            if not any(each.operator == "Exists" for each in tolerations):
                yield NodeRequirement(mark, NodeOperator.ABSENT_OR_IN, tuple(each.value for each in tolerations))
