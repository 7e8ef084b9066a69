"""Routes for people who work inside a job: links to what it serves, commands beside it, its ports; and about what is
behind the address of a service: its revisions, and how one replaces another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, TypeAlias

from fastapi import Query, Request, WebSocket, WebSocketDisconnect
from starlette.websockets import WebSocketDisconnected

from millpond.model.errors import ConflictError, MillpondError
from millpond.model.states import JobState
from millpond.server.api.description import BYTES_BODY, api_router
from millpond.server.api.permits import (
    Access,
    AccessTokensOf,
    JobChanger,
    JobReader,
    SecurityOf,
    ServiceOf,
    job_in_path,
    may,
)
from millpond.server.auth.roles import Verb, demand, program_permission
from millpond.server.jobs.task_inputs import InputPiece
from millpond.server.monitoring.activity import Activity
from millpond.server.serving.proxy.access_tokens import LINK_GOOD_FOR_S, AccessToken
from millpond.server.sessions.websockets import (
    as_message,
    relay_command,
    relay_port,
    running_task,
    way_to_port,
)
from millpond.specs.api.jobs.jobs import LinkInfo
from millpond.specs.api.jobs.requests import InputInfo, RevisionRequest, RolloutRequest
from millpond.specs.api.services import RevisionPlan, ServiceInfo
from millpond.specs.job.job_ids import service_of
from millpond.specs.job.serving import OPEN_PATH, ORIGIN_OPEN_PATH, SERVING_KINDS, base_path

router = api_router(prefix="/jobs", tags=["interactive"])
services = api_router(prefix="/jobs", tags=["services"])

Insider = Annotated[Access, may(Verb.USE_JOBS, job_in_path)]
TaskNumber: TypeAlias = Annotated[int, Query(ge=0, lt=2**31)]


@router.post("/{job}/link", status_code=201)
async def link(
    job: str,
    service: ServiceOf,
    access_tokens: AccessTokensOf,
    security: SecurityOf,
    access: JobReader,
    alone: Annotated[bool, Query()] = False,
) -> LinkInfo:
    """A link that signs a browser in to what a job that has not ended serves. It works once, within a minute.

    A revision of a service is shown as the service, or, with ``alone``, by itself.
    """
    info = await service.lookup.soon(job)
    demand(access.caller, *program_permission(info))
    if info.kind not in SERVING_KINDS:
        raise ConflictError(f"job {info.id} is of kind {info.kind} and serves nothing", "use kind dev or service")
    address = info.id if alone else service_of(info.id)
    present = info if alone else await service.lookup.soon(service.front.routes.present(address))
    if JobState(present.state).ended:
        raise ConflictError(f"job {info.id} has ended ({present.state})", f"start it anew with `pond clone {info.id}`")
    access.note("a link to what it serves")
    caller = access.caller
    ticket = access_tokens.link(
        AccessToken(address, caller.user, security.accounts.pass_epoch(caller.user), caller.token)
    )
    origin = service.origins.url_of(address)
    return LinkInfo(
        open_path=f"{OPEN_PATH}?ticket={ticket}",
        path=base_path(address),
        good_for_s=LINK_GOOD_FOR_S,
        open_url=f"{origin}{ORIGIN_OPEN_PATH}?ticket={ticket}" if origin else "",
    )


@router.put("/{job}/stdin", openapi_extra=BYTES_BODY)
async def send_input(
    job: str,
    request: Request,
    service: ServiceOf,
    access: Insider,
    attempt: Annotated[int, Query(ge=1, le=10**9)],
    offset: Annotated[int, Query(ge=0, lt=2**62)],
    end: bool = False,
) -> InputInfo:
    """Send a piece of standard input to the task of a running job that was submitted with ``stdin: true``.

    The body is the piece. Less of it may be taken than was sent, while the task reads slowly; the answer says up to
    where to go on. A piece that comes again is taken once. After ten minutes without any piece, if an empty one, the
    input ends.
    """
    access.act.continues = offset > 0
    info = await service.lookup.soon(job)
    return await service.inputs.receive(info, InputPiece(attempt, offset, await request.body(), end))


@router.websocket("/{job}/exec")
async def run_command(
    client: WebSocket, job: str, service: ServiceOf, security: SecurityOf, access: Insider, task: TaskNumber = 0
) -> None:
    """Run a command beside a task; see ``server.sessions.websockets`` for the messages."""

    async def relay() -> None:
        with service.sessions.counted(access.caller.user):
            found = running_task(await service.lookup.soon(job), task)
            connection, still_may = await service.access.open_session(found), access.lasting(security.accounts)
            await relay_command(client, connection, lambda: service.activity.used(job), still_may)

    await serve_session(client, service.activity, job, relay)


@router.websocket("/{job}/forward")
async def forward(
    client: WebSocket,
    job: str,
    service: ServiceOf,
    security: SecurityOf,
    access: Insider,
    task: TaskNumber = 0,
    port: Annotated[int, Query(ge=0, le=65_535)] = 0,
) -> None:
    """Connect to a port of a task's machine; 0 is the port that the task was given."""

    async def relay() -> None:
        with service.sessions.counted(access.caller.user):
            found = running_task(await service.lookup.soon(job), task)
            way, still_may = way_to_port(service.access, found, port), access.lasting(security.accounts)
            await relay_port(client, way, lambda: service.activity.used(job), still_may)

    await serve_session(client, service.activity, job, relay)


async def serve_session(client: WebSocket, activity: Activity, job: str, relay: Callable[[], Awaitable[None]]) -> None:
    """Whatever goes wrong is the last message: a client can read no body of a WebSocket that was refused."""
    await client.accept()
    # It was killed, or its terminal was closed: no client reads the error, or hears that this is the end.
    with suppress(WebSocketDisconnect, WebSocketDisconnected):
        try:
            with activity.use(job):
                await relay()
        except MillpondError as error:
            await client.send_text(as_message(error.cause, error.remedy))
        await client.close()


@services.get("/{job}/service", dependencies=[may(Verb.READ_JOBS, job_in_path)])
async def show(job: str, service: ServiceOf) -> ServiceInfo:
    """What stands behind the address of a service, and what was asked of it."""
    return await service.services.info(job)


@services.post("/{job}/revisions/plan")
async def plan(job: str, body: RevisionRequest, service: ServiceOf, access: JobChanger) -> RevisionPlan:
    """What another job file would change of a service. Nothing is changed."""
    return await service.updating.plan(job, body, access.caller)


@services.post("/{job}/revisions", status_code=201)
async def begin(job: str, body: RevisionRequest, service: ServiceOf, access: JobChanger) -> ServiceInfo:
    """Have another revision of a service take the place of the present one, replica by replica."""
    found = await service.updating.begin(job, body, access.caller)
    access.note(f"revision {found.revisions[-1].number}")
    return found


@services.post("/{job}/rollout", status_code=202)
async def act(job: str, body: RolloutRequest, service: ServiceOf, access: JobChanger) -> ServiceInfo:
    """Pause, go on with, promote or withdraw the revision that is on its way; without one, go back by one."""
    found = await service.updating.act(job, body)
    access.note(body.act)
    return found
