"""Choose the replica of a job that answers a request, or say why none can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Message, Scope, Send

from millpond.engines.task_access import ForeignListenerError, TaskAccess
from millpond.model.errors import ConflictError, MillpondError, NotFoundError
from millpond.server.monitoring.activity import Activity
from millpond.server.runtime.active_jobs.job_lookup import JobLookup
from millpond.server.serving.front import ServiceFront, Ways
from millpond.server.serving.proxy.addresses import JobAddress
from millpond.server.serving.proxy.endpoints import NotRunningError, TaskEndpoint, places_of
from millpond.server.serving.proxy.headers import ProxyCaller, to_program
from millpond.server.serving.proxy.load_balancer import Readiness
from millpond.server.serving.proxy.presence import Conversation
from millpond.server.serving.proxy.request_queue import WaitingClient
from millpond.server.serving.proxy.requests import ProxiedRequest, RequestRelay
from millpond.server.serving.proxy.sockets import SocketRelay
from millpond.server.sessions.task_routes import TaskNetwork
from millpond.server.storage.job_files import JobFiles
from millpond.specs.config.origins import JobOrigins
from millpond.specs.job.job_ids import service_of
from millpond.specs.job.serving import Serve, base_path

_OBSTACLES: Final = (NotFoundError, ConflictError, NotRunningError)
"""Why one job has no replica for a request; another one may."""


@dataclass(frozen=True, slots=True)
class ProxyDependencies:
    """What the proxy needs of the server.

    Attributes:
        activity: is told when a job is used.
    """

    lookup: JobLookup
    job_files: JobFiles
    front: ServiceFront
    activity: Activity
    origins: JobOrigins
    access: TaskAccess


class Dispatcher:
    """Passes requests on to replicas that are ready."""

    def __init__(self, dependencies: ProxyDependencies) -> None:
        self._lookup, self._job_files = dependencies.lookup, dependencies.job_files
        self._front = dependencies.front
        self._activity = dependencies.activity
        self._access = dependencies.access
        self._sockets = SocketRelay()
        self._requests = RequestRelay(TaskNetwork(dependencies.access))
        self._readiness = Readiness(dependencies.access)

    async def attempt(
        self, ways: Ways, scope: Scope, client: WaitingClient, send: Send, address: JobAddress
    ) -> NotRunningError | None:
        """Pass a request on to a replica; what stands in the way where none can take it.

        Raises:
            MillpondError: waiting would not help, or the replica failed.
        """
        obstacles: list[MillpondError] = []
        for jobs in ways:
            try:
                ready = await self._ready_ones(jobs)
            except _OBSTACLES as error:
                obstacles.append(error)
                continue
            if await self._served_by(ready, scope, client, send, address):
                return None
            cause = f"{jobs[0]} runs, and its program does not answer yet"
            obstacles.append(NotRunningError(cause, f"see what it does with pond logs {jobs[0]}"))
        for obstacle in obstacles:
            if isinstance(obstacle, NotRunningError):
                return obstacle
        raise obstacles[0]

    async def _ready_ones(self, jobs: Sequence[str]) -> list[TaskEndpoint]:
        """The ready replicas of all these jobs together.

        Raises:
            NotFoundError, ConflictError: there are no such jobs, they serve nothing, or all have ended.
            NotRunningError: there is none now.
        """
        found: list[TaskEndpoint] = []
        obstacles: list[MillpondError] = []
        for job in jobs:
            try:
                places = places_of(await self._lookup.soon(job), self._access)
            except _OBSTACLES as error:
                obstacles.append(error)
                continue
            serve = (await self._job_files.soon(job)).serve or Serve()
            ready = await self._readiness.ready_ones(places, serve.ready_path(job))
            if not ready:
                hint = f"see what it does with pond logs {job}"
                obstacles.append(NotRunningError(f"{job} runs, and is not ready yet", hint))
            found += ready
        if not found:
            raise next((error for error in obstacles if isinstance(error, NotRunningError)), obstacles[0])
        return found

    async def _served_by(
        self, ready: Sequence[TaskEndpoint], scope: Scope, client: WaitingClient, send: Send, address: JobAddress
    ) -> bool:
        """Whether one of the replicas took the request.

        Raises:
            NotRunningError: none did, and a program that is no replica has the place of one.
        """
        obstacle: NotRunningError | None = None
        for place in self._front.balancer.order(ready):
            job = place.task.job
            serve = (await self._job_files.soon(job)).serve or Serve()
            target = _target(scope, address, place, serve.path == "whole")

            async def answer(message: Message, job: str = job) -> None:
                self._front.queue.served(job)
                await send(message)

            try:
                with self._front.balancer.request_at(place):
                    if scope["type"] == "websocket":
                        await self._sockets.relay(
                            scope, client.receive, answer, target, self._listener(job, target), address.holds
                        )
                    else:
                        await self._requests.relay(scope, client.receive, answer, target, address.holds)
            except ForeignListenerError as error:
                hint = f"start it once more with pond clone {job}: it gets another port"
                obstacle = NotRunningError(f"{job} runs, but {error}", hint)
            except ConnectionError:
                continue  # nothing was sent yet: the next replica may have it
            else:
                return True
        if obstacle is not None:
            raise obstacle
        return False

    def _listener(self, job: str, target: ProxiedRequest) -> Callable[[str | bytes], None]:
        """Hears what a client says on a WebSocket, and takes note of what a person does."""
        conversation = Conversation(target.path)

        def hear(message: str | bytes) -> None:
            if conversation.is_persons(message):
                self._activity.used(job, of_page=True)

        return hear


def _target(scope: Scope, address: JobAddress, place: TaskEndpoint, whole_path: bool) -> ProxiedRequest:
    client = scope.get("client")
    headers = Headers(scope=scope)
    scheme = "https" if scope["scheme"] in ("https", "wss") else "http"
    caller = ProxyCaller(client[0] if client else "", scheme, headers.get("host") or "")
    below = address.below or b"/"
    # A program that gets its base path knows that of its service, whichever of its revisions was addressed.
    base = base_path(service_of(address.job)).rstrip("/")
    path = base.encode() + below if whole_path else below
    passed = to_program(scope["headers"], caller, address.prefix, place.access_key)
    return ProxiedRequest(place.way, path, passed, address.prefix, whole_path, base)
