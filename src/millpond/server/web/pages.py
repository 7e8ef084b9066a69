"""What the portal's routes have in common: who visits, and errors as pages for people."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.responses import RedirectResponse

from millpond.model.errors import MillpondError, NotAllowedError, NotFoundError, NotLoggedInError
from millpond.server.api.fast_path import RefusingRoute
from millpond.server.auth.audit import Act
from millpond.server.auth.guard import CSRF, PORTAL_LOGIN, PORTAL_PREFIX
from millpond.server.auth.roles import AccessTarget, Caller, Verb, demand
from millpond.server.catalogues import language_for
from millpond.server.http.error_responses import refusal_of
from millpond.server.web.rendering import PageReader, show

LANGUAGE_COOKIE: Final = "millpond_language"
HOME: Final = PORTAL_PREFIX


class PageRoute(RefusingRoute):
    """A route that answers with a page, also where something is wrong."""

    def refusal(self, request: Request, error: Exception) -> Response | None:
        """The page in place of the one that was asked for."""
        if isinstance(error, NotLoggedInError):
            here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"{PORTAL_LOGIN}?next={quote(here)}", 303, {"Cache-Control": "no-store"})
        if isinstance(error, RequestValidationError):
            return trouble(request, 422, f"this address is not valid: {_parts_in(error)}", "go to the page anew")
        known = refusal_of(error) if isinstance(error, MillpondError) else None
        return None if known is None else trouble(request, known[0], known[1].cause, known[1].remedy)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with errors turned into pages."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            if "\0" in request.scope["path"]:  # PostgreSQL refuses to look for one
                return trouble(request, 404, "an address with a zero byte", "go to the page anew")
            try:
                return await handle(request)
            except (MillpondError, RequestValidationError) as error:
                page = self.refusal(request, error)
                if page is None:
                    raise
                return page

        return handled


class FormRoute(PageRoute):
    """A page whose address may have the fields of a form, which reads them by itself."""

    takes_any_query = True


def _parts_in(error: RequestValidationError) -> str:
    """The parts of an address that are not valid, by the names that the page has for them."""
    return ", ".join(dict.fromkeys(str(each["loc"][1]) for each in error.errors() if len(each["loc"]) > 1))


def trouble(request: Request, status: int, cause: str, remedy: str) -> Response:
    """A page that says why there is no other."""
    return show("trouble.html", visit_of(request), status, cause=cause, remedy=remedy)


def visit_of(request: Request) -> PageReader:
    """For whom a page is made."""
    act: Act = request.state.act
    return PageReader(
        caller=act.caller,
        csrf=getattr(request.state, CSRF, ""),
        language=language_for(request.cookies.get(LANGUAGE_COOKIE, ""), request.headers.get("accept-language", "")),
        path=request.url.path,
        query=request.url.query,
        may_submit=may_do(act.caller, Verb.SUBMIT_JOBS),
        version=request.app.state.service.version(),
    )


async def _visit(request: Request) -> PageReader:
    return visit_of(request)


VisitOf = Annotated[PageReader, Depends(_visit)]


def may_do(caller: Caller | None, verb: Verb, target: AccessTarget | None = None) -> bool:
    """Whether a page offers something: by the very question that the API asks when it is to be done."""
    if caller is None:
        return False
    try:
        demand(caller, verb, target)
    except (NotAllowedError, NotFoundError):
        return False
    return True
