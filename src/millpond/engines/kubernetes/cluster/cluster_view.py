"""What there is in the cluster: its nodes as the core should know them, and everybody's pods on them."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millpond.engines.kubernetes.adoption.adopted_executor import AdoptedExecutor
from millpond.engines.kubernetes.adoption.affinities.host_ports import host_ports, with_ports
from millpond.engines.kubernetes.adoption.affinities.neighbour_terms import PlacedPod, port_terms, terms_in
from millpond.engines.kubernetes.adoption.affinities.neighbours import Neighbours
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.claims.claim_book import ClaimBook
from millpond.engines.kubernetes.cluster.agent_report import AgentReport, is_agent, loads_of
from millpond.engines.kubernetes.cluster.api_channel import ApiChannel
from millpond.engines.kubernetes.cluster.bind_turns import BindTurns
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_lease import ClusterLease
from millpond.engines.kubernetes.cluster.cluster_nodes import (
    AGENT_DRIVER,
    DRIVER,
    POOL_LABEL,
    TAINT,
    AgentCards,
    DriverCards,
    NodeRules,
    contents_of,
    describe_node,
    is_ready,
    labels_of,
    most_pods,
    offered,
    resource_of,
    silent_s,
    with_held_cards,
    with_name,
)
from millpond.engines.kubernetes.cluster.fetch_rates import FetchRates
from millpond.engines.kubernetes.cluster.node_conditions import NodeConditions
from millpond.engines.kubernetes.cluster.objects import NodeImage, NodeObject, PodObject
from millpond.engines.kubernetes.cluster.reflector import ObjectKind, PartialCopy, Reflector
from millpond.engines.kubernetes.cluster.resource_amounts import ResourceAmounts, asked_by, total
from millpond.engines.kubernetes.loop_work import again_and_again
from millpond.engines.kubernetes.pods.pod_executor import PodExecutor
from millpond.engines.kubernetes.pods.pod_marks import TaskMark, devices_in
from millpond.engines.kubernetes.pods.slice_order import SliceOrder
from millpond.engines.kubernetes.pods.suspension_order import answers_of
from millpond.engines.outbox import Outbox
from millpond.model.hardware.nodes import Node
from millpond.node.host.periodic_worker import for_each

_UNLABELLED = f"its label {POOL_LABEL} was taken away: what runs there goes on, and nothing new starts"
_FULL = "there are as many pods as its kubelet takes: one has to end before the next can start"
_REFUSED = "the cluster does not let the server renew its lease ({}): what runs there goes on, and nothing new starts"
_CUT_OFF = "the API server of the cluster does not answer: what runs there goes on, and nothing new starts"
_BLIND = "the cluster does not tell the server of its {} ({}): what runs there goes on, and nothing new starts"
BLIND_AFTER_S = 30.0
"""A cluster that does not tell of its pods or nodes for so long, as a right is missing, is started on no more."""
LOOK_EVERY_S = 5.0
"""How often it is looked for nodes that have been silent for too long."""
LOOK_AT_LEASE_EVERY_S = 1.0
NODES = ObjectKind("/api/v1/nodes", NodeObject)
PODS = ObjectKind("/api/v1/pods", PodObject)


@dataclass(frozen=True, slots=True)
class OurPods:
    """Which pods the core knows as tasks: those that the server made, and those of others that it has bound."""

    made: PodExecutor
    adopted: AdoptedExecutor | None

    def has(self, pod: PodObject) -> bool:
        """Whether a pod is one of them."""
        return self.made.pods.has(pod) or (self.adopted is not None and self.adopted.has(pod))

    def may_become(self, pod: PodObject) -> bool:
        """Whether a pod will be one of them, for all that it says, when this server goes on with its tasks."""
        if self.made.pods.is_own(pod):
            return TaskMark.of(pod.metadata.annotations) is not None
        return self.adopted is not None and self.adopted.has_bound(pod.metadata.annotations)

    @property
    def neighbours(self) -> Neighbours | None:
        """Beside which pods nodes are; None where nobody asks for that."""
        return None if self.adopted is None else self.adopted.neighbours

    def devices_on(self, node: str) -> set[str]:
        """UUIDs of what they were given on a node."""
        return {uuid for mark in self.marks_on(node) for uuid in mark.devices}

    def nodes_of(self, job: str, attempt: int) -> list[str]:
        """Where the tasks of a run of a job are."""
        made = {each.node for each in self.made.pods.of_run(job, attempt)}
        adopted = set() if self.adopted is None else self.adopted.nodes_of(job, attempt)
        return sorted(made | adopted)

    def count_on(self, node: str) -> int:
        """How many of them are on a node."""
        return self.made.pods.count_on(node) + (0 if self.adopted is None else self.adopted.count_on(node))

    def node_lost(self, node: str) -> None:
        """The core counts what ran there as ended."""
        self.made.node_lost(node)
        if self.adopted is not None:
            self.adopted.node_lost(node)

    def marks_on(self, node: str) -> Iterator[TaskMark]:
        yield from (each.mark for each in self.made.pods.on_node(node))
        if self.adopted is not None:
            yield from (each.mark for each in self.adopted.on_node(node))


def _used_by(pod: PodObject) -> ResourceAmounts:
    """What a pod takes of its node; cards that it has by a claim are counted as that one's."""
    amounts = asked_by(pod.spec)
    return amounts if pod.status.extended_resource_claim_status is None else replace(amounts, cards={})


