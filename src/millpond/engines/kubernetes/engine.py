"""The engine for a Kubernetes cluster, as the server sees it: thread-safe, never blocking, fit to be killed."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx2
import uvloop

from millpond.engines.kubernetes.adoption.cluster_parts import ClusterParts
from millpond.engines.kubernetes.adoption.foreign_pods import AdoptionRules, ForeignPods
from millpond.engines.kubernetes.adoption.gangs import FoundGang, GangKey
from millpond.engines.kubernetes.claims.claim_book import ClaimBook
from millpond.engines.kubernetes.claims.claim_writing import ClaimWriter
from millpond.engines.kubernetes.cluster.access import api_channel
from millpond.engines.kubernetes.cluster.api_channel import PASSING, ErrorAnswerError
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_lease import ClusterLease, LeaseTimes
from millpond.engines.kubernetes.cluster.cluster_nodes import POOL_LABEL, NodeRules, is_of_agent, is_of_driver
from millpond.engines.kubernetes.cluster.cluster_view import ClusterView, OurPods
from millpond.engines.kubernetes.cluster.kubeconfig import ClusterAccess, find_config
from millpond.engines.kubernetes.cluster.node_conditions import NodeConditions
from millpond.engines.kubernetes.cluster.objects import PodObject
from millpond.engines.kubernetes.cluster.reflector import GONE
from millpond.engines.kubernetes.loop_work import LoopWork
from millpond.engines.kubernetes.pods.carried_runs import CarriedRuns
from millpond.engines.kubernetes.pods.live_pods import ClusterAccount
from millpond.engines.kubernetes.pods.log_copies import LogCopies
from millpond.engines.kubernetes.pods.pod_executor import CONFINEMENT, PodExecutor, StartSources
from millpond.engines.kubernetes.pods.pod_marks import latest_pods
from millpond.engines.kubernetes.pods.pod_suspensions import NEVER_HALTED
from millpond.engines.kubernetes.pods.pod_template import PodLaunch, PodRules
from millpond.engines.kubernetes.streams.channels import PodChannels
from millpond.engines.kubernetes.streams.pod_access import PodAccess
from millpond.engines.kubernetes.streams.pod_input import PodInputs
from millpond.engines.outbox import Outbox
from millpond.model.decisions import Decision, Stop
from millpond.model.engine import Inventory, Observed
from millpond.model.errors import UnavailableError
from millpond.model.events import Event
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.telemetry import SliceReading
from millpond.model.sharing import GPU_SLICES
from millpond.node.task.records import RunRecord, TaskId

R = TypeVar("R")
READY_WITHIN_S: Final = 30.0
"""An API server that turns requests away, or is late with its answers, is waited for so long; one that answers, for as
long as a list takes."""
ANSWER_WITHIN_S: Final = 35.0
LIST_AGAIN_S: Final = 0.5
_LISTED_AGAIN: Final = PASSING | {GONE}
KUBELET_CHOOSES: Final = "which cards of a node a pod gets, its kubelet and device plugin choose, not Millpond"
NO_SLICES: Final = "no node of the cluster has an agent that gives out parts of cards (docs/kubernetes/cards.md)"


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """Settings of the engine.

    Attributes:
        wake: called from the engine's thread whenever there are new events; must return at once.
        nodes: which nodes of the cluster are Millpond's.
        node_timeout_s: a node whose kubelet has been silent for so long is lost, with what ran on it.
        servers: identities of the servers whose pods are its own; what it starts carries the first.
        service_account, pull_secrets: of all pods.
        adopts: which pods of others are adopted; None: none are.
        access_key_of: what a job's programs may ask of those who connect to them.
        runs: hears which tasks have pods.
        lease: by which one process at a time changes the cluster.
    """

    wake: Callable[[], None] = field(default=lambda: None)
    nodes: NodeRules = NodeRules()
    node_timeout_s: float = 60.0
    servers: Sequence[str] = ("",)
    service_account: str = ""
    pull_secrets: tuple[str, ...] = ()
    adopts: AdoptionRules | None = None
    access_key_of: Callable[[str], str] = field(default=lambda job: "")
    runs: CarriedRuns = field(default_factory=CarriedRuns)
    lease: LeaseTimes = LeaseTimes()


class KubernetesEngine:
    """Carries decisions out as pods (``model.engine.Engine``).

    Pods do not depend on it: when it is closed, or its process killed, they go on, and the next engine finds them by
    their labels.

    Args:
        state_dir: where the output of pods is copied to.
        launch_of: how a job's tasks are made into pods; called on threads of the engine.

    Attributes:
        access: the ways into its tasks.

    Raises:
        UnavailableError: the cluster cannot be reached, or refuses to be looked at.
    """

    def __init__(
        self, access: ClusterAccess, state_dir: Path, launch_of: Callable[[str], PodLaunch], options: KubernetesOptions
    ) -> None:
        self._config = find_config(access)
        self.namespace = access.namespace or self._config.namespace
        self.address = self._config.cluster.server
        self._outbox = Outbox(options.wake, "Kubernetes")
        self._options = options
        self._state_dir = state_dir.resolve()
        self._launch_of = launch_of
        self._work = LoopWork(self._outbox)
        self._is_adopted = False
        self._hanging_up = contextlib.AsyncExitStack()
        self._loop = uvloop.new_event_loop()
        self._loop.set_exception_handler(self._failed)
        self._thread = threading.Thread(target=self._loop.run_forever, name="kubernetes-engine", daemon=True)
        self._thread.start()
        try:
            self._ask(self._begin(), None)
        except BaseException:
            self.close()
            raise

    async def _begin(self) -> None:
        channel = api_channel(self._config, 0)
        self._hanging_up.push_async_callback(channel.aclose)
        rules = PodRules(
            self.namespace,
            self._options.servers[0],
            self._options.service_account,
            self._options.pull_secrets,
            self._options.nodes.tolerated,
        )
        self._lease = ClusterLease(channel, self.namespace, self._options.servers[0], self._options.lease)

        def tell(pod: str, text: str) -> None:
            self._executor.tell(pod, text)

        api = ClusterApi(channel, self.namespace, self._lease.held, tell)
        logs = LogCopies(channel, self.namespace, tell)
        channels = PodChannels(channel, self.namespace)
        servers = frozenset(self._options.servers)
        self._claims = ClaimWriter(api, ClaimBook(channel, lambda node: self._view.recount(node)))
        account = ClusterAccount(
            api,
            logs,
            PodInputs(channels, tell),
            rules,
            self._state_dir,
            servers,
            self._claims.book.let_go,
            self._options.runs,
        )
        sources = StartSources(
            self._launch_of,
            lambda nodes: self._view.resources(nodes),
            lambda name: self._view.pod(self.namespace, name),
            lambda: self._view.turns,
            self._claims,
            lambda node: self._view.places_left(node),
        )
        self.access = self._ways_in(channels, sources, tell)
        self._executor = PodExecutor(account, sources, self._outbox, lambda node: self._view.recount(node))
        self._foreign = self._foreign_pods(api)
        self._view = ClusterView(
            channel,
            replace(self._options.nodes, tell_labels=self._foreign is not None, timeout_s=self._options.node_timeout_s),
            OurPods(self._executor, None if self._foreign is None else self._foreign.adopted),
            self._outbox,
            api,
            NodeConditions(api, self._outbox),
            self._claims.book,
            self._lease,
        )
        try:
            await self._list_all()
        except (httpx2.HTTPError, ErrorAnswerError, OSError) as error:
            raise _unreachable(self.address, error) from error

    def _ways_in(self, channels: PodChannels, sources: StartSources, tell: Callable[[str, str], None]) -> PodAccess:
        def name_of(task: TaskId) -> str:
            return self._executor.pods.name_of(task)

        key_of = self._options.access_key_of
        return PodAccess(self._loop, channels, sources.find, name_of, key_of, tell, self._foreign_pod)

    async def _list_all(self) -> None:
        """Look at the cluster once; a server of its API that is not ready yet, or has too much to do, is waited for."""
        give_up_at = math.inf
        while True:
            try:
                await self._lease.require_right()
                await self._claims.book.list_all()
                await self._view.list_all(() if self._foreign is None else self._foreign.copies)
                return
            except (ErrorAnswerError, httpx2.TimeoutException) as error:
                give_up_at = min(give_up_at, self._loop.time() + READY_WITHIN_S)
                is_final = isinstance(error, ErrorAnswerError) and error.status_code not in _LISTED_AGAIN
                if is_final or self._loop.time() >= give_up_at:
                    raise
            await asyncio.sleep(LIST_AGAIN_S)

    def _foreign_pod(self, task: TaskId) -> str:
        """The namespace and name of the pod of others that a task is; empty where it is none."""
        return "" if self._foreign is None else self._foreign.adopted.pod_of(task)

    def _foreign_pods(self, api: ClusterApi) -> ForeignPods | None:
        if self._options.adopts is None:
            return None
        around = ClusterParts(
            api,
            self._outbox,
            self._state_dir,
            lambda name: self._view.has_node(name),
            lambda name: self._view.places_left(name),
            lambda: self._view.marks,
            lambda node: self._view.recount(node),
            lambda: self._view.turns,
            self._claims,
        )
        return ForeignPods(around, self._options.adopts, self._options.servers)

    def apply(self, decisions: Sequence[Decision]) -> None:
        """Take decisions on, in the order of their ids. Returns at once; one that was applied before is let be."""
        for decision in decisions:
            self._loop.call_soon_threadsafe(self._carry_out, decision)

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, Stop) and self._is_foreign(decision.for_job):
            assert self._foreign is not None
            leaves = self._view.ours.nodes_of(decision.job, decision.attempt)
            self._foreign.adopted.make_room(decision.for_job, leaves)
        if self._is_foreign(decision.job):
            assert self._foreign is not None
            self._foreign.adopted.carry_out(decision)
        else:
            self._executor.carry_out(decision)

    def _is_foreign(self, job: str) -> bool:
        """Whether a job stands for pods of others."""
        return self._foreign is not None and self._foreign.adopted.owns(job)

    def adopt(self, expected: Iterable[TaskId], unanswered: Sequence[Decision]) -> None:
        """Go on where an earlier engine stopped. To be called once, before the first ``apply``. Returns at once.

        Args:
            expected: tasks that hold something by the core's account; those that are over are reported, each once.
            unanswered: decisions that were neither confirmed nor refused, in their order; what an earlier engine did
                of them is found, not done again.
        """
        self._loop.call_soon_threadsafe(self._adopt, frozenset(expected), tuple(unanswered))

    def _adopt(self, expected: frozenset[TaskId], unanswered: tuple[Decision, ...]) -> None:
        own = frozenset(task for task in expected if not self._is_foreign(task.job))
        self._executor.adopt(own, [each for each in unanswered if not self._is_foreign(each.job)], self._view.pods)
        work = self._claims.book.work() + self._view.work()
        if self._foreign is not None:
            others = [each for each in unanswered if self._is_foreign(each.job)]
            self._foreign.adopted.adopt(expected - own, others, self._foreign.pods)
            work += self._foreign.work()
        self._is_adopted = True
        self._work.begin(self._lease.keep())
        self._loop.call_soon(self._view.settle)  # behind the first look of starts, which finds what they have bound
        for each in work:
            self._work.begin(each)

    def events(self) -> list[Event]:
        """Everything that happened since the last call, oldest first. Does not block.

        Raises:
            InconsistentStateError: the engine failed by a defect of its own.
            LeadershipLostError: another server has the lease and goes on with the jobs.
        """
        return self._outbox.drain()

    def inventory(self) -> Inventory:
        """The nodes that are Millpond's, and every pod of its own that has not ended."""
        return self._ask(self._look())

    async def _look(self) -> Inventory:
        latest, _ = latest_pods(self._own_pods())
        observed = tuple(
            Observed(mark.job, mark.attempt, mark.task, pod.spec.node_name, CONFINEMENT)
            for pod, mark in latest.values()
            if not pod.is_over
        )
        return Inventory(self._view.nodes, observed)

    def _own_pods(self) -> list[PodObject]:
        return [pod for pod in self._view.pods if self._executor.pods.is_own(pod)]

    # ---- pods of others (``adoption.gangs.Adoption``) -------------------------------------------------------------

    def when_found(self, call: Callable[[], None]) -> None:
        """Have a function called when there is a gang to be lined up; it must return at once."""
        self._with_foreign(lambda foreign: foreign.when_found(call))

    def gangs(self) -> Sequence[FoundGang]:
        """All gangs of which pods wait to be bound and that no run of a job has taken."""
        return self._ask(self._find_gangs())

    async def _find_gangs(self) -> Sequence[FoundGang]:
        return () if self._foreign is None else self._foreign.gangs()

    def entrust(self, jobs: Mapping[str, GangKey]) -> None:
        """From now on these jobs stand for these gangs; said before the scheduler has them."""
        self._with_foreign(lambda foreign: foreign.adopted.entrust(jobs))

    def withdraw(self, job: str) -> None:
        """A job stands for nothing any more."""
        self._with_foreign(lambda foreign: foreign.adopted.withdraw(job))

    def answer(self, key: GangKey, text: str) -> None:
        """Why the pods of a gang wait."""
        self._with_foreign(lambda foreign: foreign.answer(key, text))

    def _with_foreign(self, act: Callable[[ForeignPods], None]) -> None:
        if self._foreign is not None:
            self._loop.call_soon_threadsafe(act, self._foreign)

    @property
    def running(self) -> tuple[RunRecord, ...]:
        """The tasks that run on this machine: none do."""
        return ()

    def slice_readings(self) -> tuple[SliceReading, ...]:
        """What tasks make of their parts of devices: none has such a part."""
        return ()

    def card_loads(self) -> Mapping[str, int]:
        """The mean use of cards, in milli, by UUID, as the agents of their nodes have measured it."""
        return self._view.card_loads()

    def why_nothing_is_shared(self, pool: str = "") -> str:
        """Why slices are refused in a pool, or here; empty where a node has an agent."""
        nodes = (node for node in self._nodes() if pool in ("", node.pool))
        return "" if any(GPU_SLICES in dict(node.extras) for node in nodes) else NO_SLICES

    def why_nothing_is_halted(self) -> str:
        """Why jobs are neither halted nor swapped; empty where a node has an agent, which does that."""
        cards = (card for node in self._nodes() for card in node.devices)
        return "" if any(is_of_agent(card.uuid) for card in cards) else NEVER_HALTED

    def why_no_card_is_closed(self) -> str:
        """Why single cards are not closed; empty where Millpond chooses all of them, and no kubelet does."""
        cards = [device for node in self._nodes() for device in node.devices]
        chosen = (is_of_agent(card.uuid) or is_of_driver(card.uuid) for card in cards)
        return "" if cards and all(chosen) else KUBELET_CHOOSES

    def identity(self) -> frozenset[str]:
        """By what another engine would know that it sees the same cluster: its address, and its nodes."""
        return frozenset((self.address.rstrip("/"), *self._ask(self._node_uids())))

    def _nodes(self) -> tuple[Node, ...]:
        """Those that are Millpond's, without a look at all pods."""
        return self._ask(self._find_nodes())

    async def _find_nodes(self) -> tuple[Node, ...]:
        return self._view.nodes

    async def _node_uids(self) -> list[str]:
        return self._view.node_uids()

    def notes(self) -> tuple[str, ...]:
        """Remarks for the user on where jobs run."""
        nodes = self._nodes()
        cards = sum(len(node.devices) for node in nodes)
        found = f"Kubernetes cluster at {self.address}: {len(nodes)} of its nodes with {cards} cards"
        if nodes:
            return (f"{found}, pods in namespace {self.namespace}",)
        return (f"{found}; label those that are Millpond's: kubectl label node NAME {POOL_LABEL}=default",)

    def close(self) -> None:
        """End the engine's thread. The pods go on."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(UnavailableError):
            self._ask(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        if self._is_adopted:
            await self._lease.settle()  # the client sends by tasks of its own, which are among the others
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._is_adopted:
            await self._lease.release()
        await self._hanging_up.aclose()

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What the loop called has raised: a decision, for one, would never be answered."""
        if "handle" in context:
            self._outbox.fail(context["exception"])
        else:
            loop.default_exception_handler(context)

    def _ask(self, work: Coroutine[Any, Any, R], within_s: float | None = ANSWER_WITHIN_S) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(within_s)


def _unreachable(address: str, error: BaseException) -> UnavailableError:
    remedy = "check the kubeconfig and the rights of its user: `pond kube check`"
    return UnavailableError(
        f"the Kubernetes cluster at {address} cannot be looked at: {error or type(error).__name__}", remedy
    )
