"""The engine for a Kubernetes cluster as this server uses it: what its jobs' pods run."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millpond.engines.clusters.engine_router import EngineRouter
from millpond.engines.clusters.late_engine import ClusterEngine, LateEngine
from millpond.engines.clusters.routed_adoption import RoutedAdoption, key_in_cluster
from millpond.engines.kubernetes.adoption.gangs import GangKey
from millpond.engines.kubernetes.cluster.kubeconfig import find_config
from millpond.engines.kubernetes.libraries import require_client
from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.model.hardware.nodes import Node
from millpond.model.sharing import SliceRules
from millpond.model.workloads import CheckpointMode, Suspendable
from millpond.node.carrier.order import CarryOrder
from millpond.node.task.workspace import Workspace, data_variable
from millpond.server.auth.run_tokens import PodRun, RunTokens
from millpond.server.auth.vault.secrets import Vault
from millpond.server.jobs.adoption.adopter import Adopter
from millpond.server.jobs.adoption.gang_documents import key_in
from millpond.server.operations.cluster_check import access_of
from millpond.server.server_components import ServerComponents
from millpond.server.storage.files.service import FileService
from millpond.server.storage.job_files import JobFiles
from millpond.server.storage.provisioning.pod_jobs import PodJobs
from millpond.specs.config.kubernetes import AdoptFile, KubernetesFile, NamedCluster
from millpond.specs.config.origins import PATHS_ONLY, JobOrigins
from millpond.specs.job.job_file import JobFile
from millpond.specs.job.job_ids import service_of
from millpond.specs.job.serving import base_path

if TYPE_CHECKING:
    from millpond.engines.kubernetes.engine import KubernetesEngine
    from millpond.engines.kubernetes.pods.carried_runs import CarriedRuns
    from millpond.engines.kubernetes.pods.pod_files import CarriedFiles
    from millpond.engines.kubernetes.pods.pod_template import PodLaunch
    from millpond.engines.kubernetes.pods.pod_volumes import PodMount


NOBODY: Final = AdoptFile.model_construct(namespaces={}, priorities={})
"""The rules of a configuration that was read again, and has none any more."""


@dataclass(frozen=True, slots=True)
class ProgramKeys:
    """The access keys of jobs, which follow from the server's own secret: none has to be stored, or read back."""

    secret: str

    def of(self, job: str) -> str:
        """The key that all runs of a job have."""
        return hmac.new(self.secret.encode(), f"program of {job}".encode(), hashlib.sha256).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Carriage:
    """How files are carried into pods, and out of them.

    Attributes:
        server_url: of this server, as pods reach it; empty: they do not, and nothing is carried.
        helper_image: in which that is done; empty: in the job's own.
        certificate: file of this server's, which speaks TLS; None: it does not, or another speaks it for it.
    """

    tokens: RunTokens
    server_url: Callable[[], str]
    helper_image: Callable[[], str]
    certificate: Callable[[], str | None]

    def order(self, run: PodRun, workspace: Workspace) -> CarryOrder:
        """What the carriers of a run are told.

        Raises:
            UnavailableError: the server's certificate cannot be read.
        """
        certificate = self.certificate()
        try:
            authority = "" if certificate is None else Path(certificate).read_text()
        except OSError as error:
            raise UnavailableError(f"{certificate} cannot be read ({error.strerror})", "check its rights") from error
        data = {mount.name: mount.snapshot for mount in workspace.data if mount.snapshot}
        return CarryOrder(
            self.server_url().rstrip("/"),
            self.tokens.token(run),
            run.job,
            run.attempt,
            authority,
            workspace.snapshot,
            workspace.payload,
            data,
        )

    def files_of(self, run: PodRun, workspace: Workspace, image: str) -> CarriedFiles | None:
        """What is carried for the runs of a job; None: nothing.

        Args:
            run: any of its runs.
            image: the job's own.
        """
        from millpond.engines.kubernetes.pods.pod_files import CarriedFiles

        if not self.server_url():
            return None
        order = self.order(run, workspace)
        return CarriedFiles(self.helper_image() or image, lambda attempt: self._of_attempt(order, run, attempt))

    def _of_attempt(self, order: CarryOrder, run: PodRun, attempt: int) -> CarryOrder:
        return replace(order, attempt=attempt, token=self.tokens.token(replace(run, attempt=attempt)))


