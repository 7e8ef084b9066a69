"""Routes about what stands behind the address of a service: its revisions, and how one replaces another."""

from __future__ import annotations

from typing import Annotated

from millpond.server.api.description import api_router
from millpond.server.api.permits import Access, ServiceOf, job_in_path, may
from millpond.server.auth.roles import Verb
from millpond.specs.api.services import RevisionPlan, RevisionRequest, RolloutRequest, ServiceInfo

router = api_router(prefix="/jobs", tags=["services"])

Changer = Annotated[Access, may(Verb.CHANGE_JOBS, job_in_path)]


@router.get("/{job}/service", dependencies=[may(Verb.READ_JOBS, job_in_path)])
async def show(job: str, service: ServiceOf) -> ServiceInfo:
    """What stands behind the address of a service, and what was asked of it."""
    return await service.services.info(job)


@router.post("/{job}/revisions/plan")
async def plan(job: str, body: RevisionRequest, service: ServiceOf, access: Changer) -> RevisionPlan:
    """What another job file would change of a service. Nothing is changed."""
    return await service.updating.plan(job, body, access.caller)


@router.post("/{job}/revisions", status_code=201)
async def begin(job: str, body: RevisionRequest, service: ServiceOf, access: Changer) -> ServiceInfo:
    """Have another revision of a service take the place of the present one, replica by replica."""
    found = await service.updating.begin(job, body, access.caller)
    access.note(f"revision {found.revisions[-1].number}")
    return found


@router.post("/{job}/rollout", status_code=202)
async def act(job: str, body: RolloutRequest, service: ServiceOf, access: Changer) -> ServiceInfo:
    """Pause, go on with, promote or withdraw the revision that is on its way; without one, go back by one."""
    found = await service.updating.act(job, body)
    access.note(body.act)
    return found
