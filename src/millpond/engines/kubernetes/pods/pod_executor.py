"""Carries decisions out as pods. Lives on the engine's loop: one thread, and nothing here blocks.

A start makes all its pods first and binds them when the cluster has taken every one of them, so that no part of a gang
runs because another could not be made. Decisions about a job whose start is pending wait for its answer; one that ends
the job ends the start.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lightkube.models.core_v1 import Pod

from millpond.engines.kubernetes.claims.claim_api import ClaimUser
from millpond.engines.kubernetes.claims.claim_requests import ClaimTroubleError
from millpond.engines.kubernetes.claims.claim_writing import ClaimWriter
from millpond.engines.kubernetes.cluster.bind_turns import BindTurns
from millpond.engines.kubernetes.cluster.cluster_refusals import ClusterRefusedError
from millpond.engines.kubernetes.cluster.objects import PodObject
from millpond.engines.kubernetes.loop_work import all_of
from millpond.engines.kubernetes.pods.image_fetches import ImageFetches, is_fetch
from millpond.engines.kubernetes.pods.live_pods import ClusterAccount, LivePod, LivePods
from millpond.engines.kubernetes.pods.pod_marks import (
    TASK_ANNOTATION,
    UNMARKED,
    TaskMark,
    claim_name,
    latest_pods,
    run_name,
    started_name,
    unmarked_pods,
)
from millpond.engines.kubernetes.pods.pod_states import PodPhase, passing_trouble, start_trouble
from millpond.engines.kubernetes.pods.pod_suspensions import CAPS_NOTHING, MOVES_NOWHERE, PodSuspensions
from millpond.engines.kubernetes.pods.pod_template import PodLaunch, RunObjects, run_objects
from millpond.engines.kubernetes.pods.slice_order import of_agent
from millpond.engines.kubernetes.pods.slow_starts import GangStart, SlowStarts
from millpond.engines.outbox import Outbox
from millpond.engines.task_ends import EndVerdict, Refusal, ends_swapped
from millpond.model.amounts import count_text, seconds_text
from millpond.model.confinement import Confinement, LimitKind, NetworkScope
from millpond.model.decisions import CapPower, Decision, Migrate, Placement, Prefetch, Resume, Start, Stop, Suspend
from millpond.model.errors import InconsistentStateError, InvalidInputError, MillpondError, UnavailableError
from millpond.model.resources import CARD_MILLI
from millpond.model.sharing import SliceHold
from millpond.model.states import Outcome
from millpond.node.task.input import READ_BEFORE, was_sent_before
from millpond.node.task.records import TaskFiles, TaskId

NEVER_STARTED: Final = EndVerdict(Outcome.NODE_LOST, None, "the cluster has no pod of it")
MARK_TAKEN: Final = EndVerdict(
    Outcome.NODE_LOST, None, f"its pod was ended, as it had lost the annotation {TASK_ANNOTATION} by which it is known"
)
PULL_PATIENCE_S: Final = 60.0
"""A start is given up when an image could not be pulled, or a container not made, for so long."""
_TIMER_SLACK_S: Final = 0.01
"""Timers of the loop may fire a little early."""
_STOPPED_EARLY: Final = Refusal("it was stopped before it ran", False)
CONFINEMENT: Final = Confinement(True, LimitKind.CONTROL_GROUP, network=NetworkScope.PRIVATE)


@dataclass(frozen=True, slots=True)
class StartSources:
    """What starts are made of.

    Attributes:
        launch_of: how the tasks of a job are made into pods; raises a MillpondError when it does not know. It is
            called on threads of its own.
        resources: the extended resource of each device of these nodes, by its UUID.
        find: a pod of the namespace by its name, as far as the cluster was seen.
        turns: of pods with cards of an agent.
        claims: of pods with cards of a driver.
        places_left: how many more pods the kubelet of a node takes.
    """

    launch_of: Callable[[str], PodLaunch]
    resources: Callable[[Iterable[str]], Mapping[str, str]]
    find: Callable[[str], PodObject | None]
    turns: Callable[[], BindTurns]
    claims: ClaimWriter
    places_left: Callable[[str], float]


class PodExecutor:
    """Carries out what the core decides.

    Args:
        changed: called with the name of a node whose pods have become ours, or no longer are.
    """

    def __init__(
        self, account: ClusterAccount, sources: StartSources, outbox: Outbox, changed: Callable[[str], None]
    ) -> None:
        self.pods = LivePods(account, outbox, changed)
        self._account = account
        self._sources = sources
        self._outbox = outbox
        self._changed = changed
        self._pending: dict[str, GangStart] = {}
        self.suspensions = PodSuspensions(account.api, self.pods, outbox, self._dispatch_all)
        self._fetches = ImageFetches(account.api, account.rules, outbox, sources.launch_of, sources.places_left)
        self._slow = SlowStarts(account.api, self.pods, outbox, self._is_open, self._give_up)
        self._latest = 0
        self._is_adopted = False

    # ---- decisions ----------------------------------------------------------------------------------------------

    def carry_out(self, decision: Decision) -> None:
        """Take one decision on; one that was taken on before is let be (their ids rise)."""
        if decision.id > self._latest:
            self._latest = decision.id
            self._dispatch(decision)

    def adopt(self, expected: frozenset[TaskId], unanswered: Sequence[Decision], pods: Collection[PodObject]) -> None:
        """Go on where an earlier engine stopped.

        Args:
            expected: tasks that hold something by the core's account.
            unanswered: decisions that were neither confirmed nor refused.
            pods: all of the cluster.
        """
        own = [pod for pod in pods if self.pods.is_own(pod)]
        starts = (decision for decision in unanswered if isinstance(decision, Start))
        starting = {TaskId(start.job, start.attempt, placed.task) for start in starts for placed in start.placements}
        found, earlier = latest_pods(own)
        for pod, mark in earlier:
            self.pods.remove(mark, pod.metadata.uid)
        missing = []
        for task in expected - starting:
            if task in found:
                pod, mark = found[task]
                self.pods.attach(pod, mark)
                self.pod_changed(pod)
            else:
                missing.append(task)
        self._end_missing(missing, pods)
        for task, (pod, mark) in found.items():
            if task not in expected and task not in starting:
                self.pods.remove(mark, pod.metadata.uid)
        self._fetches.adopt(unanswered, own)
        self._is_adopted = True
        self._latest = max([self._latest, *(decision.id for decision in unanswered)])
        self._dispatch_all(unanswered)
        for pod in filter(is_fetch, own):
            self._fetches.pod_changed(pod)
        self._account.runs.note_look()

    def _end_missing(self, tasks: Sequence[TaskId], pods: Iterable[PodObject]) -> None:
        """Report tasks that have no pod, but first have one end that others have made unknown: it runs still."""
        unmarked = unmarked_pods(tasks, filter(self.pods.may_be_own, pods)) if tasks else {}
        for task in tasks:
            if (pod := unmarked.get(task)) is not None:
                self.pods.spawn(self._end_unmarked(task, pod))
            else:
                self._outbox.ended(task, NEVER_STARTED)

    async def _end_unmarked(self, task: TaskId, pod: PodObject) -> None:
        await self._account.api.delete_and_wait(pod.metadata.name, pod.metadata.uid)
        self._outbox.ended(task, MARK_TAKEN)

    def _dispatch_all(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            self._dispatch(decision)

    def _dispatch(self, decision: Decision) -> None:
        if isinstance(decision, Prefetch):  # of a job that has no run, or that another node fetched for
            self._fetches.carry_out(decision)
            return
        pending = self._pending.get(decision.job)
        if pending is not None:
            pending.deferred.append(decision)
            if isinstance(decision, Stop) and not decision.tasks:
                self._give_up(pending, _STOPPED_EARLY)
            return
        if not isinstance(decision, Stop) and self.suspensions.defer(decision):
            return
        match decision:
            case Start():
                self._start(decision)
            case Stop():
                self._stop(decision)
            case Suspend():
                self.suspensions.suspend(decision)
            case Resume():
                self.suspensions.resume(decision)
            case Migrate():
                self._outbox.refuse(decision, Refusal(MOVES_NOWHERE, False))
            case CapPower():
                self._outbox.refuse(decision, Refusal(CAPS_NOTHING, False))
            case _:
                raise InconsistentStateError(f"no way to carry out a {type(decision).__name__}")

    def _start(self, decision: Start) -> None:
        tasks = (TaskId(decision.job, decision.attempt, each.task) for each in decision.placements)
        names = tuple(started_name(task, decision.id, joins=decision.joins) for task in tasks)
        self._pending[decision.job] = pending = GangStart(decision, names, set(names))
        for name, placed in zip(names, decision.placements, strict=True):
            there = self._found(name)
            mark = None if there is None else TaskMark.of(there.metadata.annotations)
            if mark is not None and mark.decision == decision.id and mark.pod == name:
                self.pods.enter(LivePod(mark, placed.node))  # so that nobody takes it for a pod of others meanwhile
        self.pods.spawn(self._make(pending))

    async def _make(self, pending: GangStart) -> None:
        decision, api = pending.decision, self._account.api
        try:
            launch = await asyncio.to_thread(self._sources.launch_of, decision.job)
            made = self._objects(decision, launch)
            if pending.refusal is None:
                if not all(map(self._seen, pending.names)):
                    run = run_name(decision.job, decision.attempt)
                    await api.shared.make(run, made.shared, begins=not decision.joins)
                alike = Counter(placed.role for placed in decision.placements)
                await all_of(
                    self._make_pod(pending, pod, placed, alike[placed.role])
                    for pod, placed in zip(made.pods, decision.placements, strict=True)
                )
            if pending.refusal is None:
                await all_of(
                    self._bind(name, placed) for name, placed in zip(pending.names, decision.placements, strict=True)
                )
        except ClusterRefusedError as error:
            pending.refusal = pending.refusal or error.refusal
        except ClaimTroubleError as error:
            pending.refusal = pending.refusal or Refusal(str(error), error.passes)
        except MillpondError as error:
            pending.refusal = pending.refusal or Refusal(str(error), isinstance(error, UnavailableError))
        pending.is_making = False
        if pending.refusal is None:
            self._look_at(pending)
            self._slow.watch(pending, made.shared)
        else:
            await self._undo(pending)

    async def _make_pod(self, pending: GangStart, pod: Pod, placed: Placement, alike: int) -> None:
        mark = _mark_of(pod)
        there = self._seen(mark.pod)
        if there is not None:
            uid = there.metadata.uid
        else:
            made = await self._account.api.make_pod(pod, mark, self.pods.is_own, alike)
            pending.uids[mark.pod] = uid = made.uid
            if not self.pods.has_marks(made, mark):
                raise ClusterRefusedError(Refusal(UNMARKED, True))
        pending.uids[mark.pod] = uid
        if self._sources.claims.gives(placed):
            user = ClaimUser(self._account.rules.namespace, mark.pod, uid)
            await self._sources.claims.make(claim_name(mark.id, pending.decision.id), user, placed)

    async def _bind(self, name: str, placed: Placement) -> None:
        takes_turns = of_agent(placed.grants) and not self._sources.claims.gives(placed)
        there = self._seen(name)
        if there is not None and there.spec.node_name == placed.node and not takes_turns:
            return
        binding = self._account.api.bind(name, placed.node)
        if takes_turns:
            binding = self._sources.turns().bind(placed.node, f"{self._account.rules.namespace}/{name}", binding)
        await binding

    def _found(self, name: str) -> PodObject | None:
        """A pod of this server by its name, as far as the cluster was seen."""
        there = self._sources.find(name)
        return there if there is not None and self.pods.is_own(there) else None

    def _seen(self, name: str) -> PodObject | None:
        """The pod of a start as it was seen, where it stays: one that an earlier engine made is not asked for again."""
        live = self.pods.by_name.get(name)
        there = None if live is None else live.pod
        return there if there is not None and there.metadata.deletion_timestamp is None else None

    def _is_open(self, pending: GangStart) -> bool:
        """Whether a start may come to be yet."""
        return self._pending.get(pending.decision.job) is pending and pending.refusal is None

    def _objects(self, start: Start, launch: PodLaunch) -> RunObjects:
        tasks = [placed.task for placed in start.placements]
        tasks += [live.mark.task for live in self.pods.of_run(start.job, start.attempt)]
        resources = self._sources.resources({placed.node for placed in start.placements})
        if launch.reads_input and self._has_had_input(TaskId(start.job, start.attempt, 0)):
            raise InvalidInputError(READ_BEFORE, "submit the job again, with its input")
        made = run_objects(start, launch, self._account.rules, max(tasks) + 1, resources)
        for pod, placed in zip(made.pods, start.placements, strict=True):
            mark = _mark_of(pod)
            if (live := self.pods.by_name.get(mark.pod)) is None or live.mark != mark:
                self.pods.enter(LivePod(mark, placed.node))
            if (known := self._found(mark.pod)) is not None:  # an earlier engine made it
                self.pod_changed(known)
        return made

    def _has_had_input(self, task: TaskId) -> bool:
        return was_sent_before(TaskFiles.of(self._account.state_dir, task).input)

    def _stop(self, decision: Stop) -> None:
        for live in self.pods.of_run(decision.job, decision.attempt):
            if not decision.tasks or live.mark.task in decision.tasks:
                if decision.grace_s > 0 and live.stop is None and self.suspensions.is_swapped(live):
                    self._outbox.note(decision.job, ends_swapped(live.mark.task, decision.grace_s))
                self.pods.end(live, decision.grace_s)
        self._outbox.confirm(decision)

    # ---- answers of starts --------------------------------------------------------------------------------------

    def _give_up(self, pending: GangStart, refusal: Refusal) -> None:
        """Nothing of it is to remain; it is answered when that is so."""
        if pending.refusal is None:
            pending.refusal = refusal
            if not pending.is_making:
                self.pods.spawn(self._undo(pending))

    async def _undo(self, pending: GangStart) -> None:
        kept: list[str] = []
        self._account.api.shared.forget()
        await all_of(self._undo_pod(pending, name, kept) for name in pending.names)
        if pending.refusal is not None and kept:
            more = f", and {count_text(len(kept) - 1, 'more pod')} of it" if len(kept) > 1 else ""
            pending.refusal = replace(pending.refusal, reason=f"{pending.refusal.reason}; {kept[0]}{more}")
        for name in pending.names:
            self.pods.drop(name)
        await self.pods.forget_run(pending.decision.job, pending.decision.attempt)
        self._answer(pending, ())

    async def _undo_pod(self, pending: GangStart, name: str, kept: list[str]) -> None:
        """Have one pod of a start end, if there is one; what keeps it though nothing of it runs is added."""
        api = self._account.api
        uid = pending.uids.get(name) or await api.find_made(name, pending.decision, self.pods.is_own)
        if uid and (why := await api.delete_and_wait(name, uid, lambda: name in pending.left)):
            kept.append(why)

    def _note(self, pending: GangStart, live: LivePod) -> None:
        """What has become of one pod of a start."""
        assert live.pod is not None
        name, node = live.mark.pod, live.pod.spec.node_name
        if node not in ("", live.node):  # by an admission webhook: what it has there, others may be given too
            self._give_up(pending, Refusal(f"pod {name} was bound to node {node}, and not to {live.node}", True))
            return
        if live.phase is not PodPhase.WAITING:
            pending.waiting.discard(name)
        pending.trouble = pending.trouble or start_trouble(live.pod)
        if (delay := passing_trouble(live.pod)) is not None:
            pending.delays[name] = delay
        else:
            pending.delays.pop(name, None)
        self._look_at(pending)

    def _look_at(self, pending: GangStart) -> None:
        """Answer a start if it can be answered by now."""
        if not self._is_open(pending) or pending.is_making:
            return
        self._look_for_trouble(pending)
        if pending.refusal is None and not pending.waiting:
            self._answer(pending, [self.pods.by_name[name] for name in pending.names])

    def _look_for_trouble(self, pending: GangStart) -> None:
        loop = asyncio.get_running_loop()
        if pending.trouble is not None:
            self._give_up(pending, pending.trouble)
        elif not pending.delays:
            pending.since = None
        elif pending.since is None:
            pending.since = loop.time()
            reason = next(iter(pending.delays.values())).reason
            text = f"{reason}; its start is given up after {seconds_text(PULL_PATIENCE_S)} of that"
            self._outbox.note(pending.decision.job, text)
            loop.call_later(PULL_PATIENCE_S + _TIMER_SLACK_S, self._look_at, pending)
        elif loop.time() - pending.since >= PULL_PATIENCE_S:
            self._give_up(pending, next(iter(pending.delays.values())))

    def _answer(self, pending: GangStart, mine: Sequence[LivePod]) -> None:
        """Say how a start went, then what has happened since, then do what waited for it."""
        del self._pending[pending.decision.job]
        if pending.asking is not None:
            pending.asking.cancel()
        if pending.refusal is None:
            self._outbox.confirm(pending.decision, confinement_of(pending.decision))
            for live in mine:
                if live.phase is PodPhase.OVER:
                    self.pods.finish(live)
        else:
            self._outbox.refuse(pending.decision, pending.refusal)
        for node in {placed.node for placed in pending.decision.placements}:
            self._changed(node)
        self._dispatch_all(pending.deferred)

    def tell(self, pod: str, text: str) -> None:
        """A note for the history of the job whose pod it is, and why its start is given up where it is."""
        live = self.pods.by_name.get(pod)
        pending = None if live is None else self._start_of(live)
        refusal = None if pending is None else pending.refusal
        self.pods.tell(pod, text if refusal is None else f"{text}; its start is given up: {refusal.reason}")

    # ---- what happens to pods -----------------------------------------------------------------------------------

    def pod_changed(self, pod: PodObject) -> None:
        """A pod of ours is there, or has changed."""
        if is_fetch(pod):
            self._fetches.pod_changed(pod)
            return
        live = self.pods.update(pod)
        if live is None:
            self._end_stray(pod)
            return
        pending = self._start_of(live)
        if pending is not None:
            self._note(pending, live)
        elif live.phase is PodPhase.OVER:
            self.pods.finish(live)

    def _end_stray(self, pod: PodObject) -> None:
        """One that nobody will ever bind: a server that was deposed had it made with its last request."""
        mark = TaskMark.of(pod.metadata.annotations)
        is_open = not pod.spec.node_name and not pod.is_over and pod.metadata.deletion_timestamp is None
        if self._is_adopted and is_open and mark is not None and mark.pod not in self.pods.by_name:
            self.pods.remove(mark, pod.metadata.uid)

    def pod_deleted(self, pod: PodObject) -> None:
        """A pod of ours is gone from the cluster."""
        if is_fetch(pod):
            self._fetches.pod_deleted(pod)
            return
        live = self.pods.update(pod)
        if live is None:
            return
        live.carried.set()
        pending = self._start_of(live)
        if pending is not None:
            self._give_up(pending, Refusal(f"pod {live.mark.pod} was deleted while it was being started", True))
        else:
            self.pods.finish(live)

    def node_lost(self, node: str) -> None:
        """The core counts what ran there as ended."""
        for live in self.pods.on_node(node):
            pending = self._start_of(live)
            if pending is not None:
                pending.left.add(live.mark.pod)
                self._give_up(pending, Refusal(f"node {node} was lost", True))
            else:
                self.pods.abandon(live)

    def _start_of(self, live: LivePod) -> GangStart | None:
        """The start that a task is part of, while that is not answered."""
        pending = self._pending.get(live.mark.job)
        return pending if pending is not None and live.mark.attempt == pending.decision.attempt else None


def confinement_of(start: Start) -> Confinement:
    """How the tasks of a start are kept to what they have. Agents start no part of a card without the gate."""
    grants = of_agent(grant for placed in start.placements for grant in placed.grants)
    is_cut = any(grant.compute_milli < CARD_MILLI for grant in grants)
    return replace(CONFINEMENT, slices=SliceHold.GATE) if is_cut else CONFINEMENT


def _mark_of(pod: Pod) -> TaskMark:
    mark = TaskMark.of((pod.metadata.annotations if pod.metadata else None) or {})
    assert mark is not None, "every pod that is made has one"
    return mark
