"""The services behind addresses: their revisions, the jobs that run them, and their rollouts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from millpond.engines.task_access import TaskAccess
from millpond.model.errors import ConflictError, MillpondError
from millpond.model.states import JobState, TaskState
from millpond.model.workloads import Kind
from millpond.server.runtime.active_jobs.job_lookup import JobLookup
from millpond.server.serving.front import ServiceFront
from millpond.server.serving.probes import takes_connections
from millpond.server.serving.proxy.endpoints import TaskEndpoint, places_of
from millpond.server.serving.proxy.load_balancer import Readiness
from millpond.server.serving.registry import Revisions
from millpond.server.serving.revisions import Phase, Revision
from millpond.server.storage.job_files import JobFiles
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.services import RevisionInfo, ScalingInfo, ServiceInfo
from millpond.specs.config.origins import JobOrigins
from millpond.specs.job.job_ids import service_of
from millpond.specs.job.serving import Serve, base_path


class Services:
    """Shows services.

    Attributes:
        revisions: which there are of each.
        scaling: what their rules ask for, by job, as it was last looked at.
    """

    def __init__(
        self,
        lookup: JobLookup,
        job_files: JobFiles,
        front: ServiceFront,
        revisions: Revisions,
        origins: JobOrigins,
        access: TaskAccess,
    ) -> None:
        self._access = access
        self._readiness = Readiness(access)
        self._lookup = lookup
        self._job_files = job_files
        self._front = front
        self._origins = origins
        self.revisions = revisions
        self.scaling: Mapping[str, ScalingInfo] = {}

    async def info(self, job: str) -> ServiceInfo:
        """What stands behind the address of a service.

        Raises:
            NotFoundError, ConflictError: there is no such job, or it is none.
        """
        await self.require(job)
        address = service_of(job)
        known = self.revisions.of(address)
        totals = [self._front.meter.total(name) for name in {address, *(each.job for each in known)}]
        starts = sum(total.cold_starts for total in totals)
        replicas, ready = await self._replicas([job for job in self.live_jobs(address) if self._lookup.live(job)])
        cold_s = sum(total.cold_starts * total.mean_cold_start_s for total in totals)
        return ServiceInfo(
            service=address,
            path=base_path(address),
            url=self._origins.url_of(address),
            replicas=replicas,
            ready=ready,
            revisions=[self._shown(revision) for revision in known],
            requests=sum(total.requests for total in totals),
            open_requests=sum(total.open_requests for total in totals),
            cold_starts=starts,
            mean_cold_start_s=cold_s / starts if starts else 0.0,
            longest_cold_start_s=max(total.longest_cold_start_s for total in totals),
            scaling=self.scaling.get(self.standing_for(job)),
        )

    async def _replicas(self, jobs: Sequence[str]) -> tuple[int, int]:
        """How many replicas these jobs have, and how many of them take requests; all are asked at once."""
        count, asked = 0, []
        for job in jobs:
            info = await self._lookup.soon(job)
            count += sum(not TaskState(task.state).ended for task in info.tasks)
            try:
                places = places_of(info, self._access)
            except MillpondError:  # none runs now
                continue
            serve = (await self._job_files.soon(job)).serve or Serve()
            asked += [self._is_ready(place, serve) for place in places]
        return count, sum(await asyncio.gather(*asked))

    async def _is_ready(self, place: TaskEndpoint, serve: Serve) -> bool:
        """Whether a replica answers as its job file says; without a word there, whether it takes connections."""
        path = serve.ready_path(place.task.job)
        return await takes_connections(place) if path is None else bool(await self._readiness.ready_ones([place], path))

    async def require(self, job: str) -> JobInfo:
        """A job that is a service.

        Raises:
            NotFoundError, ConflictError: there is no such job, or it is none.
        """
        info = await self._lookup.soon(job)
        if info.kind != Kind.SERVICE:
            raise ConflictError(f"job {info.id} is of kind {info.kind}", "only services have revisions")
        return info

    async def present(self, job: str) -> tuple[JobInfo, dict[str, Any]]:
        """The job that runs the present revision, and its job file.

        Raises:
            NotFoundError, ConflictError: there is no such job, it is no service, or it has ended.
        """
        present = self.revisions.present(service_of(job))
        info = await self.require(job if present is None else present.job)
        if JobState(info.state).ended:
            raise ConflictError(f"service {info.id} has ended ({info.state})", "submit it anew")
        return info, await self._lookup.document(info.id)

    def live_jobs(self, job: str) -> list[str]:
        """The jobs that stand behind an address and have not ended; the job itself where it is no service's."""
        jobs = [job, *(each.job for each in self.revisions.of(job))]
        live = [name for name in dict.fromkeys(jobs) if self._lookup.live(name) is not None]
        return live or [job]

    def standing_for(self, job: str) -> str:
        """Of a service that was updated, the revision that stands for it now; else the job itself."""
        return job if self._lookup.live(job) is not None else self._front.routes.present(job)

    def require_free_size(self, job: str) -> None:
        """That no rollout decides how many replicas a job has now.

        Raises:
            ConflictError: one does.
        """
        self.revisions.require_free_size(job)

    def _shown(self, revision: Revision) -> RevisionInfo:
        info = self._lookup.live(revision.job)
        tasks = [] if info is None else info.tasks
        return RevisionInfo(
            number=revision.number,
            job=revision.job,
            user=revision.user,
            created_at=revision.created_at,
            phase=revision.phase.value,
            paused=revision.paused,
            percent=revision.percent if revision.phase is Phase.CANARY else 0.0,
            running=sum(task.state == TaskState.RUNNING for task in tasks),
            target=revision.target,
            told=revision.told,
        )
