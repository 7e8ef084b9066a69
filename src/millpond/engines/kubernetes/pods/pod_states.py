"""What the status of a pod means for its task: it waits, runs or has ended, and how."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Final

from millpond.engines.kubernetes.cluster.objects import ContainerState, PodObject, TerminatedState, WaitingState
from millpond.engines.kubernetes.pods.pod_files import CARRIER, NO_PYTHON
from millpond.engines.kubernetes.pods.pod_marks import CONTAINER
from millpond.engines.task_ends import SIGNAL_BASE, EndVerdict, Refusal, exit_text
from millpond.model.amounts import seconds_text
from millpond.model.states import Outcome
from millpond.node.carrier.program import REFUSED

PULL_TROUBLE: Final = frozenset({"ImagePullBackOff", "ErrImagePull"})
"""May pass: a registry that does not answer."""
_BY_JOB: Final = frozenset(
    {"InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError"}
)
_PASSING: Final = re.compile(
    r"failed to sync \w+ cache|is reserved for|deadline exceeded|timed? ?out|code = Unavailable|^secret \S+ not found"
)
"""In the words of kubelets and container runtimes that are slow, or start anew; they try again by themselves. No job
names secrets of the cluster: what the server made for its run was deleted by others, and is made again.
Sources: ``k8s.io/kubernetes/pkg/kubelet/util/manager/watch_based_manager.go`` (an API server has a second for a
secret), ``github.com/containerd/containerd/pkg/cri/server/container_create.go``."""
_END_UNKNOWN: Final = frozenset({"ContainerStatusUnknown", "Unknown"})
"""In the words of kubelets and containerd: the container is gone, as its machine, or its runtime, began anew."""
_NOT_STARTED: Final = frozenset({"StartError", "ContainerCannotRun"})
_KILLED: Final = SIGNAL_BASE + 9
_TERMINATED: Final = SIGNAL_BASE + 15


class PodPhase(Enum):
    """How far the program of a pod has come."""

    WAITING = "waiting"
    RUNNING = "running"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class StopNotice:
    """When a task was asked to end by a decision, and the time that it had."""

    at: float
    grace_s: float


def phase_of(pod: PodObject) -> PodPhase:
    """How far it has come."""
    state = _state(pod)
    if pod.is_over or state.terminated is not None:
        return PodPhase.OVER
    return PodPhase.WAITING if state.running is None else PodPhase.RUNNING


def is_untouched(pod: PodObject) -> bool:
    """Whether its node has said nothing of it yet."""
    return not pod.status.container_statuses and not pod.status.init_container_statuses


def start_trouble(pod: PodObject) -> Refusal | None:
    """Why its program will not run; None while it still may, or when it ran."""
    state, status = _state(pod), pod.status
    if all(each.name != CONTAINER for each in pod.spec.containers):
        text = f"its pod has no container called {CONTAINER} any more: an admission webhook has renamed or removed it"
        return Refusal(text, False)
    if state.terminated is not None:
        if state.terminated.reason in _NOT_STARTED:
            return Refusal(f"the command cannot be executed in the image: {state.terminated.message.strip()}", False)
        return None
    if (failed := _failed_before(pod)) is not None:
        is_of_node = failed.exit_code not in (REFUSED, NO_PYTHON)
        return Refusal(f"its files could not be brought into its pod: {failed.message or failed.reason}", is_of_node)
    if status.phase == "Failed":
        said = ": ".join(filter(None, (status.reason, status.message)))
        return Refusal(f"node {pod.spec.node_name} did not take it ({said or 'it does not say why'})", True)
    stuck = (each for each in _waiting(pod) if each.reason in _BY_JOB and not _PASSING.search(each.message))
    return next((Refusal(_not_made(each), False) for each in stuck), None)


def passing_trouble(pod: PodObject) -> Refusal | None:
    """Why its image is not there yet, or its container not made, if that is known and may pass by itself."""
    for each in _waiting(pod):
        if each.reason in PULL_TROUBLE:
            words = f"its image cannot be pulled ({each.message or each.reason}); check its name, and the login"
            return Refusal(words, False)
        if each.reason in _BY_JOB and _PASSING.search(each.message):
            return Refusal(_not_made(each), True)
    return None


def _not_made(waiting: WaitingState) -> str:
    return f"its container cannot be made ({waiting.reason}: {waiting.message})"


def verdict_on(pod: PodObject, stop: StopNotice | None, saves: bool) -> EndVerdict:
    """How a task ended.

    Args:
        stop: None when no decision ended it.
        saves: the job saves its work on notice.
    """
    end, status = _state(pod).terminated, pod.status
    code = None if end is None else end.exit_code
    if stop is not None:
        forced = code == _KILLED
        detail = f"killed, as it was not over within {seconds_text(stop.grace_s)} of its notice" if forced else ""
        return EndVerdict(Outcome.STOPPED, code, detail, _saved_s(pod, stop) if saves else None)
    if status.reason and status.phase == "Failed":  # the kubelet's own: Evicted, NodeShutdown, Preempting
        return EndVerdict(Outcome.NODE_LOST, code, f"Kubernetes ended it ({status.reason}: {status.message})")
    if pod.metadata.deletion_timestamp is not None and code != 0:
        return EndVerdict(Outcome.NODE_LOST, code, "its pod was deleted by somebody else than Millpond")
    if end is None:
        return EndVerdict(Outcome.NODE_LOST, None, "its pod is gone, and nothing is known of how it ended")
    if code == 0:
        return EndVerdict(Outcome.SUCCESS, 0)
    if end.reason in _END_UNKNOWN:
        words = "its node does not know how it ended: it may have been restarted"
        return EndVerdict(Outcome.NODE_LOST, None, words)
    if end.reason == "OOMKilled":
        return EndVerdict(Outcome.OUT_OF_MEMORY, code, "it wanted more memory than it asked for; ask for more (memory)")
    return EndVerdict(Outcome.USER_ERROR, code, exit_text(code))


def has_carrier(pod: PodObject) -> bool:
    """Whether what it leaves is carried back."""
    return any(each.name == CARRIER for each in pod.spec.containers)


def is_carried(pod: PodObject) -> bool:
    """Whether what it left is where it should be, or given up."""
    return pod.is_over or _state(pod, CARRIER).terminated is not None


def with_files(verdict: EndVerdict, pod: PodObject) -> EndVerdict:
    """The end of a task, with what became of what it left."""
    end = _state(pod, CARRIER).terminated
    if end is not None and end.exit_code == 0:
        return verdict
    outcome, reason = verdict.outcome, "its pod was gone before it was carried back"
    if end is not None:
        reason = end.message.strip() or f"what carries it back ended with {exit_text(end.exit_code)}"
        if outcome is Outcome.SUCCESS and end.exit_code != NO_PYTHON:
            outcome = Outcome.USER_ERROR
    elif outcome is Outcome.SUCCESS:
        outcome = Outcome.NODE_LOST
    detail = "; ".join(filter(None, (verdict.detail, f"its output is not kept: {reason}")))
    return replace(verdict, outcome=outcome, detail=detail)


def _saved_s(pod: PodObject, stop: StopNotice) -> float | None:
    """Seconds of work that it kept: all up to the notice, if it ended by itself in its grace.

    The notice is of this machine's clock, begin and end of the program are of its node's, which may be another time. So
    the notice counts as given within the last of the program's time, however far apart the two clocks are.
    """
    end = _state(pod).terminated
    if end is None or end.started_at is None or end.exit_code in (_KILLED, _TERMINATED):
        return None
    saved_s = stop.at - _instant(end.started_at)
    if end.finished_at is not None:
        ran_s = _instant(end.finished_at) - _instant(end.started_at)
        saved_s = min(max(saved_s, ran_s - stop.grace_s), ran_s)
    return max(0.0, saved_s)


def _instant(text: str) -> float:
    """In seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def _state(pod: PodObject, container: str = CONTAINER) -> ContainerState:
    found = (each.state for each in pod.status.container_statuses if each.name == container)
    return next(found, ContainerState())


def _waiting(pod: PodObject) -> Iterator[WaitingState]:
    """All of its containers that do not run yet."""
    for each in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if each.state.waiting is not None:
            yield each.state.waiting


def _failed_before(pod: PodObject) -> TerminatedState | None:
    """How what comes before its program failed; None: it did not. A sidecar is started again."""
    sidecars = {each.name for each in pod.spec.init_containers if each.is_sidecar}
    ends = (each.state.terminated for each in pod.status.init_container_statuses if each.name not in sidecars)
    return next((end for end in ends if end is not None and end.exit_code != 0), None)
