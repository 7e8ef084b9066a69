"""Pods of others in several clusters: gangs say which has them, and their jobs may have nodes of that one alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from millpond.engines.kubernetes.adoption.gangs import Adoption, FoundGang, GangKey
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement
from millpond.model.hardware.nodes import CLUSTER_LABEL


def gang_of_cluster(gang: FoundGang, cluster: str) -> FoundGang:
    """A gang as the server knows it, of one as its engine does."""
    there = NodeRequirement(CLUSTER_LABEL, NodeOperator.IN, (cluster,))
    selection = tuple((there, *term) for term in gang.terms.selection or ((),))
    return replace(gang, key=replace(gang.key, cluster=cluster), terms=replace(gang.terms, selection=selection))


def key_in_cluster(key: GangKey) -> GangKey:
    """What a gang is to the engine of its cluster."""
    return replace(key, cluster="")


class RoutedAdoption:
    """What several clusters tell of pods that wait, as one (``adoption.gangs.Adoption``).

    Args:
        adoptions: by the names of their clusters.
    """

    def __init__(self, adoptions: Mapping[str, Adoption]) -> None:
        self._adoptions: Final = dict(adoptions)

    def when_found(self, call: Callable[[], None]) -> None:
        """Have a function called when there is a gang to be lined up in any of them."""
        for adoption in self._adoptions.values():
            adoption.when_found(call)

    def gangs(self) -> Sequence[FoundGang]:
        """All gangs of which pods wait to be bound and that no run of a job has taken."""
        return [
            gang_of_cluster(gang, cluster) for cluster, adoption in self._adoptions.items() for gang in adoption.gangs()
        ]

    def entrust(self, jobs: Mapping[str, GangKey]) -> None:
        """From now on these jobs stand for these gangs."""
        by_cluster: defaultdict[str, dict[str, GangKey]] = defaultdict(dict)
        for job, key in jobs.items():
            by_cluster[key.cluster][job] = key_in_cluster(key)
        for cluster, own in by_cluster.items():
            self._adoptions[cluster].entrust(own)

    def withdraw(self, job: str) -> None:
        """A job stands for nothing any more, wherever it did."""
        for adoption in self._adoptions.values():
            adoption.withdraw(job)

    def answer(self, key: GangKey, text: str) -> None:
        """Why the pods of a gang wait."""
        self._adoptions[key.cluster].answer(key_in_cluster(key), text)
