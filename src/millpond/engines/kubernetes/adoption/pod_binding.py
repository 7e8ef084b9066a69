"""Which pods go where, and how they are bound: the mark of the task and the node in one request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from lightkube.models.core_v1 import Binding, ObjectReference
from lightkube.models.meta_v1 import ObjectMeta

from millpond.engines.kubernetes.adoption.gated_pods import pinned
from millpond.engines.kubernetes.adoption.pod_objects import NODE_ANNOTATION, ScheduledPod
from millpond.engines.kubernetes.claims.claim_writing import ClaimWriter
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_refusals import StatusError
from millpond.engines.kubernetes.cluster.request_turns import BINDING
from millpond.engines.kubernetes.pods.pod_marks import SERVER_LABEL, TASK_ANNOTATION, TaskMark
from millpond.engines.kubernetes.pods.slice_order import SliceOrder, of_agent
from millpond.model.decisions import Placement

_NOT_FOUND, _CONFLICT = 404, 409
DELETED: Final = "was deleted before it was bound"


def matched(
    waiting: Mapping[str, Sequence[ScheduledPod]], placements: Sequence[Placement]
) -> list[tuple[ScheduledPod, Placement]] | None:
    """The pods of each role to its placements, in order; None when there are too few."""
    left = {role: iter(pods) for role, pods in waiting.items()}
    pairs = [(next(left.get(placed.role, iter(())), None), placed) for placed in placements]
    return None if any(pod is None for pod, _ in pairs) else [(pod, placed) for pod, placed in pairs if pod is not None]


def bound_by_others(pod: ScheduledPod) -> str:
    """Why a pod that others have bound is no task: another scheduler was first, or changed the node of a binding."""
    return f"an admission webhook or another scheduler has bound pod {pod.metadata.name} to node {pod.spec.node_name}"


async def bind_pod(
    api: ClusterApi,
    pod: ScheduledPod,
    mark: TaskMark,
    placed: Placement,
    server: str,
    claims: ClaimWriter | None,
) -> str:
    """Bind a pod, or release one that is held by a gate; says why it is not bound there, empty when it is.

    Args:
        pod: as it was before its claims were written.
        server: the identity of the server that binds it.
        claims: by which its claims were written: it is bound if no other server took these since, or not at all; None:
            it has none.
    """
    meta, node = pod.metadata, placed.node
    annotations = _annotations(mark, placed, server)
    target = ObjectReference(apiVersion="v1", kind="Node", name=node)
    about = ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid, annotations=annotations)
    path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}"
    while True:
        try:
            if pod.spec.scheduling_gates:
                await api.ask("PATCH", path, _release(pod, node, annotations), patch="merge", turn=BINDING)
            else:
                about.resourceVersion = None if claims is None else pod.metadata.resource_version
                await api.ask("POST", f"{path}/binding", Binding(metadata=about, target=target), turn=BINDING)
        except StatusError as error:
            try:
                there = msgspec.json.decode(await api.ask("GET", path), type=ScheduledPod)
            except StatusError as unseen:
                gone = f"pod {meta.name} {DELETED}"
                return gone if unseen.code == _NOT_FOUND else f"pod {meta.name} cannot be bound to node {node}: {error}"
            if there.metadata.uid != meta.uid:
                return f"pod {meta.name} {DELETED}"
            if TaskMark.of(there.metadata.annotations) == mark and there.node == node:
                return ""
            if there.spec.node_name:
                return bound_by_others(there)
            as_written = claims is not None and (there.let_go == pod.let_go or claims.has_written(there.let_go))
            if error.code == _CONFLICT and there.waits and (pod.spec.scheduling_gates or as_written):
                pod = there  # somebody has changed it meanwhile
                continue
            return f"pod {meta.name} cannot be bound to node {node}: {error}"
        return ""


def _annotations(mark: TaskMark, placed: Placement, server: str) -> dict[str, str]:
    order = SliceOrder(of_agent(placed.grants))
    return {TASK_ANNOTATION: mark.text, SERVER_LABEL: server, **(order.annotation() if order.grants else {})}


def _release(pod: ScheduledPod, node: str, annotations: Mapping[str, str]) -> dict[str, Any]:
    """The change by which a pod is no longer held, and has one node left; of the pod as it was read alone."""
    meta = {
        "uid": pod.metadata.uid,
        "resourceVersion": pod.metadata.resource_version,
        "annotations": {**annotations, NODE_ANNOTATION: node},
    }
    return {"metadata": meta, "spec": {"schedulingGates": [], "affinity": pinned(pod.spec.affinity, node)}}
