"""Which nodes a pod may be bound to: its nodeSelector, required node affinity and tolerations, in the core's words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from millpond.engines.kubernetes.adoption.owner_table import value_at
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.cluster.cluster_nodes import (
    CARD_SOURCES,
    DRIVER,
    NAME_FIELD,
    POOL_LABEL,
    VENDORS,
    answered,
    answered_in,
    offered,
    taint_in,
)
from millpond.engines.kubernetes.pods.pod_marks import SCHEDULER
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
    common += tuple(_of_taints(pod, marks))
    places = within_both((common,) if common else (), _with_cards(pod, marks))
    return within_both(places, alternatives_in(value_at(pod.spec.affinity, REQUIRED_NODES)))


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


def asks_by_number(pod: ScheduledPod, marks: Collection[str]) -> str:
    """The extended resource that a pod asks for, and that a driver's cards answer on some nodes; empty: none.

    Where another scheduler binds a pod, that one answers, and would choose the cards.
    """
    resources = {answered_in(mark) for mark in marks} - {""} if pod.spec.scheduler_name == SCHEDULER else set()
    return next((name for name in sorted(resources) if _asks(pod, name)), "")


def given_by_claims(pod: ScheduledPod, marks: Collection[str], classes: Mapping[str, str]) -> str:
    """What to ask for instead of a vendor's cards that no node offers, where a driver gives these out; else empty.

    Args:
        classes: of devices, by the extended resources that they stand for.
    """
    for resource, vendor in VENDORS.items():
        asks = vendor == NVIDIA and _asks(pod, resource)
        if not asks or offered(DRIVER) not in marks or offered(resource) in marks or asks_by_number(pod, marks):
            continue
        remedy = f"ask for them by a resource claim of that class, or have an admin name {resource} in the class"
        if answered(resource) in marks:
            remedy = "kube-scheduler would choose them once the gate is gone: ask for them by a resource claim"
        elif resource in classes:
            remedy = f"its class {classes[resource]} stands for {resource}, but does not mean all cards of any node"
        return f"no node offers {resource}: {DRIVER} has the cards, so {remedy}"
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


def _asks(pod: ScheduledPod, resource: str) -> bool:
    return any(resource in each.resources.requests for each in (*pod.spec.containers, *pod.spec.init_containers))


def _with_cards(pod: ScheduledPod, marks: Collection[str]) -> NodeSelection:
    """Nodes that offer the cards that a pod asks for by number, or answer that by a claim."""
    kinds = {name for name in CARD_SOURCES if offered(name) in marks}
    by_claim, selection = asks_by_number(pod, marks), NodeSelection()
    for resource in dict.fromkeys((*CARD_SOURCES, *filter(None, [by_claim]))):
        if _asks(pod, resource) and (kinds - {resource} or answered(resource) in marks):
            labels = (offered(resource), *([answered(resource)] if resource == by_claim else ()))
            ways = tuple((NodeRequirement(label, NodeOperator.EXISTS),) for label in labels)
            selection = within_both(selection, ways)
    return selection


def _of_taints(pod: ScheduledPod, marks: Collection[str]) -> Iterator[NodeRequirement]:
    """Nodes whose taints the pod does not tolerate are out."""
    for mark in sorted(marks):
        if (taint := taint_in(mark)) is not None:
            tolerations = [each for each in pod.spec.tolerations if each.is_about(*taint)]
            if not any(each.operator == "Exists" for each in tolerations):
                yield NodeRequirement(mark, NodeOperator.ABSENT_OR_IN, tuple(each.value for each in tolerations))
