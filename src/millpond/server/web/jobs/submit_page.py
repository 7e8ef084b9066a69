"""The page on which a job is written, in a form and as text at once, planned, and submitted."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from millpond.model.states import JobState
from millpond.model.workloads import LONGEST_JOB_ID
from millpond.server.api.permits import Access, JobSubmitter, ServiceOf
from millpond.server.api.service import Service
from millpond.server.auth.roles import Verb, demand, job_target
from millpond.server.views.visibility import reader_of
from millpond.server.web.jobs.drafts import (
    Draft,
    DraftEdit,
    DraftRequest,
    checked,
    draft_of,
    file_text,
    is_quick,
    require_short,
    with_edit,
)
from millpond.server.web.jobs.job_form import job_form
from millpond.server.web.jobs.ready_templates import ready_template, ready_templates
from millpond.server.web.pages import PageRoute, VisitOf
from millpond.server.web.rendering import PageReader, show
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.reasons import PlanInfo, ReasonInfo, RemedyInfo
from millpond.specs.api.models import adapter_of
from millpond.specs.job.job_spec import JobSpec, document_again

JobId = Annotated[str, Query(max_length=LONGEST_JOB_ID)]
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Does work that blocks."""
_IN_ROLE: Final = re.compile(r"roles\[(\d+)\]\.(\w+)")

router = APIRouter(prefix="/portal", include_in_schema=False, route_class=PageRoute)
drafts = APIRouter(prefix="/portal/submit", include_in_schema=False)
"""What the page asks for while it is open; errors are those of the API."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A waiting job, and the changed one that is to take its place.

    Attributes:
        change: in words; empty where it needs no change any more.
        before, after: what the changed field shows.
    """

    job: JobInfo
    change: str = ""
    field: str = ""
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class _Begun:
    """What the page begins with: a text, and where it comes from."""

    text: str
    template: str = ""
    origin: str = ""
    replaces: Replacement | None = None


@router.get("/submit")
async def submit_page(
    request: Request,
    service: ServiceOf,
    access: JobSubmitter,
    visit: VisitOf,
    template: Annotated[str, Query(max_length=200)] = "",
    origin: Annotated[str, Query(alias="from", max_length=LONGEST_JOB_ID)] = "",
    instead: JobId = "",
) -> Response:
    """The form: empty, or with a template, or with the file of a job.

    Args:
        instead: a waiting job, which is to be replaced by one that is changed as its reason advises.
    """
    text = ""
    if template:
        text = (await asyncio.to_thread(ready_template, template)).job_text
    elif origin or instead:
        job = await service.lookup.soon(origin or instead)
        demand(access.caller, Verb.CHANGE_JOBS, job_target(job))
        text = await _file_of(service, job.id)
        if instead:
            reason = await service.jobs.why(job.id, reader_of(access.caller))

            async def changed(in_thread: InThread) -> Response:
                begun = await in_thread(partial(_changed, job, reason, text))
                return await _page(service, access, visit, begun)

            return await _in_turn((text, ()), request, service, access, changed)
        require_short(text)
    return await _page(service, access, visit, _Begun(text, template, origin))


async def _page(service: Service, access: Access, visit: PageReader, begun: _Begun) -> Response:
    nodes = await service.machines.all(reader_of(access.caller))
    return show(
        "jobs/submit.html",
        visit,
        text=begun.text,
        form=job_form(),
        templates=await asyncio.to_thread(ready_templates),
        chosen=begun.template,
        origin=begun.origin,
        replaces=begun.replaces,
        queues=await service.queues.taking_jobs(access.caller),
        own_queue=service.queues.of_submissions(access.caller),
        models=sorted({device.model for node in nodes for device in node.devices}),
    )


@drafts.post("/draft", response_model=Draft)
async def draft(
    body: DraftRequest, request: Request, service: ServiceOf, access: JobSubmitter, visit: VisitOf
) -> Response:
    """A draft with the changes made that were written into its form, and with all that is wrong with it."""
    access.act.continues = True  # nothing is changed but the text that came: it is no entry of the audit log

    async def make(in_thread: InThread) -> Response:
        made = await in_thread(lambda: adapter_of(Draft).dump_json(draft_of(body).in_language(visit.language)))
        return Response(made, media_type="application/json")

    return await _in_turn((body.text, body.edits), request, service, access, make)


@drafts.post("/plan")
async def plan(
    body: DraftRequest, request: Request, service: ServiceOf, access: JobSubmitter, visit: VisitOf
) -> Response:
    """The plan of a draft, as a part of the page; its JSON twin is ``POST /api/v1/jobs/plan``."""

    async def make(in_thread: InThread) -> Response:
        spec = await in_thread(partial(checked, body.text))
        return _planned(spec, await service.plans.make(spec.document, access.caller), visit)

    return await _in_turn((body.text, body.edits), request, service, access, make)


async def _in_turn(
    draft: tuple[str, Sequence[DraftEdit]],
    request: Request,
    service: Service,
    access: Access,
    make: Callable[[InThread], Awaitable[Response]],
) -> Response:
    """An answer about a draft: at once, or where its text takes long to read when it is its writer's turn."""
    if is_quick(*draft):
        return await make(asyncio.to_thread)
    answers = service.long_answers
    return await answers.answer(request, access.caller.user, lambda: make(answers.in_thread))


def _planned(spec: JobSpec, made: PlanInfo, visit: PageReader) -> Response:
    found: dict[str, int] = {}
    cards: dict[str, int] = {}
    for task in made.tasks:
        found[task.node] = found.get(task.node, 0) + 1
        cards[task.node] = cards.get(task.node, 0) + len(task.devices)
    return show(
        "jobs/plan.html",
        visit,
        plan=made,
        places=[(node, count, cards[node]) for node, count in found.items()],
        jobs=1 if spec.members is None else len(spec.members),
        edit=edit_of(made.reason.remedy) if made.reason is not None else None,
        now=time.time(),
    )


def edit_of(remedy: RemedyInfo | None) -> tuple[str, str] | None:
    """A remedy as an edit of a job file: a field, and what is written into its control; None where it is none."""
    if remedy is None or not remedy.field:
        return None
    in_role = _IN_ROLE.fullmatch(remedy.field)
    field = remedy.field if in_role is None else f"roles.{in_role[1]}.{in_role[2]}"
    return field, "[]" if field.endswith("gpu_models") and remedy.value == "any" else remedy.value


def can_replace(job: JobInfo, reason: ReasonInfo) -> bool:
    """Whether a waiting job can be replaced by a changed one as its reason advises, and nothing is lost by that."""
    is_single = job.array is None and not job.parent
    has_run = job.first_started_at is not None
    return is_single and not has_run and job.state == JobState.QUEUED and edit_of(reason.remedy) is not None


def _changed(job: JobInfo, reason: ReasonInfo, text: str) -> _Begun:
    edit = edit_of(reason.remedy)
    if not can_replace(job, reason) or edit is None or reason.remedy is None:
        return _Begun(text, replaces=Replacement(job))
    field, value = edit
    before = (draft_of(DraftRequest(text=text)).values or {}).get(field, "")
    replaces = Replacement(job, reason.remedy.change, field, before, value)
    return _Begun(with_edit(text, field, value), replaces=replaces)


async def _file_of(service: Service, job: str) -> str:
    """The file of a job, for another one like it."""
    return file_text(document_again(await service.lookup.document(job)))
