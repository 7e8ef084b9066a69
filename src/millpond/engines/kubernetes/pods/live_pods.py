"""The tasks of this server that have pods, from the moment these are made until their ends are reported."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from millpond.engines.kubernetes.cluster.cluster_api import STAYS_AFTER_S, ClusterApi, not_ended
from millpond.engines.kubernetes.cluster.cluster_refusals import StatusError
from millpond.engines.kubernetes.cluster.objects import ObjectMeta, PodObject
from millpond.engines.kubernetes.loop_work import LoopWork
from millpond.engines.kubernetes.pods.carried_runs import CarriedRuns
from millpond.engines.kubernetes.pods.log_copies import LogCopies, LogCopy
from millpond.engines.kubernetes.pods.pod_files import CARRY_GRACE_S
from millpond.engines.kubernetes.pods.pod_marks import SERVER_LABEL, TaskMark, pod_name, run_name
from millpond.engines.kubernetes.pods.pod_states import (
    PodPhase,
    StopNotice,
    has_carrier,
    is_carried,
    phase_of,
    start_trouble,
    verdict_on,
    with_files,
)
from millpond.engines.kubernetes.pods.pod_template import PodRules
from millpond.engines.kubernetes.pods.suspension_order import SuspensionOrder
from millpond.engines.kubernetes.pods.task_index import TaskIndex
from millpond.engines.kubernetes.streams.pod_input import PodInputs
from millpond.engines.outbox import Outbox
from millpond.engines.task_ends import EndVerdict
from millpond.node.task.records import TaskFiles, TaskId

log = logging.getLogger(__name__)

LOG_PATIENCE_S: Final = 10.0
"""The end of a task is reported so long after it at the latest, whether or not its whole output was copied."""
KEEP_ENDED_S: Final = 600.0
"""Pods that have ended are deleted after so long; by then their ends are stored."""
REST_AFTER_S: Final = 10.0
"""A pod that goes on without its program, as others have put something beside that, is ended after so long."""
CARRY_PATIENCE_S: Final = 26 * 3600.0
"""What a task left is waited for so long: a little longer than its carrier waits for the server."""
_LATE_S: Final = 1.0
_STRAY_GRACE_S: Final = 10.0


@dataclass(slots=True)
class LivePod:
    """A task of ours that has not come to its end.

    Attributes:
        mark: what its pod says of it.
        pod: as the cluster has it; None until it is made.
        stop: the decision to end it.
        copying: of its output.
        feeding: its standard input is passed on.
        finishing: its end is on its way.
        wanted: whether it is to run, as this server has its pod say; None: as an earlier one left it.
        carried: what it left is here, or given up.
    """

    mark: TaskMark
    node: str
    pod: PodObject | None = None
    stop: StopNotice | None = None
    copying: LogCopy | None = None
    feeding: bool = False
    finishing: bool = False
    wanted: SuspensionOrder | None = None
    carried: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def phase(self) -> PodPhase:
        """How far its program has come."""
        return PodPhase.WAITING if self.pod is None else phase_of(self.pod)

    @property
    def uid(self) -> str:
        """Of its pod; empty until that is made."""
        return "" if self.pod is None else self.pod.metadata.uid


@dataclass(frozen=True, slots=True)
class ClusterAccount:
    """This server in a cluster.

    Attributes:
        state_dir: where the output of pods is copied to.
        servers: identities of the servers whose pods are its own.
        let_go: waits until no claim has these cards of a task that is over.
        runs: hears which tasks have pods.
    """

    api: ClusterApi
    logs: LogCopies
    inputs: PodInputs
    rules: PodRules
    state_dir: Path
    servers: frozenset[str]
    let_go: Callable[[Iterable[str]], Awaitable[None]]
    runs: CarriedRuns = field(default_factory=CarriedRuns)


class LivePods:
    """All of them. Lives on the engine's loop.

    Args:
        changed: called with the name of a node whose pods have become ours, or no longer are.
    """

    def __init__(self, account: ClusterAccount, outbox: Outbox, changed: Callable[[str], None]) -> None:
        self._account = account
        self._outbox = outbox
        self._changed = changed
        self._live = TaskIndex[LivePod]()
        self._work = LoopWork(outbox)
        self._ended: deque[tuple[float, TaskMark, str]] = deque()
        """When pods of tasks that are over are to be deleted, and their uids."""
        self._is_tidying = False

    @property
    def by_name(self) -> Mapping[str, LivePod]:
        """By the names of their pods."""
        return self._live.by_pod

    def is_own(self, pod: PodObject) -> bool:
        """Whether this server made a pod, or one in whose place it goes on; whatever others do to its labels later."""
        meta = pod.metadata
        if meta.namespace != self._account.rules.namespace:
            return False
        live = self._live.by_pod.get(meta.name)
        is_known = live is not None and live.uid == meta.uid
        if is_known or self._has_label(meta):
            return True
        mark = TaskMark.of(meta.annotations)
        return mark is not None and mark.server != "" and mark.server in self._account.servers

    def has_marks(self, made: ObjectMeta, mark: TaskMark) -> bool:
        """Whether the cluster has left a pod that was made all that it is to be known by."""
        return self._has_label(made) and TaskMark.of(made.annotations) == mark

    def _has_label(self, meta: ObjectMeta) -> bool:
        return meta.labels.get(SERVER_LABEL) in self._account.servers

    def may_be_own(self, pod: PodObject) -> bool:
        """Whether it is of no other server, by all that is known of it."""
        meta = pod.metadata
        return meta.namespace == self._account.rules.namespace and (SERVER_LABEL not in meta.labels or self.is_own(pod))

    def has(self, pod: PodObject) -> bool:
        """Whether a pod is of a task that the core knows of and that has not ended."""
        return pod.metadata.name in self._live.by_pod and self.is_own(pod)

    def name_of(self, task: TaskId) -> str:
        """The name of a task's pod; from any thread."""
        live = self._live.of_job(task.job).items()
        return next((name for name, each in live if each.mark.id == task), pod_name(task))

    def of_run(self, job: str, attempt: int) -> list[LivePod]:
        """The tasks of one run of a job."""
        return self._live.of_run(job, attempt)

    def on_node(self, node: str) -> list[LivePod]:
        """The tasks on one node."""
        return self._live.on_node(node)

    def count_on(self, node: str) -> int:
        """How many tasks are on one node."""
        return self._live.count_on(node)

    def enter(self, live: LivePod) -> None:
        """A pod is about to be made, or was found."""
        self._live.put(live.mark.pod, live)
        self._account.runs.enter(live.mark.id)

    def attach(self, pod: PodObject, mark: TaskMark) -> LivePod:
        """Go on with a pod that an earlier engine made."""
        stop = StopNotice(time.time(), 0.0) if pod.metadata.deletion_timestamp is not None else None
        live = LivePod(mark, pod.spec.node_name, stop=stop)
        self.enter(live)
        return live

    def update(self, pod: PodObject) -> LivePod | None:
        """What the cluster says of a pod, and whose it is; None when it is no task of ours, or of another run."""
        live = self._live.by_pod.get(pod.metadata.name)
        if live is None:
            return None
        is_known = live.pod is not None and live.pod.metadata.uid == pod.metadata.uid
        if not is_known and TaskMark.of(pod.metadata.annotations) != live.mark:
            return None
        live.pod = pod
        if live.phase is PodPhase.OVER:
            self._account.runs.note_end(live.mark.id)
        if pod.metadata.deletion_timestamp is not None:
            self._account.runs.note_deletion(live.mark.id)
        if is_carried(pod):
            live.carried.set()
        if live.copying is None and live.phase is not PodPhase.WAITING and start_trouble(pod) is None:
            files = partial(TaskFiles.of, self._account.state_dir, live.mark.id)
            live.copying = self._account.logs.begin(live.mark.pod, files)
            if live.mark.reads_input and not live.feeding:
                live.feeding = True
                self.spawn(self._account.inputs.feed(live.mark.pod, files(), lambda: self._is_past(live)))
        return live

    def _is_past(self, live: LivePod) -> bool:
        return live.phase is PodPhase.OVER or self._live.by_pod.get(live.mark.pod) is not live

    def end(self, live: LivePod, grace_s: float) -> None:
        """Have a task end, by a decision."""
        at = live.stop.at if live.stop is not None else time.time()
        live.stop = notice = StopNotice(at, grace_s)
        asyncio.get_running_loop().call_later(grace_s + STAYS_AFTER_S, self._tell_if_it_stays, live, notice)
        carries = live.pod is not None and has_carrier(live.pod)
        self.spawn(self._end_with_files(live, grace_s) if carries else self._delete(live, grace_s))

    def _tell_if_it_stays(self, live: LivePod, notice: StopNotice) -> None:
        """Say of a pod that outstays its grace what keeps it: nothing else shows why its job is still being ended."""
        is_there = self._live.by_pod.get(live.mark.pod) is live and live.phase is not PodPhase.OVER
        if is_there and live.stop is notice:
            self.tell(live.mark.pod, not_ended(live.mark.pod, live.node))

    async def _delete(self, live: LivePod, grace_s: float) -> None:
        await self._account.api.delete_pod(live.mark.pod, grace_s, live.uid)

    async def _end_with_files(self, live: LivePod, grace_s: float) -> None:
        """Have a pod outlive its task until what that left is carried back, but not a task that outstays its grace."""
        await self._delete(live, grace_s + CARRY_GRACE_S)
        await asyncio.sleep(grace_s + _LATE_S)
        if self._live.by_pod.get(live.mark.pod) is live and not self._account.runs.seems_ended(live.mark.id):
            await self._delete(live, 1.0)

    def finish(self, live: LivePod) -> None:
        """Report the end of a task, when its output is here."""
        if not live.finishing and live.pod is not None:
            live.finishing = True
            if live.copying is not None:
                self._account.logs.finish(live.copying)
            self.spawn(self._report(live, verdict_on(live.pod, live.stop, live.mark.saves)))

    def drop(self, name: str) -> None:
        """A task is none of the core's any more."""
        live = self._live.take(name)
        if live is None:
            return
        live.carried.set()
        self._account.runs.leave(live.mark.id)
        if live.copying is not None:
            self._account.logs.cancel(live.copying)

    def tell(self, name: str, text: str) -> None:
        """A note for the history of the job whose pod it is."""
        if (live := self._live.by_pod.get(name)) is not None:
            self._outbox.note(live.mark.job, text)

    def abandon(self, live: LivePod) -> None:
        """The core counts a task as ended; what is left of it in the cluster is to end."""
        self.drop(live.mark.pod)
        self.remove(live.mark, live.uid)

    def remove(self, mark: TaskMark, uid: str) -> None:
        """Have a pod end that the core knows nothing of: it counts as free what that one has."""
        self.spawn(self._remove(mark, uid))

    async def _remove(self, mark: TaskMark, uid: str) -> None:
        """Delete a pod, and before it what its run shared: by the pod, the next server knows that some may be left.

        Where the run goes on, the pod may stay on a silent node, and is found by nobody there.
        """
        await self.forget_run(mark.job, mark.attempt)
        if uid and any(self.of_run(mark.job, mark.attempt)):
            await self._account.api.hide_pod(mark.pod, uid)
        await self._account.api.delete_pod(mark.pod, _STRAY_GRACE_S, uid)

    async def forget_run(self, job: str, attempt: int) -> None:
        """Delete what all tasks of a run shared, if none of them is left."""
        if not any(self.of_run(job, attempt)):
            await self._account.api.shared.delete(run_name(job, attempt))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside everything else; a defect of it is the engine's."""
        self._work.begin(work)

    async def _report(self, live: LivePod, verdict: EndVerdict) -> None:
        if live.copying is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(live.copying.done.wait(), LOG_PATIENCE_S)
        assert live.pod is not None
        if has_carrier(live.pod):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(live.carried.wait(), CARRY_PATIENCE_S)
            verdict = with_files(verdict, live.pod)
        await self._account.let_go(live.mark.devices)
        if self._live.by_pod.get(live.mark.pod) is not live:
            return  # its node was lost meanwhile
        self.drop(live.mark.pod)
        self._outbox.ended(live.mark.id, verdict)
        self._changed(live.node)
        if not live.pod.is_over and live.pod.metadata.deletion_timestamp is None:
            self.spawn(self._end_rest(live))
        self._ended.append((asyncio.get_running_loop().time() + KEEP_ENDED_S, live.mark, live.uid))
        if not self._is_tidying:
            self._is_tidying = True
            self.spawn(self._tidy())

    async def _end_rest(self, live: LivePod) -> None:
        """Have a pod end that has its cards still: the proxy of a service mesh, for one, does not end by itself."""
        await asyncio.sleep(REST_AFTER_S)
        await self._account.api.delete_pod(live.mark.pod, _STRAY_GRACE_S, live.uid)

    async def _tidy(self) -> None:
        """Delete pods whose ends are certainly stored, one after the other: nobody waits for that."""
        while self._ended:
            due, mark, uid = self._ended.popleft()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            if mark.pod in self._live.by_pod:
                continue  # another start of the task has a pod of this name
            await self.forget_run(mark.job, mark.attempt)
            try:
                await self._account.api.try_delete_pod(mark.pod, 0.0, uid)
            except StatusError as error:  # such as a right that is missing: the others are not held up by it
                log.warning("pod %s, which has ended, cannot be deleted: %s", mark.pod, error)
                self._ended.append((asyncio.get_running_loop().time() + KEEP_ENDED_S, mark, uid))
        self._is_tidying = False
