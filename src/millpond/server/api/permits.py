"""What every route declares: by which verb it is done, and to what. A route without a permit does not get built.

    @router.get("/{job}")
    async def show(job: str, access: Annotated[Access, may(Verb.READ_JOBS, job_in_path)]) -> JobInfo: ...

The permit runs before the route, refuses with 403, or with 404 where the caller may not even see the object, and tells
the audit log what the request is about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Query
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.requests import HTTPConnection

from millpond.model.errors import InconsistentStateError, NotFoundError, NotLoggedInError
from millpond.server.api.service import Service
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.audit import Act
from millpond.server.auth.components import Security
from millpond.server.auth.roles import AccessTarget, Caller, Verb, allows, demand, job_target
from millpond.server.auth.vault.secrets import GROUP, USER
from millpond.server.runtime.tenants import Tenants
from millpond.server.serving.proxy.access_tokens import AccessTokens

DeclaredRoute = APIRoute | APIWebSocketRoute
Finder = Callable[[HTTPConnection], Awaitable[AccessTarget]]


@dataclass(frozen=True, slots=True)
class Access:
    """A request that was let through.

    Attributes:
        target: what the permit was asked for; None when the route has no one object.
    """

    caller: Caller
    verb: Verb
    target: AccessTarget | None
    act: Act

    def sees(self, target: AccessTarget) -> bool:
        """Whether the same verb is allowed on another object: for lists."""
        return allows(self.caller, self.verb, target)

    def demand(self, target: AccessTarget) -> None:
        """The same verb on an object that only the body of the request named.

        Raises:
            NotFoundError, NotAllowedError: as for the permit itself.
        """
        self.act.target = target
        demand(self.caller, self.verb, target)

    def lasting(self, accounts: Accounts) -> Callable[[], bool]:
        """Returns whether the caller still may what they were let in for; asked again and again in a stream."""
        return partial(accounts.still_may, self.caller, self.verb, self.target)

    def note(self, after: str, before: str = "", target: AccessTarget | None = None) -> None:
        """Note what changed, for the audit log."""
        self.act.after, self.act.before = after, before
        self.act.target = target or self.act.target


class Permit:
    """The check of one route.

    Args:
        verb: None: every client, logged in or not.
        find: the object in the request; None when the route is about no one object.
    """

    def __init__(self, verb: Verb | None, find: Finder | None = None) -> None:
        self.verb = verb
        self.find = find

    async def __call__(self, request: HTTPConnection) -> Access | None:
        """Let the request through, or refuse it; a WebSocket gets the same answer before it is open."""
        return None if self.verb is None else await self._access(self.verb, request)

    async def _access(self, verb: Verb, request: HTTPConnection) -> Access:
        act: Act = request.state.act
        caller = act.caller
        if caller is None:
            raise NotLoggedInError("this request needs a login", "log in with `pond login URL`")
        act.verb = verb.value
        if self.find is None:
            demand(caller, verb)
            return Access(caller, verb, None, act)
        act.target = target = await self.find(request)
        demand(caller, verb, target)
        return Access(caller, verb, target, act)


def may(verb: Verb, find: Finder | None = None) -> Any:
    """The permit of a route, as a dependency of it."""
    return Depends(Permit(verb, find))


open_to_all = Depends(Permit(None))
"""The permit of a route that needs no login."""

ClusterReader = Annotated[Access, may(Verb.READ_CLUSTER)]
ClusterKeeper = Annotated[Access, may(Verb.CHANGE_CLUSTER)]
Myself = Annotated[Access, may(Verb.READ_SELF)]
JobLister = Annotated[Access, may(Verb.READ_JOBS)]
JobSubmitter = Annotated[Access, may(Verb.SUBMIT_JOBS)]


async def job_in_path(request: HTTPConnection) -> AccessTarget:
    """The job that the path names."""
    return await job_named(request.app.state.service, request.path_params["job"])


async def job_named(service: Service, name: str) -> AccessTarget:
    """A job as what a verb is applied to; without an owner when there is none."""
    try:
        info = service.lookup.live(name)
        if info is None:
            info = await asyncio.to_thread(service.lookup.look, name)
    except NotFoundError:
        return AccessTarget("job", name)
    return job_target(info, name)


JobReader = Annotated[Access, may(Verb.READ_JOBS, job_in_path)]
JobChanger = Annotated[Access, may(Verb.CHANGE_JOBS, job_in_path)]


async def user_in_path(request: HTTPConnection) -> AccessTarget:
    """The user that the path names."""
    return security_of(request).accounts.target_user(request.path_params["user"])


async def group_in_path(request: HTTPConnection) -> AccessTarget:
    """The group that the path names."""
    return security_of(request).accounts.target_group(request.path_params["group"])


async def queue_in_path(request: HTTPConnection) -> AccessTarget:
    """The queue that the path names: its group's."""
    name = request.path_params["queue"]
    owner = security_of(request).accounts.group_of_queue(name)
    return AccessTarget("queue", name, groups=frozenset() if owner is None else frozenset({owner.name}))


