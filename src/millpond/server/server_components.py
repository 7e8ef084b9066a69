"""What a server stands on: made before anything can be asked of it, and shared by all that answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from millpond.engines.kubernetes.pods.carried_runs import CarriedRuns
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.isolation import Isolation
from millpond.server.auth.vault.secrets import Vault
from millpond.server.monitoring.activity import Activity
from millpond.server.monitoring.instruments import Instruments
from millpond.server.notifications.components import Notifications
from millpond.server.runtime.active_jobs.job_lookup import JobLookup
from millpond.server.runtime.forecasts import Forecaster
from millpond.server.runtime.loop import Loop
from millpond.server.runtime.queue_settings.service import QueueSettings
from millpond.server.storage.files.service import FileService
from millpond.server.storage.job_files import JobFiles
from millpond.server.storage.provisioning.components import Provisioning
from millpond.server.storage.provisioning.pod_jobs import PodJobs, in_a_cluster, taking_slices
from millpond.server.store.store import Store
from millpond.specs.api.jobs.reasons import ReasonInfo
from millpond.specs.job.job_spec import JobSpec


@dataclass(frozen=True, slots=True)
class ServerComponents:
    """The parts that live as long as the server.

    Attributes:
        state_dir: where tasks leave their records and logs.
        lookup: finds jobs.
        reason_outside_core: why a job or an array waits that the core does not know; None of all others. Only from
            within a query, with what explains a job that the core knows.
        accounts: who may use which queue.
        isolation: whether jobs are kept apart.
        vault: the secrets that jobs can have.
        files: what can be asked about files.
        job_files: the files that jobs were submitted with.
        provisioning: what provides for jobs on the machine.
        queue_settings: what queues say.
        pods: admits jobs that are pods of a Kubernetes cluster; None where all are the machine's processes.
        clusters: names of several clusters that the server drives; none where there is one.
        machine_pool: the one whose jobs are the machine's processes though those of others are pods; empty: none.
        runs: those whose files are carried into and out of pods; None where jobs are the machine's processes.
        notifications: what tells people and programs of what happens.
        forecaster, instruments: the loop reports to them what jobs do.
        activity: when jobs were last used.
    """

    state_dir: Path
    store: Store
    loop: Loop
    lookup: JobLookup
    reason_outside_core: Callable[[str, Callable[[str], ReasonInfo | None]], ReasonInfo | None]
    accounts: Accounts
    isolation: Isolation
    vault: Vault
    files: FileService
    job_files: JobFiles
    provisioning: Provisioning
    queue_settings: QueueSettings
    notifications: Notifications
    forecaster: Forecaster
    instruments: Instruments
    activity: Activity
    pods: PodJobs | None = None
    clusters: tuple[str, ...] = ()
    machine_pool: str = ""
    runs: CarriedRuns | None = None

    def pods_of(self, pool: str) -> PodJobs | None:
        """What admits the jobs of a pool; None where they are the machine's processes."""
        return None if pool == self.machine_pool else self.pods

    def on_cluster(self, spec: JobSpec) -> JobSpec:
        """A job file with what follows from where jobs run here written into it.

        Raises:
            InvalidInputError: it names a cluster that there is not.
        """
        pods = self.pods_of(spec.file.pool)
        if pods is None:
            return in_a_cluster(spec, self.clusters)
        return pods.with_image(in_a_cluster(taking_slices(spec), self.clusters))
