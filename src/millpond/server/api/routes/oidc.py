"""Routes of logins at an OpenID Connect provider: pages for people under ``/oidc/``, and what programs ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request, Response

from millpond.model.errors import InvalidInputError, MillpondError, NotAllowedError
from millpond.server.api.description import api_router
from millpond.server.api.permits import SecurityOf, ServiceOf, open_to_all, security_of
from millpond.server.auth.audit import Act
from millpond.server.auth.guard import start_session
from millpond.server.auth.oidc import pages
from millpond.server.auth.oidc.pending_logins import GOOD_FOR_S
from millpond.server.auth.oidc.programs import ASK_EVERY_S
from millpond.server.auth.oidc.sign_on import COOKIE, COOKIE_PATH, Departure, SignOn
from millpond.server.auth.portal_paths import way_back
from millpond.server.auth.roles import AccessTarget
from millpond.server.auth.secrets import csrf_of
from millpond.server.http.error_responses import language_asked, status_of
from millpond.specs.api.accounts.sign_on import SignOnInfo, SignOnProgress, SignOnProof, SignOnRequest

router = api_router(prefix="/oidc", tags=["account"])
people = APIRouter(prefix="/oidc", include_in_schema=False)

_LARGEST_FORM: Final = 4_096


@people.get("/login", dependencies=[open_to_all])
def begin(
    request: Request, login: str = "", wanted: Annotated[str, Query(alias="next", max_length=2_000)] = ""
) -> Response:
    """Send a browser to the provider: for a session, or for the program that began ``login``."""
    return _page(
        request, lambda sign_on, act: _departed(sign_on.depart(login or "browser", act.address, wanted), sign_on)
    )


@people.get("/code", dependencies=[open_to_all])
def begin_with_code(request: Request) -> Response:
    """The same for a person who will type the code of a program."""
    return _page(request, lambda sign_on, act: _departed(sign_on.depart("code", act.address), sign_on))


@people.get("/callback", dependencies=[open_to_all])
def come_back(request: Request, security: SecurityOf, service: ServiceOf) -> Response:
    """Where the provider sends people back to."""

    def answer(sign_on: SignOn, act: Act) -> Response:
        act.caller, act.verb = None, "log-in"
        act.after = f"at {sign_on.rules.issuer}"
        if request.headers.get("sec-fetch-dest", "document") != "document":
            raise NotAllowedError("a login is a page of its own, not a part of another one", "open it in a window")

        def know(name: str) -> None:
            act.claimed, act.changes = name, True

        browser = request.cookies.get(COOKIE, "")
        said = {name: value for name, value in request.query_params.items() if len(value) <= _LARGEST_FORM}
        back = sign_on.come_back(said, browser, act.address, know)
        user = back.admitted.user
        act.target = AccessTarget("user", user.name)
        if back.person.mail:
            service.notifications.take_verified(user.name, back.person.mail)
        act.after = ": ".join(part for part in (act.after, back.admitted.changes) if part)
        if not back.for_browser:
            form = csrf_of(browser)
            known = back.begun
            return pages.ask_code(user.name, form) if known is None else pages.ask_consent(user.name, form, known)
        token, secret = security.logins.admit(user, session=True, label="browser, by OpenID Connect")
        # Elsewhere the portal cannot be used, so that the page with its button stays.
        leads_on = "sec-fetch-mode" in request.headers or bool(service.origins.domain)
        shown = pages.logged_in(user.name, csrf_of(secret), token.expires_at, way_back(back.then) if leads_on else "")
        start_session(shown, secret, is_encrypted=sign_on.rules.is_encrypted)
        shown.delete_cookie(COOKIE, path=COOKIE_PATH)
        return shown

    return _page(request, answer)


@people.post("/code", dependencies=[open_to_all])
async def confirm(request: Request) -> Response:
    """A person who came back says which program may act for them, and that it may."""
    content = b""
    async for piece in request.stream():
        content += piece
        if len(content) > _LARGEST_FORM:
            break
    return await asyncio.to_thread(_page, request, lambda sign_on, act: _confirmed(request, content, sign_on, act))


@router.post("/logins", status_code=201, dependencies=[open_to_all])
def begin_login(body: SignOnRequest, request: Request, security: SecurityOf) -> SignOnInfo:
    """Begin a login for a program; a person finishes it in a browser, within ten minutes."""
    sign_on, act = security.sign_on, request.state.act
    rules = sign_on.rules
    begun, until = sign_on.programs.begin(body.challenge, body.port, body.label, act.address)
    link = sign_on.code_url if body.port is None else f"{rules.public_url}/oidc/login?login={begun.id}"
    return SignOnInfo(id=begun.id, link=link, code=begun.shown_code, expires_at=until, ask_every_s=ASK_EVERY_S)


@router.post("/logins/{login}", dependencies=[open_to_all])
def claim_login(login: str, proof: SignOnProof, request: Request, security: SecurityOf) -> SignOnProgress:
    """How a login goes that a program began; once a person has allowed it, its token."""
    act: Act = request.state.act
    programs = security.sign_on.programs
    begun = programs.claim(login, proof.secret, proof.code)
    if begun is None:
        return SignOnProgress(state="waiting")
    act.caller, act.verb, act.claimed, act.target = None, "log-in", begun.user, AccessTarget("user", begun.user)
    act.after = "with the consent given in a browser"
    user = security.sign_on.usable(begun.user)
    token, secret = security.logins.admit(user, session=False, label=begun.label)
    return SignOnProgress(state="granted", user=user.name, token=secret, expires_at=token.expires_at)


def _page(request: Request, answer: Callable[[SignOn, Act], Response]) -> Response:
    """A page for people, also where something is wrong."""
    act: Act = request.state.act
    try:
        return answer(security_of(request).sign_on, act)
    except MillpondError as error:
        status = status_of(error)
        if status is None:
            raise
        if act.changes:
            act.after = f"{act.after}: {error.cause}"
        return pages.trouble(status, error, language_asked(request.headers))


def _departed(departure: Departure, sign_on: SignOn) -> Response:
    answer = pages.away(departure.url)
    answer.set_cookie(
        COOKIE,
        departure.browser,
        max_age=int(GOOD_FOR_S),
        path=COOKIE_PATH,
        secure=sign_on.rules.is_encrypted,
        httponly=True,
        samesite="lax",  # it has to come along when the provider sends the browser back
    )
    return answer


def _confirmed(request: Request, content: bytes, sign_on: SignOn, act: Act) -> Response:
    form = _fields(content)
    browser = request.cookies.get(COOKIE, "")
    user, login = sign_on.confirming(browser, form.get("form", ""))
    begun = sign_on.programs.find(login) if login else sign_on.typed(user, form.get("code", ""), act.address)
    said = form.get("answer", "")
    if said not in ("allow", "refuse"):
        return pages.ask_consent(user.name, csrf_of(browser), begun)
    act.caller, act.verb, act.claimed, act.target = None, "log-in", user.name, AccessTarget("user", user.name)
    act.after = f"{'lets' if said == 'allow' else 'does not let'} {begun.label or 'a program'} at {begun.address} act"
    sign_on.confirmed(browser)
    if said == "refuse":
        sign_on.programs.refuse(begun.id, NotAllowedError(f"{user.name} has refused", "begin it again if you like"))
        return pages.answered(False, begun)
    handover = sign_on.programs.allow(begun, user.name)
    return pages.answered(True, begun) if begun.port is None else pages.to_program(begun, handover)


def _fields(content: bytes) -> dict[str, str]:
    if len(content) > _LARGEST_FORM:
        raise InvalidInputError("the form is too large", "send what the page has")
    try:
        found: dict[str, Any] = parse_qs(content.decode("ascii"), max_num_fields=10)
    except ValueError as error:
        raise InvalidInputError("the form cannot be read", "send what the page has") from error
    return {name: values[0] for name, values in found.items()}
