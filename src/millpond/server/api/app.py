"""The ASGI application: routes, errors, and who may come in."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.routing import APIRoute
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp

from millpond.model.errors import MillpondError
from millpond.server.api.body_limits import BodyLimits, RefusedBodyError, refuse_body
from millpond.server.api.description import DescribedApi
from millpond.server.api.fast_path import FastPath
from millpond.server.api.permits import check_permits, open_to_all, routes_of
from millpond.server.api.routes import (
    credentials,
    curves,
    documentation,
    files,
    groups,
    images,
    interactive,
    jobs,
    login,
    machines,
    notifications,
    oidc,
    queues,
    reports,
    reservations,
    run_files,
    saved_views,
    time_series,
    users,
    webhooks,
)
from millpond.server.api.service import Service
from millpond.server.auth.components import Security
from millpond.server.auth.guard import RequestGuard
from millpond.server.http.error_responses import error_answer, refusal_of
from millpond.server.http.security_headers import PLAIN_PAGE, SecurityHeaders
from millpond.server.monitoring.instruments import RequestMetrics
from millpond.server.runtime.tenants import Tenants
from millpond.server.serving.proxy.access_tokens import AccessTokens
from millpond.server.serving.proxy.app import Proxy
from millpond.server.serving.proxy.dispatcher import ProxyDependencies
from millpond.server.version import VERSION
from millpond.specs.api.base import ErrorBody, ErrorDetail
from millpond.specs.validation import MOST_REPORTED, PATTERN_WORDS

log = logging.getLogger(__name__)

_LONGEST_NAME = 100
"""Characters of the name of a field that a refusal repeats."""


def make_app(
    service: Service,
    security: Security,
    tenants: Tenants,
    bound_to: str,
    secret: str,
    names: Iterable[str] = (),
    pages: Iterable[BaseRoute] = (),
) -> ASGIApp:
    """The whole application.

    Args:
        pages: routes for people, which answer with pages.
        bound_to: the address that the server listens on.
        secret: signs the access tokens for the programs of jobs.
        names: under which people outside know the server.
    """
    service.health.audit_trouble = lambda: security.audit.trouble
    access_tokens = AccessTokens(secret, time.time)
    routes = make_routes(service, security, tenants, access_tokens, pages)
    proxied = ProxyDependencies(
        service.lookup, service.job_files, service.front, service.activity, service.origins, service.access
    )
    proxy = Proxy(proxied, access_tokens, security.accounts, SecurityHeaders(BodyLimits(FastPath(routes))))
    guarded = RequestGuard(proxy, security, bound_to, names, service.origins)
    return RequestMetrics(guarded, service.instruments)


def make_routes(
    service: Service,
    security: Security,
    tenants: Tenants,
    access_tokens: AccessTokens,
    pages: Iterable[BaseRoute] = (),
) -> FastAPI:
    """The routes alone, without the guard.

    Raises:
        InconsistentStateError: a route does not declare who may use it.
    """
    app = DescribedApi(
        title="Millpond",
        version=VERSION,
        description="One calm pool out of a team's GPU machines.",
        docs_url=None,
        openapi_url=None,
        redoc_url=None,
        routes=[*_declared(), *pages],
    )
    app.state.service = service
    app.state.access_tokens = access_tokens
    app.state.security = security
    app.state.tenants = tenants
    app.add_exception_handler(MillpondError, _refused)
    app.add_exception_handler(DBAPIError, _not_stored)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(RefusedBodyError, refuse_body)
    app.add_exception_handler(ClientDisconnect, _left)
    app.add_exception_handler(HTTPException, _no_such_route)
    app.add_exception_handler(Exception, _unexpected)
    check_permits(app)
    return app


_reference = APIRouter()
"""Plain functions, so in threads: to make the description takes the first one who asks a second."""


@_reference.get("/docs", include_in_schema=False, dependencies=[open_to_all])
def docs(request: Request) -> HTMLResponse:
    return HTMLResponse(request.app.as_page, headers=PLAIN_PAGE)


@_reference.get("/openapi.json", include_in_schema=False, dependencies=[open_to_all])
def description(request: Request) -> Response:
    return Response(request.app.as_json, media_type="application/json")


def _declared() -> list[BaseRoute]:
    """What the modules of the API declare."""
    accounts = (login.router, oidc.router, users.router, groups.router, credentials.tokens, credentials.ssh)
    work = (jobs.router, files.router, run_files.router, interactive.router, interactive.services, credentials.secrets)
    own_pages = (machines.health, oidc.people, login.root_page, _reference, documentation.router)
    others = (
        machines.router,
        time_series.router,
        curves.router,
        reports.router,
        queues.router,
        queues.cells,
        reservations.router,
        saved_views.router,
        notifications.router,
        webhooks.router,
        images.router,
        *accounts,
        machines.audit,
        *own_pages,
    )
    # Routes are tried in turn: what is asked for most comes first.
    return [route for router in (*work, *others) for route in router.routes]


def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, MillpondError)
    known = refusal_of(error)
    return _unexpected(request, error) if known is None else error_answer(request.headers, *known)


def _not_stored(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, DBAPIError)
    way = request.scope.get("method", "WebSocket")
    log.error("%s %s: the store does not answer (%s)", way, request.url.path, error.orig)
    cause, remedy = "the store cannot be read or written", "see the server's log, then try again"
    return error_answer(request.headers, 503, ErrorBody(cause=cause, code="unavailable", remedy=remedy))


def _left(request: Request, error: Exception) -> JSONResponse:
    """The client went away before its body was whole: no defect, and read by the audit log alone."""
    body = ErrorBody(cause="the connection broke", code="unavailable", remedy="go on where it ended")
    return error_answer(request.headers, 503, body)


def _malformed(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    details = [
        ErrorDetail(
            loc=".".join(str(part)[:_LONGEST_NAME] for part in fault["loc"]),
            message=_in_words(fault),
            hint=_hint(fault),
        )
        for fault in error.errors()[:MOST_REPORTED]
    ]
    body = ErrorBody(
        cause="the request is not valid",
        code="request",
        remedy="mend what is named, and see /docs for what it takes",
        details=details,
    )
    return error_answer(request.headers, 422, body)


def _in_words(fault: dict[str, Any]) -> str:
    """What is wrong with a value, which may be a secret and is not repeated."""
    if fault["type"] == "string_pattern_mismatch":
        return "it has characters that are not allowed there"
    return str(fault["msg"]).removeprefix("Value error, ")


def _hint(fault: dict[str, Any]) -> str:
    """What to write instead; empty where the fault says it."""
    if fault["type"] == "string_pattern_mismatch":
        pattern = fault["ctx"]["pattern"]
        return PATTERN_WORDS.get(pattern, f"it must match {pattern}")
    return ""


def _no_such_route(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    cause, remedy = f"{request.method} {request.url.path}: {error.detail}", "see /docs for what there is"
    headers = {"Allow": _methods_at(request)} if error.status_code == 405 else None
    body = ErrorBody(cause=cause, code="request", remedy=remedy)
    return error_answer(request.headers, error.status_code, body, headers)


def _methods_at(request: Request) -> str:
    """What may be done at a path: each method is a route of its own, and the error knows of the first one alone."""
    routes = [route for route in routes_of(request.app) if isinstance(route, APIRoute)]
    near = [route for route in routes if route.matches(request.scope)[0] is Match.PARTIAL]
    return ", ".join(sorted({method for route in near for method in route.methods or ()}))


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    """Nothing of a defect's inside goes out; its id finds it in the log."""
    number = secrets.token_hex(4)
    log.error("error %s in %s %s", number, request.method, request.url.path, exc_info=error)
    body = ErrorBody(
        cause="a defect of the server", code="defect", remedy=f"look for {number} in the server's log", id=number
    )
    return error_answer(request.headers, 500, body)
