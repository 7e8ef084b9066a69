"""Routes about jobs."""

from __future__ import annotations

import asyncio
import json
import unicodedata
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Final

from fastapi import Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from millpond.model.states import JobState
from millpond.model.workloads import LONGEST_JOB_ID, Priority
from millpond.server.api.description import JOB_FILE_BODY, JOB_FILES_BODY, api_router, lines_of
from millpond.server.api.long_answers import long_answer
from millpond.server.api.permits import (
    Access,
    JobChanger,
    JobLister,
    JobReader,
    JobSubmitter,
    SecurityOf,
    ServiceOf,
    Word,
    job_in_path,
    job_named,
    may,
)
from millpond.server.auth.roles import Verb, demand, job_target
from millpond.server.http.error_responses import language_asked
from millpond.server.http.long_answers import StreamedAnswer
from millpond.server.jobs.actions.changes import act_on_each
from millpond.server.jobs.listing import ListRequest
from millpond.server.store.job_filter import JobFilter
from millpond.server.views.log_search import LogPlace, LogSearchRequest
from millpond.server.views.logs import LogRequest
from millpond.server.views.visibility import reader_of
from millpond.specs.api.base import IDEMPOTENCY_HEADER
from millpond.specs.api.events import EventList
from millpond.specs.api.jobs.jobs import MOST_TOGETHER, JobInfo, JobList, JobOrder, JobsActed
from millpond.specs.api.jobs.logs import LogChunk, LogSearchInfo
from millpond.specs.api.jobs.reasons import PlanInfo, ReasonInfo
from millpond.specs.api.jobs.requests import (
    ExtendRequest,
    JobsActRequest,
    MigrateRequest,
    PriorityRequest,
    ResizeRequest,
)
from millpond.specs.api.jobs.trials import TrialList
from millpond.specs.api.models import adapter_of
from millpond.specs.errors import Problem, SpecError

LONG_LIST: Final = 10_000
"""A list of more jobs than clients ask for by themselves waits for its caller's turn."""
_SHORT_LIST: Final = 1_000
"""So many jobs are written down while other requests wait."""
_AUDITED: Final = 10
"""So many ids of jobs that are submitted together stand in the audit log."""

router = api_router(prefix="/jobs", tags=["jobs"])

Key = Annotated[str, Header(alias=IDEMPOTENCY_HEADER, max_length=200)]


@router.post("", status_code=201, openapi_extra=JOB_FILE_BODY)
async def submit(
    request: Request,
    service: ServiceOf,
    access: JobSubmitter,
    key: Key = "",
) -> JobInfo:
    """Submit a job. The body is a job file as JSON; repeating the key gives the same job, never a second one."""
    (info,) = await service.submissions.submit([await _document(request)], key, access.caller)
    access.note(f"queue {info.queue}", target=job_target(info))
    return info


@router.post("/batch", status_code=201, openapi_extra=JOB_FILES_BODY)
async def submit_together(request: Request, service: ServiceOf, access: JobSubmitter, key: Key = "") -> JobList:
    """Submit several jobs: all of them are taken, or none is. ``after`` in one may name another of them.

    The body is ``{"jobs": [JOB, ...]}``; repeating the key with the same body gives the same jobs.
    """
    documents = _documents(await _document(request))
    jobs = await service.submissions.submit(documents, key, access.caller)
    shown = ", ".join(info.id for info in jobs[:_AUDITED])
    access.note(f"{len(jobs)} jobs: {shown}{', ...' if len(jobs) > _AUDITED else ''}")
    return JobList(jobs=jobs)


@router.post("/plan", openapi_extra=JOB_FILE_BODY)
async def plan(request: Request, service: ServiceOf, access: JobSubmitter) -> PlanInfo:
    """What would become of a job if it were submitted now: where, when, at whose cost. Nothing is submitted."""
    return await service.plans.make(await _document(request), access.caller)


