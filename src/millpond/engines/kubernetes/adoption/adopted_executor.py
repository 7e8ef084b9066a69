"""Binds pods that others made, follows them to their ends, and has them leave. Lives on the engine's loop.

A binding writes the task's mark and the node in one step, so that whoever looks finds both or neither: a restarted
server goes on by what the pods say, and nothing is bound twice. What is bound cannot be unbound: where a pod of a gang
was deleted, or taken by another scheduler, in that moment, the others run, and its task has ended.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millpond.engines.kubernetes.adoption.adopted_ends import verdict_on
from millpond.engines.kubernetes.adoption.affinities.gang_conflicts import conflicts
from millpond.engines.kubernetes.adoption.affinities.neighbour_terms import PlacedPod, aversions
from millpond.engines.kubernetes.adoption.affinities.neighbours import Neighbours
from millpond.engines.kubernetes.adoption.cluster_parts import ClusterParts
from millpond.engines.kubernetes.adoption.evictions import Evictions
from millpond.engines.kubernetes.adoption.gang_book import GangBook
from millpond.engines.kubernetes.adoption.gangs import GangKey
from millpond.engines.kubernetes.adoption.gated_pods import ReleasedPods
from millpond.engines.kubernetes.adoption.grouping import gang_of
from millpond.engines.kubernetes.adoption.kubelet_refusals import KubeletRefusals
from millpond.engines.kubernetes.adoption.output_notes import note_outputs
from millpond.engines.kubernetes.adoption.pod_answers import PodAnswers
from millpond.engines.kubernetes.adoption.pod_binding import DELETED, bind_pod, bound_by_others, matched
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.cluster.cluster_nodes import is_of_driver
from millpond.engines.kubernetes.cluster.objects import PodObject
from millpond.engines.kubernetes.loop_work import LoopWork, all_of
from millpond.engines.kubernetes.pods.pod_marks import SERVER_LABEL, TaskMark
from millpond.engines.kubernetes.pods.slice_order import of_agent
from millpond.engines.kubernetes.pods.task_index import TaskIndex
from millpond.engines.task_ends import EndVerdict, Refusal
from millpond.model.confinement import Confinement, LimitKind, NetworkScope
from millpond.model.decisions import CapPower, Decision, Migrate, Placement, Prefetch, Resume, Start, Stop, Suspend
from millpond.model.errors import InconsistentStateError
from millpond.model.states import Outcome
from millpond.node.task.records import TaskId

COME_WITHIN_S: Final = 30.0
"""Pods that their owner is to make again are waited for so long; then the start is put off."""
LOOK_EVERY_S: Final = 0.2
MOST_ENDED: Final = 20_000
"""So many pods are remembered beyond their end."""
CONFINED: Final = Confinement(True, LimitKind.CONTROL_GROUP, network=NetworkScope.PRIVATE)
_NOT_SUSPENDED: Final = Refusal("pods of others are neither suspended nor moved", False)
_NOT_PREFETCHED: Final = Refusal("what pods of others need is fetched when they start", False)


@dataclass(slots=True)
class TakenPod:
    """A pod that stands for a task.

    Attributes:
        stop_grace_s: what it has from its notice on; None when no decision ends it.
        is_gone: the cluster has nothing of it any more.
        is_ending: it is over, and its claims are waited for.
    """

    mark: TaskMark
    pod: ScheduledPod
    node: str
    stop_grace_s: float | None = None
    is_gone: bool = False
    is_ending: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether its program was started, or never will be."""
        return self.pod.status.phase != "Pending" or self.pod.metadata.deletion_timestamp is not None


@dataclass(slots=True)
class GangBinding:
    """A start that is not answered.

    Attributes:
        deferred: decisions about the job that came meanwhile; a start that waits for pods ends with them.
        is_binding: its pods are still being bound.
        failed: what became of tasks that could not be bound.
    """

    decision: Start
    is_binding: bool = True
    failed: dict[int, str] = field(default_factory=dict)
    deferred: list[Decision] = field(default_factory=list)


