"""The pages of jobs: the list with its filters and saved views, and one job with all that is known of it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import cache
from typing import Annotated, Final
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import JSONResponse, RedirectResponse

from millpond.model.states import JobState
from millpond.model.workloads import LONGEST_JOB_ID, Kind
from millpond.server.api.permits import Access, JobLister, JobReader, ServiceOf, may
from millpond.server.api.routes.jobs import WantedJobs
from millpond.server.api.service import Service
from millpond.server.auth.roles import Caller, Verb, job_target, owned_job, program_permission
from millpond.server.jobs.curves.service import MOST_RUNS
from millpond.server.jobs.listing import ListRequest
from millpond.server.jobs.saved_views import filters_in
from millpond.server.monitoring.telemetry.job_cards import cards_of
from millpond.server.storage.files.service import attempt_of
from millpond.server.store.job_filter import JobFilter
from millpond.server.views.log_search import ERROR_LINE
from millpond.server.views.visibility import reader_of
from millpond.server.web.charts import history_pages
from millpond.server.web.jobs import submit_page
from millpond.server.web.jobs.attempts import attempts_of
from millpond.server.web.jobs.drafts import shown_text
from millpond.server.web.jobs.life_line import life_of
from millpond.server.web.jobs.output_page import AttemptOf
from millpond.server.web.pages import PageRoute, VisitOf, may_do
from millpond.server.web.rendering import show
from millpond.specs.api.jobs.jobs import JobInfo, JobOrder
from millpond.specs.api.jobs.saved_views import SavedViewInfo
from millpond.specs.api.jobs.trials import TrialList
from millpond.specs.job.serving import SERVING_KINDS

JOBS_ON_A_PAGE: Final = 100
MOST_MATCHING: Final = 100_000
"""So many jobs of a view can be acted on together."""
EVENTS_SHOWN: Final = 200
ATTEMPTS_SHOWN: Final = 100
TRIALS_SHOWN: Final = 5
MOST_TRIALS: Final = 2_000
"""Of a sweep with more, no page waits until all are compared."""


router = APIRouter(prefix="/portal", include_in_schema=False, route_class=PageRoute)
selections = APIRouter(prefix="/portal", include_in_schema=False)
"""What the list asks for while it is open; errors are those of the API."""

Everything = Annotated[bool, Query(alias="all")]
JobInQuery = Annotated[str, Query(max_length=LONGEST_JOB_ID)]


@router.get("/jobs")
async def jobs(
    request: Request,
    service: ServiceOf,
    access: JobLister,
    visit: VisitOf,
    wanted: WantedJobs,
    order: JobOrder = "newest",
    everything: Everything = False,
    members: JobInQuery = "",
    behind: JobInQuery = "",
) -> Response:
    """Jobs, with the parameters of the API; with jobs that have ended, an order that these do not have is left out."""
    most = JOBS_ON_A_PAGE * (10 if members else 1)
    asked = ListRequest(wanted, everything or bool(members), most, members, behind, order)
    if asked.with_ended and order not in ("newest", "oldest"):
        asked = replace(asked, order="newest")
    found = await service.jobs.listed(asked, reader_of(access.caller))
    views, keepers = await _views_for(service, access.caller)
    here = filters_in(request.url.query)
    view = next((each.id for each, _ in views if here and each.query == here), "")
    pairs = [(key, value) for key, value in parse_qsl(request.url.query) if key != "behind"]
    following = [*pairs, ("behind", found.jobs[-1].id if found.jobs else "")]
    changeable = {job.id for job in found.jobs if may_do(access.caller, Verb.CHANGE_JOBS, job_target(job))}
    return show(
        "jobs/list.html",
        visit,
        jobs=found.jobs,
        changeable=changeable,
        may_change=may_do(access.caller, Verb.CHANGE_JOBS),
        matching=f"/portal/job-ids?{urlencode([pair for pair in pairs if pair[0] != 'order'])}",
        first=f"?{urlencode(pairs)}",
        more=f"?{urlencode(following)}" if found.truncated and not members else "",
        truncated=found.truncated,
        wanted=wanted,
        order=asked.order,
        wanted_order=order,
        everything=everything,
        members=members,
        behind=behind,
        queues=await service.queues.taking_jobs(access.caller),
        states=list(JobState),
        views=views,
        view=view,
        tab=None if view else _tab_of(wanted, everything, access.caller.user),
        here=here,
        keepers=keepers,
        me=access.caller.user,
        most_compared=MOST_RUNS,
    )


@selections.get("/job-ids")
async def changeable_jobs(
    request: Request,
    service: ServiceOf,
    access: JobLister,
    wanted: WantedJobs,
    everything: Everything = False,
    members: JobInQuery = "",
) -> Response:
    """The ids of all jobs of such a list that the reader may act on."""
    asked = ListRequest(wanted, everything, MOST_MATCHING, members)

    @cache
    def is_changeable(user: str, group: str) -> bool:
        return may_do(access.caller, Verb.CHANGE_JOBS, owned_job("", user, group))

    async def make() -> Response:
        found = await service.jobs.owners(asked, reader_of(access.caller))
        return JSONResponse([each.job for each in found if is_changeable(each.user, each.group)])

    return await service.long_answers.answer(request, access.caller.user, make)


def _tab_of(wanted: JobFilter, everything: bool, me: str) -> str | None:
    """Which of the lists is shown that everybody has above the filters; None: none of them, or one made narrower."""
    if wanted.queue or wanted.name:
        return None
    match wanted.states, wanted.user, everything:
        case (), "", True:
            return "all"
        case (), "", _:
            return "active"
        case (), user, False if user == me:
            return "mine"
        case (state,), "", _ if state in ("queued", "running", "failed"):
            return state
        case _:
            return None


async def _views_for(service: Service, caller: Caller) -> tuple[list[tuple[SavedViewInfo, bool]], list[str]]:
    """Saved views with whether they may be forgotten, and for which groups more can be saved; empty: for oneself."""
    if not may_do(caller, Verb.READ_VIEWS):
        return [], []
    found = await asyncio.to_thread(service.saved_views.seen_by, caller)
    may_change = may_do(caller, Verb.CHANGE_VIEWS)
    owners = ["", *(group for group in sorted(caller.groups) if service.saved_views.may_change_of(caller, group))]
    changeable = [(each, may_change and service.saved_views.may_change(caller, each)) for each in found]
    return changeable, owners if may_change else []


@router.get("/views/{view}")
async def saved_view(
    view: str, service: ServiceOf, access: Annotated[Access, may(Verb.READ_VIEWS)]
) -> RedirectResponse:
    """Lead to the list of jobs that a saved view is now."""
    info = await asyncio.to_thread(service.saved_views.one, view, access.caller)
    return RedirectResponse(f"/portal/jobs?{info.query}", 303, {"Cache-Control": "no-store"})


@router.get("/jobs/{job}")
async def one_job(
    job: str, service: ServiceOf, access: JobReader, visit: VisitOf, attempt: AttemptOf = None
) -> Response:
    """One job with all that is known of it; ``attempt`` is the one whose output is shown, by default the latest."""
    reader = reader_of(access.caller)
    info = await service.jobs.show(job, reader)
    if attempt is not None:
        attempt_of(info, attempt)
    reason = await service.with_waits(await service.jobs.why(job, reader))
    events = await service.events.of_job(job, reader)
    can_change = may_do(access.caller, Verb.CHANGE_JOBS, job_target(info))
    after = await service.lookup.jobs_before(info) if can_change else ()
    spec = shown_text(await service.lookup.document(job)) if can_change else None
    cards = await asyncio.to_thread(cards_of, service.state_dir, info) if info.gpu_milli and not info.array else None
    now, has_ended = time.time(), JobState(info.state).ended
    return show(
        "jobs/job.html",
        visit,
        job=info,
        reason=reason,
        attempts=[] if info.array else attempts_of(info, events),
        most_attempts=ATTEMPTS_SHOWN,
        attempts_offered=_attempts_offered(info, attempt),
        attempt=attempt,
        events=events[-EVENTS_SHOWN:],
        left_out=max(len(events) - EVENTS_SHOWN, 0),
        card_charts={} if cards is None else history_pages.card_charts(cards),
        most_cards=history_pages.MOST_CARDS,
        best_trials=await _best_trials(service, info),
        life=life_of(info, after, events, reason, now),
        left=(await service.time_left([job])).get(job),
        can_change=can_change,
        can_replace=can_change and submit_page.can_replace(info, reason),
        has_ended=has_ended,
        can_open=await _can_open(service, access, info),
        served=await service.services.info(job) if info.kind == Kind.SERVICE and not has_ended else None,
        spec=spec,
        wrong=ERROR_LINE,
        now=now,
    )


def _attempts_offered(job: JobInfo, chosen: int | None) -> list[int]:
    """The attempts whose output can be chosen: the latest, and the one that the address names."""
    offered = {*range(max(job.attempt - ATTEMPTS_SHOWN, 0) + 1, job.attempt + 1), *([] if chosen is None else [chosen])}
    return sorted(offered)


async def _best_trials(service: Service, job: JobInfo) -> TrialList | None:
    """The best trials of a sweep that compares them by a metric; None: there are none."""
    if job.array is None or not job.array.sweep or job.array.count > MOST_TRIALS:
        return None
    found = await asyncio.to_thread(service.sweeps.table, job, TRIALS_SHOWN)
    known = [trial for trial in found.trials if trial.value is not None]
    return replace(found, trials=known) if known else None


async def _can_open(service: Service, access: Access, job: JobInfo) -> bool:
    """Whether a browser may be let in to what a job serves."""
    may_come = job.kind in SERVING_KINDS and may_do(access.caller, *program_permission(job))
    if not may_come or JobState(job.state).ended or job.state in (JobState.SUSPENDED, JobState.STOPPING):
        return False
    return (await service.job_files.soon(job.id)).serve is not None
