"""The section ``kubernetes`` of the configuration: jobs are pods of a cluster instead of processes of the machine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from millpond.specs.job.fields import Duration
from millpond.specs.job.images import Reference
from millpond.specs.validation import Strict

_LABEL = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"
ObjectName = Annotated[str, Field(max_length=253, pattern=_LABEL)]


class KubernetesFile(Strict):
    """The cluster, and what all pods have in common.

    Attributes:
        kubeconfig: file with the way to the cluster; left out: as kubectl finds it, in a pod the pod's own account.
        context: of that file; left out: its current one.
        namespace: of all pods; left out: the context's.
        nodes: ``labelled``: nodes with the label ``millpond.io/pool``, whose value is the name of their pool;
            ``all``: others too, in the pool ``default``.
        image: of jobs that name none.
        service_account: of all pods; left out: the namespace's default, with no token in the pods.
        pull_secrets: names of secrets of the namespace with logins of registries.
        node_timeout: what runs on a node whose kubelet has been silent for so long is lost, and retried elsewhere.
    """

    kubeconfig: Annotated[str, Field(min_length=1)] | None = None
    context: Annotated[str, Field(min_length=1)] | None = None
    namespace: ObjectName | None = None
    nodes: Literal["labelled", "all"] = "labelled"
    image: Reference | None = None
    service_account: ObjectName | None = None
    pull_secrets: Annotated[list[ObjectName], Field(max_length=20)] = Field(default=[])
    node_timeout: Annotated[Duration, Field(ge=10, le=3_600)] = 60.0
