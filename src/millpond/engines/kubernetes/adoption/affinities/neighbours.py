"""Beside which pods nodes are: what required affinities of pods to pods mean for the choice of a node.

The core chooses nodes by labels. So nodes have pseudo-labels that say which pods lie on them, or on nodes with the same
value of a topology label, and pods select nodes by these. Labels follow what is bound, and the core may decide about
several pods before it hears of the first; so it is looked once more when a pod is bound (``conflict``), and nothing is
bound that would break a rule.
https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from millpond.engines.kubernetes.adoption.affinities.neighbour_terms import (
    NeighbourTerm,
    PlacedPod,
    affinities,
    aversions,
)
from millpond.engines.kubernetes.adoption.affinities.recently_asked import RecentlyAsked
from millpond.engines.kubernetes.adoption.affinities.spread_counts import SpreadCounts
from millpond.engines.kubernetes.adoption.affinities.spread_terms import SpreadTerm, spreads
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement

MOST_TERMS: Final = 500
"""So many different affinities are kept up to date."""
MOST_SPREADS: Final = 100
"""And so many different spread constraints, each of which knows all places."""


@dataclass(slots=True)
class _Places:
    """Where pods of one kind lie: how many by node, and by the value of the topology label."""

    key: str
    by_node: Counter[str] = field(default_factory=Counter)
    by_value: Counter[str] = field(default_factory=Counter)

    def add(self, node: str, labels: Mapping[str, str], count: int) -> list[str]:
        """So many more, or fewer; the values of the label by which that is news."""
        self.by_node[node] += count
        if self.by_node[node] <= 0:
            del self.by_node[node]
        value = self._count(labels.get(self.key), count)
        return [] if value is None else [value]

    def relabel(self, node: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
        """A node has other labels; the values of which that is news."""
        old, new, count = before.get(self.key), after.get(self.key), self.by_node.get(node, 0)
        if not count or old == new:
            return []
        return [value for value in (self._count(old, -count), self._count(new, count)) if value is not None]

    def has(self, labels: Mapping[str, str]) -> bool:
        """Whether one lies on a node with these labels, or beside it."""
        value = labels.get(self.key)
        return value is not None and value in self.by_value

    def _count(self, value: str | None, count: int) -> str | None:
        if value is None:
            return None
        before = self.by_value[value]
        self.by_value[value] += count
        if self.by_value[value] <= 0:
            del self.by_value[value]
        return value if (before > 0) is not (value in self.by_value) else None


class Neighbours:
    """All pods on all nodes, as far as others ask for them. Lives on the engine's loop.

    Args:
        changed: called with the name of each node that has other pseudo-labels.

    Attributes:
        version: rises when the same pod may ask for other nodes than before (``requirements``).
        tallied: rises when something that was counted for gangs has changed (``tally``).
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self.version = self.tallied = 0
        self._changed = changed
        self._labels: dict[str, Mapping[str, str]] = {}
        self._pods: dict[str, PlacedPod] = {}
        self._beside = RecentlyAsked(
            MOST_TERMS, self._places_of, lambda places: self._tell(places.key, places.by_value)
        )
        self._averse: dict[NeighbourTerm, _Places] = {}
        self._spreads = RecentlyAsked(MOST_SPREADS, self._counts_of, lambda each: self._tell(each.key, each.full))
        self._tallies = RecentlyAsked(MOST_SPREADS, self._counts_of)

    def node_known(self, name: str, labels: Mapping[str, str]) -> None:
        """A node is there, or has other labels."""
        before = self._labels.get(name, {})
        if before == labels and name in self._labels:
            return
        self._labels[name] = labels
        watched: list[_Places | SpreadCounts] = [*self._beside.kept.values(), *self._averse.values()]
        for places in (*watched, *self._spreads.kept.values()):
            self._tell(places.key, places.relabel(name, before, labels))
        for counts in self._tallies.kept.values():
            counts.relabel(name, before, labels)
            self.tallied += 1

    def node_gone(self, name: str) -> None:
        """A node is no longer there."""
        self.node_known(name, {})
        self._labels.pop(name, None)

    def pod_placed(self, key: str, pod: PlacedPod) -> None:
        """A pod lies on a node, or is being bound to it."""
        before = self._pods.get(key)
        if before == pod:
            return
        if before is not None:
            self.pod_gone(key)
        self._pods[key] = pod
        self._count(pod, 1)

    def pod_gone(self, key: str) -> None:
        """A pod lies nowhere any more."""
        pod = self._pods.pop(key, None)
        if pod is not None:
            self._count(pod, -1)

    def labels_of(self, labels: Mapping[str, str]) -> dict[str, str]:
        """The pseudo-labels of a node.

        Args:
            labels: that it has of its own.
        """
        found = {term.beside_label: "" for term, places in self._beside.kept.items() if places.has(labels)}
        found |= {term.label: "" for term, counts in self._spreads.kept.items() if counts.has(labels)}
        return found | {term.averse_label: "" for term, places in self._averse.items() if places.has(labels)}

    def requirements(
        self, pod: ScheduledPod, within: Container[NeighbourTerm | SpreadTerm] = ()
    ) -> Iterator[NodeRequirement]:
        """What its affinities and its spread, and the affinities of the pods that are there, ask of its node.

        Args:
            within: what is kept by the way in which the pods of its gang lie towards each other.
        """
        namespace, labels = pod.metadata.namespace, pod.labels
        own = aversions(pod)
        for term in own:
            self._beside.get(term)
            yield NodeRequirement(term.beside_label, NodeOperator.DOES_NOT_EXIST)
        for term in affinities(pod):
            if self._beside.get(term).by_node or not (term in within or term.matches(namespace, labels)):
                yield NodeRequirement(term.beside_label, NodeOperator.EXISTS)
            else:  # the first of those that lie together
                yield NodeRequirement(term.topology_key, NodeOperator.EXISTS)
        for spread in spreads(pod):
            yield NodeRequirement(spread.topology_key, NodeOperator.EXISTS)
            if spread not in within:
                self._spreads.get(spread)
                yield NodeRequirement(spread.label, NodeOperator.DOES_NOT_EXIST)
        for term in self._averse:
            if term not in own and term.matches(namespace, labels):
                yield NodeRequirement(term.averse_label, NodeOperator.DOES_NOT_EXIST)

    def conflict(self, pod: ScheduledPod, node: str, within: Container[NeighbourTerm | SpreadTerm] = ()) -> str:
        """Why a pod must not be bound to a node, as things are at this moment; empty: it may.

        Args:
            within: what is not looked at, as it depends on where the other pods of its gang go.
        """
        meta, labels = pod.metadata, self._labels.get(node, {})
        for term in aversions(pod):
            if self._beside.get(term).has(labels):
                return f"pod {meta.name} must not lie beside pods {term.text}, and one came to node {node} meanwhile"
        for term in affinities(pod):
            if term in within:
                continue
            places = self._beside.get(term)
            is_first = not places.by_node and term.matches(meta.namespace, pod.labels) and term.topology_key in labels
            if not is_first and not places.has(labels):
                return f"pod {meta.name} must lie beside pods {term.text}, and none is at node {node} now"
        for spread in spreads(pod):
            if spread in within:
                continue
            if spread.place_of(node, labels) is None or self._spreads.get(spread).has(labels):
                return (
                    f"pod {meta.name} must be spread ({spread.text}), and at node {node} it would be one too many now"
                )
        for term, places in self._averse.items():
            if term.matches(meta.namespace, pod.labels) and places.has(labels):
                return f"a pod at node {node} keeps off pods {term.text}, such as {meta.name}"
        return ""

    def place_of(self, node: str, label: str) -> str | None:
        """The value of a label of a node."""
        return self._labels.get(node, {}).get(label)

    def spread_place_of(self, node: str, term: SpreadTerm) -> str | None:
        """The place that a node belongs to, by a spread constraint; None: it does not count."""
        return term.place_of(node, self._labels.get(node, {}))

    def lie_anywhere(self, term: NeighbourTerm) -> bool:
        """Whether any of the pods that a term means lies on a node."""
        return bool(self._beside.get(term).by_node)

    def lie_beside(self, term: NeighbourTerm, node: str) -> bool:
        """Whether one of them lies on a node or beside it."""
        return self._beside.get(term).has(self._labels.get(node, {}))

    def tally(self, term: SpreadTerm) -> SpreadCounts:
        """How many pods of a constraint lie where, kept up to date until too many others were asked for."""
        return self._tallies.get(term)

    def _places_of(self, term: NeighbourTerm) -> _Places:
        places = _Places(term.topology_key)
        for pod in self._pods.values():
            if term.matches(pod.namespace, pod.labels):
                places.add(pod.node, self._labels.get(pod.node, {}), 1)
        return places

    def _counts_of(self, term: SpreadTerm) -> SpreadCounts:
        counts = SpreadCounts(term)
        for name, labels in self._labels.items():
            counts.relabel(name, {}, labels)
        for pod in self._pods.values():
            if term.matches(pod):
                counts.add(pod.node, self._labels.get(pod.node, {}), 1)
        return counts

    def _count(self, pod: PlacedPod, count: int) -> None:
        labels = self._labels.get(pod.node, {})
        for spread, counts in self._spreads.kept.items():
            if spread.matches(pod):
                self._tell(counts.key, counts.add(pod.node, labels, count))
        for spread, counts in self._tallies.kept.items():
            if spread.matches(pod):
                counts.add(pod.node, labels, count)
                self.tallied += 1
        for term, places in self._beside.kept.items():
            if term.matches(pod.namespace, pod.labels):
                self._count_at(places, pod.node, labels, count)
        for term in pod.averse_to:
            places = self._averse.setdefault(term, _Places(term.topology_key))
            self._count_at(places, pod.node, labels, count)
            if not places.by_node:
                del self._averse[term]

    def _count_at(self, places: _Places, node: str, labels: Mapping[str, str], count: int) -> None:
        were_any = bool(places.by_node)
        self._tell(places.key, places.add(node, labels, count))
        self.version += were_any is not bool(places.by_node)

    def _tell(self, key: str, values: Iterable[str]) -> None:
        news = set(values)
        if news:
            for name in [name for name, labels in self._labels.items() if labels.get(key) in news]:
                self._changed(name)