class AdoptedExecutor:
    """Carries out decisions about the jobs that stand for pods of others.

    Args:
        servers: identities of this server and of those that it replaces; a pod that it binds carries the first.

    Attributes:
        neighbours: which pods lie on which nodes, as affinities count them.
        refusals: pods that a node's kubelet has refused, which keep off it for a while.
    """

    def __init__(self, around: ClusterParts, servers: Sequence[str]) -> None:
        self._api, self._outbox, self._state_dir = around.api, around.outbox, around.state_dir
        self._servers = tuple(servers)
        self._has_node, self._changed, self._turns = around.has_node, around.changed, around.turns
        self._places_left = around.places_left
        self._claims = around.claims
        self.neighbours = Neighbours(around.changed)
        self.refusals = KubeletRefusals()
        self._taken = TaskIndex[TakenPod]()
        self._jobs: dict[str, GangKey] = {}
        self._pending: dict[str, GangBinding] = {}
        self._work = LoopWork(around.outbox)
        self._ended: dict[str, None] = {}
        """Pods that are over and were ours, by their uids, the oldest first."""
        self._latest = 0
        self._is_given_back = asyncio.Event()

    def attach(self, book: GangBook, answers: PodAnswers, evictions: Evictions) -> None:
        """Set the parts that are made with this executor and that it calls; once, before anything else."""
        self._book, self._answers, self._evictions = book, answers, evictions
        self._released = ReleasedPods(
            self._pod_at, lambda pod, why: evictions.evict(pod, 0.0, why), answers.tell, self._work.begin
        )

    # ---- queries, and which jobs stand for which gangs ------------------------------------------------------------

    def owns(self, job: str) -> bool:
        """Whether a job stands for pods of others."""
        return job in self._jobs

    def entrust(self, jobs: Mapping[str, GangKey]) -> None:
        """From now on these jobs stand for these gangs."""
        self._jobs.update(jobs)

    def withdraw(self, job: str) -> None:
        """A job stands for nothing any more."""
        self._jobs.pop(job, None)

    @property
    def waiting_jobs(self) -> dict[str, GangKey]:
        """The gangs of jobs that have no pods and are not being started."""
        with_pods = self._taken.jobs | self._pending.keys()
        return {job: key for job, key in self._jobs.items() if job not in with_pods}

    def is_taken(self, key: str) -> bool:
        """Whether a pod, by its namespace and name, stands for a task."""
        return key in self._taken.by_pod

    def has(self, pod: PodObject) -> bool:
        """Whether a pod stands for a task, or did to its end, which whoever else follows it may not have heard of."""
        return self.is_taken(f"{pod.metadata.namespace}/{pod.metadata.name}") or pod.metadata.uid in self._ended

    def has_bound(self, annotations: Mapping[str, str]) -> bool:
        """Whether a pod with these was bound by this server, or one in whose place it goes on."""
        return annotations.get(SERVER_LABEL) in self._servers and TaskMark.of(annotations) is not None

    def on_node(self, node: str) -> list[TakenPod]:
        """Those bound to a node."""
        return self._taken.on_node(node)

    def count_on(self, node: str) -> int:
        """How many are bound to a node."""
        return self._taken.count_on(node)

    def pod_of(self, task: TaskId) -> str:
        """The namespace and name of the pod that stands for a task; empty where none does."""
        return next((key for key, taken in self._taken.of_job(task.job).items() if taken.mark.id == task), "")

    def nodes_of(self, job: str, attempt: int) -> set[str]:
        """Where the tasks of a run of a job are."""
        return {taken.node for taken in self._taken.of_run(job, attempt)}

    # ---- decisions ----------------------------------------------------------------------------------------------

    def adopt(self, expected: Iterable[TaskId], unanswered: Sequence[Decision], pods: Iterable[ScheduledPod]) -> None:
        """Go on where an earlier engine stopped, by the marks of the pods.

        Args:
            expected: tasks of jobs that stand for pods of others which hold something by the core's account.
        """
        starts = [decision for decision in unanswered if isinstance(decision, Start)]
        starting = {TaskId(start.job, start.attempt, placed.task) for start in starts for placed in start.placements}
        pods, gangs = list(pods), {self._jobs[start.job] for start in starts}
        self._work.begin(self._give_back(pod for pod in pods if pod.waits and gang_of(pod) not in gangs))
        found = {mark.id: (pod, mark) for pod in pods if (mark := self._mark_of(pod)) is not None}
        for task in expected:
            if task in starting:
                continue
            if task in found:
                pod, mark = found[task]
                self._take_again(TakenPod(mark, pod, pod.node))
                self.pod_changed(pod)
            else:
                self._outbox.ended(task, EndVerdict(Outcome.NODE_LOST, None, "the cluster has no pod of it"))
        for decision in unanswered:
            self.carry_out(decision)

    async def _give_back(self, waiting: Iterable[ScheduledPod]) -> None:
        """What starts that are over have left to pods; a new start would find it there, and lose it when bound."""
        await all_of([self._claims.give_back(pod) for pod in waiting if self._claims.has_any(pod)])
        self._is_given_back.set()

    def carry_out(self, decision: Decision) -> None:
        """Do what the core decided about a job that stands for pods of others; what was done is let be."""
        if decision.id > self._latest:
            self._latest = decision.id
            self._dispatch(decision)

    def _dispatch(self, decision: Decision) -> None:
        pending = self._pending.get(decision.job)
        if pending is not None:
            pending.deferred.append(decision)
            self._look_at(pending)
            return
        match decision:
            case Start():
                self._pending[decision.job] = pending = GangBinding(decision)
                self._work.begin(self._bind_all(pending))
            case Stop():
                self._stop(decision)
            case Suspend() | Resume() | Migrate() | CapPower():
                self._outbox.refuse(decision, _NOT_SUSPENDED)
            case Prefetch():
                self._outbox.refuse(decision, _NOT_PREFETCHED)
            case _:
                raise InconsistentStateError(f"no way to carry out a {type(decision).__name__}")

    def make_room(self, job: str, nodes: Sequence[str]) -> None:
        """Work leaves these nodes for a job: its pods that wait say so."""
        if (key := self._jobs.get(job)) is not None and nodes:
            for pod, node in zip(self._book.waiting(key), itertools.cycle(nodes), strict=False):
                self._work.begin(self._answers.nominate(pod, node))

    def _stop(self, decision: Stop) -> None:
        run = [taken for taken in self._taken.of_run(decision.job, decision.attempt) if not taken.pod.is_over]
        chosen = [taken for taken in run if not decision.tasks or taken.mark.task in decision.tasks]
        for taken in chosen:
            taken.stop_grace_s = decision.grace_s
        self._outbox.confirm(decision)
        self._work.begin(self._end(chosen, decision, is_whole=len(chosen) == len(run)))

    async def _end(self, chosen: Sequence[TakenPod], decision: Stop, *, is_whole: bool) -> None:
        why = f"{decision.cause.value}{f', for job {decision.for_job}' if decision.for_job else ''}"
        key = self._jobs.get(decision.job)
        left = [taken for taken in chosen if taken.pod.metadata.deletion_timestamp is None]
        if left and is_whole and key is not None and await self._evictions.pause(key, decision.job):
            await all_of(self._answers.mark_disrupted(taken.pod, why) for taken in left)
            return
        await all_of(self._evictions.evict(taken.pod, decision.grace_s, why) for taken in left)

    # ---- starts -------------------------------------------------------------------------------------------------

    async def _bind_all(self, pending: GangBinding) -> None:
        decision = pending.decision
        key = self._jobs[decision.job]
        bound = self._bound_before(pending)
        open_ = [placed for placed in decision.placements if placed.task not in bound]
        gone = sorted({placed.node for placed in open_ if not self._has_node(placed.node)})
        if gone and not bound:
            self._refuse(pending, Refusal(f"node {gone[0]} is gone", True))
            return
        chosen = await self._pods_for(key, pending, open_)
        if chosen is None and not bound:
            words = f"the pods of {key.text} are not there: its owner has not made them"
            self._refuse(pending, Refusal(words, True))
            return
        if chosen is None:
            pending.failed |= {placed.task: "its pod is gone" for placed in open_}
        found = conflicts(self.neighbours, [(pod, placed.node) for pod, placed in chosen or ()])
        found = self._too_many([placed.node for _, placed in chosen or ()], found)
        apart = {placed.task: text for (_, placed), text in zip(chosen or (), found, strict=True) if text}
        if apart and not bound:
            self._refuse(pending, Refusal(next(iter(apart.values())), True))
            return
        pending.failed |= apart
        # All are taken before the first is waited for: whoever binds next sees what lies beside what.
        taken = [(self._taken_for(decision, *each), each[1]) for each in chosen or () if each[1].task not in apart]
        await all_of(self._bind(pending, *each) for each in taken)
        pending.is_binding = False
        if pending.failed and not self._taken.of_run(decision.job, decision.attempt):
            why = next(iter(pending.failed.values()))
            if all(text.endswith(DELETED) for text in pending.failed.values()):
                self._outbox.ask_to_stop(decision.job, why)  # its end, and no failure
            self._refuse(pending, Refusal(why, True))
            return
        self._look_at(pending)
        await self._answers.scheduled(key)

    def _too_many(self, nodes: Sequence[str], found: Sequence[str]) -> list[str]:
        """For each pod why it must not be bound to its node, also where the kubelet takes no more.

        Args:
            found: what else keeps it off.
        """
        left = {node: self._places_left(node) for node in nodes}
        told = []
        for node, text in zip(nodes, found, strict=True):
            left[node] -= not text
            told.append(text or (f"node {node} has as many pods as its kubelet takes" if left[node] < 0 else ""))
        return told

    def _bound_before(self, pending: GangBinding) -> set[int]:
        """Tasks of a start whose pods an earlier engine has bound."""
        decision = pending.decision
        nodes = {placed.task: placed.node for placed in decision.placements}
        found = set()
        for pod in list(self._book.pods_of(self._jobs[decision.job])):
            mark = self._mark_of(pod)
            if mark is not None and (mark.job, mark.attempt) == (decision.job, decision.attempt) and mark.task in nodes:
                self._take_again(TakenPod(mark, pod, nodes[mark.task]))
                self.pod_changed(pod)
                found.add(mark.task)
        return found

    async def _pods_for(
        self, key: GangKey, pending: GangBinding, placements: Sequence[Placement]
    ) -> list[tuple[ScheduledPod, Placement]] | None:
        """A pod for each of these, by their roles; None where there are too few.

        It is waited for those of an owner that Millpond has paused, and that makes them now; meanwhile their room is
        kept for them.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + COME_WITHIN_S
        comes = False
        while True:
            chosen = matched(self._book.waiting_by_role(key), placements)
            if chosen is not None:
                return chosen
            if pending.deferred or loop.time() >= give_up_at:
                return None
            if not comes and not (comes := await self._evictions.resume(key, pending.decision.job)):
                return None
            await asyncio.sleep(LOOK_EVERY_S)

    def _taken_for(self, decision: Start, pod: ScheduledPod, placed: Placement) -> TakenPod:
        devices = tuple(grant.device for grant in placed.grants)
        mark = TaskMark(decision.job, decision.attempt, placed.task, decision.id, placed.role, devices)
        taken = TakenPod(mark, pod, placed.node)
        self._take(taken)
        return taken

    async def _bind(self, pending: GangBinding, taken: TakenPod, placed: Placement) -> None:
        pod = taken.pod
        if self._claims.has_any(pod):
            await self._is_given_back.wait()
        trouble = await self._claims.take(pod, placed) or await self._bind_pod(pod, taken.mark, placed)
        if trouble:
            await self._claims.give_back(pod)
            self._drop(pod.key)
            pending.failed[taken.mark.task] = trouble
            await self._answers.tell(pod, "FailedBinding", trouble)
        elif pod.spec.scheduling_gates:
            self._released.follow(pod, placed.node)

    async def _bind_pod(self, pod: ScheduledPod, mark: TaskMark, placed: Placement) -> str:
        claims = self._claims if self._claims.has_any(pod) or self._claims.gives(placed) else None
        binding = bind_pod(self._api, pod, mark, placed, self._servers[0], claims)
        if of_agent(placed.grants) and not self._claims.gives(placed):
            binding = self._turns().bind(placed.node, pod.key, binding)
        return await binding

    def _look_at(self, pending: GangBinding) -> None:
        """Answer a start if all its pods have begun, or somebody wants it to end."""
        job = pending.decision.job
        if pending.is_binding or self._pending.get(job) is not pending:
            return
        run = self._taken.of_run(job, pending.decision.attempt)
        if not all(taken.has_begun for taken in run) and not pending.deferred:
            return
        del self._pending[job]
        self._outbox.confirm(pending.decision, CONFINED)
        self._work.begin(
            asyncio.to_thread(note_outputs, self._state_dir, [(each.mark.id, each.pod.key) for each in run])
        )
        attempt = pending.decision.attempt
        for task, text in pending.failed.items():
            self._outbox.ended(TaskId(job, attempt, task), EndVerdict(Outcome.NODE_LOST, None, text))
        for taken in run:
            self._look_for_end(taken)
        for decision in pending.deferred:
            self._dispatch(decision)

    def _refuse(self, pending: GangBinding, refusal: Refusal) -> None:
        del self._pending[pending.decision.job]
        self._outbox.refuse(pending.decision, refusal)
        for decision in pending.deferred:
            self._dispatch(decision)

    # ---- what happens to pods -----------------------------------------------------------------------------------

    def pod_changed(self, pod: ScheduledPod) -> None:
        """A pod of others is there, or has changed."""
        if (taken := self._renewed(pod)) is None:
            return
        if pod.spec.node_name in ("", taken.node):
            self._followed(taken)
        else:
            self._leave_to_others(taken)

    def pod_deleted(self, pod: ScheduledPod) -> None:
        """A pod of others is gone."""
        if (taken := self._renewed(pod)) is None:
            return
        if pod.metadata.deletion_timestamp is None:
            pod.metadata.deletion_timestamp = "now"
        taken.is_gone = True
        pending = self._pending.get(taken.mark.job)
        if pending is not None and pending.is_binding:
            return  # what became of its binding is looked at first
        if pending is not None:
            pending.failed[taken.mark.task] = "its pod was deleted before it ran"
            self._drop(pod.key)
            self._look_at(pending)
            return
        self._look_for_end(taken)

    def node_lost(self, node: str) -> None:
        """The core counts what ran there as ended; Kubernetes clears the pods away."""
        for taken in list(self.on_node(node)):
            self._drop(taken.pod.key)
            text = f"node {node} was lost, or deleted, while the pod was bound to it; Kubernetes removes the pod"
            self._work.begin(self._answers.tell(taken.pod, "NodeLost", text))
            pending = self._pending.get(taken.mark.job)
            if pending is not None:
                self._look_at(pending)

    def _renewed(self, pod: ScheduledPod) -> TakenPod | None:
        """What stands for a task, as it is now; None of a pod that does not."""
        taken = self._taken.by_pod.get(pod.key)
        if taken is None or taken.pod.metadata.uid != pod.metadata.uid:
            return None
        taken.pod = pod
        return taken

    def _leave_to_others(self, taken: TakenPod) -> None:
        """A pod is bound to another node than it was given: what it has there counts as that of any foreign pod.

        Whether the answer to its binding has come yet, does not matter.
        """
        pod, pending, text = taken.pod, self._pending.get(taken.mark.job), bound_by_others(taken.pod)
        self._drop(pod.key)
        self._changed(pod.spec.node_name)
        self._work.begin(self._answers.tell(pod, "FailedBinding", text))
        if pending is None:
            self._outbox.ended(taken.mark.id, EndVerdict(Outcome.NODE_LOST, None, text))
        elif pending.is_binding or self._taken.of_run(taken.mark.job, taken.mark.attempt):
            pending.failed[taken.mark.task] = text
            self._look_at(pending)
        else:
            self._refuse(pending, Refusal(text, True))

    def _followed(self, taken: TakenPod) -> None:
        pending = self._pending.get(taken.mark.job)
        if pending is not None:
            self._look_at(pending)
        else:
            self._look_for_end(taken)

    def _look_for_end(self, taken: TakenPod) -> None:
        is_over = taken.pod.is_over and not taken.is_gone
        if not is_over and taken.pod.metadata.deletion_timestamp is not None:
            self._ask_for_end(taken)
        if is_over or taken.is_gone:
            self._finish(taken)

    def _ask_for_end(self, taken: TakenPod) -> None:
        """Where somebody deletes all pods of a job, that is its end, and no failure."""
        run = self._taken.of_run(taken.mark.job, taken.mark.attempt)
        if taken.stop_grace_s is None and all(each.pod.metadata.deletion_timestamp for each in run):
            for each in run:
                each.stop_grace_s = 0.0
            self._outbox.ask_to_stop(taken.mark.job, "its pods were deleted in Kubernetes")

    def _finish(self, taken: TakenPod) -> None:
        if not any(map(is_of_driver, taken.mark.devices)):
            self._report(taken)
        elif not taken.is_ending:
            taken.is_ending = True
            self._work.begin(self._finish_freed(taken))

    async def _finish_freed(self, taken: TakenPod) -> None:
        """Report the end once the cluster has freed the task's cards: until then no other job can have them."""
        await self._claims.book.let_go(taken.mark.devices)
        if self._taken.by_pod.get(taken.pod.key) is taken:  # its node may have been lost meanwhile
            self._report(taken)

    def _report(self, taken: TakenPod) -> None:
        self._ended[taken.pod.metadata.uid] = None
        if len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._drop(taken.pod.key)
        self.refusals.note(taken.pod)
        self._outbox.ended(taken.mark.id, verdict_on(taken.pod, taken.stop_grace_s))

    # ---- inside -------------------------------------------------------------------------------------------------

    def _take(self, taken: TakenPod) -> None:
        pod = taken.pod
        self._taken.put(pod.key, taken)
        meta = pod.metadata
        self.neighbours.pod_placed(pod.key, PlacedPod(meta.namespace, pod.labels, taken.node, aversions(pod)))
        self._book.refresh(gang_of(taken.pod))
        if taken.pod.spec.node_name:
            self._changed(taken.node)

    def _take_again(self, taken: TakenPod) -> None:
        """One that an earlier engine has bound, or released."""
        self._take(taken)
        if not taken.pod.spec.node_name:
            self._released.follow(taken.pod, taken.node)

    def _pod_at(self, key: str) -> ScheduledPod | None:
        taken = self._taken.by_pod.get(key)
        return None if taken is None else taken.pod

    def _drop(self, key: str) -> None:
        taken = self._taken.take(key)
        if taken is not None:
            self.neighbours.pod_gone(key)
            self._book.refresh(gang_of(taken.pod))
            self._changed(taken.node)

    def _mark_of(self, pod: ScheduledPod) -> TaskMark | None:
        """The mark of a pod that this server, or one in whose place it goes on, has bound.

        Users can write the marks of others' pods on their own: they count in the namespace of the job alone.
        """
        meta = pod.metadata
        mark = TaskMark.of(meta.annotations) if pod.node and self.has_bound(meta.annotations) else None
        key = None if mark is None else self._jobs.get(mark.job)
        return mark if key is not None and key.namespace == meta.namespace else None
