"""How pods that others made end, in the words of tasks."""

from __future__ import annotations

from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.task_ends import EndVerdict, exit_text
from millpond.model.amounts import seconds_text
from millpond.model.states import Outcome

_KILLED = 137


def verdict_on(pod: ScheduledPod, stop_grace_s: float | None) -> EndVerdict:
    """How a pod ended.

    Args:
        stop_grace_s: the time that it was given by a decision; None when none ended it.
    """
    ends = [each.state.terminated for each in pod.status.container_statuses if each.state.terminated is not None]
    bad = next((end for end in ends if end.exit_code), None)
    code = bad.exit_code if bad is not None else 0 if ends else None
    status = pod.status
    if stop_grace_s is not None:
        forced = code == _KILLED and stop_grace_s > 0
        detail = f"killed, as it was not over within {seconds_text(stop_grace_s)} of its notice" if forced else ""
        return EndVerdict(Outcome.STOPPED, code, detail)
    if status.phase == "Succeeded":
        return EndVerdict(Outcome.SUCCESS, 0)
    if status.phase == "Failed" and status.reason:  # the kubelet's own: Evicted, NodeShutdown, OutOfcpu
        return EndVerdict(Outcome.NODE_LOST, code, f"Kubernetes ended it ({status.reason}: {status.message})")
    if status.phase != "Failed":
        return EndVerdict(Outcome.STOPPED, code, "its pod was deleted")
    if bad is not None and bad.reason == "OOMKilled":
        return EndVerdict(Outcome.OUT_OF_MEMORY, code, "it wanted more memory than its limit")
    return EndVerdict(Outcome.USER_ERROR, code, exit_text(code))
