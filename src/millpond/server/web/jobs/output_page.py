"""The output files of a job: a part of its page, loaded on its own so that a slow disk holds no page, and downloads."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response

from millpond.model.errors import ConflictError, NotFoundError
from millpond.model.folders import is_inside
from millpond.model.states import JobState
from millpond.server.api.permits import JobReader, ServiceOf, job_in_path, may
from millpond.server.api.ranges import answer_with
from millpond.server.auth.roles import Verb
from millpond.server.storage.files.outputs import MOST_SEEN, LeftFile
from millpond.server.web.pages import PageRoute, VisitOf
from millpond.server.web.rendering import show
from millpond.specs.escaped_text import visible
from millpond.specs.quantities import size_text

LATEST_INSTANT: Final = 253_402_300_799.0
"""The end of the year 9999: a job can give its files any time, and dates go no further."""

AttemptOf = Annotated[int | None, Query(ge=1, le=10**9)]

router = APIRouter(prefix="/portal", include_in_schema=False, route_class=PageRoute)


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file as the page shows it.

    Attributes:
        key: the same for the same path, and fit for the id of a row.
        name: its path, with a question mark for each character that nobody sees.
        address: where it is downloaded; empty: it is a link, or its path is none that an address can have.
    """

    key: str
    name: str
    address: str
    size: str
    modified_at: float
    is_link: bool


@router.get("/jobs/{job}/output")
async def output_files(
    job: str,
    request: Request,
    service: ServiceOf,
    access: JobReader,
    visit: VisitOf,
    attempt: AttemptOf = None,
) -> Response:
    """The newest files of an attempt, or why there are none to show."""

    def made() -> Response:
        info = service.lookup.look_at_one(job)
        found, refused = None, None
        try:
            found = service.files.glimpse(info, attempt)
        except (ConflictError, NotFoundError) as error:
            refused = error
        rows = [] if found is None else [file_row(info.id, found.attempt, file) for file in found.files]
        return show(
            "jobs/output_files.html",
            visit,
            rows=rows,
            found=found,
            refused=refused,
            most_seen=MOST_SEEN,
            attempts=info.attempt,
            may_come=not JobState(info.state).ended and attempt in (None, info.attempt),
        )

    answers = service.long_answers
    return await answers.answer(request, access.caller.user, lambda: answers.in_thread(made))


@router.get("/jobs/{job}/output/{path:path}", dependencies=[may(Verb.READ_JOBS, job_in_path)])
def output_file(job: str, path: str, request: Request, service: ServiceOf, attempt: AttemptOf = None) -> Response:
    """One of these files, to be saved: a browser never shows it."""
    opened = service.files.output(service.lookup.look_at_one(job), attempt, path)
    answer = answer_with(opened, request.headers, path.rpartition("/")[2])
    answer.headers["Cache-Control"] = "no-store"
    return answer


def file_row(job: str, attempt: int, file: LeftFile) -> FileRow:
    """A file of an attempt for the page."""
    written = file.path.encode("utf-8", "surrogateescape")
    address = ""
    if not file.is_link and is_inside(file.path) and _fits_address(file.path):
        address = f"/portal/jobs/{quote(job, safe='')}/output/{quote(file.path)}?attempt={attempt}"
    return FileRow(
        key=hashlib.sha256(written).hexdigest()[:16],
        name=visible(file.path),
        address=address,
        size=size_text(file.size),
        modified_at=min(max(file.modified_at, 0.0), LATEST_INSTANT),
        is_link=file.is_link,
    )


def _fits_address(path: str) -> bool:
    """Whether a route finds it: bytes that are no UTF-8 come back as others, and routes match no line break."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return "\n" not in path
