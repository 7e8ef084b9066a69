"""Ways in: the page to log in at, links that log in once, the choice of a language, and the files of pages."""

from __future__ import annotations

import asyncio
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import RedirectResponse

from millpond.model.errors import NotFoundError, NotLoggedInError
from millpond.server.api.description import api_router
from millpond.server.api.permits import Myself, SecurityOf, ServiceOf, open_to_all
from millpond.server.auth.audit import Act
from millpond.server.auth.guard import PORTAL_ENTRY, PORTAL_FILES, PORTAL_PREFIX, start_session
from millpond.server.auth.portal_paths import way_back
from millpond.server.auth.roles import AccessTarget
from millpond.server.catalogues import LANGUAGES
from millpond.server.web.pages import HOME, LANGUAGE_COOKIE, PageRoute, VisitOf, trouble
from millpond.server.web.rendering import show, static_file
from millpond.specs.api.accounts.accounts import PortalLink, PortalLinkRequest

router = APIRouter(include_in_schema=False, route_class=PageRoute)
others = APIRouter(include_in_schema=False, route_class=PageRoute)
"""What no page of the portal is at; it comes behind all of them."""
links = api_router(prefix="/portal", tags=["account"])

Way = Annotated[str, Query(max_length=2_000)]


def entry_path(ticket: str, job: str = "") -> str:
    """The path that logs a browser in and leads on to a job, or to the overview."""
    wanted = {"ticket": ticket} | ({"next": f"{PORTAL_PREFIX}jobs/{job}"} if job else {})
    return f"{PORTAL_ENTRY}?{urlencode(wanted)}"


@links.post("/links", status_code=201)
def make_link(body: PortalLinkRequest, request: Request, access: Myself, security: SecurityOf) -> PortalLink:
    """A link that logs one browser in to the portal, once, within ten minutes."""
    ticket, until = security.portal_links.make(access.caller)
    access.note("a link for a browser", target=AccessTarget("user", access.caller.user))
    return PortalLink(url=str(request.base_url).rstrip("/") + entry_path(ticket, body.job), expires_at=until)


@router.get(PORTAL_ENTRY, dependencies=[open_to_all])
async def enter(
    request: Request,
    visit: VisitOf,
    security: SecurityOf,
    ticket: Way = "",
    wanted: Annotated[Way, Query(alias="next")] = "",
) -> Response:
    """Log a browser in by a link, and lead on."""
    act: Act = request.state.act
    act.caller, act.verb, act.changes = None, "log-in", True
    if request.headers.get("sec-fetch-dest", "document") != "document":
        return trouble(request, 403, "a login is a page of its own, not a part of another one", "open it in a window")
    try:
        user, secret = await asyncio.to_thread(security.portal_links.redeem, ticket)
    except NotLoggedInError as error:
        return trouble(request, 401, error.cause, error.remedy)
    act.claimed, act.after, act.target = user, "by a link for a browser", AccessTarget("user", user)
    # By a page and not by a redirect: a browser sends a strict cookie only with what a page of this server began.
    answer = show("entered.html", visit, forward_to=way_back(wanted))
    start_session(answer, secret, is_encrypted=request.url.scheme == "https")
    return answer


@router.get("/portal/login", dependencies=[open_to_all])
async def log_in(
    request: Request, visit: VisitOf, security: SecurityOf, wanted: Annotated[Way, Query(alias="next")] = ""
) -> Response:
    """Where people log in, and are led back to what they wanted to see."""
    is_apart = "sec-fetch-mode" in request.headers or bool(request.app.state.service.origins.domain)
    return show(
        "login.html",
        visit,
        forward_to=way_back(wanted),
        is_apart=is_apart,
        offers_sign_on=security.sign_on.is_offered,
    )


@router.get("/portal/language/{tag}", dependencies=[open_to_all])
async def choose_language(
    request: Request, tag: str, service: ServiceOf, back: Annotated[Way, Query(alias="next")] = ""
) -> Response:
    """Keep a language for this browser, and for what its user is sent."""
    if tag not in LANGUAGES:
        raise NotFoundError(f"no language {tag[:20]!r}", f"there are {', '.join(LANGUAGES)}")
    act: Act = request.state.act
    if act.caller is not None:
        await asyncio.to_thread(service.notifications.follow_language, act.caller.user, tag)
    answer = RedirectResponse(way_back(back), 303, {"Cache-Control": "no-store"})
    is_encrypted = request.url.scheme == "https"
    answer.set_cookie(
        LANGUAGE_COOKIE, tag, max_age=365 * 86_400, path=HOME, secure=is_encrypted, httponly=True, samesite="lax"
    )
    return answer


@router.get(f"{PORTAL_FILES}{{digest}}/{{name}}", dependencies=[open_to_all])
async def file(digest: str, name: str) -> Response:
    """A file that pages consist of; what its address names never changes."""
    found = static_file(digest, name)
    if found is None:
        raise NotFoundError("this page is of an earlier version of the server", "load it again")
    return found


@others.get(f"{PORTAL_PREFIX}{{path:path}}", dependencies=[open_to_all])
async def no_page(request: Request, path: str) -> Response:
    """Say that there is no such page, or lead to the one that is written without the slash behind it."""
    if path.endswith("/"):
        return RedirectResponse(f"{PORTAL_PREFIX}{path.strip('/')}", 307, {"Cache-Control": "no-store"})
    return trouble(request, 404, "there is no such page", "go on from the overview")