@router.post("/act")
async def act_on_jobs(
    request: Request,
    body: JobsActRequest,
    service: ServiceOf,
    access: Annotated[Access, may(Verb.CHANGE_JOBS)],
    key: Key = "",
) -> JobsActed:
    """Do the same to several jobs, each as by its own route; what is refused of one says why."""
    by, changes = access.caller.user, service.changes

    async def act(job: str) -> JobInfo:
        demand(access.caller, access.verb, await job_named(service, job))
        match body.act:
            case "stop":
                return await changes.stop(job, by)
            case "suspend":
                return await changes.suspend(job, by, swap=body.swap)
            case "resume":
                return await changes.resume(job, by)
            case "requeue":
                return await service.requeueing.requeue(job, f"{key}/{job}" if key else "", access.caller)
            case "priority":
                return await changes.change_priority(job, _priority(body.priority), by)

    acted = await act_on_each(body.jobs, act, language_asked(request.headers))
    done = [each.job for each in acted if each.error is None]
    shown = ", ".join(done[:_AUDITED]) + (", ..." if len(done) > _AUDITED else "")
    what = body.act if body.priority is None else f"priority {body.priority}"
    access.note(f"{what}: {len(done)} of {len(acted)} jobs{': ' if done else ''}{shown}")
    return JobsActed(jobs=acted)


async def _wanted(
    state: Annotated[tuple[JobState, ...], Query()] = (),
    user: Word = "",
    queue: Word = "",
    name: Annotated[Word, Query(description="A name, in which * stands for any letters and ? for one.")] = "",
) -> JobFilter:
    normal = unicodedata.normalize("NFC", name)
    return JobFilter(tuple(each.value for each in state), user, queue, normal)


WantedJobs = Annotated[JobFilter, Depends(_wanted)]


@router.get("", response_model=JobList)
async def list_jobs(
    request: Request,
    service: ServiceOf,
    access: JobLister,
    wanted: WantedJobs,
    everything: Annotated[bool, Query(alias="all")] = False,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 1_000,
    members: Annotated[str, Query(max_length=LONGEST_JOB_ID)] = "",
    behind: Annotated[str, Query(max_length=LONGEST_JOB_ID)] = "",
    order: JobOrder = "newest",
) -> Response:
    """Jobs, the newest or the oldest first: those that have not ended; those in some states; or all. An array is one
    of them; with ``members`` its members are listed. Behind the last job of an answer the list goes on with
    ``behind``. Of those that have not ended, ``line`` gives the ones that wait, the next first, ``cards`` begins with
    those that ask for the most, and ``priority`` with the highest."""
    query = ListRequest(wanted, everything, limit, members, behind, order)

    async def make() -> Response:
        found = await service.jobs.listed(query, reader_of(access.caller))
        is_short = len(found.jobs) <= _SHORT_LIST
        content = service.jobs.encoded(found) if is_short else await asyncio.to_thread(service.jobs.encoded, found)
        return Response(content, media_type="application/json")

    if limit > LONG_LIST:
        return await service.long_answers.answer(request, access.caller.user, make)
    return await make()


@router.get("/{job}")
async def show(job: str, service: ServiceOf, access: JobReader) -> JobInfo:
    """One job."""
    return await service.jobs.show(job, reader_of(access.caller))


@router.get("/{job}/why")
async def why(job: str, service: ServiceOf, access: JobReader) -> ReasonInfo:
    """Why a job waits, with the numbers, what would help, and when it should start; later, why it waited."""
    return await service.with_waits(await service.jobs.why(job, reader_of(access.caller)))


@router.post("/{job}/stop", status_code=202)
async def stop(job: str, service: ServiceOf, access: JobChanger) -> JobInfo:
    """Ask for the end of a job: it gets notice, and after its grace it is ended by force."""
    return _noted(access, await service.changes.stop(job, access.caller.user))