QueueChanger = Annotated[Access, may(Verb.CHANGE_CLUSTER, queue_in_path)]


async def token_in_path(request: HTTPConnection) -> AccessTarget:
    """The token whose id the path names."""
    return security_of(request).accounts.tokens.target(request.path_params["token"])


async def secret_in_path(request: HTTPConnection) -> AccessTarget:
    """The secret that the path names."""
    path = request.path_params
    return secret_target(path["kind"], path["owner"], path["secret"])


def secret_target(kind: str, owner: str, name: str) -> AccessTarget:
    """A secret as what a verb is applied to: a user's own is theirs alone, not even a lead's."""
    if kind == GROUP:
        return AccessTarget("secret", name, groups=frozenset({owner}))
    return AccessTarget("secret", name, user=owner if kind == USER else "")


async def dataset_in_path(request: HTTPConnection) -> AccessTarget:
    """The dataset that the path names: its owner's and its own group's, or the caller's where there is none."""
    service: Service = request.app.state.service
    return await asyncio.to_thread(service.files.target, request.path_params["name"], request.state.act.caller)


def security_of(request: HTTPConnection) -> Security:
    """The parts of the server that authenticate callers."""
    security: Security = request.app.state.security
    return security


def _kept_as(name: str) -> Any:
    """What the application keeps, for a route. By a coroutine: a plain function would cost each request a thread."""

    async def kept(connection: HTTPConnection) -> Any:
        return getattr(connection.app.state, name)

    return Depends(kept)


AccessTokensOf = Annotated[AccessTokens, _kept_as("access_tokens")]
SecurityOf = Annotated[Security, _kept_as("security")]
ServiceOf = Annotated[Service, _kept_as("service")]
TenantsOf = Annotated[Tenants, _kept_as("tenants")]
NO_ZERO: Final = r"^[^\x00]*$"
"""PostgreSQL refuses to look for a zero byte."""
Word = Annotated[str, Query(max_length=200, pattern=NO_ZERO)]
"""What a list is narrowed by."""


def permits_of(route: DeclaredRoute) -> list[Permit]:
    """All permits that a route declares."""
    return [dependency.call for dependency in _all(route.dependant) if isinstance(dependency.call, Permit)]


def check_permits(app: FastAPI) -> None:
    """Refuse to serve routes that every client could use by oversight.

    Raises:
        InconsistentStateError: a route declares no permit, or several.
    """
    for route in routes_of(app):
        found = permits_of(route)
        if len(found) != 1:
            raise InconsistentStateError(
                f"route {route.path} ({route.name}) declares {len(found)} permits",
                "declare one: who may do what to which object",
            )


def routes_of(app: FastAPI) -> list[DeclaredRoute]:
    """The declared routes of an application, with those of included routers, which newer FastAPI keeps apart."""
    return _declared_in(app.routes)


def _declared_in(routes: Sequence[Any]) -> list[DeclaredRoute]:
    found: list[DeclaredRoute] = []
    for route in routes:
        if isinstance(route, DeclaredRoute):
            found.append(route)
        else:
            found += _declared_in(getattr(getattr(route, "original_router", route), "routes", None) or ())
    return found


def _all(dependant: Dependant) -> list[Dependant]:
    return [dependant, *(inner for each in dependant.dependencies for inner in _all(each))]
