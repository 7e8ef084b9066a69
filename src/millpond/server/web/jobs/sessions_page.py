"""The page of notebooks and editors: they are started with one click, opened, extended, suspended, and stopped."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, Response
from pydantic import Field

from millpond.model.errors import UnavailableError
from millpond.model.hardware.nodes import DEFAULT_POOL
from millpond.server.api.permits import JobLister, JobSubmitter, ServiceOf
from millpond.server.api.routes.jobs import Key
from millpond.server.api.service import Service
from millpond.server.auth.roles import Caller, Verb, job_target, program_permission
from millpond.server.jobs.listing import ListRequest
from millpond.server.jobs.time_limits import LimitLeft
from millpond.server.store.job_filter import JobFilter
from millpond.server.views.visibility import reader_of
from millpond.server.web.jobs.ready_templates import missing_lately, ready_template, ready_templates
from millpond.server.web.pages import PageRoute, VisitOf, may_do
from millpond.server.web.rendering import show
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.models import Body
from millpond.specs.job.changes import FieldEdit
from millpond.specs.job.serving import SERVING_KINDS
from millpond.specs.job.templates import Template, TemplateNeed, waiting_for

MOST_SESSIONS: Final = 200

router = APIRouter(prefix="/portal", include_in_schema=False, route_class=PageRoute)
starts = APIRouter(prefix="/portal", include_in_schema=False)


class StartRequest(Body):
    """A session to be started.

    Attributes:
        template: the name of one that comes with Millpond.
        gpus: cards, as in a job file; empty: none.
        time_limit: as in a job file; empty: none.
        folder: where it runs; empty: the home of its user on the machine.
        pool: on whose machines; empty: as in a job file.
    """

    template: Annotated[str, Field(max_length=100)]
    gpus: Annotated[str, Field(max_length=100)] = ""
    time_limit: Annotated[str, Field(max_length=100)] = ""
    folder: Annotated[str, Field(max_length=4_000)] = ""
    pool: Annotated[str, Field(max_length=100)] = ""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A job that people work in.

    Attributes:
        is_served: it has something that a browser can open.
        can_open, can_change: its user may do this still: roles change, and tokens are confined.
        left: what is left of its time limit; None: it has none.
        used_at: when it was last used, as far as this server knows.
    """

    job: JobInfo
    is_served: bool
    can_open: bool
    can_change: bool
    left: LimitLeft | None
    used_at: float | None


@dataclass(frozen=True, slots=True)
class SessionChoice:
    """A template that a session can be started from.

    Attributes:
        brings: its environment has to be made first, unless it was before.
        missing: what it needs and neither is there nor comes along: it cannot be started.
    """

    template: Template
    brings: bool
    missing: Sequence[TemplateNeed]


@router.get("/sessions")
async def sessions_page(service: ServiceOf, access: JobLister, visit: VisitOf) -> Response:
    """One's own sessions, and what can be started."""
    caller = access.caller
    wanted = ListRequest(JobFilter((), caller.user, "", ""), False, MOST_SESSIONS, "", "")
    found = await service.jobs.listed(wanted, reader_of(caller))
    jobs = [job for job in found.jobs if job.kind in SERVING_KINDS and job.user == caller.user]
    left = await service.time_left([job.id for job in jobs])
    starters = await asyncio.to_thread(_starters, service, caller.user) if visit.may_submit else []
    pools = {node.pool for node in await service.machines.all(reader_of(caller))} if starters else set()
    return show(
        "jobs/sessions.html",
        visit,
        sessions=[await _session(service, caller, job, left.get(job.id)) for job in jobs],
        starters=starters,
        pools=sorted(pools, key=lambda pool: (pool != DEFAULT_POOL, pool)) if pools != {DEFAULT_POOL} else [],
    )


async def _session(service: Service, caller: Caller, job: JobInfo, left: LimitLeft | None) -> SessionRow:
    file = await service.job_files.soon(job.id)
    if left is None and file.time_limit is not None:  # the scheduler has not got it yet
        left = LimitLeft(file.time_limit, None, file.time_limit)
    unused_s = service.activity.unused_s(job.id)
    used_at = None if unused_s is None else time.time() - unused_s
    can_change = may_do(caller, Verb.CHANGE_JOBS, job_target(job))
    return SessionRow(job, file.serve is not None, may_do(caller, *program_permission(job)), can_change, left, used_at)


@starts.post("/sessions", status_code=201)
async def start_session(body: StartRequest, service: ServiceOf, access: JobSubmitter, key: Key = "") -> JobInfo:
    """Start a session from a template, and before it what makes its environment where that is needed."""
    documents = await asyncio.to_thread(_documents, service, body, access.caller.user)
    session = (await service.submissions.submit(documents, key, access.caller))[-1]
    access.note(f"queue {session.queue}", target=job_target(session))
    return session


def _starters(service: Service, user: str) -> list[SessionChoice]:
    found = []
    for template in ready_templates():
        file = template.job(Path("/")).file
        if file.kind == "dev" and file.serve is not None:
            found.append(_starter(service, template, user))
    return found


def _starter(service: Service, template: Template, user: str) -> SessionChoice:
    """Whether a template has what it needs for a user, whose tasks find what the server's own ``PATH`` names."""
    if service.engine == "kubernetes":
        return SessionChoice(template, False, ())  # what a pod has is in its image
    missing = missing_lately(template, os.environ.get("PATH", os.defpath), time.time())
    # An account of its own may not be allowed to go where the server's programs are.
    brings = bool(template.header.environment) and (bool(missing) or service.isolation.is_another(user))
    return SessionChoice(template, brings, () if brings else missing)


def _documents(service: Service, body: StartRequest, user: str) -> list[dict[str, Any]]:
    """The job files of a session: of what makes its environment, where that is needed, and its own. Blocks.

    Raises:
        NotFoundError: there is no such template.
        UnavailableError: it needs what is not there.
        SpecError: what was chosen is wrong.
    """
    template = ready_template(body.template)
    starter = _starter(service, template, user)
    if starter.missing:
        names = " and ".join(need.name for need in starter.missing)
        ways = "; ".join(dict.fromkeys(need.install for need in starter.missing))
        raise UnavailableError(f"{template.name} needs {names}, which is not on the server's machine", ways)
    chosen = {"gpus": body.gpus, "time_limit": body.time_limit, "workdir": body.folder, "pool": body.pool}
    edits = [FieldEdit.read(field, value, field) for field, value in chosen.items() if value.strip()]
    on_machine = service.engine != "kubernetes"
    base = Path(service.isolation.home_of(user) if on_machine else "/")
    document = template.job(base, edits, {}, starter.brings).document
    if not on_machine and not body.folder:
        del document["workdir"]
    if not starter.brings:
        return [document]
    environment = template.environment_job(document).document
    return [environment, waiting_for(document, environment["name"])]