@dataclass(frozen=True, slots=True)
class PodLauncher:
    """Knows what the pods of jobs run.

    Attributes:
        keys: what programs may ask of those who connect to them.
        slice_rules: how a pool holds tasks to their parts of cards.
        claims: by the names of volumes, those that are other claims in this cluster.
    """

    jobs: JobFiles
    pods: PodJobs
    vault: Vault
    files: FileService
    keys: ProgramKeys
    carriage: Carriage
    slice_rules: Callable[[str], SliceRules]
    origins: JobOrigins = PATHS_ONLY
    claims: Mapping[str, str] = field(default_factory=dict)

    def in_cluster(self, way: NamedCluster) -> PodLauncher:
        """What pods of one of several clusters run."""
        url, helper, image = way.server_url, way.helper_image, way.image
        carriage, pods = self.carriage, replace(self.pods, extras={**self.pods.extras, **way.extras})
        if url is not None:
            carriage = replace(carriage, server_url=lambda: url)
        if helper is not None:
            carriage = replace(carriage, helper_image=lambda: helper)
        if image is not None:
            pods = replace(pods, default_image=lambda: image)
        return replace(self, carriage=carriage, pods=pods, claims=way.claims)

    def stands_for(self, cluster: str) -> dict[str, GangKey]:
        """The gangs of pods of others for which jobs stand that have not ended, as the engine of a cluster knows them.

        Args:
            cluster: one of several; empty: the only one.
        """
        keys = {job: key_in(document) for job, document in self.jobs.live_with("adopted").items()}
        return {job: key_in_cluster(key) for job, key in keys.items() if key.cluster == cluster}

    def require_clusters(self, clusters: Collection[str]) -> None:
        """Whether all jobs that stand for pods of others do so in one of these clusters.

        Args:
            clusters: by their names; an empty one is that of the only cluster.

        Raises:
            InvalidInputError: the pods of one are in another, and nobody would look after them.
        """
        for job, document in self.jobs.live_with("adopted").items():
            if (key := key_in(document)).cluster not in clusters:
                raise InvalidInputError(
                    f"job {job} stands for the pods of {key.text}, from before kubernetes.clusters was changed",
                    "start with the clusters as they were, end such jobs (`pond stop`), and change them then",
                )

    def launch_of(self, job: str) -> PodLaunch:
        """What a job's pods run, from the job file it was submitted with.

        Raises:
            NotFoundError: there is no such job, or no more a secret of its.
            InvalidInputError: this version no longer understands its file, or it may no longer have its image, a folder
                of a volume, or an extra resource.
            UnavailableError: a secret of its cannot be opened, or the server's certificate cannot be read.
        """
        from millpond.engines.kubernetes.pods.pod_template import PodLaunch, RoleNeeds

        accepted = self.jobs.latest(job)
        if (adopted := accepted.spec.file.adopted) is not None:
            raise InvalidInputError(
                f"{adopted.kind} {adopted.namespace}/{adopted.name} is no longer scheduled here", "see kubernetes.adopt"
            )
        spec, file = accepted.spec, accepted.spec.file
        checkpoint = spec.job.checkpoint
        roles = {
            role.name: RoleNeeds(
                spec.commands[role.name],
                role.cpus or 0,
                role.memory or 0,
                file.names_memory(role.name),
                self.pods.extended_resources(role),
            )
            for role in file.all_roles()
        }
        workspace, image = self.files.workspace(file), self.pods.image_of(file)
        return PodLaunch(
            image,
            roles,
            {**file.env, **_places(workspace), **self._base(job, file)},
            {
                **self.vault.environment(accepted.user, accepted.group, file.secrets),
                **({"MILLPOND_ACCESS_KEY": self.keys.of(job)} if file.serves else {}),
            },
            checkpoint.signal if checkpoint.mode is CheckpointMode.SIGNAL else "",
            checkpoint.grace_s,
            mounts=self._mounts(file, workspace),
            workdir=file.workdir if self.pods.working_folder(file) and file.workdir else "",
            serves=file.serves,
            files=self.carriage.files_of(PodRun(accepted.user, job, 0), workspace, image),
            reads_input=file.stdin,
            share_class=spec.job.share_class,
            slice_rules=self.slice_rules(file.pool),
            swappable=spec.job.suspendable is Suspendable.SWAP,
        )

    def _base(self, job: str, file: JobFile) -> dict[str, str]:
        """Where the proxy shows what it serves."""
        if not file.serves:
            return {}
        service = service_of(job)
        origin = self.origins.url_of(service)
        return {"MILLPOND_BASE_PATH": base_path(service), **({"MILLPOND_ORIGIN": origin} if origin else {})}

    def _mounts(self, file: JobFile, workspace: Workspace) -> tuple[PodMount, ...]:
        """The folders of volumes that a job has."""
        from millpond.engines.kubernetes.pods.pod_volumes import PodMount, merged

        folders = [(self.pods.volumes.place(mount.path), True) for mount in workspace.data if mount.path]
        folders += [(self.pods.volumes.place(workspace.output), False)] if workspace.output else []
        if (found := self.pods.working_folder(file)) is not None:
            folders.append((found[0], not found[1]))
        return tuple(
            merged(
                [
                    PodMount(
                        place.name,
                        place.path,
                        self.claims.get(place.name) or place.volume.claim or "",
                        place.volume.host_path or "",
                        place.below,
                        read_only or place.volume.read_only,
                    )
                    for place, read_only in folders
                    if place is not None
                ]
            )
        )


