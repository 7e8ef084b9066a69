"""A last look before the pods of a gang are bound: whether all of them may lie where the core has placed them.

Of what they ask of each other counts how they lie in the end, as the API server takes them in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from millpond.engines.kubernetes.adoption.affinities.gang_affinities import MutualTerm, means
from millpond.engines.kubernetes.adoption.affinities.neighbour_terms import NeighbourTerm, affinities, aversions
from millpond.engines.kubernetes.adoption.affinities.neighbours import Neighbours
from millpond.engines.kubernetes.adoption.affinities.spread_terms import SpreadTerm, spreads
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod

Pairs: TypeAlias = Sequence[tuple[ScheduledPod, str]]
"""Pods, and the nodes that they are to be bound to."""


def conflicts(neighbours: Neighbours, pairs: Pairs) -> list[str]:
    """For each pod, why it must not be bound to its node as things are at this moment; empty: it may."""
    if len(pairs) == 1:
        return [neighbours.conflict(*pairs[0])]
    asking = [pod for pod, _ in pairs if pod.asks_of_others]
    asked: set[MutualTerm] = set()
    for pod in asking:
        asked.update(aversions(pod), affinities(pod), spreads(pod))
    within = {term for term in asked if any(means(term, pod) for pod, _ in pairs)}
    gang = _Gang(neighbours, pairs) if within else None
    return [
        neighbours.conflict(pod, node, within) or ("" if gang is None else next(gang.conflicts(pod, node), ""))
        for pod, node in pairs
    ]


class _Gang:
    """The pods of one gang as they would lie."""

    def __init__(self, neighbours: Neighbours, pairs: Pairs) -> None:
        self._neighbours, self._pairs = neighbours, pairs
        self._beside: dict[NeighbourTerm, Counter[str]] = {}
        self._overfull: dict[SpreadTerm, set[str]] = {}

    def conflicts(self, pod: ScheduledPod, node: str) -> Iterator[str]:
        """What of one pod's wishes the others break."""
        name = pod.metadata.name
        for term in aversions(pod):
            place = self._neighbours.place_of(node, term.topology_key)
            if place is not None and self._of(term)[place] > means(term, pod):
                yield f"pod {name} must not lie beside pods {term.text}, and another of its gang would at node {node}"
        for term in affinities(pod):
            others, place = self._of(term), self._neighbours.place_of(node, term.topology_key)
            is_own = means(term, pod)
            is_beside = place is not None and others[place] > is_own
            is_alone = place is not None and is_own and not self._neighbours.lie_anywhere(term) and others.total() == 1
            if not (is_beside or is_alone or self._neighbours.lie_beside(term, node)):
                yield f"pod {name} must lie beside pods {term.text}, and none would be at node {node}"
        for spread in spreads(pod):
            place = self._neighbours.spread_place_of(node, spread)
            if place is None or place in self._overfull_of(spread):
                yield f"pod {name} must be spread ({spread.text}), and at node {node} it would be one too many now"

    def _of(self, term: NeighbourTerm) -> Counter[str]:
        """How many of the gang's pods that a term means lie in each place."""
        if term not in self._beside:
            meant = (node for pod, node in self._pairs if means(term, pod))
            places = (self._neighbours.place_of(node, term.topology_key) for node in meant)
            self._beside[term] = Counter(place for place in places if place is not None)
        return self._beside[term]

    def _overfull_of(self, term: SpreadTerm) -> set[str]:
        if term not in self._overfull:
            meant = (node for pod, node in self._pairs if means(term, pod))
            places = (self._neighbours.spread_place_of(node, term) for node in meant)
            more = Counter(place for place in places if place is not None)
            self._overfull[term] = self._neighbours.tally(term).overfull_with(more)
        return self._overfull[term]
