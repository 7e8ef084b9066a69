"""The section ``kubernetes`` of the configuration: jobs are pods of one or several clusters.

Its part ``adopt`` says which pods of others are scheduled, and where they line up.
"""

from __future__ import annotations

import itertools
import posixpath
from collections import Counter
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from millpond.model.hardware.nodes import ANY_CLUSTER
from millpond.model.sharing import GPU_SLICES
from millpond.model.tenancy.tenants import DEFAULT_QUEUE
from millpond.specs.errors import BadValueError, as_written
from millpond.specs.job.fields import Duration, Name, PriorityName
from millpond.specs.job.images import Reference
from millpond.specs.job.mounts import HostPath
from millpond.specs.validation import SERVER_URL, Shortened, Strict, or_short

_LABEL = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"
ObjectName = Annotated[str, Field(max_length=253, pattern=_LABEL)]
ALL_NAMESPACES: Final = "*"
NamespaceName = Annotated[str, Field(max_length=63, pattern=rf"{_LABEL}|^[*]$")]
VolumeName = Annotated[str, Field(max_length=50, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
ExtendedResource = Annotated[str, Field(max_length=300, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9][\w.-]*$")]
TaintKey = Annotated[
    str, Field(max_length=317, pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?$")
]
ServerUrl = Annotated[str, Field(pattern=SERVER_URL, max_length=300)]
MOST_VOLUMES: Final = 50
MOST_CLUSTERS: Final = 20
MOST_EXTRAS: Final = 7
"""The scheduler counts eight, of which one is for parts of cards."""


class AdoptedNamespace(Shortened):
    """How the pods of a namespace line up; a queue, or a list of queues, is ``queues``.

    Attributes:
        queues: that they may have, by their label ``millpond.io/queue``; those without it go to the first.
        user: whose jobs they are; left out: the namespace's and the service account's.
    """

    model_config = or_short({"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1})

    queues: Annotated[list[Name], Field(min_length=1, max_length=100)]
    user: Name | None = None

    @classmethod
    def from_short(cls, value: Any) -> Any:
        return {"queues": value if isinstance(value, list) else [value]}


class AdoptFile(Shortened):
    """Which pods of others, with ``schedulerName: millpond``, are scheduled; ``true``: all, in the queue ``default``.

    Attributes:
        namespaces: by name, how their pods line up; ``"*"`` stands for all others.
        priorities: by the name of a PriorityClass, the class of a job; of others the number decides: above 0 is
            ``high``, below ``low``, and from a thousand million on ``critical``.
        gated: pods of other schedulers too, where they carry the label ``millpond.io/queue`` and the scheduling gate
            ``millpond.io/gate``: they are released for one node, to which their scheduler binds them.
    """

    model_config = or_short({"const": True})

    namespaces: Annotated[dict[NamespaceName, AdoptedNamespace], Field(min_length=1, max_length=1_000)]
    priorities: Annotated[dict[ObjectName, PriorityName], Field(max_length=100)] = Field(default={})
    gated: bool = False

    @classmethod
    def from_short(cls, value: Any) -> Any:
        if value is not True:
            raise BadValueError(
                f"{as_written(value)} is not true", "write true, or {namespaces: {team-a: QUEUE}}; or leave it out"
            )
        return {"namespaces": {ALL_NAMESPACES: DEFAULT_QUEUE}}

    def of(self, namespace: str) -> AdoptedNamespace | None:
        """What holds for a namespace; None: its pods are not adopted."""
        return self.namespaces.get(namespace) or self.namespaces.get(ALL_NAMESPACES)


class VolumeFile(Strict):
    """Storage of the cluster that jobs may name as their data, their output or their working directory.

    Attributes:
        path: the folder that it is to jobs: in job files and in pods; left out: ``host_path``.
        claim: a persistent volume claim of the namespace: network storage, or an object store with a driver.
        host_path: a folder of each node.
        read_only: no job may write there.
    """

    path: HostPath | None = None
    claim: ObjectName | None = None
    host_path: HostPath | None = None
    read_only: bool = False

    @model_validator(mode="after")
    def _whole(self) -> VolumeFile:
        if (self.claim is None) == (self.host_path is None):
            raise BadValueError("a volume is a claim or a host_path", "write one of the two")
        if self.claim is not None and self.path is None:
            raise BadValueError(
                f"the claim {self.claim} has no path", "write the folder that it is to jobs: path: /data"
            )
        for name in (self.path, self.host_path):
            if name is not None and (name != posixpath.normpath(name) or name in ("/", "//")):
                raise BadValueError(f"{name!r} is not the shortest name of a folder below /", "leave out .. and //")
        return self

    @property
    def folder(self) -> str:
        """The folder that it is to jobs."""
        return self.path or self.host_path or ""


class NamedCluster(Strict):
    """The way to one of several clusters, and what its pods have of their own; as it is when the server starts.

    Attributes:
        kubeconfig: file with the way to the cluster; left out: as kubectl finds it, in a pod the pod's own account.
        context: of that file; left out: its current one.
        namespace: of its pods; left out: that of all pods.
        service_account: of its pods; left out: that of all pods.
        pull_secrets: names of secrets of its namespace with logins of registries; left out: those of all pods.
        server_url: how its pods reach this server; left out: as all pods do.
        claims: by the names of volumes, the persistent volume claims that they are there; left out: as everywhere.
        extras: by the names in ``extras``, the extended resources that they are there; left out: as everywhere.
        nodes: which are Millpond's; left out: as everywhere.
        tolerate: keys of taints that pods tolerate there; left out: those of everywhere.
        node_timeout: of its nodes; left out: that of all.
        image: of jobs that name none; left out: that of all pods.
        helper_image: in which files are carried there; left out: as everywhere.
    """

    kubeconfig: Annotated[str, Field(min_length=1)] | None = None
    context: Annotated[str, Field(min_length=1)] | None = None
    namespace: ObjectName | None = None
    service_account: ObjectName | None = None
    pull_secrets: Annotated[list[ObjectName], Field(max_length=20)] | None = None
    server_url: ServerUrl | None = None
    claims: Annotated[dict[VolumeName, ObjectName], Field(max_length=MOST_VOLUMES)] = Field(default={})
    extras: Annotated[dict[Name, ExtendedResource], Field(max_length=MOST_EXTRAS)] = Field(default={})
    nodes: Literal["labelled", "all"] | None = None
    tolerate: Annotated[list[TaintKey], Field(max_length=20)] | None = None
    node_timeout: Annotated[Duration, Field(ge=10, le=3_600)] | None = None
    image: Reference | None = None
    helper_image: Reference | None = None


class KubernetesFile(Strict):
    """The cluster or clusters, and what all pods have in common.

    Attributes:
        clusters: several, by name, which share queues and pools; a job runs in one of them. Left out: there is one, and
            the way to it is said here.
        machine: the pool of the machine that the server runs on, beside ``clusters``: its jobs are processes of the
            machine, those of other pools are pods; left out: nothing runs on the machine.
        kubeconfig: file with the way to the cluster; left out: as kubectl finds it, in a pod the pod's own account.
        context: of that file; left out: its current one.
        namespace: of all pods; left out: the context's.
        nodes: ``labelled``: nodes with the label ``millpond.io/pool``, whose value is the name of their pool;
            ``all``: others too, in the pool ``default``.
        image: of jobs that name none.
        service_account: of all pods; left out: the namespace's default, with no token in the pods.
        pull_secrets: names of secrets of the namespace with logins of registries.
        server_url: how pods reach this server, to fetch and bring back the files of jobs; left out: in a pod by the
            service ``millpond`` of its namespace, elsewhere by ``listen.public_url``, or the address it listens on.
        helper_image: with Python 3.8 or later, in which files are carried; left out: the job's own image.
        volumes: storage that jobs may name by its paths.
        extras: extended resources of the cluster besides cards, such as RDMA adapters, by what jobs call them in
            ``extras``; at most seven, as they are when the server starts.
        tolerate: keys of taints that Millpond's pods tolerate, whatever their value and effect, besides
            ``millpond.io/pool`` and those of cards. Nodes with other taints are closed; pods of others have to tolerate
            all taints of their node themselves.
        adopt: pods of others that are scheduled here too; left out: none are.
        node_timeout: what runs on a node whose kubelet has been silent for so long is lost, and retried elsewhere.
    """

    clusters: Annotated[dict[Name, NamedCluster], Field(max_length=MOST_CLUSTERS)] = Field(default={})
    machine: Name | None = None
    kubeconfig: Annotated[str, Field(min_length=1)] | None = None
    context: Annotated[str, Field(min_length=1)] | None = None
    namespace: ObjectName | None = None
    nodes: Literal["labelled", "all"] = "labelled"
    image: Reference | None = None
    service_account: ObjectName | None = None
    pull_secrets: Annotated[list[ObjectName], Field(max_length=20)] = Field(default=[])
    server_url: ServerUrl | None = None
    helper_image: Reference | None = None
    volumes: Annotated[dict[VolumeName, VolumeFile], Field(max_length=MOST_VOLUMES)] = Field(default={})
    extras: Annotated[dict[Name, ExtendedResource], Field(max_length=MOST_EXTRAS)] = Field(default={})
    tolerate: Annotated[list[TaintKey], Field(max_length=20)] = Field(default=[])
    adopt: AdoptFile | None = None
    node_timeout: Annotated[Duration, Field(ge=10, le=3_600)] = 60.0

    @property
    def each(self) -> dict[str, KubernetesFile]:
        """The settings of each of several clusters, by its name; of one alone by an empty one."""
        if not self.clusters:
            return {"": self}
        there = {"claims", "extras"}  # of what has a name everywhere
        ways = {name: way.model_dump(exclude_none=True, exclude=there) for name, way in self.clusters.items()}
        return {
            name: self.model_copy(
                update={"clusters": {}, "volumes": self._volumes_in(name), "extras": self._extras_in(name), **way}
            )
            for name, way in ways.items()
        }

    def _extras_in(self, cluster: str) -> dict[str, str]:
        """The extra resources as they are in one of several clusters."""
        return {**self.extras, **self.clusters[cluster].extras}

    def _volumes_in(self, cluster: str) -> dict[str, VolumeFile]:
        """The volumes as they are in one of several clusters."""
        claims = self.clusters[cluster].claims
        return {
            name: volume.model_copy(update={"claim": claims.get(name, volume.claim)})
            for name, volume in self.volumes.items()
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Of several clusters, that which the machine makes among them; none where there is one."""
        return (*self.clusters, *([self.machine] if self.machine else []))

    @model_validator(mode="after")
    def _several(self) -> KubernetesFile:
        if self.machine is not None and not self.clusters:
            raise BadValueError("the machine is named beside no clusters", "name them: clusters: {east: {…}}")
        if not self.clusters:
            return self
        if self.kubeconfig is not None or self.context is not None:
            raise BadValueError(
                "one way to a cluster beside several clusters",
                "move kubeconfig and context to the cluster they lead to",
            )
        for name in (ANY_CLUSTER, self.machine):
            if name in self.clusters:
                raise BadValueError(f"a cluster cannot be called {name}", "give it another name")
        ways: dict[tuple[str | None, str | None], str] = {}
        for name, way in self.clusters.items():
            other = ways.setdefault((way.kubeconfig, way.context), name)
            if other != name:
                raise BadValueError(f"the clusters {other} and {name} are one", "leave one of them out")
        return self

    @model_validator(mode="after")
    def _claims_there(self) -> KubernetesFile:
        for name, way in self.clusters.items():
            for volume in way.claims:
                if volume not in self.volumes or self.volumes[volume].claim is None:
                    raise BadValueError(
                        f"cluster {name} has a claim for {volume}, which is no volume with a claim",
                        "name one of volumes, which says where jobs have it",
                    )
        return self

    @model_validator(mode="after")
    def _names_there(self) -> KubernetesFile:
        for name, way in self.clusters.items():
            for extra in sorted(way.extras.keys() - self.extras.keys()):
                raise BadValueError(
                    f"cluster {name} has a resource for {extra}, which is none of extras",
                    "name one of kubernetes.extras, by which jobs ask for it",
                )
            if way.image is not None and self.image is None:
                raise BadValueError(
                    f"cluster {name} has an image for jobs that name none, and others have none",
                    "write kubernetes.image too: it is not known before where a job will run",
                )
        return self

    @model_validator(mode="after")
    def _beside_cards(self) -> KubernetesFile:
        if GPU_SLICES in self.extras:
            raise BadValueError(f"{GPU_SLICES} stands for parts of cards", "give it another name")
        for extras in (self.extras, *map(self._extras_in, self.clusters)):
            for resource, count in Counter(extras.values()).items():
                if count > 1:
                    raise BadValueError(f"{resource} has two names", "give it one")
                if resource.endswith("/gpu") or resource.startswith("millpond.io/"):
                    raise BadValueError(f"{resource} stands for cards", "leave it out: jobs ask for these by gpus")
        return self

    @model_validator(mode="after")
    def _fit_nodes(self) -> KubernetesFile:
        for key in itertools.chain(self.tolerate, *(way.tolerate or () for way in self.clusters.values())):
            if key.startswith("node.kubernetes.io/"):
                raise BadValueError(f"the taint {key} says that a node is not fit for work", "leave it out")
        return self

    @model_validator(mode="after")
    def _distinct(self) -> KubernetesFile:
        by_folder: dict[str, str] = {}
        for name, volume in self.volumes.items():
            other = by_folder.setdefault(volume.folder, name)
            if other != name:
                raise BadValueError(f"the volumes {other} and {name} are both {volume.folder}", "give one another path")
        return self
