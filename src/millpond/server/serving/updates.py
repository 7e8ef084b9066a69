"""Update a service to another revision: plan, begin, pause, promote, withdraw."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from millpond.model.errors import ConflictError, InvalidInputError, NotAllowedError
from millpond.model.workloads import Kind
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.queues import settle_place
from millpond.server.auth.roles import Caller
from millpond.server.jobs.admission.dependency_names import with_ids
from millpond.server.jobs.admission.requirements import Requirements
from millpond.server.runtime.loop import Loop
from millpond.server.serving.replica_counts import desired_now
from millpond.server.serving.revisions import Phase
from millpond.server.serving.rollouts import Rollouts
from millpond.server.serving.services import Services
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.requests import RevisionRequest, RolloutRequest
from millpond.specs.api.services import FieldChange, RevisionPlan, ServiceInfo
from millpond.specs.config.queues import QueueRules
from millpond.specs.job.job_file import JobFile
from millpond.specs.job.job_ids import service_of
from millpond.specs.job.job_spec import JobSpec, check_job, stored_job
from millpond.specs.job.serving import Serve

_LEFT_OUT: Final = object()


class Updating:
    """Has services updated.

    Args:
        requirements: checks what a revision needs as what a new job needs is checked.
    """

    def __init__(
        self,
        accounts: Accounts,
        loop: Loop,
        requirements: Requirements,
        services: Services,
        rollouts: Rollouts,
    ) -> None:
        self._accounts = accounts
        self._loop = loop
        self._requirements = requirements
        self._services = services
        self._revisions = services.revisions
        self._rollouts = rollouts

    async def plan(self, job: str, request: RevisionRequest, caller: Caller) -> RevisionPlan:
        """What another job file would change; nothing is.

        Raises:
            SpecError, InvalidInputError, NotAllowedError, ConflictError: as for ``begin``.
        """
        present, before = await self._services.present(job)
        spec = await self._checked(present, request, caller)
        changes = list(differences(before, spec.document))
        return RevisionPlan(changes=changes, replicas=target_of(spec.file, await self._replicas_of(present)))

    async def begin(self, job: str, request: RevisionRequest, caller: Caller) -> ServiceInfo:
        """Have another revision of a service come.

        Raises:
            SpecError, InvalidInputError: the job file is wrong, or is none of a service with replicas, or the cluster
                could never run it.
            NotAllowedError: another user's service: its programs run as its owner.
            ConflictError: it is no service, has ended, or another revision is on its way.
        """
        present, before = await self._services.present(job)
        spec = await self._checked(present, request, caller)
        percent = request.canary or (spec.file.serve or Serve()).rollout.canary or 0.0
        await self._begin(present, (before, spec.document), spec.file, percent)
        return await self._services.info(job)

    async def act(self, job: str, request: RolloutRequest) -> ServiceInfo:
        """Pause, go on with, promote or withdraw the revision that is on its way; go back by one.

        Raises:
            ConflictError: there is none, it is no canary, or there is nothing to go back to.
        """
        await self._services.require(job)
        address = service_of(job)
        match request.act:
            case "pause" | "resume":
                await asyncio.to_thread(self._revisions.pause, address, paused=request.act == "pause")
            case "promote":
                await asyncio.to_thread(self._revisions.promote, address)
            case "undo" if self._revisions.coming(address) is not None:
                await asyncio.to_thread(self._revisions.withdraw, address, "withdrawn on request")
            case "undo":
                await self._go_back(job, address)
        self._rollouts.changed(address)
        return await self._services.info(job)

    async def _go_back(self, job: str, address: str) -> None:
        """Have the revision before the present one come once more, as a new one."""
        earlier = [each for each in self._revisions.of(address) if each.phase is Phase.RETIRED]
        if not earlier:
            raise ConflictError(f"{address} has no revision to go back to", "pond rollout status shows them")
        present, before = await self._services.present(job)
        await self._begin(present, (before, earlier[-1].document), stored_job(earlier[-1].document).file, 0.0)

    async def _begin(
        self, present: JobInfo, documents: tuple[dict[str, Any], dict[str, Any]], file: JobFile, percent: float
    ) -> None:
        now = await self._replicas_of(present)
        sizes = (now, target_of(file, now))
        revision = await asyncio.to_thread(self._revisions.begin, present, documents, sizes, percent)
        self._rollouts.changed(revision.service)

    async def _replicas_of(self, present: JobInfo) -> int:
        return await self._loop.ask(lambda core: desired_now(core, present.id)) or 0

    async def _checked(self, present: JobInfo, request: RevisionRequest, caller: Caller) -> JobSpec:
        if caller.user != present.user:
            cause = f"{present.id} runs as {present.user}, and what it runs is for {present.user} to say"
            raise NotAllowedError(cause, "submit a service of your own")
        spec = check_job(request.document)
        if spec.file.kind != Kind.SERVICE.value or spec.file.roles is not None:
            raise InvalidInputError("only a service without roles can be updated in steps", "use kind: service")
        rules_for_dev_jobs: dict[str, QueueRules] = {}
        spec, place = await asyncio.to_thread(settle_place, self._accounts, rules_for_dev_jobs, caller, spec)
        if place.group != present.group:
            raise InvalidInputError(
                f"queue {place.queue} is not of the group of {present.id}", "leave the queue as it is"
            )
        spec = self._requirements.on_cluster(spec)
        await self._requirements.check_available(spec.file, place, caller)
        spec = with_ids(spec, await self._requirements.awaited_jobs(caller).resolve(spec, {}))
        await self._requirements.check_possible(place.of(spec.to_job("plan")))
        settled = await self._requirements.admit(spec.file, spec.document, caller)
        return replace(spec, document=settled.document, warnings=(*spec.warnings, *settled.warnings))


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
