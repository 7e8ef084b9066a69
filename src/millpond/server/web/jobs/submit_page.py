"""The page on which a job is written, in a form and as text at once, planned, and submitted."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from millpond.model.states import JobState
from millpond.model.workloads import LONGEST_JOB_ID
from millpond.server.api.permits import Access, ServiceOf, may
from millpond.server.api.service import Service
from millpond.server.auth.roles import Verb, demand, job_target
from millpond.server.views.visibility import reader_of
from millpond.server.web.jobs.drafts import Draft, DraftRequest, checked, draft_of, with_edit
from millpond.server.web.jobs.job_form import job_form
from millpond.server.web.jobs.ready_templates import ready_template, ready_templates
from millpond.server.web.pages import PageRoute, VisitOf
from millpond.server.web.rendering import show
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.reasons import ReasonInfo, RemedyInfo
from millpond.specs.job.job_spec import document_again
from millpond.specs.yaml_edit import yaml_text

Submitter = Annotated[Access, may(Verb.SUBMIT_JOBS)]
JobId = Annotated[str, Query(max_length=LONGEST_JOB_ID)]
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


@router.get("/submit")
async def submit_page(
    service: ServiceOf,
    access: Submitter,
    visit: VisitOf,
    template: Annotated[str, Query(max_length=200)] = "",
    origin: Annotated[str, Query(alias="from", max_length=LONGEST_JOB_ID)] = "",
    instead: JobId = "",
) -> Response:
    """The form: empty, or with a template, or with the file of a job.

    Args:
        instead: a waiting job, which is to be replaced by one that is changed as its reason advises.
    """
    text, replaces = "", None
    if template:
        text = (await asyncio.to_thread(ready_template, template)).job_text
    elif origin or instead:
        job = await service.lookup.soon(origin or instead)
        demand(access.caller, Verb.CHANGE_JOBS, job_target(job))
        text = await _file_of(service, job.id)
        if instead:
            text, replaces = await _changed(service, access, job, text)
    nodes = await service.machines.all(reader_of(access.caller))
    return show(
        "jobs/submit.html",
        visit,
        text=text,
        form=job_form(),
        templates=await asyncio.to_thread(ready_templates),
        chosen=template,
        origin=origin,
        replaces=replaces,
        queues=[each.name for each in await service.queues.seen_by(access.caller) if each.takes_jobs],
        models=sorted({device.model for node in nodes for device in node.devices}),
    )


@drafts.post("/draft")
async def draft(body: DraftRequest, access: Submitter, visit: VisitOf) -> Draft:
    """A draft with the changes made that were written into its form, and with all that is wrong with it."""
    access.act.continues = True  # nothing is changed but the text that came: it is no entry of the audit log
    return (await asyncio.to_thread(draft_of, body)).in_language(visit.language)


@drafts.post("/plan")
async def plan(body: DraftRequest, service: ServiceOf, access: Submitter, visit: VisitOf) -> Response:
    """The plan of a draft, as a part of the page; its JSON twin is ``POST /api/v1/jobs/plan``."""
    spec = await asyncio.to_thread(checked, body.text)
    made = await service.plans.make(spec.document, access.caller)
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


async def _changed(service: Service, access: Access, job: JobInfo, text: str) -> tuple[str, Replacement]:
    reason = await service.jobs.why(job.id, reader_of(access.caller))
    edit = edit_of(reason.remedy)
    if not can_replace(job, reason) or edit is None or reason.remedy is None:
        return text, Replacement(job)
    field, value = edit
    before = (draft_of(DraftRequest(text=text)).values or {}).get(field, "")
    return with_edit(text, field, value), Replacement(job, reason.remedy.change, field, before, value)


async def _file_of(service: Service, job: str) -> str:
    """The file of a job, for another one like it."""
    return yaml_text(document_again(await service.lookup.document(job)))
