"""Carries decisions out as pods. Lives on the engine's loop: one thread, and nothing here blocks.

A start makes all its pods first and binds them when the cluster has taken every one of them, so that no part of a gang
runs because another could not be made. Decisions about a job whose start is pending wait for its answer; one that ends
the job ends the start.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from millpond.engines.kubernetes.cluster_api import ClusterApi, ClusterRefusedError
from millpond.engines.kubernetes.log_copies import LogCopies
from millpond.engines.kubernetes.objects import PodObject
from millpond.engines.kubernetes.pod_states import (
    PodPhase,
    StopNotice,
    phase_of,
    pull_trouble,
    start_trouble,
    verdict_on,
)
from millpond.engines.kubernetes.pod_template import (
    SERVER_LABEL,
    PodLaunch,
    PodRules,
    RunObjects,
    TaskMark,
    pod_name,
    run_name,
    run_objects,
)
from millpond.engines.outbox import Outbox
from millpond.engines.task_ends import EndVerdict, Refusal
from millpond.model.confinement import Confinement, LimitKind, NetworkScope
from millpond.model.decisions import Decision, Migrate, Resume, Start, Stop, Suspend
from millpond.model.errors import InconsistentStateError, MillpondError, UnavailableError
from millpond.model.states import Outcome
from millpond.node.task.records import TaskFiles, TaskId

NEVER_STARTED: Final = EndVerdict(Outcome.NODE_LOST, None, "the cluster has no pod of it")
PULL_PATIENCE_S: Final = 60.0
"""A start is given up when an image could not be pulled for so long."""
LOG_PATIENCE_S: Final = 10.0
"""The end of a task is reported so long after it at the latest, whether or not its whole output was copied."""
KEEP_ENDED_S: Final = 600.0
"""Pods that have ended are deleted after so long; by then their ends are stored."""
_STRAY_GRACE_S: Final = 10.0
_STOPPED_EARLY: Final = Refusal("it was stopped before it ran", False)
CONFINEMENT: Final = Confinement(True, LimitKind.CONTROL_GROUP, network=NetworkScope.PRIVATE)


@dataclass(slots=True)
class LivePod:
    """A task of ours that has not come to its end.

    Attributes:
        mark: what its pod says of it.
        pod: as the cluster has it; None until it is made.
        saves: its job saves its work on notice.
        stop: the decision to end it.
        copying: copies its output.
        finishing: its end is on its way.
    """

    mark: TaskMark
    node: str
    saves: bool = False
    pod: PodObject | None = None
    stop: StopNotice | None = None
    copying: asyncio.Task[None] | None = None
    finishing: bool = False

    @property
    def phase(self) -> PodPhase:
        """How far its program has come."""
        return PodPhase.WAITING if self.pod is None else phase_of(self.pod)


@dataclass(slots=True)
class GangStart:
    """A start that is not answered.

    Attributes:
        names: of its pods.
        refusal: why it is given up; its pods are on their way out.
        is_making: its pods are being made and bound; it is undone behind that.
        since: when an image was first seen not to come, by the clock of the loop.
        deferred: decisions about the job that came meanwhile.
    """

    decision: Start
    names: tuple[str, ...]
    refusal: Refusal | None = None
    is_making: bool = True
    since: float | None = None
    deferred: list[Decision] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ExecutorParts:
    """What the executor works with.

    Attributes:
        launch_of: how the tasks of a job are made into pods; raises a MillpondError when it does not know. It is
            called on threads of its own.
        resources: the extended resource of each device, by its UUID.
        find: a pod of the namespace by its name, as far as the cluster was seen.
        servers: identities of the servers whose pods are its own.
    """

    api: ClusterApi
    logs: LogCopies
    rules: PodRules
    state_dir: Path
    launch_of: Callable[[str], PodLaunch]
    resources: Callable[[], Mapping[str, str]]
    find: Callable[[str], PodObject | None]
    servers: frozenset[str]


class PodExecutor:
    """All pods of this server.

    Args:
        changed: called with the name of a node whose pods have become ours, or no longer are.
    """

    def __init__(self, parts: ExecutorParts, outbox: Outbox, changed: Callable[[str], None]) -> None:
        self._parts = parts
        self._outbox = outbox
        self._changed = changed
        self._live: dict[str, LivePod] = {}
        self._pending: dict[str, GangStart] = {}
        self._latest = 0
        self._work: set[asyncio.Task[None]] = set()

    @property
    def live(self) -> Mapping[str, LivePod]:
        """Tasks that have not come to their ends, by the names of their pods."""
        return self._live

    def is_own(self, pod: PodObject) -> bool:
        """Whether this server made it, or one in whose place it goes on."""
        is_ours = pod.metadata.labels.get(SERVER_LABEL) in self._parts.servers
        return is_ours and pod.metadata.namespace == self._parts.rules.namespace

    def is_live(self, pod: PodObject) -> bool:
        """Whether it is of a task that the core knows of and that has not ended."""
        return self.is_own(pod) and pod.metadata.name in self._live

    # ---- decisions ----------------------------------------------------------------------------------------------

    def carry_out(self, decision: Decision) -> None:
        """Take one decision on; one that was taken on before is let be (their ids rise)."""
        if decision.id > self._latest:
            self._latest = decision.id
            self._dispatch(decision)

    def adopt(self, expected: frozenset[TaskId], unanswered: Sequence[Decision], pods: Sequence[PodObject]) -> None:
        """Go on where an earlier engine stopped.

        Args:
            expected: tasks that hold something by the core's account.
            unanswered: decisions that were neither confirmed nor refused.
            pods: everything in the namespace.
        """
        starts = (decision for decision in unanswered if isinstance(decision, Start))
        starting = {TaskId(start.job, start.attempt, placed.task) for start in starts for placed in start.placements}
        found = {mark.id: pod for pod in pods if self.is_own(pod) and (mark := TaskMark.of(pod.metadata.annotations))}
        for task in expected - starting:
            if task in found:
                self._attach(found[task])
            else:
                self._outbox.ended(task, NEVER_STARTED)
        for task, pod in found.items():
            if task not in expected and task not in starting:
                self._remove(pod)
        for decision in unanswered:
            self._latest = max(self._latest, decision.id)
            self._dispatch(decision)

    def _dispatch(self, decision: Decision) -> None:
        pending = self._pending.get(decision.job)
        if pending is not None:
            pending.deferred.append(decision)
            if isinstance(decision, Stop) and not decision.tasks:
                self._give_up(pending, _STOPPED_EARLY)
            return
        match decision:
            case Start():
                self._start(decision)
            case Stop():
                self._stop(decision)
            case Suspend() | Resume() | Migrate():
                self._outbox.refuse(
                    decision, Refusal("tasks in pods are neither suspended nor moved; stop the job instead", False)
                )
            case _:
                raise InconsistentStateError(f"no way to carry out a {type(decision).__name__}")

    def _start(self, decision: Start) -> None:
        names = tuple(pod_name(TaskId(decision.job, decision.attempt, each.task)) for each in decision.placements)
        self._pending[decision.job] = pending = GangStart(decision, names)
        self._spawn(self._make(pending))

    async def _make(self, pending: GangStart) -> None:
        decision, api = pending.decision, self._parts.api
        try:
            launch = await asyncio.to_thread(self._parts.launch_of, decision.job)
            made = self._objects(decision, launch)
            if pending.refusal is None:
                await _all(api.make_shared(item) for item in made.shared)
                await _all(self._make_pod(pod) for pod in made.pods)
            if pending.refusal is None:
                await _all(
                    api.bind(name, placed.node) for name, placed in zip(pending.names, decision.placements, strict=True)
                )
        except ClusterRefusedError as error:
            pending.refusal = pending.refusal or error.refusal
        except MillpondError as error:
            pending.refusal = pending.refusal or Refusal(str(error), isinstance(error, UnavailableError))
        pending.is_making = False
        if pending.refusal is None:
            self._look_at(pending)
        else:
            await self._undo(pending)

    async def _make_pod(self, pod: Any) -> None:
        mark = TaskMark.of(pod.metadata.annotations)
        assert mark is not None
        await self._parts.api.make_pod(pod, mark)

    def _objects(self, decision: Start, launch: PodLaunch) -> RunObjects:
        tasks = [placed.task for placed in decision.placements]
        tasks += [live.mark.task for live in self._of_run(decision.job, decision.attempt)]
        parts = self._parts
        made = run_objects(decision, launch, parts.rules, max(tasks) + 1, parts.resources())
        for name, pod, placed in zip(self._pending[decision.job].names, made.pods, decision.placements, strict=True):
            mark = TaskMark.of(pod.metadata.annotations or {}) if pod.metadata else None
            assert mark is not None
            self._live[name] = LivePod(mark, placed.node, bool(launch.notice_signal))
            if (known := parts.find(name)) is not None:  # an earlier engine made it
                self.pod_changed(known)
        return made

    def _stop(self, decision: Stop) -> None:
        for live in self._of_run(decision.job, decision.attempt):
            if not decision.tasks or live.mark.task in decision.tasks:
                self._end(live, decision.grace_s)
        self._outbox.confirm(decision)

    def _end(self, live: LivePod, grace_s: float) -> None:
        at = live.stop.at if live.stop is not None else time.time()
        live.stop = StopNotice(at, grace_s)
        self._spawn(self._parts.api.delete_pod(live.mark.pod, grace_s))

    # ---- answers of starts --------------------------------------------------------------------------------------

    def _give_up(self, pending: GangStart, refusal: Refusal) -> None:
        """Nothing of it is to remain; it is answered when that is so."""
        if pending.refusal is None:
            pending.refusal = refusal
            if not pending.is_making:
                self._spawn(self._undo(pending))

    async def _undo(self, pending: GangStart) -> None:
        await _all(self._parts.api.delete_and_wait(name) for name in pending.names)
        for name in pending.names:
            live = self._live.pop(name, None)
            if live is not None and live.copying is not None:
                live.copying.cancel()
        self._answer(pending, ())

    def _look_at(self, pending: GangStart) -> None:
        """Answer a start if it can be answered by now."""
        is_open = self._pending.get(pending.decision.job) is pending
        if not is_open or pending.is_making or pending.refusal is not None:
            return
        mine = [self._live[name] for name in pending.names]
        self._look_for_trouble(pending, mine)
        if pending.refusal is None and all(live.phase is not PodPhase.WAITING for live in mine):
            self._answer(pending, mine)

    def _look_for_trouble(self, pending: GangStart, mine: Sequence[LivePod]) -> None:
        troubles = [trouble for live in mine if live.pod and (trouble := start_trouble(live.pod))]
        if troubles:
            self._give_up(pending, troubles[0])
            return
        pulls = [trouble for live in mine if live.pod and (trouble := pull_trouble(live.pod))]
        loop = asyncio.get_running_loop()
        if not pulls:
            pending.since = None
        elif pending.since is None:
            pending.since = loop.time()
            loop.call_later(PULL_PATIENCE_S, self._look_at, pending)
        elif loop.time() - pending.since >= PULL_PATIENCE_S:
            self._give_up(pending, pulls[0])

    def _answer(self, pending: GangStart, mine: Sequence[LivePod]) -> None:
        """Say how a start went, then what has happened since, then do what waited for it."""
        del self._pending[pending.decision.job]
        if pending.refusal is None:
            self._outbox.confirm(pending.decision, CONFINEMENT)
            for live in mine:
                if live.phase is PodPhase.OVER:
                    self._finish(live)
        else:
            self._outbox.refuse(pending.decision, pending.refusal)
            self._forget_run(pending.decision.job, pending.decision.attempt)
        for placed in pending.decision.placements:
            self._changed(placed.node)
        for decision in pending.deferred:
            self._dispatch(decision)

    # ---- what happens to pods -----------------------------------------------------------------------------------

    def pod_changed(self, pod: PodObject) -> None:
        """A pod of ours is there, or has changed."""
        live = self._live.get(pod.metadata.name)
        if live is None or TaskMark.of(pod.metadata.annotations) != live.mark:
            return
        live.pod = pod
        if live.copying is None and live.phase is not PodPhase.WAITING and start_trouble(pod) is None:
            files = TaskFiles.of(self._parts.state_dir, live.mark.id)
            live.copying = asyncio.get_running_loop().create_task(
                self._parts.logs.copy(pod.metadata.name, files, lambda: live.finishing or live.phase is PodPhase.OVER)
            )
        pending = self._pending.get(live.mark.job)
        if pending is not None and pod.metadata.name in pending.names:
            self._look_at(pending)
        elif live.phase is PodPhase.OVER:
            self._finish(live)

    def pod_deleted(self, pod: PodObject) -> None:
        """A pod of ours is gone from the cluster."""
        name = pod.metadata.name
        live = self._live.get(name)
        if live is None or TaskMark.of(pod.metadata.annotations) != live.mark:
            return
        pending = self._pending.get(live.mark.job)
        if pending is not None and name in pending.names:
            self._give_up(pending, Refusal(f"pod {name} was deleted while it was being started", True))
            return
        live.pod = pod
        self._finish(live)

    def node_lost(self, node: str) -> None:
        """The core counts what ran there as ended; what is left of it in the cluster is to end."""
        for name, live in list(self._live.items()):
            pending = self._pending.get(live.mark.job)
            if live.node != node:
                continue
            if pending is not None and name in pending.names:
                self._give_up(pending, Refusal(f"node {node} was lost", True))
            else:
                self._drop(live)
                self._spawn(self._parts.api.delete_pod(name, _STRAY_GRACE_S))

    def _attach(self, pod: PodObject) -> None:
        mark = TaskMark.of(pod.metadata.annotations)
        assert mark is not None
        stop = StopNotice(time.time(), 0.0) if pod.metadata.deletion_timestamp is not None else None
        self._live[pod.metadata.name] = LivePod(mark, pod.spec.node_name, pod=pod, stop=stop)
        self.pod_changed(pod)

    def _finish(self, live: LivePod) -> None:
        """Report its end, when its output is here."""
        if not live.finishing:
            live.finishing = True
            self._spawn(self._report(live))

    async def _report(self, live: LivePod) -> None:
        if live.copying is not None:
            await asyncio.wait([live.copying], timeout=LOG_PATIENCE_S)
        if self._live.get(live.mark.pod) is not live:
            return  # its node was lost meanwhile
        assert live.pod is not None
        self._drop(live)
        self._outbox.ended(live.mark.id, verdict_on(live.pod, live.stop, live.saves))
        self._changed(live.node)
        await asyncio.sleep(KEEP_ENDED_S)
        await self._parts.api.delete_pod(live.mark.pod, 0)
        self._forget_run(live.mark.job, live.mark.attempt)

    def _drop(self, live: LivePod) -> None:
        if live.copying is not None:
            live.copying.cancel()
        self._live.pop(live.mark.pod, None)

    def _remove(self, pod: PodObject) -> None:
        """One that the core knows nothing of: it counts as free what this one has."""
        self._spawn(self._parts.api.delete_pod(pod.metadata.name, _STRAY_GRACE_S))

    def _forget_run(self, job: str, attempt: int) -> None:
        if not any(self._of_run(job, attempt)):
            self._spawn(self._parts.api.delete_shared(run_name(job, attempt)))

    def _of_run(self, job: str, attempt: int) -> Iterator[LivePod]:
        return (each for each in list(self._live.values()) if (each.mark.job, each.mark.attempt) == (job, attempt))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._outbox.fail(error)


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all of it to its end, and only then say what went wrong first."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
