"""How evenly pods must lie: topology spread constraints with ``DoNotSchedule``, as kube-scheduler understands them.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/ and the API reference,
TopologySpreadConstraint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from millpond.engines.kubernetes.adoption.affinities.neighbour_terms import PlacedPod, label_requirements, shortened
from millpond.engines.kubernetes.adoption.owner_table import value_at
from millpond.engines.kubernetes.adoption.pod_nodes import REQUIRED_NODES, alternatives_in, within_both
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod, SpreadConstraint, Toleration
from millpond.engines.kubernetes.cluster.cluster_nodes import NAME_FIELD, taint_in
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement, NodeSelection, selects

_HARD: Final = "DoNotSchedule"
_HONOR: Final = "Honor"


@dataclass(frozen=True, slots=True)
class SpreadTerm:
    """Pods, and how many more of them one place may have than the place with the fewest.

    Attributes:
        topology_key: nodes with the same value of this label are one place.
        keys: of all constraints of the pod: nodes without any of these labels do not count.
        namespace: of the pods.
        selector: what their labels must be; None: no pod is meant.
        nodes: those that count; empty: all.
        tolerations: nodes with taints that none of these speaks of do not count; None: they do.
        most: so many more.
        least_places: with fewer places than this, the fewest is none.
        counts_itself: the pod that asks is one of them.
    """

    topology_key: str
    keys: tuple[str, ...]
    namespace: str
    selector: tuple[NodeRequirement, ...] | None
    nodes: NodeSelection
    tolerations: tuple[Toleration, ...] | None
    most: int
    least_places: int
    counts_itself: bool

    def matches(self, pod: PlacedPod) -> bool:
        """Whether a pod is one of them; those that are leaving do not count."""
        return (
            self.selector is not None
            and not pod.is_leaving
            and pod.namespace == self.namespace
            and all(requirement.holds(pod.labels) for requirement in self.selector)
        )

    def place_of(self, node: str, labels: Mapping[str, str]) -> str | None:
        """The place that a node belongs to; None: it does not count.

        Args:
            labels: of the node, and its taints, see ``cluster_nodes.with_taints``.
        """
        if any(key not in labels for key in self.keys) or not self._tolerates(labels):
            return None
        is_meant = not self.nodes or selects(self.nodes, (*labels.items(), (NAME_FIELD, node)))
        return labels[self.topology_key] if is_meant else None

    def _tolerates(self, labels: Mapping[str, str]) -> bool:
        if self.tolerations is None:
            return True
        taints = ((taint, value) for label, value in labels.items() if (taint := taint_in(label)) is not None)
        return all(
            any(
                each.is_about(*taint) and (each.operator == "Exists" or each.value == value)
                for each in self.tolerations
            )
            for taint, value in taints
        )

    @property
    def text(self) -> str:
        """In words."""
        pods = " and ".join(each.text for each in self.selector or ()) or "any"
        return f"{pods} of {self.namespace}, by {self.topology_key}, maxSkew {self.most}"

    @property
    def label(self) -> str:
        """The pseudo-label of nodes whose place may have no more of them."""
        told = (self.text, self.keys, self.selector is None, self.nodes, self.tolerations)
        more = (self.least_places, self.counts_itself)
        return f"surplus({shortened(self.text, repr((*told, *more)))})"


def spreads(pod: ScheduledPod) -> tuple[SpreadTerm, ...]:
    """How a pod must be spread."""
    hard = [each for each in pod.spec.topology_spread_constraints if each.when_unsatisfiable == _HARD]
    keys = tuple(sorted({each.topology_key for each in hard}))
    return tuple(dict.fromkeys(_term(pod, each, keys) for each in hard))


def _term(pod: ScheduledPod, constraint: SpreadConstraint, keys: tuple[str, ...]) -> SpreadTerm:
    meta = pod.metadata
    selector = None if constraint.label_selector is None else tuple(_selector(pod, constraint))
    return SpreadTerm(
        constraint.topology_key,
        keys,
        meta.namespace,
        selector,
        _nodes_of(pod) if constraint.node_affinity_policy == _HONOR else (),
        tuple(pod.spec.tolerations) if constraint.node_taints_policy == _HONOR else None,
        constraint.max_skew,
        constraint.min_domains,
        selector is not None and all(requirement.holds(meta.labels) for requirement in selector),
    )


def _selector(pod: ScheduledPod, constraint: SpreadConstraint) -> Iterator[NodeRequirement]:
    yield from label_requirements(constraint.label_selector)
    for key in constraint.match_label_keys:
        if key in pod.metadata.labels:
            yield NodeRequirement(key, NodeOperator.IN, (pod.metadata.labels[key],))


def _nodes_of(pod: ScheduledPod) -> NodeSelection:
    """The nodes that its nodeSelector and its node affinity mean, whoever schedules them."""
    named = tuple(
        NodeRequirement(key, NodeOperator.IN, (value,)) for key, value in sorted(pod.spec.node_selector.items())
    )
    return within_both((named,) if named else (), alternatives_in(value_at(pod.spec.affinity, REQUIRED_NODES)))
