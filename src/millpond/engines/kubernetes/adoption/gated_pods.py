"""Pods that another scheduler binds, where Millpond says: they are held by a scheduling gate until then.

What is released carries the node as a required node affinity, so that the other scheduler has one choice left. It can
find that the node has no room after all, as others use it too; a released pod cannot be held again, so it has to leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from copy import deepcopy
from typing import Any, Final

from millpond.engines.kubernetes.adoption.gangs import QUEUE_LABEL
from millpond.engines.kubernetes.adoption.pod_objects import GATE, ScheduledPod
from millpond.engines.kubernetes.cluster.cluster_nodes import NAME_FIELD
from millpond.engines.kubernetes.cluster.reflector import ObjectPart
from millpond.engines.kubernetes.pods.pod_marks import SCHEDULER, SERVER_LABEL, TaskMark

GATED_PODS: Final = ObjectPart(
    ScheduledPod,
    QUEUE_LABEL.encode(),
    SERVER_LABEL,
    lambda pod: QUEUE_LABEL in pod.metadata.labels,
)
UNLABELLED_PODS: Final = ObjectPart(
    ScheduledPod,
    GATE.encode(),
    SERVER_LABEL,
    lambda pod: _is_held(pod) and QUEUE_LABEL not in pod.metadata.labels,
)
"""Pods that are held and not found, which would wait for ever."""
NO_QUEUE: Final = (
    f"the gate {GATE} holds it, and it has no label {QUEUE_LABEL}: "
    "give it one in its owner's template, with the name of a queue, and make it anew"
)
BOUND_WITHIN_S: Final = 30.0
"""A released pod that no scheduler has bound after so long has to leave."""
NOT_BOUND: Final = "NotBound"


def is_gated(pod: ScheduledPod) -> bool:
    """Whether a pod is held for Millpond, or was released by it; not one that names it as its scheduler."""
    return _is_held(pod) or (pod.spec.scheduler_name != SCHEDULER and TaskMark.of(pod.metadata.annotations) is not None)


def _is_held(pod: ScheduledPod) -> bool:
    return pod.spec.scheduler_name != SCHEDULER and any(gate.name == GATE for gate in pod.spec.scheduling_gates)


def pinned(affinity: dict[str, Any], node: str) -> dict[str, Any]:
    """An affinity of a pod with one node left of those that it allows.

    Of a pod that is held, requirements may be added to each alternative, and no alternative. One without requirements
    matches no node, and stays so.
    """
    found = deepcopy(affinity)
    required = found.setdefault("nodeAffinity", {}).setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    alternatives = required.setdefault("nodeSelectorTerms", [])
    this_node = {"key": NAME_FIELD, "operator": "In", "values": [node]}
    for term in alternatives:
        if term.get("matchExpressions") or term.get("matchFields"):
            term["matchFields"] = [*(term.get("matchFields") or ()), this_node]
    if not alternatives:
        alternatives.append({"matchFields": [this_node]})
    return found


class ReleasedPods:
    """Those that a scheduler has yet to bind. Lives on the engine's loop.

    Args:
        taken: the pod of a task by its namespace and name, as it is now; None: it is none.
        evict: has a pod leave, for a reason.
        tell: writes an event with a reason and a text.
        begin: does something beside everything else.
    """

    def __init__(
        self,
        taken: Callable[[str], ScheduledPod | None],
        evict: Callable[[ScheduledPod, str], Coroutine[Any, Any, None]],
        tell: Callable[[ScheduledPod, str, str], Coroutine[Any, Any, None]],
        begin: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._taken, self._evict, self._tell, self._begin = taken, evict, tell, begin

    def follow(self, pod: ScheduledPod, node: str) -> None:
        """A pod was released for a node."""
        asyncio.get_running_loop().call_later(BOUND_WITHIN_S, self._look, pod.key, pod.metadata.uid, node)

    def _look(self, key: str, uid: str, node: str) -> None:
        pod = self._taken(key)
        if pod is None or pod.metadata.uid != uid or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            return
        said = next((each.message for each in pod.status.conditions if each.type == "PodScheduled"), "")
        text = f"no scheduler has bound it to node {node}, for which it was released{f': {said}' if said else ''}"
        if pod.controller is not None:
            self._begin(self._evict(pod, text))
            return
        self._begin(self._tell(pod, NOT_BOUND, f"{text}; delete it and make it anew to line it up again"))
        self.follow(pod, node)