class ClusterView:
    """Follows nodes and pods, and reports nodes that come, change and go. Lives on the engine's loop.

    Args:
        ours: the pods that the core knows as tasks.
        api: asked how long pulls took.
        conditions: told how the cards of agents are.
        claims: what drivers publish of nodes, and who has it.
        lease: without it nothing can be started.

    Attributes:
        turns: told of every pod.
    """

    def __init__(
        self,
        channel: ApiChannel,
        rules: NodeRules,
        ours: OurPods,
        outbox: Outbox,
        api: ClusterApi,
        conditions: NodeConditions,
        claims: ClaimBook,
        lease: ClusterLease,
    ) -> None:
        self._lease, self._cut_off, self._unclaimed = lease, "", ""
        self._rules, self._conditions, self._claims = rules, conditions, claims
        self.ours, self._executor = ours, ours.made
        self.turns = BindTurns()
        self._outbox = outbox
        self._rates = FetchRates(api, outbox, self._tell_contents)
        self._nodes = Reflector(channel, NODES, self._node_changed, self._node_deleted)
        self._pods = Reflector(channel, PODS, self._pod_changed, self._pod_deleted)
        self._on_node: defaultdict[str, dict[str, PodObject]] = defaultdict(dict)
        self._reported: dict[str, Node] = {}
        self._held: dict[str, tuple[NodeImage, ...] | None] = {}
        """By node, the images that the core was told of."""
        self._agents: dict[str, AgentReport] = {}
        self._loads: Mapping[str, Mapping[str, int]] = {}
        """By node, what its agent has measured of its cards; replaced as a whole, as other threads read it."""
        self._marks: frozenset[str] | None = None
        self._silent_since: dict[str, float] = {}
        self._is_listing = True
        self._is_settled = False

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Those that are Millpond's."""
        return tuple(self._reported.values())

    @property
    def pods(self) -> Collection[PodObject]:
        """All pods of the cluster."""
        return self._pods.objects.values()

    def pod(self, namespace: str, name: str) -> PodObject | None:
        """A pod by its name."""
        return self._pods.objects.get(f"{namespace}/{name}")

    def resources(self, nodes: Iterable[str]) -> Mapping[str, str]:
        """The extended resource of each device of these nodes, by its UUID."""
        there = [self._reported[name] for name in nodes if name in self._reported]
        return {
            device.uuid: AGENT_DRIVER if device.uuid in self._claims.shared.get(node.name, ()) else resource_of(device)
            for node in there
            for device in node.devices
        }

    async def list_all(self, adopted: Sequence[PartialCopy[ScheduledPod]]) -> None:
        """Look at everything once, before anything is reported.

        Args:
            adopted: pods of others, to be kept from now on.

        Raises:
            ErrorAnswerError: the cluster refuses.
            httpx2.HTTPError: it does not answer.
        """
        self._pods.parts = adopted
        await self._pods.list_once()
        await self._nodes.list_once()
        self._is_listing = False

    def settle(self) -> None:
        """The core's tasks are known from now on."""
        self._is_settled = True
        for name in list(self._reported):
            self.recount(name)

    @property
    def marks(self) -> frozenset[str]:
        """The pseudo-labels of nodes: their taints, and the kinds of cards that they offer."""
        if self._marks is None:
            labels = {key for node in self._reported.values() for key, _ in node.labels}
            self._marks = frozenset(key for key in labels if key.startswith((TAINT, offered(""))))
        return self._marks

    def card_loads(self) -> dict[str, int]:
        """The mean use of cards by UUID, in milli, as agents have measured it; from any thread."""
        return {uuid: milli for loads in self._loads.values() for uuid, milli in loads.items()}

    def node_uids(self) -> list[str]:
        """Of all nodes of the cluster, what no other node has."""
        return [node.metadata.uid for node in self._nodes.objects.values()]

    def has_node(self, name: str) -> bool:
        """Whether there is a node of that name in the cluster."""
        return f"/{name}" in self._nodes.objects

    def places_left(self, name: str) -> float:
        """How many more pods the kubelet of a node takes, as far as its pods are known."""
        node = self._nodes.objects.get(f"/{name}")
        there = self._on_node[name].values() if name in self._on_node else ()
        others = [pod for pod in there if not pod.is_over and not self.ours.has(pod)]
        return 0 if node is None else self._places_left(node, others)

    def _places_left(self, node: NodeObject, others: Sequence[PodObject]) -> float:
        return most_pods(node) - len(others) - self.ours.count_on(node.metadata.name)

    def _is_full(self, name: str) -> bool:
        """Whether a node takes no more pods; who its pods are is looked at where all together might fill it."""
        node = self._nodes.objects.get(f"/{name}")
        may_be = node is None or most_pods(node) <= len(self._on_node[name]) + self.ours.count_on(name)
        return may_be and self.places_left(name) <= 0

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run from then on."""
        look = again_and_again(self._look_for_silence, LOOK_EVERY_S, "it is not looked for silent nodes now")
        at_lease = again_and_again(self._look_at_lease, LOOK_AT_LEASE_EVERY_S, "it is not known whether work can start")
        return [self._nodes.run(), self._pods.run(), look, at_lease]

    def recount(self, name: str) -> None:
        """Describe a node anew, if it is Millpond's; reported if that has changed."""
        node = self._nodes.objects.get(f"/{name}")
        pool = "" if node is None else self._rules.pool_of(node) or self._pool_until_empty(name)
        if node is None or not pool or self._is_lost(node):
            self._lose(name)
            return
        is_ours = self.ours.has if self._is_settled else self.ours.may_become
        there = [pod for pod in self._on_node[name].values() if not pod.is_over]
        others = [pod for pod in there if not is_ours(pod)]
        foreign, held = total(map(_used_by, others)), self.ours.devices_on(name)
        if not self._is_settled:
            held |= {uuid for pod in there if is_ours(pod) for uuid in devices_in(pod.metadata.annotations)}
        cards = self._known_cards(name, others, held)
        described = describe_node(node, pool, foreign, held, cards)
        if self._rules.extras:
            extras = (*described.extras, *self._rules.extras_of(node, foreign))
            described = replace(described, extras=tuple(sorted(extras)))
        if self._rules.tell_labels:
            neighbours = self.ours.neighbours
            beside = {} if neighbours is None else neighbours.labels_of(with_name(node))
            described = replace(described, labels=tuple(sorted((*labels_of(node, cards), *beside.items()))))
        closed = self._why_closed(node, others, cards)
        is_silent = described.is_silent or bool(self._cut_off)
        described = replace(described, schedulable=not closed, unschedulable_reason=closed, is_silent=is_silent)
        if (before := self._reported.get(name)) is not None:
            described = with_held_cards(described, before, held)
        if isinstance(cards, AgentCards) and not self._is_listing:
            self._conditions.tell(node, cards)
        if before != described:
            self._reported[name] = described
            if before is None or before.labels != described.labels:
                self._marks = None
            if not self._is_listing:
                self._outbox.joined(described)
        if self._is_settled and (name not in self._held or self._held[name] != node.status.images):
            images_before, self._held[name] = self._held.get(name), node.status.images
            if images_before is not None:
                self._note_pulls(name, images_before, node.status.images or ())
            self._tell_contents(name)

    def _tell_contents(self, name: str) -> None:
        self._outbox.holds(name, contents_of(self._held[name] or ()), self._rates.tell(name))

    def _note_pulls(self, name: str, held: Sequence[NodeImage], images: Sequence[NodeImage]) -> None:
        """What is new among the images of a node may have been pulled for a pod of ours."""
        known = {content.name for content in contents_of(held)}
        sizes = {content.name: content.bytes for content in contents_of(images) if content.name not in known}
        ours = (pod for pod in self._on_node[name].values() if self._executor.pods.is_own(pod))
        self._rates.images_came(name, sizes, ours)

    def _why_closed(self, node: NodeObject, others: Sequence[PodObject], cards: AgentCards | DriverCards | None) -> str:
        """Why nothing new may start on a node; empty when it may."""
        if self._cut_off:
            return self._cut_off
        if not self._rules.pool_of(node):
            return _UNLABELLED
        if self._unclaimed and (isinstance(cards, DriverCards) or node.metadata.name in self._claims.shared):
            return self._unclaimed
        # What is suspended on cards of an agent comes back to open nodes alone, and its pod is there.
        is_full = not isinstance(cards, AgentCards) and self._places_left(node, others) <= 0
        return self._rules.why_closed(node) or (_FULL if is_full else "")

    def _known_cards(
        self, name: str, others: Iterable[PodObject], held: Collection[str]
    ) -> AgentCards | DriverCards | None:
        """The cards of a node that are known by their UUIDs, and which of them are in the hands of others.

        Where an agent reports the cards that a driver publishes too, the agent gives them out.
        """
        report = self._agents.get(name)
        published = self._claims.cards_on(name, held if report is None else ())
        if report is None:
            return published
        orders = ((pod, SliceOrder.of(pod.metadata.annotations)) for pod in others)
        taken = {
            grant.device: f"pod {pod.metadata.namespace}/{pod.metadata.name}, which is no task of this server, has it"
            for pod, order in orders
            if order is not None
            for grant in order.grants
        }
        publishes = self._claims.publishes(name)
        if published is None:
            return AgentCards(report, taken, publishes=publishes)
        taken |= {uuid.removeprefix(f"{DRIVER}/"): why for uuid, why in published.taken.items()}
        tainted = {uuid.removeprefix(f"{DRIVER}/"): taint for uuid, taint in published.tainted.items()}
        return AgentCards(report, taken, tainted, publishes)

    def _note_agent(self, pod: PodObject) -> None:
        """What an agent said last counts until another of its node says something else, or the node is lost."""
        name, report = pod.spec.node_name, AgentReport.of(pod.metadata.annotations)
        if pod.is_over:
            return
        self._executor.suspensions.answered(name, answers_of(pod.metadata.annotations))
        if report is not None and self._agents.get(name) != report:
            self._agents[name] = report
            self._claims.shared.pop(name, None)
            if report.by_claims:
                self._claims.shared[name] = {device.uuid: device for device in report.devices}
            if not self._is_listing:
                self.recount(name)
        known = self._agents.get(name)
        own = {device.uuid for device in known.devices} if known is not None else set()
        loads = {uuid: milli for uuid, milli in loads_of(pod.metadata.annotations).items() if uuid in own}
        if loads != self._loads.get(name, {}):
            self._loads = {**self._loads, name: loads}

    def _pool_until_empty(self, name: str) -> str:
        """The pool of a node whose label was taken away, for as long as something of ours runs there."""
        return self._reported[name].pool if name in self._reported and any(self.ours.marks_on(name)) else ""

    def _is_lost(self, node: NodeObject) -> bool:
        name = node.metadata.name
        if is_ready(node):
            self._silent_since.pop(name, None)
            return False
        if name not in self._silent_since:
            before_s = silent_s(node, time.time()) if self._is_listing and self._is_unused(name) else 0.0
            self._silent_since[name] = time.monotonic() - before_s
        return time.monotonic() - self._silent_since[name] >= self._rules.timeout_s

    def _is_unused(self, name: str) -> bool:
        """Whether nothing of ours runs on a node; else what became of that is to be seen first."""
        return not any(not pod.is_over and self.ours.may_become(pod) for pod in self._on_node[name].values())

    def _lose(self, name: str) -> None:
        if name in self._loads:
            self._loads = {node: loads for node, loads in self._loads.items() if node != name}
        if self._reported.pop(name, None) is not None:
            self._held.pop(name, None)
            self._rates.forget(name)
            self._marks = None
            if not self._is_listing:
                self.ours.node_lost(name)
                self._outbox.lost(name)

    async def _look_for_silence(self) -> None:
        for_each(list(self._silent_since), self.recount)

    async def _look_at_lease(self) -> None:
        """Work is kept off nodes where it could not start, or where nobody would hear what becomes of it."""
        why = _REFUSED.format(self._lease.refused) if self._lease.refused else _CUT_OFF
        before = self._cut_off, self._unclaimed
        self._cut_off = why if self._lease.is_lost else _why_blind({"pods": self._pods, "nodes": self._nodes})
        self._unclaimed = _why_blind(self._claims.followed)
        if before != (self._cut_off, self._unclaimed):
            for_each(list(self._reported), self.recount)

    def _node_changed(self, node: NodeObject) -> None:
        if self.ours.neighbours is not None:
            self.ours.neighbours.node_known(node.metadata.name, with_name(node))
        self.recount(node.metadata.name)

    def _node_deleted(self, node: NodeObject) -> None:
        self._silent_since.pop(node.metadata.name, None)
        self._agents.pop(node.metadata.name, None)
        self._claims.shared.pop(node.metadata.name, None)
        if self.ours.neighbours is not None:
            self.ours.neighbours.node_gone(node.metadata.name)
        self._lose(node.metadata.name)

    def _pod_changed(self, pod: PodObject) -> None:
        name = pod.spec.node_name
        self.turns.seen(pod)
        if self._executor.pods.is_own(pod):
            self._executor.pod_changed(pod)
        if name and is_agent(pod):
            self._note_agent(pod)
        if name:
            key = f"{pod.metadata.namespace}/{pod.metadata.name}"
            before = self._on_node[name].get(key)
            self._on_node[name][key] = pod
            self._note_neighbour(key, pod)
            is_news = before is None or before.is_over != pod.is_over
            # Of a pod that the core knows as a task it is the executors that say when it becomes one, or no longer is.
            is_known = self._is_settled and self.ours.has(pod)
            if is_news and not self._is_listing and (not is_known or self._is_full(name)):
                self.recount(name)

    def _pod_deleted(self, pod: PodObject) -> None:
        name = pod.spec.node_name
        self.turns.seen(pod, is_gone=True)
        if self._executor.pods.is_own(pod):
            self._executor.pod_deleted(pod)
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if name and self._on_node[name].pop(key, None) is not None:
            if self.ours.neighbours is not None:
                self.ours.neighbours.pod_gone(key)
            self.recount(name)

    def _note_neighbour(self, key: str, pod: PodObject) -> None:
        neighbours, meta = self.ours.neighbours, pod.metadata
        if neighbours is None:
            return
        if pod.is_over:
            neighbours.pod_gone(key)
            return
        apart = None if pod.spec.affinity is None else pod.spec.affinity.pod_anti_affinity
        averse_to = (() if apart is None else terms_in(apart.required, meta.namespace)) + port_terms(pod.spec)
        is_leaving = meta.deletion_timestamp is not None
        labels = with_ports(meta.labels, host_ports(pod.spec))
        placed = PlacedPod(meta.namespace, labels, pod.spec.node_name, averse_to, is_leaving)
        neighbours.pod_placed(key, placed)


def _why_blind(followed: Mapping[str, Reflector[Any]]) -> str:
    """Of which of these kinds the cluster has told nothing for a while, and why, in words; empty: of none."""
    since = asyncio.get_running_loop().time() - BLIND_AFTER_S
    for kind, reflector in followed.items():
        if reflector.trouble and reflector.troubled_at < since:
            return _BLIND.format(kind, reflector.trouble)
    return ""
