"""What pods ask of where their like lies: of the next pod by itself, and of the pods of a gang, which come together.

Pods by themselves are placed one after another, as where the next may go follows from where the last lies. Of a gang,
whose pods are placed at once, the core keeps one such wish: that all lie within one node, rack or zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from millpond.engines.kubernetes.adoption.affinities.neighbour_terms import (
    NeighbourTerm,
    PlacedPod,
    affinities,
    aversions,
)
from millpond.engines.kubernetes.adoption.affinities.spread_terms import SpreadTerm, spreads
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.cluster.cluster_nodes import RACK_LABEL, ZONE_LABELS

MutualTerm: TypeAlias = "NeighbourTerm | SpreadTerm"
TOPOLOGY_FIELD: Final = "topology"
_LEVELS: Final = {"kubernetes.io/hostname": "node", RACK_LABEL: "rack", **dict.fromkeys(ZONE_LABELS, "zone")}
"""By topology key, the narrowest first."""
_KEPT: Final = (
    "Millpond keeps of a gang affinities to other pods, and one of all of its pods to each other "
    f"(by {', '.join(_LEVELS)})"
)
_SPREAD: Final = "Millpond spreads pods that start one by one, and a gang with ScheduleAnyway alone"


def about_its_like(pod: ScheduledPod) -> tuple[MutualTerm, ...]:
    """What a pod asks that speaks of pods like itself."""
    mutual = (term for term in (*affinities(pod), *aversions(pod)) if _is_of(term, pod))
    return (*mutual, *(term for term in spreads(pod) if term.counts_itself))


def common_level(pods: Sequence[ScheduledPod]) -> str:
    """Within what all pods of a gang must lie, by their affinity to each other; empty: they do not ask for that."""
    levels = {_LEVELS[term.topology_key] for term in _common(pods)} if len(pods) > 1 else set()
    return next((level for level in _LEVELS.values() if level in levels), "")


def trouble_within(pods: Sequence[ScheduledPod], topology: str) -> str:
    """Why pods cannot start together as they ask to lie; empty when they can.

    Args:
        topology: what they say of it by annotation; empty: nothing.
    """
    if len(pods) < 2:
        return ""
    common = _common(pods)
    if common and topology:
        return f"its pods must lie together by their affinity, and are annotated with a {TOPOLOGY_FIELD}: leave one out"
    asked = dict.fromkeys(term for pod in pods for term in (*aversions(pod), *affinities(pod)))
    for term in asked:
        if term not in common and any(_is_of(term, pod) for pod in pods):
            return f"its pods must lie together, or apart ({term.text}), and start together: {_KEPT}"
    for spread in dict.fromkeys(term for pod in pods for term in spreads(pod)):
        if any(spread.matches(PlacedPod(pod.metadata.namespace, pod.metadata.labels, "")) for pod in pods):
            return f"its pods must be spread ({spread.text}), and start together: {_SPREAD}"
    return ""


def _common(pods: Sequence[ScheduledPod]) -> set[NeighbourTerm]:
    """Affinities that all pods have to all of them, and that the core can keep."""
    asked = set(affinities(pods[0])).intersection(*(affinities(pod) for pod in pods))
    kept = {term for term in asked if term.topology_key in _LEVELS and all(_is_of(term, pod) for pod in pods)}
    return kept - {term for pod in pods for term in aversions(pod)}


def _is_of(term: NeighbourTerm, pod: ScheduledPod) -> bool:
    return term.matches(pod.metadata.namespace, pod.metadata.labels)
