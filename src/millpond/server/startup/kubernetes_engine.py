"""The engine for a Kubernetes cluster as this server uses it: what its jobs' pods run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.engines.kubernetes.access import require_client
from millpond.model.workloads import CheckpointMode
from millpond.server.auth.vault.secrets import Vault
from millpond.server.operations.cluster_check import access_of
from millpond.server.startup.local_engine import said_memory
from millpond.server.storage.job_files import JobFiles
from millpond.server.storage.provisioning.pod_jobs import PodJobs
from millpond.specs.config.kubernetes import KubernetesFile

if TYPE_CHECKING:
    from millpond.engines.kubernetes.engine import KubernetesEngine
    from millpond.engines.kubernetes.pod_template import PodLaunch


@dataclass(frozen=True, slots=True)
class PodLauncher:
    """Knows what the pods of jobs run."""

    jobs: JobFiles
    pods: PodJobs
    vault: Vault

    def launch_of(self, job: str) -> PodLaunch:
        """What a job's pods run, from the job file it was submitted with.

        Raises:
            NotFoundError: there is no such job, or no more a secret of its.
            InvalidInputError: this version no longer understands its file, or it may no longer have its image.
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
        return PodLaunch(
            self.pods.image_of(file),
            roles,
            file.env,
            self.vault.environment(accepted.user, accepted.group, file.secrets),
            checkpoint.signal if checkpoint.mode is CheckpointMode.SIGNAL else "",
            checkpoint.grace_s,
        )


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
