"""What the API can be asked about the revisions of a service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from millpond.model.errors import ConflictError, InvalidInputError, NotAllowedError
from millpond.model.workloads import JobState, Kind, TaskState
from millpond.server.auth.queues import settle_place
from millpond.server.auth.roles import Caller
from millpond.server.provisions.admission import Settled
from millpond.server.serving.front import ServiceFront
from millpond.server.serving.registry import Revisions
from millpond.server.serving.revisions import Phase, Revision
from millpond.server.serving.rollouts import Rollouts
from millpond.server.serving.sizing import desired_now
from millpond.specs.api import JobInfo
from millpond.specs.job import JobFile, JobSpec, check_job
from millpond.specs.service_bodies import (
    FieldChange,
    RevisionInfo,
    RevisionPlan,
    RevisionRequest,
    RolloutRequest,
    ServiceInfo,
)
from millpond.specs.serving import Serve, base_path, service_of

if TYPE_CHECKING:
    from millpond.server.service import Service

_LEFT_OUT: Final = object()


class Updating:
    """Has services updated.

    Args:
        admit: checks what a job file refers to and returns it as it is kept.
    """

    def __init__(
        self,
        service: Service,
        front: ServiceFront,
        revisions: Revisions,
        rollouts: Rollouts,
        admit: Callable[[JobFile, dict[str, Any], Caller], Awaitable[Settled]],
    ) -> None:
        self._service = service
        self._front = front
        self._revisions = revisions
        self._rollouts = rollouts
        self._admit = admit

    async def info(self, job: str) -> ServiceInfo:
        """What stands behind the address of a service.

        Raises:
            NotFoundError, ConflictError: there is no such job, or it is none.
        """
        _a_service(await self._service.find(job))
        address = service_of(job)
        known = self._revisions.of(address)
        totals = [self._front.meter.total(name) for name in {address, *(each.job for each in known)}]
        starts = sum(total.cold_starts for total in totals)
        cold_s = sum(total.cold_starts * total.mean_cold_start_s for total in totals)
        return ServiceInfo(
            service=address,
            path=base_path(address),
            revisions=[self._shown(revision) for revision in known],
            requests=sum(total.requests for total in totals),
            open_requests=sum(total.open_requests for total in totals),
            cold_starts=starts,
            mean_cold_start_s=cold_s / starts if starts else 0.0,
            longest_cold_start_s=max(total.longest_cold_start_s for total in totals),
        )

    async def plan(self, job: str, wish: RevisionRequest, caller: Caller) -> RevisionPlan:
        """What another job file would change; nothing is.

        Raises:
            SpecError, InvalidInputError, NotAllowedError, ConflictError: as for ``begin``.
        """
        present, before = await self._present(job)
        spec = await self._checked(present, wish, caller)
        return RevisionPlan(changes=list(differences(before, spec.document)))

    async def begin(self, job: str, wish: RevisionRequest, caller: Caller) -> ServiceInfo:
        """Have another revision of a service come.

        Raises:
            SpecError, InvalidInputError: the job file is wrong, or is none of a service with replicas, or the cluster
                could never run it.
            NotAllowedError: somebody else's service: its programs run as its owner.
            ConflictError: it is no service, has ended, or another revision is on its way.
        """
        present, before = await self._present(job)
        spec = await self._checked(present, wish, caller)
        percent = wish.canary or (spec.file.serve or Serve()).rollout.canary or 0.0
        await self._begin(present, (before, spec.document), spec.file, percent)
        return await self.info(job)

    async def act(self, job: str, wish: RolloutRequest) -> ServiceInfo:
        """Pause, go on with, promote or withdraw the revision that is on its way; go back by one.

        Raises:
            ConflictError: there is none, it is no canary, or there is nothing to go back to.
        """
        _a_service(await self._service.find(job))
        address = service_of(job)
        match wish.act:
            case "pause" | "resume":
                await asyncio.to_thread(self._revisions.pause, address, paused=wish.act == "pause")
            case "promote":
                await asyncio.to_thread(self._revisions.promote, address)
            case "undo" if self._revisions.coming(address) is not None:
                await asyncio.to_thread(self._revisions.withdraw, address, "somebody withdrew it")
            case "undo":
                await self._go_back(job, address)
        self._rollouts.changed(address)
        return await self.info(job)

    def live_jobs(self, job: str) -> list[str]:
        """The jobs that stand behind an address and have not ended; the job itself where it is no service's."""
        jobs = [job, *(each.job for each in self._revisions.of(job))]
        live = [name for name in dict.fromkeys(jobs) if self._service.shown(name) is not None]
        return live or [job]

    async def _go_back(self, job: str, address: str) -> None:
        """Have the revision before the present one come once more, as a new one."""
        earlier = [each for each in self._revisions.of(address) if each.phase is Phase.RETIRED]
        if not earlier:
            raise ConflictError(f"{address} has no revision to go back to", "pond rollout status shows them")
        present, before = await self._present(job)
        await self._begin(present, (before, earlier[-1].document), check_job(earlier[-1].document).file, 0.0)

    async def _begin(
        self, present: JobInfo, documents: tuple[dict[str, Any], dict[str, Any]], file: JobFile, percent: float
    ) -> None:
        now = await self._service.ask(lambda core: desired_now(core, present.id)) or 0
        sizes = (now, target_of(file, now))
        revision = await asyncio.to_thread(self._revisions.begin, present, documents, sizes, percent)
        self._rollouts.changed(revision.service)

    async def _present(self, job: str) -> tuple[JobInfo, dict[str, Any]]:
        """The job that runs the present revision, and its job file."""
        present = self._revisions.present(service_of(job))
        info = _a_service(await self._service.find(job if present is None else present.job))
        if JobState(info.state).ended:
            raise ConflictError(f"service {info.id} has ended ({info.state})", "submit it anew")
        return info, await self._service.document(info.id)

    async def _checked(self, present: JobInfo, wish: RevisionRequest, caller: Caller) -> JobSpec:
        if caller.user != present.user:
            cause = f"{present.id} runs as {present.user}, and what it runs is for {present.user} to say"
            raise NotAllowedError(cause, "submit a service of your own")
        spec = check_job(wish.document)
        if spec.file.kind != Kind.SERVICE.value or spec.file.roles is not None:
            raise InvalidInputError("only a service without roles can be updated in steps", "use kind: service")
        spec, place = await asyncio.to_thread(settle_place, self._service.accounts, caller, spec)
        if place.group != present.group:
            raise InvalidInputError(
                f"queue {place.queue} is not of the group of {present.id}", "leave the queue as it is"
            )
        await self._service.check_means(spec.file, place, caller)
        await self._service.check_awaited(spec.file.after, caller)
        await self._service.check_possible(place.of(spec.to_job("plan")))
        settled = await self._admit(spec.file, spec.document, caller)
        return JobSpec(settled.document, spec.file, (*spec.warnings, *settled.warnings))

    def _shown(self, revision: Revision) -> RevisionInfo:
        info = self._service.shown(revision.job)
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


def target_of(file: JobFile, now: int) -> int:
    """Replicas that a revision is to have: as many as there are where a rule changes that, else as its file says."""
    tasks = file.tasks
    if tasks is None:
        return 1
    return min(max(now, tasks.min, 1), tasks.max) if file.scale is not None else tasks.count


def differences(before: Any, after: Any, path: str = "") -> Iterator[FieldChange]:
    """What is different between two job files, field by field; lists entry by entry where they are of one length."""
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        before, after = dict(enumerate(before)), dict(enumerate(after))
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            below = f"{path}.{name}" if path else str(name)
            yield from differences(before.get(name, _LEFT_OUT), after.get(name, _LEFT_OUT), below)
    elif before != after:
        yield FieldChange(
            field=path,
            before=None if before is _LEFT_OUT else before,
            after=None if after is _LEFT_OUT else after,
        )


def _a_service(info: JobInfo) -> JobInfo:
    if info.kind != Kind.SERVICE:
        raise ConflictError(f"job {info.id} is of kind {info.kind}", "only services have revisions")
    return info
