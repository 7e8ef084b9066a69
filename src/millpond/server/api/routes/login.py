"""Routes about oneself: the page that says how to log in, log in, log out, who am I, another password."""

from __future__ import annotations

from html import escape
from typing import Annotated

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from millpond.model.errors import ConflictError
from millpond.server.api.account_views import memberships
from millpond.server.api.description import api_router
from millpond.server.api.permits import Access, Myself, SecurityOf, ServiceOf, may, open_to_all
from millpond.server.auth.accounts import OWNER
from millpond.server.auth.audit import Act
from millpond.server.auth.group_invitations import VALID_S
from millpond.server.auth.guard import PORTAL_AS_WRITTEN, PORTAL_PREFIX, end_session, start_session
from millpond.server.auth.roles import AccessTarget, Verb
from millpond.server.auth.secrets import csrf_of
from millpond.server.http.pages import page
from millpond.server.http.security_headers import PLAIN_PAGE
from millpond.specs.api.accounts.accounts import GroupInvitationInfo, LoginInfo, LoginRequest, PasswordChange, WhoInfo

router = api_router(tags=["account"])
root_page = APIRouter(include_in_schema=False)


@root_page.get("/", dependencies=[open_to_all])
def arrive(request: Request, security: SecurityOf) -> HTMLResponse:
    """What may be known without a login: what this is, and how to log in."""
    address = escape(str(request.base_url).rstrip("/"))
    body = (
        "<p>It shares out the GPUs of a team. From a terminal:</p>"
        f"<pre><code>pond login {address}\npond nodes\npond submit job.yaml</code></pre>"
    )
    body += f'<p><a href="{PORTAL_PREFIX}">To the portal</a></p>'
    if security.sign_on.is_offered:
        body += '<p><a href="/oidc/login">Log this browser in</a></p>'
    body += '<p class="more">For programs: <a href="/docs">what the API offers</a>.</p>'
    return HTMLResponse(page("", "This is a Millpond server", body), headers=PLAIN_PAGE)


@root_page.get(PORTAL_AS_WRITTEN, dependencies=[open_to_all])
def go_on_to_portal() -> RedirectResponse:
    """For whoever leaves the slash behind it out."""
    return RedirectResponse(PORTAL_PREFIX, 307, {"Cache-Control": "no-store"})


@router.post("/login", dependencies=[open_to_all])
def login(body: LoginRequest, request: Request, response: Response, security: SecurityOf) -> LoginInfo:
    """Log in by password or invitation: for a token, or with ``session`` for a cookie that programs cannot read."""
    act: Act = request.state.act
    act.caller, act.verb, act.claimed = None, "log-in", body.user
    logins = security.logins
    if body.invitation:
        user = logins.by_invitation(body.invitation, body.new_password, act.address)
        act.after = "by invitation, with a new password"
    else:
        user = logins.by_password(body.user, body.password, act.address)
    act.claimed, act.target = user.name, AccessTarget("user", user.name)
    token, secret = logins.admit(user, body.session, body.label)
    if not body.session:
        return LoginInfo(user=user.name, token=secret, expires_at=token.expires_at)
    start_session(response, secret, is_encrypted=request.url.scheme == "https")
    return LoginInfo(user=user.name, csrf=csrf_of(secret), expires_at=token.expires_at)


@router.post("/logout", status_code=204)
def logout(access: Myself, request: Request, response: Response, security: SecurityOf) -> None:
    """Revoke the token, or end the session, that this request bears."""
    caller = access.caller
    if caller.how == OWNER:
        raise ConflictError(
            "the token in the state directory cannot be logged out", "remove its file and start the server again"
        )
    security.accounts.tokens.revoke(security.accounts.tokens.get(caller.token))
    end_session(response, is_encrypted=request.url.scheme == "https")
    access.note("logged out", target=AccessTarget("token", caller.token))


@router.get("/whoami")
def whoami(access: Myself, security: SecurityOf, service: ServiceOf) -> WhoInfo:
    """Who one is to this server, and what one's token is confined to."""
    caller = access.caller
    return WhoInfo(
        user=caller.user,
        admin=caller.admin,
        how=caller.how,
        groups=memberships(security.accounts, caller.user),
        invitations=[
            GroupInvitationInfo(group=each.group, role=each.role.value, by=each.by, until=each.at + VALID_S)
            for each in security.invitations.of_user(caller.user)
        ],
        verbs=sorted(caller.verbs or ()),
        limits=security.accounts.user(caller.user).limits,
        disk=[service.disk.of_user(caller.user), *map(service.disk.of_group, sorted(caller.groups))],
    )


@router.put("/password", status_code=204)
def change_password(
    body: PasswordChange, access: Annotated[Access, may(Verb.CHANGE_SELF)], security: SecurityOf
) -> None:
    """Choose another password; all other logins of this account end."""
    caller = access.caller
    present = None if caller.how == OWNER else body.password
    access.note("another password", target=AccessTarget("user", caller.user))
    security.logins.change_password(caller.user, present, body.new_password, access.act.address, caller.token)