@router.post("/{job}/suspend", status_code=202)
async def suspend(job: str, service: ServiceOf, access: JobChanger, swap: bool = False) -> JobInfo:
    """Halt a running job where it is, or the running members of an array; its share of compute is free for others.

    Its memory stays; with ``swap`` its device memory moves to host memory, and its cards are free too.
    """
    return _noted(access, await service.changes.suspend(job, access.caller.user, swap=swap))


@router.post("/{job}/resume", status_code=202)
async def resume(job: str, service: ServiceOf, access: JobChanger) -> JobInfo:
    """Let a suspended job, or the suspended members of an array, go on as soon as there is room on their devices."""
    return _noted(access, await service.changes.resume(job, access.caller.user))


@router.post("/{job}/requeue", status_code=202)
async def requeue(job: str, service: ServiceOf, access: JobChanger, key: Key = "") -> JobInfo:
    """End the run of a job, or the runs of an array's members, with notice and grace; it waits for another.

    One that has ended is submitted again, by its owner: the answer is the new job. Repeating the key gives the same.
    """
    info = await service.requeueing.requeue(job, key, access.caller)
    access.note(info.state if info.id == job else f"submitted again as {info.id}")
    return info


@router.post("/{job}/priority", status_code=202)
async def change_priority(job: str, body: PriorityRequest, service: ServiceOf, access: JobChanger) -> JobInfo:
    """Give a job another class of priority, or an array with all its members; its queue has to allow it."""
    info = await service.changes.change_priority(job, _priority(body.priority), access.caller.user)
    access.note(f"priority {body.priority}")
    return info


@router.post("/{job}/migrate", status_code=202)
async def migrate(job: str, body: MigrateRequest, service: ServiceOf, access: JobChanger) -> JobInfo:
    """Have a running job go on with other cards; the field ``migration`` of the answer says which way it goes.

    Live where the engine can move its memory along on its node, else by an end and a start, which needs a job that
    saves its work on notice, or ``restart``.
    """
    return _noted(access, await service.changes.migrate(job, body, access.caller.user))


@router.post("/{job}/resize", status_code=202)
async def resize(job: str, body: ResizeRequest, service: ServiceOf, access: JobChanger) -> JobInfo:
    """Give an elastic job another number of tasks: surplus ones get notice, missing ones join the rest.

    Of an array all members that wait or run get it.
    """
    return _noted(access, await service.changes.resize(job, body, access.caller.user))


@router.post("/{job}/extend", status_code=202)
async def extend(job: str, body: ExtendRequest, service: ServiceOf, access: JobChanger) -> JobInfo:
    """Give a job with a time limit more time."""
    info = await service.changes.extend(job, body.by_s, access.caller.user)
    return _noted(access, service.with_limit_end(info))


@router.get("/{job}/document")
async def document(job: str, service: ServiceOf, access: JobChanger) -> dict[str, Any]:
    """The job file that a job was submitted with; for those who may change the job, as it may hold secrets."""
    return await service.lookup.document(job)


@router.delete("/{job}")
def delete(job: str, service: ServiceOf, access: JobChanger) -> JobInfo:
    """Drop a job that has ended, and all that it wrote."""
    info = service.delete_job(job)
    access.note("deleted", before=info.state)
    return info


@router.get("/{job}/events")
async def events(job: str, service: ServiceOf, access: JobReader) -> EventList:
    """A job's history: what happened and what was decided."""
    return EventList(events=await service.events.of_job(job, reader_of(access.caller)))


@router.get("/{job}/trials", response_model=TrialList)
async def trials(
    job: str,
    request: Request,
    service: ServiceOf,
    access: JobReader,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 1_000,
) -> Response:
    """The trials of a sweep with their parameters and what they reported, the best first."""
    return await long_answer(service, request, access, lambda: service.sweeps.table(service.lookup.look(job), limit))


