"""Several engines as one: each drives the nodes of one cluster, and a run of a job lies within one of these.

Nodes carry the name of their cluster as a label, and before that of their zone, so that zones and racks lie within
clusters. Names of nodes are the server's: of two nodes with one name, the one of the cluster that had it first counts.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Final

from millpond.engines.clusters.routed_access import RoutedAccess
from millpond.engines.clusters.routed_adoption import RoutedAdoption
from millpond.engines.clusters.run_places import SPANS, RunPlaces
from millpond.engines.kubernetes.adoption.gangs import Adoption
from millpond.engines.server_engine import ServerEngine
from millpond.model.decisions import Decision, Start
from millpond.model.engine import Inventory
from millpond.model.events import (
    CardLayoutChanged,
    DeviceHealthChanged,
    DeviceReported,
    Event,
    NodeContents,
    NodeJoined,
    NodeLost,
    Noted,
    Refused,
)
from millpond.model.hardware.nodes import CLUSTER_LABEL, Node
from millpond.model.hardware.telemetry import SliceReading
from millpond.node.task.records import RunRecord, TaskId

log = logging.getLogger(__name__)


def node_of_cluster(node: Node, cluster: str) -> Node:
    """A node as the core knows it; one that says already which cluster it is in is left as it is."""
    if node.cluster:
        return node
    labels = tuple(sorted((*node.labels, (CLUSTER_LABEL, cluster))))
    return replace(node, labels=labels, zone_name=f"{cluster}/{node.zone_name}" if node.zone_name else cluster)


class EngineRouter:
    """Hands each decision to the engine of its nodes, and reports what all of them do.

    Args:
        engines: by the names of their clusters.
        wake: called when there are events that are no engine's.
        adoptions: what those tell of pods of others that have any.

    Attributes:
        access: the ways into tasks, wherever they run.
        adoption: the pods of others, in whichever cluster.
    """

    def __init__(
        self,
        engines: Mapping[str, ServerEngine],
        wake: Callable[[], None],
        adoptions: Mapping[str, Adoption] = MappingProxyType({}),
    ) -> None:
        self._engines: Final = dict(engines)
        self.adoption = RoutedAdoption(adoptions)
        self._wake = wake
        self._places = RunPlaces()
        self._present: set[str] = set()
        self._hidden: dict[str, dict[str, Node]] = defaultdict(dict)
        """By name, nodes of other clusters that are called as one that is present; by cluster."""
        self._hidden_health: dict[tuple[str, str], dict[str, DeviceHealthChanged]] = defaultdict(dict)
        """What was last said of each device of such a node, by the names of node and cluster."""
        self._said: list[Event] = []
        self.access = RoutedAccess(
            lambda job: None if (cluster := self._places.cluster_of(job)) is None else self._engines[cluster].access
        )

    # ---- what the core asks ---------------------------------------------------------------------------------------

    def inventory(self) -> Inventory:
        """All nodes, and everything that runs on them."""
        found = {cluster: engine.inventory() for cluster, engine in self._engines.items()}
        nodes = [
            joined
            for cluster, inventory in found.items()
            for node in inventory.nodes
            if (joined := self._joined(cluster, node)) is not None
        ]
        tasks = [
            task for cluster, inventory in found.items() for task in inventory.tasks if self._is_of(cluster, task.node)
        ]
        return Inventory(tuple(nodes), tuple(tasks))

    def adopt(self, expected: Mapping[TaskId, str], unanswered: Sequence[Decision]) -> None:
        """Have each engine go on with what it has; all of them begin."""
        tasks: defaultdict[str, dict[TaskId, str]] = defaultdict(dict)
        for task, node in expected.items():
            tasks[self._places.cluster_of_node[node]][task] = node
        self._places.adopt(expected, ())
        decisions = self._by_cluster(unanswered)
        for cluster, engine in self._engines.items():
            engine.adopt(tasks[cluster], decisions[cluster])

    def apply(self, decisions: Sequence[Decision]) -> None:
        """Take decisions on."""
        for cluster, own in self._by_cluster(decisions).items():
            now, text = time.time(), f"goes to cluster {cluster}, which has room for it"
            starts = (each for each in own if isinstance(each, Start) and not each.joins)
            self._said += (Noted(now, start.job, text) for start in starts)
            self._engines[cluster].apply(own)

    def _by_cluster(self, decisions: Sequence[Decision]) -> defaultdict[str, list[Decision]]:
        found: defaultdict[str, list[Decision]] = defaultdict(list)
        for decision in decisions:
            cluster = self._places.route(decision)
            if cluster is None and isinstance(decision, Start):
                self._said.append(Refused(time.time(), decision.id, SPANS))
                self._wake()
            else:  # where nothing of the job is left anywhere, whichever engine is asked says so
                found[cluster or next(iter(self._engines))].append(decision)
        return found

    def events(self) -> list[Event]:
        """Everything that happened since the last call; of each cluster in its order."""
        said, self._said = self._said, []
        found = [*said, *chain.from_iterable(self._events_of(cluster) for cluster in self._engines)]
        self._places.note(found)
        return found

    def _events_of(self, cluster: str) -> Iterator[Event]:
        for event in self._engines[cluster].events():
            match event:
                case NodeJoined():
                    node = self._joined(cluster, event.node)
                    if node is not None:
                        yield replace(event, node=node)
                case NodeLost() if self._is_of(cluster, event.node):
                    yield event
                    yield from self._uncovered(event)
                case NodeLost():
                    self._hidden[event.node].pop(cluster, None)
                    self._hidden_health.pop((event.node, cluster), None)
                case DeviceHealthChanged() if cluster in self._hidden.get(event.node, ()):
                    self._hidden_health[event.node, cluster][event.device] = event
                case DeviceHealthChanged() | DeviceReported() | CardLayoutChanged() | NodeContents():
                    if self._is_of(cluster, event.node):
                        yield event
                case _:
                    yield event

    # ---- nodes ----------------------------------------------------------------------------------------------------

    def _is_of(self, cluster: str, node: str) -> bool:
        return node in self._present and self._places.cluster_of_node[node] == cluster

    def _joined(self, cluster: str, node: Node) -> Node | None:
        """A node that has come or changed, as the core should know it; None: it should not."""
        name = node.name
        if name in self._present and not self._is_of(cluster, name):
            if cluster not in self._hidden[name]:
                log.error(
                    "node %s of cluster %s gets no work, as cluster %s has a node of that name: rename one of the two",
                    name,
                    cluster,
                    self._places.cluster_of_node[name],
                )
            self._hidden[name][cluster] = node
            return None
        self._present.add(name)
        self._places.cluster_of_node[name] = cluster
        return node_of_cluster(node, cluster)

    def _uncovered(self, lost: NodeLost) -> Iterator[Event]:
        """A node of that name in another cluster counts from now on."""
        self._present.discard(lost.node)
        for cluster, node in self._hidden.pop(lost.node, {}).items():
            joined = self._joined(cluster, node)
            if joined is not None:
                yield NodeJoined(lost.at, joined)
                changes = self._hidden_health.pop((lost.node, cluster), {}).values()
                yield from (replace(change, at=lost.at) for change in changes)

    def notes(self) -> tuple[str, ...]:
        """Which nodes get no work, and why, for the user."""
        return tuple(
            f"warning: node {name} of cluster {cluster} gets no work, as cluster {self._places.cluster_of_node[name]} "
            "has a node of that name"
            for name, nodes in sorted(self._hidden.items())
            for cluster in nodes
        )

    # ---- what else a server asks ------------------------------------------------------------------------------------

    @property
    def running(self) -> tuple[RunRecord, ...]:
        """The tasks that run on this machine."""
        return tuple(chain.from_iterable(engine.running for engine in self._engines.values()))

    def slice_readings(self) -> Iterable[SliceReading]:
        """What tasks make of their parts of devices, as far as that is counted."""
        return list(chain.from_iterable(engine.slice_readings() for engine in self._engines.values()))

    def card_loads(self) -> Mapping[str, int]:
        """The mean use of cards of other machines as measured there, in milli, by UUID."""
        return {uuid: milli for engine in self._engines.values() for uuid, milli in engine.card_loads().items()}

    def why_nothing_is_shared(self, pool: str = "") -> str:
        """Why slices of a pool, or any, are refused in all clusters; empty where one gives them."""
        reasons = [engine.why_nothing_is_shared(pool) for engine in self._engines.values()]
        return reasons[0] if all(reasons) else ""

    def why_nothing_is_halted(self) -> str:
        """Why jobs are not halted in one of the clusters; empty where all do that."""
        return next(filter(None, (engine.why_nothing_is_halted() for engine in self._engines.values())), "")

    def why_no_card_is_closed(self) -> str:
        """Why single cards are not closed in one of the clusters; empty where all do that."""
        return next(filter(None, (engine.why_no_card_is_closed() for engine in self._engines.values())), "")

    def close(self) -> None:
        """End all engines. What runs goes on."""
        for engine in self._engines.values():
            engine.close()
