"""The engine for a Kubernetes cluster as this server uses it: what its jobs' pods run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.engines.kubernetes.access import require_client
from millpond.model.workloads import CheckpointMode
from millpond.node.task.workspace import Workspace, data_variable
from millpond.server.auth.vault.secrets import Vault
from millpond.server.operations.cluster_check import access_of
from millpond.server.startup.local_engine import said_memory
from millpond.server.storage.files.service import FileService
from millpond.server.storage.job_files import JobFiles
from millpond.server.storage.provisioning.pod_jobs import PodJobs
from millpond.specs.config.kubernetes import KubernetesFile
from millpond.specs.job.job_file import JobFile

if TYPE_CHECKING:
    from millpond.engines.kubernetes.engine import KubernetesEngine
    from millpond.engines.kubernetes.pod_template import PodLaunch
    from millpond.engines.kubernetes.pod_volumes import PodMount


@dataclass(frozen=True, slots=True)
class PodLauncher:
    """Knows what the pods of jobs run."""

    jobs: JobFiles
    pods: PodJobs
    vault: Vault
    files: FileService

    def launch_of(self, job: str) -> PodLaunch:
        """What a job's pods run, from the job file it was submitted with.

        Raises:
            NotFoundError: there is no such job, or no more a secret of its.
            InvalidInputError: this version no longer understands its file, or it may no longer have its image, or a
                folder of a volume.
            UnavailableError: a secret of its cannot be opened.
        """
        from millpond.engines.kubernetes.pod_template import PodLaunch, RoleNeeds

        accepted = self.jobs.latest(job)
        spec, file = accepted.spec, accepted.spec.file
        checkpoint = spec.job.checkpoint
        roles = {
            role.name: RoleNeeds(spec.commands[role.name], role.cpus or 0, role.memory or 0, said_memory(file, role))
            for role in file.all_roles()
        }
        workspace = self.files.workspace(file)
        return PodLaunch(
            self.pods.image_of(file),
            roles,
            {**file.env, **_places(workspace)},
            self.vault.environment(accepted.user, accepted.group, file.secrets),
            checkpoint.signal if checkpoint.mode is CheckpointMode.SIGNAL else "",
            checkpoint.grace_s,
            mounts=self._mounts(file, workspace),
            workdir=file.workdir if self.pods.working_folder(file) and file.workdir else "",
        )

    def _mounts(self, file: JobFile, workspace: Workspace) -> tuple[PodMount, ...]:
        """The folders of volumes that a job has."""
        from millpond.engines.kubernetes.pod_volumes import PodMount, merged

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
                        place.volume.claim or "",
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


def open_engine(
    config: KubernetesFile,
    state_dir: Path,
    launcher: PodLauncher,
    servers: Sequence[str],
    wake: Callable[[], None],
) -> KubernetesEngine:
    """The engine, once it has seen the cluster.

    Raises:
        UnavailableError: the client library is not installed, or the cluster cannot be looked at.
    """
    require_client()
    from millpond.engines.kubernetes.cluster_nodes import NodeRules
    from millpond.engines.kubernetes.engine import KubernetesEngine, KubernetesOptions

    options = KubernetesOptions(
        wake,
        NodeRules(config.nodes == "all"),
        config.node_timeout,
        servers,
        config.service_account or "",
        tuple(config.pull_secrets),
    )
    return KubernetesEngine(access_of(config), state_dir, launcher.launch_of, options)