@router.get(
    "/{job}/logs",
    response_class=StreamingResponse,
    responses=lines_of(LogChunk),
)
async def logs(
    job: str,
    service: ServiceOf,
    security: SecurityOf,
    access: JobReader,
    task: Annotated[int | None, Query(ge=0)] = None,
    attempt: Annotated[int | None, Query(ge=1)] = None,
    offset: Annotated[int, Query(ge=0, lt=2**62)] = 0,
    follow: bool = False,
    cursor: Annotated[str, Query(max_length=1_000_000)] = "",
    tail: Annotated[int | None, Query(ge=0, lt=2**62)] = None,
    since: Annotated[float | None, Query(ge=0, lt=2**40, allow_inf_nan=False)] = None,
    timestamps: bool = False,
    end: Annotated[int | None, Query(ge=0, lt=2**62)] = None,
) -> StreamingResponse:
    """A job's output, one JSON chunk per line; with ``follow`` until the job is over, through all its attempts.

    A chunk is of one stream, standard output or standard error. ``tail`` begins with so many last lines of each task,
    found within the last 16 MiB of the logs together, ``since`` with what was written at this time or later (seconds
    since 1970); with ``timestamps`` each chunk says when it was written. Of each task's log nothing is sent from
    ``end`` on.
    """
    query = LogRequest(task, attempt, offset, follow, cursor, tail, since, timestamps, end)
    chunks = await service.logs.read(job, query, access.lasting(security.accounts))
    return StreamedAnswer(_lines(chunks), media_type="application/x-ndjson")


@router.get("/{job}/logs/search", dependencies=[may(Verb.READ_JOBS, job_in_path)])
def search_logs(
    job: str,
    service: ServiceOf,
    text: Annotated[str, Query(max_length=200)] = "",
    errors: bool = False,
    task: Annotated[int | None, Query(ge=0)] = None,
    attempt: Annotated[int | None, Query(ge=1)] = None,
    backwards: bool = False,
    at_task: Annotated[int | None, Query(ge=0)] = None,
    at_offset: Annotated[int, Query(ge=0, lt=2**62)] = 0,
) -> LogSearchInfo:
    """The next line of a job's output that has a text, in ASCII letters of either case, or that looks like an error.

    It begins at ``at_offset`` of ``at_task``, without these at the beginning, and goes through one task after the
    other; ``backwards`` it finds the nearest line before that place, without one from the end. After a quarter of a
    second it answers how far it came; ask again from there until it has a ``hit`` or is ``over``.
    """
    at = None if at_task is None else LogPlace(at_task, at_offset)
    return service.log_search.find(job, LogSearchRequest(text, errors, task, attempt, backwards, at))


def _priority(name: str | None) -> Priority:
    assert name is not None, "the body was checked"
    return Priority[name.upper()]


def _noted(access: Access, info: JobInfo) -> JobInfo:
    access.note(info.state)
    return info


async def _lines(chunks: AsyncGenerator[LogChunk]) -> AsyncIterator[bytes]:
    """Each chunk as a line; whoever follows and may not go on learns why when they ask again."""
    write = adapter_of(LogChunk).dump_json
    async with aclosing(chunks):
        async for chunk in chunks:
            yield write(chunk) + b"\n"


async def _document(request: Request) -> Any:
    """The body as plain data."""
    try:
        return json.loads((await request.body()).decode(), parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        fault = Problem(f"the body is not JSON: {error.msg}", "", "", error.lineno, error.colno)
        raise SpecError([fault]) from error
    except (ValueError, RecursionError) as error:
        raise SpecError([Problem(f"the body is not JSON: {error}", "send a job file as JSON in UTF-8")]) from error


def _documents(body: Any) -> list[Any]:
    """The job files of a body that holds several."""
    if not isinstance(body, dict) or set(body) != {"jobs"} or not isinstance(body["jobs"], list):
        raise SpecError([Problem("the body holds no list of jobs", 'send {"jobs": [JOB, ...]}')])
    if not 1 <= len(body["jobs"]) <= MOST_TOGETHER:
        raise SpecError([Problem(f"{len(body['jobs'])} jobs together", f"send 1 to {MOST_TOGETHER} jobs at once")])
    return body["jobs"]


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")
