"""What makes pods that start together, as data: which pods are whose, how many belong together, how they are paused.

A line for each kind; a kind that is missing here is adopted pod by pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple


@dataclass(frozen=True, slots=True)
class SizeTerm:
    """A part of the number of pods that an owner makes.

    Attributes:
        over: path of a list, or of a mapping, whose entries are added up; empty: the object itself.
        factors: paths within each entry, multiplied; a missing field is 1.
        entry: of a mapping, this entry alone; empty: all.
        behind: path within each entry of what its pods are made behind; one has a name, which they have as their role.
    """

    over: str = ""
    factors: tuple[str, ...] = ()
    entry: str = ""
    behind: str = ""


class OwnerSize(NamedTuple):
    """How many pods of an owner run together.

    Attributes:
        first: those that it makes at once.
        later: by role, those that it makes once others run, or are done.
    """

    first: int
    later: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OwnerKind:
    """A kind of object that makes pods.

    Attributes:
        api: its group and version.
        label: on pods, with the name of their owner; empty: they have a reference to it.
        part: a label on pods that tells the gangs of one owner apart.
        role: labels on pods, the first of which names their role.
        size: how many pods a gang has: these, added up.
        in_order: path of a field that may say ``InOrder``: each entry of a list is made behind those before it.
        at_most: path of a number that bounds that.
        done: path of how many of that number have ended well, and are not made again; empty: pods themselves say so.
        suspend: path of the field that pauses it, and ends its pods; empty: it has none.
    """

    kind: str
    api: str
    plural: str
    size: tuple[SizeTerm, ...] = ()
    label: str = ""
    part: str = ""
    role: tuple[str, ...] = ()
    in_order: str = ""
    at_most: str = ""
    done: str = ""
    suspend: str = ""

    def path(self, namespace: str, name: str) -> str:
        """Where it is found."""
        return f"/apis/{self.api}/namespaces/{namespace}/{self.plural}/{name}"

    @property
    def right(self) -> str:
        """Its resource, as roles name it."""
        return f"{self.plural}.{self.api.partition('/')[0]}"


_TRAINING: Final = ("training.kubeflow.org/replica-type", "training.kubeflow.org/job-role")
OWNERS: Final = (
    OwnerKind(
        "JobSet",
        "jobset.x-k8s.io/v1alpha2",
        "jobsets",
        (SizeTerm("spec.replicatedJobs", ("replicas", "template.spec.parallelism"), behind="dependsOn"),),
        label="jobset.sigs.k8s.io/jobset-name",
        role=("jobset.sigs.k8s.io/replicatedjob-name",),
        in_order="spec.startupPolicy.startupPolicyOrder",
        suspend="spec.suspend",
    ),
    OwnerKind(
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io/v1",
        "leaderworkersets",
        (SizeTerm("", ("spec.leaderWorkerTemplate.size",)),),
        label="leaderworkerset.sigs.k8s.io/name",
        part="leaderworkerset.sigs.k8s.io/group-index",
    ),
    OwnerKind(
        "PyTorchJob",
        "kubeflow.org/v1",
        "pytorchjobs",
        (SizeTerm("spec.pytorchReplicaSpecs", ("replicas",)),),
        role=_TRAINING,
        suspend="spec.runPolicy.suspend",
    ),
    OwnerKind(
        "MPIJob",  # its launcher may be made when the workers run
        "kubeflow.org/v2beta1",
        "mpijobs",
        (SizeTerm("spec.mpiReplicaSpecs", ("replicas",), "Worker"),),
        role=_TRAINING,
        suspend="spec.runPolicy.suspend",
    ),
    OwnerKind(
        "RayCluster",
        "ray.io/v1",
        "rayclusters",
        (SizeTerm(), SizeTerm("spec.workerGroupSpecs", ("replicas", "numOfHosts"))),
        label="ray.io/cluster",
        role=("ray.io/group",),
        suspend="spec.suspend",
    ),
    OwnerKind(
        "Job",
        "batch/v1",
        "jobs",
        (SizeTerm("", ("spec.parallelism",)),),
        at_most="spec.completions",
        done="status.succeeded",
        suspend="spec.suspend",
    ),
    # These make no pods themselves, but pause what does.
    OwnerKind("TrainJob", "trainer.kubeflow.org/v1alpha1", "trainjobs", suspend="spec.suspend"),
    OwnerKind("RayJob", "ray.io/v1", "rayjobs", suspend="spec.suspend"),
)
MAKERS: Final = tuple(owner for owner in OWNERS if owner.size)
"""Those that make pods; labels go before references, as a JobSet's pods are those of Jobs too."""

ORDER_LABELS: Final = (
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "apps.kubernetes.io/pod-index",
)
"""Numbers of pods within their role, by which they get the numbers of their tasks."""


def size_of(kind: OwnerKind, plain: Mapping[str, Any]) -> OwnerSize:
    """How many pods an owner makes now that run together; at least 1."""
    is_in_order = bool(kind.in_order) and value_at(plain, kind.in_order) == "InOrder"
    size, later = 0, dict[str, int]()
    for term in kind.size:
        for place, entry in enumerate(_entries(term, plain)):
            count = _product(term.factors, entry)
            if (is_in_order and place) or (term.behind and value_at(entry, term.behind)):
                later[str(value_at(entry, "name"))] = count
            else:
                size += count
    bound = value_at(plain, kind.at_most) if kind.at_most else None
    done = value_at(plain, kind.done) if kind.done else None
    return OwnerSize(max(1, min(size, bound - (done or 0)) if isinstance(bound, int) else size), later)


def _entries(term: SizeTerm, plain: Mapping[str, Any]) -> Iterator[Any]:
    found = value_at(plain, term.over) if term.over else [plain]
    if isinstance(found, Mapping):
        yield from (entry for name, entry in found.items() if term.entry in ("", name))
    elif isinstance(found, list):
        yield from found


def _product(factors: tuple[str, ...], entry: Any) -> int:
    product = 1
    for path in factors:
        number = value_at(entry, path)
        product *= number if isinstance(number, int) else 1
    return product


def value_at(plain: Any, path: str) -> Any:
    """The value at a path of names with dots between; None where there is none."""
    for word in path.split("."):
        plain = plain.get(word) if isinstance(plain, Mapping) else None
    return plain
