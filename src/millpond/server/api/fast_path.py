"""A fast path in front of FastAPI for coroutine routes that answer with one model as JSON, or with a page.

FastAPI passes each request through seven layers and resolves its dependencies by a general algorithm, which takes
longer than most of our handlers. The fast path takes the same declarations, resolves them by a plan made once for each
route, and answers alike. Requests for all other routes go on to FastAPI, which tries none of its routes once more.
Parameters in an address that a route does not know are refused here, for all routes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from inspect import iscoroutinefunction
from typing import Any, Final

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from millpond.server.api.permits import routes_of
from millpond.specs.api.models import adapter_of

_UNPLANNED: Final = (
    "body_params",
    "cookie_params",
    "websocket_param_name",
    "response_param_name",
    "background_tasks_param_name",
    "security_scopes_param_name",
)
"""What a function may ask of FastAPI and not of the fast path."""
_FOUND: Final = "millpond.route"
"""Under which a request has the route that was found for it."""


class RefusingRoute(APIRoute):
    """A route whose function makes the whole answer, and that has answers of its own where something is wrong.

    Attributes:
        takes_any_query: its function reads the query by itself.
    """

    takes_any_query = False

    def refusal(self, request: Request, error: Exception) -> Response | None:
        """What it answers with; None: what the application does."""
        return None


class FastPath:
    """An application whose plain JSON routes and pages are answered here.

    Args:
        app: declares all routes, and how errors are answered.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._routes: dict[str, list[_PlannedRoute]] = {}
        for route in routes_of(app):
            if isinstance(route, APIRoute):
                planned = _PlannedRoute(route)
                for method in route.methods or ():
                    self._routes.setdefault(method, []).append(planned)
        app.router.routes.insert(0, _FoundRoute())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        path = scope["path"]
        for planned in self._routes.get(scope.get("method", ""), ()):
            route = planned.route
            found = route.path_regex.match(path)
            if found is None:
                continue
            plan, request = planned.plan, Request(scope, receive)
            unknown = planned.unknown_in(request)
            if (plan is None and not unknown) or "\0" in path:  # some refuse that before they read their parameters
                scope[_FOUND] = route
                break
            converted = {name: route.param_convertors[name].convert(text) for name, text in found.groupdict().items()}
            scope.update(app=self._app, route=route, endpoint=route.endpoint, path_params=converted)
            answer = await self._answer(route, plan, request, unknown)
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _answer(self, route: APIRoute, plan: _Plan | None, request: Request, errors: list[Any]) -> Response:
        """The answer, or what refuses it.

        Args:
            plan: None where something is wrong already.
            errors: what is.
        """
        try:
            arguments = {} if plan is None else await plan.arguments(request, errors)
            if plan is None or errors:
                raise RequestValidationError(errors)
            result = await plan.call(**arguments)
            if isinstance(result, Response):
                return result
            adapter = adapter_of(route.response_model)
            assert type(result) is route.response_model, f"{route.path} answers with a {type(result).__name__}"
            content = adapter.dump_json(result)
        except Exception as error:
            own = route.refusal(request, error) if isinstance(route, RefusingRoute) else None
            return self._refusal(request, error) if own is None else own
        return Response(content, route.status_code or 200, media_type="application/json")

    def _refusal(self, request: Request, error: Exception) -> Response:
        """The answer of the application's handler for errors of this kind."""
        handlers = self._app.exception_handlers
        handler = next(handlers[kind] for kind in type(error).__mro__ if kind in handlers)
        answer: Response = handler(request, error)  # type: ignore[assignment]
        return answer