def _places(workspace: Workspace) -> dict[str, str]:
    """The variables by which a task finds its folders of volumes: these are at their own paths."""
    found = {data_variable(mount.name): mount.path for mount in workspace.data if mount.path}
    return {**found, "MILLPOND_OUTPUT": workspace.output} if workspace.output else found


def adopter_of(adopt: Callable[[], AdoptFile | None], components: ServerComponents, engine: object) -> Adopter | None:
    """What submits pods of others as jobs; None where none are adopted.

    Args:
        adopt: the rules for it, as the configuration has them now.
    """
    if adopt() is None:
        return None
    from millpond.engines.kubernetes.engine import KubernetesEngine

    adoption = engine.adoption if isinstance(engine, EngineRouter) else engine
    assert isinstance(adoption, KubernetesEngine | RoutedAdoption), "the section of the configuration is that of these"
    known = {job: key_in(document) for job, document in components.job_files.live_with("adopted").items()}
    adopter = Adopter(components, adoption, lambda: adopt() or NOBODY, known)
    adoption.when_found(adopter.wake)
    return adopter


@dataclass(slots=True)
class PodEngines:
    """Opens the engines of clusters.

    Attributes:
        runs: hears which tasks have pods.
        notes: what is to be said of those that were opened.
    """

    state_dir: Path
    launcher: PodLauncher
    servers: Sequence[str]
    wake: Callable[[], None]
    runs: CarriedRuns
    notes: list[str] = field(default_factory=list)
    _seen: dict[str, frozenset[str]] = field(default_factory=dict)
    """Which of several clusters is which, by name."""

    def open(self, config: KubernetesFile, name: str = "", launcher: PodLauncher | None = None) -> KubernetesEngine:
        """The engine of a cluster, once it has seen that.

        Jobs that stand for pods of others are known to it from the store, before it does anything.

        Args:
            name: of one of several.
            launcher: knows what pods run there; left out: what they run anywhere.

        Raises:
            UnavailableError: the client library is not installed, or the cluster cannot be looked at.
        """
        require_client()
        from millpond.engines.kubernetes.adoption.foreign_pods import AdoptionRules
        from millpond.engines.kubernetes.cluster.cluster_nodes import TOLERATED, NodeRules
        from millpond.engines.kubernetes.engine import KubernetesEngine, KubernetesOptions

        adopts = None
        if config.adopt is not None:
            names = {resource: name for name, resource in config.extras.items()}
            stand_for = self.launcher.stands_for(name)
            adopts = AdoptionRules(frozenset(config.adopt.namespaces), stand_for, config.adopt.gated, names)
        options = KubernetesOptions(
            self.wake,
            NodeRules(config.nodes == "all", extras=config.extras, tolerated=(*TOLERATED, *config.tolerate)),
            config.node_timeout,
            self.servers,
            config.service_account or "",
            tuple(config.pull_secrets),
            adopts,
            self.launcher.keys.of,
            self.runs,
        )
        return KubernetesEngine(access_of(config), self.state_dir, (launcher or self.launcher).launch_of, options)

    def open_one_of_several(
        self, name: str, config: KubernetesFile, way: NamedCluster, known: Sequence[Node]
    ) -> ClusterEngine:
        """The engine of one of several clusters; one that does not answer is waited for beside the others.

        Args:
            way: what its pods have of their own.
            known: its nodes, as the core knows them.

        Raises:
            UnavailableError: the way to it is not known, or the client library is not installed.
            InvalidInputError: it is another one of them.
        """
        find_config(access_of(config))
        try:
            engine = self._open_new(name, config, way)
        except UnavailableError as error:
            self.notes.append(f"warning: cluster {name} is waited for: {error}")
            return LateEngine(name, lambda: self._open_new(name, config, way), known, self.wake)
        self.notes += (f"{name}: {note}" for note in engine.notes())
        return engine

    def _open_new(self, name: str, config: KubernetesFile, way: NamedCluster) -> KubernetesEngine:
        """The engine of a cluster that no other engine drives.

        Raises:
            UnavailableError: it cannot be looked at.
            InvalidInputError: another engine drives it.
        """
        engine = self.open(config, name, self.launcher.in_cluster(way))
        identity = engine.identity()
        for other, seen in self._seen.items():
            if other != name and seen & identity:
                engine.close()
                raise InvalidInputError(f"the clusters {other} and {name} are one", "leave one of them out")
        self._seen[name] = identity
        return engine
