"""The route about the trials of a sweep."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Query

from millpond.server.api.dependencies import ServiceOf
from millpond.server.api.description import api_router
from millpond.server.api.permits import job_in_path, may
from millpond.server.auth.roles import Verb
from millpond.specs.api.trials import TrialList

router = api_router(prefix="/jobs", tags=["jobs"])


@router.get("/{job}/trials", dependencies=[may(Verb.READ_JOBS, job_in_path)])
async def trials(job: str, service: ServiceOf, limit: Annotated[int, Query(ge=1, le=100_000)] = 1_000) -> TrialList:
    """The trials of a sweep with their parameters and what they reported, the best first."""
    return await asyncio.to_thread(lambda: service.sweeps.table(service.lookup.look(job), limit))
