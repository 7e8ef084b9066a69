"""Routes for the pods of a run, by that run's own token: the files it is given, and what its tasks leave."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Path, Query, Request, Response
from starlette.requests import HTTPConnection

from millpond.model.errors import NotAllowedError, UnavailableError
from millpond.node.task.records import TaskId
from millpond.server.api.description import BYTES_ANSWER, BYTES_BODY, FILE_ANSWERS, api_router
from millpond.server.api.permits import Access, ServiceOf, may
from millpond.server.api.ranges import answer_with
from millpond.server.api.service import Service
from millpond.server.auth.roles import AccessTarget, Verb, absent
from millpond.server.auth.run_tokens import HOW
from millpond.specs.api.jobs.files import BlobList, MetricsTaken, RunOutput, RunState
from millpond.specs.job.snapshots import DIGEST_PATTERN

router = api_router(prefix="/runs/{job}/{attempt}/{task}", tags=["files"])

_Number = Annotated[int, Path(ge=0, le=10**9)]
_Digest = Annotated[str, Path(pattern=DIGEST_PATTERN)]


async def _run_in_path(request: HTTPConnection) -> AccessTarget:
    """The run that the path names, for its own pods.

    Raises:
        NotFoundError: who asks is none of its pods.
        NotAllowedError: it has ended.
        UnavailableError: it is not known yet whether it has.
    """
    service: Service = request.app.state.service
    caller, named = request.state.act.caller, request.path_params
    if caller.how != HOW or caller.token != f"{named['job']}/{named['attempt']}" or service.runs is None:
        raise absent("job", named["job"])
    if not service.runs.has(TaskId(named["job"], int(named["attempt"]), int(named["task"]))):
        if not service.runs.is_ready:
            raise UnavailableError("the server has not looked at the cluster yet", "try again in a moment")
        raise NotAllowedError(f"run {named['attempt']} of job {named['job']!r} has ended", "it keeps nothing more")
    return AccessTarget("job", named["job"])


_PODS = [may(Verb.SEND_FILES, _run_in_path)]
_Pod = Annotated[Access, may(Verb.SEND_FILES, _run_in_path)]


@router.get("/contents/{digest}", dependencies=_PODS, response_class=Response, responses=FILE_ANSWERS)
def content(
    job: str, attempt: _Number, task: _Number, digest: _Digest, request: Request, service: ServiceOf
) -> Response:
    """A content that the run is given, or a part of it (``Range``)."""
    return answer_with(service.run_files.content(job, digest), request.headers)


@router.post("/contents", dependencies=_PODS, response_class=Response, responses=BYTES_ANSWER)
def contents(job: str, attempt: _Number, task: _Number, asked: BlobList, service: ServiceOf) -> Response:
    """Many small ones, in the form in which they are sent to ``/blobs``."""
    return Response(service.run_files.batch(job, asked.digests), media_type="application/octet-stream")


@router.post("/state", dependencies=_PODS)
async def state(job: str, attempt: _Number, task: _Number, told: RunState, service: ServiceOf) -> RunState:
    """Whether the task's program has ended: what its pod knows, and what the server does."""
    assert service.runs is not None
    found = TaskId(job, attempt, task)
    known = service.runs.has_ended(found)
    if told.ended:
        service.runs.note_word(found)
    return RunState(ended=known, ending=service.runs.is_ending(found))


@router.post("/output")
def output(job: str, attempt: _Number, task: _Number, left: RunOutput, service: ServiceOf, _: _Pod) -> RunState:
    """What the task has left by now, as the snapshot of its output folder; its contents were sent to ``/blobs``."""
    info = service.lookup.look(job)
    service.disk.check(info.user, info.group)
    try:
        service.run_files.take_output(TaskId(job, attempt, task), left.snapshot, left.result)
    except OSError as error:
        raise UnavailableError(f"the server cannot keep the output ({error.strerror})", "make room there") from error
    return RunState(ended=False)


@router.post("/metrics", dependencies=_PODS, openapi_extra=BYTES_BODY)
async def metrics(
    job: str,
    attempt: _Number,
    task: _Number,
    request: Request,
    service: ServiceOf,
    first: Annotated[int, Query(ge=0, le=10**15)],
) -> MetricsTaken:
    """What the task has reported of itself since the byte ``first``. Answers with how much of it is here."""
    lines, run = await request.body(), TaskId(job, attempt, task)
    try:
        received = await asyncio.to_thread(service.run_files.take_metrics, run, first, lines)
    except OSError as error:
        raise UnavailableError(f"the server cannot keep metrics ({error.strerror})", "make room there") from error
    return MetricsTaken(received=received)
