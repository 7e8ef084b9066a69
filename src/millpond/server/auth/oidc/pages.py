"""The pages of a login at a provider.

No other page may look into these, not even one of a job's program under this server's own name: they open in a group
of windows of their own, and in no frame.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from html import escape
from typing import Final

from starlette.responses import HTMLResponse, RedirectResponse, Response

from millpond.model.errors import MillpondError
from millpond.server.auth.oidc.programs import Begun
from millpond.server.catalogues import ENGLISH
from millpond.server.http.pages import page
from millpond.server.phrases.phrasebook import phrase_in

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    # Not no-referrer: browsers would then name no origin when they send our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_LEAD_ON: Final = 'location.replace(document.querySelector("a").href);'
_LOG_OUT: Final = """
document.querySelector("button").onclick = async (click) => {
  click.target.disabled = true;
  const csrf = document.querySelector("meta[name=csrf-token]").content;
  const answer = await fetch("/api/v1/logout", { method: "POST", headers: { "X-CSRF-Token": csrf } });
  document.querySelector("main").textContent = answer.ok ? "You are logged out." : "This session has ended already.";
};
"""


def away(url: str) -> Response:
    """To the provider."""
    return RedirectResponse(url, 303, headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})


def logged_in(user: str, csrf: str, expires_at: float | None, then: str) -> Response:
    """A browser has a session.

    By a page and not by a redirect: a browser sends a strict cookie only with what a page of this server began.

    Args:
        csrf: what goes into the header ``X-CSRF-Token``.
        then: the path that it leads on to; empty: it stays.
    """
    nonce = secrets.token_urlsafe(16)
    until = "" if expires_at is None else f" until {datetime.fromtimestamp(expires_at, UTC):%Y-%m-%d %H:%M} UTC"
    way_on = f'<p><a href="{escape(then)}">To the portal</a></p>' if then else "<button>Log out</button>"
    return _shown(
        f"Logged in as {user}",
        f"<main><p>This browser is logged in{until}.</p>{way_on}</main>"
        f'<script nonce="{nonce}">{_LEAD_ON if then else _LOG_OUT}</script>',
        head=f'<meta name="csrf-token" content="{escape(csrf)}">',
        policy=f"script-src 'nonce-{nonce}'; connect-src 'self'",
    )


def ask_code(user: str, form: str) -> Response:
    """A person who is logged in says which program may act for them."""
    return _shown(
        f"You are {user}. Which code does your terminal show?",
        "<p>Type it only if you have begun this login yourself, with <code>pond login</code>. If another "
        "person shows you a code, they could act as you.</p>"
        f'<form method="post" action="/oidc/code">{_hidden("form", form)}'
        '<input name="code" maxlength="20" autocomplete="off" autocapitalize="characters" autofocus required> '
        "<button>Continue</button></form>",
        policy="form-action 'self'",
    )


def ask_consent(user: str, form: str, begun: Begun) -> Response:
    """A person who is logged in is asked whether a program may act for them."""
    leads_to = "" if begun.port is None else f" http://127.0.0.1:{begun.port}"
    return _shown(
        f"Shall {begun.label or 'a program'} act as {user}?",
        f"<p>It asked from {escape(begun.address) or 'an unknown address'} and shows the code "
        f"<code>{begun.shown_code}</code>. Allow it only if you have begun this login yourself.</p>"
        f'<form method="post" action="/oidc/code">{_hidden("form", form)}{_hidden("code", begun.shown_code)}'
        '<button name="answer" value="allow">Allow</button> '
        '<button name="answer" value="refuse">Refuse</button></form>',
        policy=f"form-action 'self'{leads_to}",
    )


def answered(allowed: bool, begun: Begun) -> Response:
    """They have said yes or no."""
    what = begun.label or "the program"
    if not allowed:
        return _shown("Refused", f"<p>{escape(what)} was notified. You can close this window.</p>")
    return _shown("Done", f"<p>{escape(what)} goes on by itself. You can close this window.</p>")


def to_program(begun: Begun, handover: str) -> Response:
    """Back to the program at its port, with the half that only this browser has."""
    return away(f"http://127.0.0.1:{begun.port}/?login={begun.id}&code={handover}")


def trouble(status: int, error: MillpondError, language: str) -> Response:
    """Why a login does not go on, for people."""
    more = f'<p class="more">{escape(phrase_in(language, error.remedy))}</p>' if error.remedy else ""
    return _shown(phrase_in(language, error.cause), more, status=status, language=language)


def _hidden(name: str, value: str) -> str:
    return f'<input type="hidden" name="{name}" value="{escape(value)}">'


def _shown(
    title: str,
    body: str,
    *,
    head: str = "",
    policy: str = "form-action 'none'",
    status: int = 200,
    language: str = ENGLISH,
) -> Response:
    headers = {**_HEADERS, "Content-Security-Policy": f"{_POLICY}; {policy}"}
    return HTMLResponse(page(head, title, body, language), status_code=status, headers=headers)
