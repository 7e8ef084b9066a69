"""The page at the root of the server: what this server is, and how to log in."""

from __future__ import annotations

from html import escape

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from millpond.server.api.permits import SecurityOf, open_to_all
from millpond.server.http.pages import page
from millpond.server.http.security_headers import PLAIN_PAGE

router = APIRouter(include_in_schema=False)


@router.get("/", dependencies=[open_to_all])
def arrive(request: Request, security: SecurityOf) -> HTMLResponse:
    """What may be known without a login: what this is, and how to log in."""
    address = escape(str(request.base_url).rstrip("/"))
    body = (
        "<p>It shares out the GPUs of a team. From a terminal:</p>"
        f"<pre><code>pond login {address}\npond nodes\npond submit job.yaml</code></pre>"
    )
    if security.sign_on.is_offered:
        body += '<p><a href="/oidc/login">Log this browser in</a></p>'
    body += '<p class="more">For programs: <a href="/docs">what the API offers</a>.</p>'
    return HTMLResponse(page("", "This is a Millpond server", body), headers=PLAIN_PAGE)