class _FoundRoute(BaseRoute):
    """The route that was found for a request: FastAPI takes longer to try all of some hundred than to make a page."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        found: BaseRoute | None = scope.get(_FOUND)
        return (Match.NONE, {}) if found is None else found.matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope[_FOUND].handle(scope, receive, send)


class _PlannedRoute:
    """A route, and how it comes to its arguments, which is found out when it is first asked for."""

    def __init__(self, route: APIRoute) -> None:
        self.route = route

    @cached_property
    def plan(self) -> _Plan | None:
        return _plan_of(self.route)

    @cached_property
    def _query_names(self) -> frozenset[str]:
        return frozenset(field.alias for each in _all(self.route.dependant) for field in each.query_params)

    def unknown_in(self, request: Request) -> list[Any]:
        """What a query has that the route does not know: a filter that is misspelt would let everything through."""
        route = self.route
        is_exact = not route.takes_any_query if isinstance(route, RefusingRoute) else route.include_in_schema
        if not request.scope["query_string"] or not is_exact:
            return []
        return [
            {"type": "extra_forbidden", "loc": ("query", name), "msg": "Extra inputs are not permitted"}
            for name in request.query_params
            if name not in self._query_names
        ]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a function comes to its arguments.

    Attributes:
        request_names: of parameters that are given the request.
        dependencies: what is called before, with the names under which this function is given the results, if any.
        parameters: what it is given out of the request.
    """

    call: Callable[..., Awaitable[Any]]
    request_names: tuple[str, ...]
    dependencies: tuple[tuple[str | None, _Plan], ...]
    parameters: tuple[_Parameter, ...]

    async def arguments(self, request: Request, errors: list[Any]) -> dict[str, Any]:
        """The arguments for one request; what is wrong with parameters is added to ``errors``."""
        found: dict[str, Any] = dict.fromkeys(self.request_names, request)
        for name, dependency in self.dependencies:
            known = len(errors)
            arguments = await dependency.arguments(request, errors)
            if len(errors) > known:
                continue
            result = await dependency.call(**arguments)
            if name is not None:
                found[name] = result
        for parameter in self.parameters:
            parameter.read(request, found, errors)
        return found


@dataclass(frozen=True, slots=True)
class _Parameter:
    """One argument that is read out of a request.

    Attributes:
        source: the attribute of the request that may have it.
        is_text: any text is taken as it is; else FastAPI reads it.
        absent: the argument if the request has none, by its name; None where it must have one.
    """

    source: str
    field: Any
    is_text: bool
    absent: dict[str, Any] | None

    @staticmethod
    def of(source: str, field: Any) -> _Parameter:
        values, faults = request_params_to_args((field,), QueryParams())
        is_text = field.field_info.annotation is str and not field.field_info.metadata
        return _Parameter(source, field, is_text, None if faults else values)

    def read(self, request: Request, found: dict[str, Any], errors: list[Any]) -> None:
        """Add the argument to those found, or what is wrong with it to the errors."""
        received = getattr(request, self.source)
        text = received.get(self.field.alias)
        if text is None and self.absent is not None:
            found.update(self.absent)
        elif text is not None and self.is_text:
            found[self.field.name] = text
        else:
            values, faults = request_params_to_args((self.field,), received)
            found.update(values)
            errors += faults


def _plan_of(route: APIRoute) -> _Plan | None:
    """How a route comes to its arguments; None where its requests are left to FastAPI."""
    model = route.response_model
    is_plain = isinstance(model, type) and (issubclass(model, BaseModel) or is_dataclass(model))
    is_plain = is_plain or (isinstance(route, RefusingRoute) and model is None)
    shortened = route.response_model_exclude_unset or route.response_model_exclude_none
    if not is_plain or shortened or any(map(_is_unplanned, _all(route.dependant))):
        return None
    return _planned(route.dependant)


def _is_unplanned(dependant: Dependant) -> bool:
    call = dependant.call
    is_coroutine = iscoroutinefunction(call) or iscoroutinefunction(type(call).__call__)
    fields = (*dependant.path_params, *dependant.query_params, *dependant.header_params)
    return (
        not is_coroutine
        or any(getattr(dependant, name) for name in _UNPLANNED)
        or any(field.field_info.validation_alias not in (None, field.alias) for field in fields)
    )


def _all(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for inner in dependant.dependencies:
        yield from _all(inner)


def _planned(dependant: Dependant) -> _Plan:
    assert dependant.call is not None
    names = filter(None, (dependant.request_param_name, dependant.http_connection_param_name))
    sources = (
        ("path_params", dependant.path_params),
        ("query_params", dependant.query_params),
        ("headers", dependant.header_params),
    )
    return _Plan(
        dependant.call,
        tuple(names),
        tuple((inner.name, _planned(inner)) for inner in dependant.dependencies),
        tuple(_Parameter.of(source, field) for source, fields in sources for field in fields),
    )
