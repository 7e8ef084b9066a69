"""Routes about contents, datasets, and what jobs leave: outputs, results, metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Header, Path, Query, Request, Response
from starlette.requests import ClientDisconnect

from millpond.model.errors import UnavailableError
from millpond.server.api.description import BYTES_ANSWER, BYTES_BODY, FILE_ANSWERS, api_router
from millpond.server.api.long_answers import long_answer
from millpond.server.api.permits import Access, JobReader, ServiceOf, dataset_in_path, job_in_path, may
from millpond.server.api.ranges import SPAN_PATTERN, answer_with, sent_span
from millpond.server.auth.roles import Verb, first_group
from millpond.specs.api.jobs.files import (
    BlobInfo,
    BlobList,
    BlobProgress,
    DatasetChange,
    DatasetInfo,
    DatasetList,
    DatasetPut,
    MetricsInfo,
    OutputList,
    PathList,
)
from millpond.specs.job.dataset_refs import DatasetRef
from millpond.specs.job.snapshots import DIGEST_PATTERN, FolderSnapshot
from millpond.specs.validation import LONGEST_NAME, PLAIN_NAME

router = api_router(tags=["files"])

_SENDS = [may(Verb.SEND_FILES)]
_Sender = Annotated[Access, may(Verb.SEND_FILES)]
_READS_JOB = [may(Verb.READ_JOBS, job_in_path)]
_DataChanger = Annotated[Access, may(Verb.CHANGE_DATA, dataset_in_path)]

_Attempt = Annotated[int | None, Query(ge=1, le=10**9)]
_Task = Annotated[int, Query(ge=0, le=10**9)]
_BlobName = Annotated[str, Path(pattern=DIGEST_PATTERN)]
_Version = Annotated[int, Path(ge=1, le=10**9)]
_DatasetName = Annotated[str, Path(pattern=PLAIN_NAME, max_length=LONGEST_NAME)]


@router.post("/blobs/missing", dependencies=_SENDS)
def missing(asked: BlobList, service: ServiceOf) -> BlobList:
    """Those of the contents that are not here yet. The others stay for an hour, for whatever will refer to them."""
    return BlobList(digests=service.files.missing(asked.digests))


@router.post("/blobs", status_code=201, openapi_extra=BYTES_BODY)
async def put_blobs(request: Request, service: ServiceOf, access: _Sender) -> BlobList:
    """Send many small contents (at most 256 KiB each, 1,000 and 8 MiB in all), each behind its length in eight bytes,
    the most significant first. Answers with their digests, in their order."""
    pieces, caller = _bounded(request, service, access), access.caller
    return BlobList(digests=await service.files.receive_batch(caller.user, pieces))


def _bounded(request: Request, service: ServiceOf, access: Access) -> AsyncIterator[bytes]:
    """The body, for as long as there is room for it."""
    user, group = access.caller.user, first_group(access.caller)
    service.disk.check(user, group)
    return service.disk.bounded(user, group, request.stream())


@router.get("/blobs/{digest}")
def blob(digest: _BlobName, service: ServiceOf, access: _Sender) -> BlobProgress:
    """How much of a content is here, so that one that was cut off can go on."""
    return service.files.progress(access.caller.user, digest)


@router.put("/blobs/{digest}", status_code=201, openapi_extra=BYTES_BODY)
async def put_blob(
    digest: _BlobName,
    request: Request,
    service: ServiceOf,
    access: _Sender,
    content_range: Annotated[str, Header(pattern=SPAN_PATTERN)] = "",
) -> BlobInfo:
    """Send a content: the body as it is. It is kept only if its SHA-256 is the digest.

    What came before the connection broke stays for a day. ``Content-Range: bytes FIRST-LAST/TOTAL`` goes on with it:
    the body is the rest, from the byte ``FIRST`` on, of which there must not be less here.
    """
    pieces, caller = _bounded(request, service, access), access.caller
    try:
        await service.files.receive(caller.user, digest, sent_span(content_range, request.headers), pieces)
    except ClientDisconnect as error:
        raise UnavailableError("the connection broke", "go on where it ended") from error
    return BlobInfo(digest=digest)


@router.get("/datasets")
def datasets(service: ServiceOf, access: Annotated[Access, may(Verb.READ_DATA)]) -> DatasetList:
    """Every version of every dataset that the caller may see."""
    return DatasetList(datasets=service.files.datasets(access.sees))


@router.post("/datasets/{name}", status_code=201)
def put_dataset(name: _DatasetName, put: DatasetPut, service: ServiceOf, access: _DataChanger) -> DatasetInfo:
    """The next version of a dataset from a snapshot that was sent; the latest one if nothing has changed."""
    service.disk.check(access.caller.user, first_group(access.caller))
    info = service.files.put_dataset(name, put.snapshot, access.caller, put.visibility)
    access.note(f"version {info.version}, for {info.visibility}")
    return info


@router.patch("/datasets/{name}")
def share_dataset(name: _DatasetName, body: DatasetChange, service: ServiceOf, access: _DataChanger) -> DatasetInfo:
    """Let others see all versions of a dataset, or no more. Jobs that were submitted keep what they read."""
    info = service.files.share_dataset(name, body.visibility)
    access.note(f"for {body.visibility}")
    return info


@router.get("/datasets/{name}/{version}/files")
def dataset_files(
    name: _DatasetName, version: _Version, service: ServiceOf, access: Annotated[Access, may(Verb.READ_DATA)]
) -> FolderSnapshot:
    """What is in a version of a dataset: its files and links."""
    return service.files.snapshot(DatasetRef(name, version), access.caller)


@router.get("/datasets/{name}/{version}/files/{path:path}", response_class=Response, responses=FILE_ANSWERS)
def dataset_file(
    name: _DatasetName,
    version: _Version,
    path: str,
    request: Request,
    service: ServiceOf,
    access: Annotated[Access, may(Verb.READ_DATA)],
) -> Response:
    """One of these files, or a part of it, as for outputs of jobs; its version is its digest."""
    opened = service.files.dataset_file(DatasetRef(name, version), path, access.caller)
    return answer_with(opened, request.headers, path.rpartition("/")[2])


@router.post("/datasets/{name}/{version}/files", response_class=Response, responses=BYTES_ANSWER)
def several_dataset_files(
    name: _DatasetName,
    version: _Version,
    asked: PathList,
    service: ServiceOf,
    access: Annotated[Access, may(Verb.READ_DATA)],
) -> Response:
    """The first of several small files of it, as for outputs of jobs."""
    return _batch(access, service.files.dataset_batch(DatasetRef(name, version), asked.paths, access.caller))


@router.delete("/datasets/{name}/{version}")
def remove_dataset(name: _DatasetName, version: _Version, service: ServiceOf, access: _DataChanger) -> DatasetInfo:
    """Forget a version that no living job reads."""
    info = service.files.remove_dataset(name, version)
    service.disk.dataset_removed(info)
    service.files.collector.drop_just_sent(info)
    access.note(f"version {version} removed")
    return info


@router.get("/jobs/{job}/metrics", response_model=MetricsInfo)
async def metrics(
    job: str,
    request: Request,
    service: ServiceOf,
    access: JobReader,
    attempt: _Attempt = None,
    task: Annotated[int | None, Query(ge=0, le=10**9)] = None,
    last: Annotated[int, Query(ge=1, le=100_000)] = 1_000,
) -> Response:
    """What a job's tasks reported of themselves: the newest ``last`` points of each series.

    Of a trial that reports nothing and prints the metric of its sweep, what it printed.
    """

    def found() -> MetricsInfo:
        info = service.lookup.look_at_one(job)
        reported = service.files.metrics(info, attempt, task, last)
        return reported if task else service.sweeps.add_printed(info, reported, last)

    return await long_answer(service, request, access, found)


@router.get("/jobs/{job}/result", dependencies=_READS_JOB, response_class=Response, responses=FILE_ANSWERS)
def result(job: str, request: Request, service: ServiceOf, attempt: _Attempt = None, task: _Task = 0) -> Response:
    """What the function that a task ran returned, as it was written; the server does not read it."""
    opened = service.files.result(service.lookup.look_at_one(job), attempt, task)
    return answer_with(opened, request.headers)


@router.get("/jobs/{job}/output", response_model=OutputList)
async def output(
    job: str,
    request: Request,
    service: ServiceOf,
    access: JobReader,
    attempt: _Attempt = None,
    under: str = "",
) -> Response:
    """The files that an attempt left in its output folder (``MILLPOND_OUTPUT``); with ``under`` one file or folder."""
    return await long_answer(
        service, request, access, lambda: service.files.outputs(service.lookup.look_at_one(job), attempt, under)
    )


@router.get("/jobs/{job}/output/{path:path}", dependencies=_READS_JOB, response_class=Response, responses=FILE_ANSWERS)
def output_file(job: str, path: str, request: Request, service: ServiceOf, attempt: _Attempt = None) -> Response:
    """One of these files, or a part of it (``Range``; with ``If-Match`` or ``If-Range`` of the version it has)."""
    opened = service.files.output(service.lookup.look_at_one(job), attempt, path)
    return answer_with(opened, request.headers, path.rpartition("/")[2])


@router.post("/jobs/{job}/output", response_class=Response, responses=BYTES_ANSWER)
def several_output_files(
    job: str, asked: PathList, service: ServiceOf, access: JobReader, attempt: _Attempt = None
) -> Response:
    """The first of several small files of it, in the form in which contents are sent to ``/blobs``: as many as fit,
    up to one that is not there or has more than 256 KiB."""
    return _batch(access, service.files.output_batch(service.lookup.look_at_one(job), attempt, asked.paths))


def _batch(access: Access, contents: bytes) -> Response:
    access.act.continues = True  # it only fetches: no entry of the audit log for each
    return Response(contents, media_type="application/octet-stream")
