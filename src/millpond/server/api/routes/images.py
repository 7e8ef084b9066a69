"""Routes about the catalogue of images. What takes long answers with a line of JSON for each step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import Annotated, Any

from fastapi import Path
from fastapi.responses import StreamingResponse
from starlette.requests import HTTPConnection

from millpond.model.tenancy.tenants import DEFAULT_QUEUE
from millpond.server.api.description import api_router, lines_of
from millpond.server.api.permits import Access, SecurityOf, ServiceOf, may
from millpond.server.api.service import Service
from millpond.server.auth.components import Security
from millpond.server.auth.roles import AccessTarget, Caller, Verb, demand, first_group, job_target
from millpond.server.storage.provisioning.image_steps import Work
from millpond.specs.api.jobs.images import (
    ImageAdd,
    ImageBuild,
    ImageChange,
    ImageEntry,
    ImageInfo,
    ImageList,
    ImagePush,
    ImageSave,
    ImageStep,
)
from millpond.specs.job.images import NAME_PATTERN, TAG_PATTERN

router = api_router(prefix="/images", tags=["images"])

_Name = Annotated[str, Path(pattern=NAME_PATTERN, max_length=100)]
_Tag = Annotated[str, Path(pattern=TAG_PATTERN)]
_STEPS: dict[str, Any] = {"response_class": StreamingResponse, "responses": lines_of(ImageStep)}


async def image_in_path(request: HTTPConnection) -> AccessTarget:
    """The image that the path names; the caller's own where there is none."""
    service: Service = request.app.state.service
    path = request.path_params
    return service.images.target(path["name"], path["tag"], request.state.act.caller)


async def seen_image_in_path(request: HTTPConnection) -> AccessTarget:
    """The same, as something to be used."""
    service: Service = request.app.state.service
    return service.images.seen(request.path_params["name"], request.path_params["tag"])


_Maker = Annotated[Access, may(Verb.CHANGE_IMAGES)]
_Changer = Annotated[Access, may(Verb.CHANGE_IMAGES, image_in_path)]
_User = Annotated[Access, may(Verb.READ_IMAGES, seen_image_in_path)]


@router.get("")
def images(service: ServiceOf, access: Annotated[Access, may(Verb.READ_IMAGES)]) -> ImageList:
    """The images that the caller may use, and on which machines they are."""
    return ImageList(images=service.images.list(access.sees))


@router.post("", **_STEPS)
def add(body: ImageAdd, service: ServiceOf, access: _Maker, security: SecurityOf) -> StreamingResponse:
    """Put an image of a registry, or of the server's machine, into the catalogue."""
    _claim(service, access, body, f"from {body.reference}")
    work = service.images.add(body, access.caller, _queue(access.caller, security))
    return _streamed(service, access, security, work)


@router.post("/build", **_STEPS)
def build(body: ImageBuild, service: ServiceOf, access: _Maker, security: SecurityOf) -> StreamingResponse:
    """Build an image from a folder that was sent. It ends when the caller leaves."""
    _claim(service, access, body, f"built from {body.snapshot[:12]}")
    queue = _queue(access.caller, security)
    work = service.images.build(body, access.caller, queue)
    return _streamed(service, access, security, work)


@router.post("/save", **_STEPS)
def save(body: ImageSave, service: ServiceOf, access: _Maker, security: SecurityOf) -> StreamingResponse:
    """Make an image of what a task of a job has become; the job must be one that the caller may be inside."""
    job = service.lookup.look(body.job)
    demand(access.caller, Verb.USE_JOBS, job_target(job))
    _claim(service, access, body, f"saved from {job.id}")
    work = service.images.save(body, job, access.caller)
    return _streamed(service, access, security, work)


@router.post("/{name}/{tag}/pull", **_STEPS)
def pull(name: _Name, tag: _Tag, service: ServiceOf, access: _User, security: SecurityOf) -> StreamingResponse:
    """Have an image of the catalogue on the machines before a job needs it."""
    access.note("fetched")
    return _streamed(service, access, security, service.images.pull(name, tag))


@router.post("/{name}/{tag}/push", **_STEPS)
def push(
    name: _Name, tag: _Tag, body: ImagePush, service: ServiceOf, access: _Changer, security: SecurityOf
) -> StreamingResponse:
    """Send an image of the catalogue to a registry; ``exact`` of the last line is as what that has it now.

    Who may is who may say who sees it. The registry gets what the secret holds, never what the server's account may.
    """
    access.note(f"sent to {body.reference}")
    entry = service.images.entry(name, tag)
    queue = _queue(access.caller, security)
    work = service.images.push(entry, body, access.caller, queue)
    return _streamed(service, access, security, work)


@router.patch("/{name}/{tag}")
def change(name: _Name, tag: _Tag, body: ImageChange, service: ServiceOf, access: _Changer) -> ImageInfo:
    """Say other words about an image, or let others see it."""
    info = service.images.change(name, tag, body)
    access.note(f"for {info.visibility}")
    return info


@router.delete("/{name}/{tag}")
def remove(name: _Name, tag: _Tag, service: ServiceOf, access: _Changer) -> ImageInfo:
    """Take an image out of the catalogue."""
    info = service.images.remove(name, tag)
    access.note("removed", before=info.digest)
    return info


def _claim(service: Service, access: Access, body: ImageEntry, how: str) -> None:
    """Check that the name belongs to no other user, and note the request for the audit log."""
    access.demand(service.images.target(body.name, body.tag, access.caller))
    access.note(how)


def _queue(caller: Caller, security: Security) -> str:
    """The queue whose rule about registries counts for the caller's images; empty for an admin: none."""
    group = first_group(caller)
    if caller.admin:
        return ""
    return security.accounts.group(group).queue if group else DEFAULT_QUEUE


def _streamed(service: Service, access: Access, security: Security, work: Work) -> StreamingResponse:
    """The steps of something; how it comes out is in the audit log before its last line."""
    act = access.act
    act.lasts = True

    def ended(status: int, words: str) -> Future[None] | None:
        act.after = f"{act.after}: {words}" if act.after else words
        entry = act.entry(status)
        return None if entry is None else security.audit.add_now(entry)

    return StreamingResponse(
        _lines(service.images.steps(work, access.caller.user, ended)), media_type="application/x-ndjson"
    )


async def _lines(steps: AsyncIterator[ImageStep]) -> AsyncIterator[str]:
    async for step in steps:
        yield step.model_dump_json() + "\n"
