"""Links that log a browser in to the portal: made by a request with a token, valid once and for minutes.

A link is kept in memory alone. It gives no more than what it was asked for with: a confined token's session is confined
as the token is, and a link for an account that was disabled, or whose logins were ended meanwhile, opens nothing.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from millpond.model.errors import NotAllowedError, NotLoggedInError
from millpond.node.host.clocks import WallClock
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.logins import SESSION_S
from millpond.server.auth.oidc.pending_logins import PendingLogins
from millpond.server.auth.records import TokenKind
from millpond.server.auth.roles import Caller


@dataclass(frozen=True, slots=True)
class _Asked:
    """Who asked for a link: their name, the epoch of their account, and the id of the token they used."""

    user: str
    epoch: int
    token: str


class PortalLinks:
    """Makes such links, and opens sessions for them."""

    def __init__(self, accounts: Accounts, clock: WallClock) -> None:
        self._accounts = accounts
        self._waiting: PendingLogins[_Asked] = PendingLogins(clock)

    def make(self, caller: Caller) -> tuple[str, float]:
        """A ticket for the caller, and until when it is good.

        Raises:
            NotAllowedError: the account is a program's, which has no browser.
            UnavailableError: too many wait already.
        """
        if self._accounts.user(caller.user).service:
            raise NotAllowedError(f"{caller.user!r} is a service", "log in with the account of a person")
        ticket = secrets.token_urlsafe(32)
        asked = _Asked(caller.user, self._accounts.pass_epoch(caller.user), caller.token)
        return ticket, self._waiting.put(ticket, asked, f"user {caller.user}")

    def redeem(self, ticket: str) -> tuple[str, str]:
        """The user whom a ticket stands for, and the secret of a fresh session.

        Raises:
            NotLoggedInError: there is no such ticket, it was used, is too old, or its maker may not log in any more.
        """
        asked = self._waiting.take(ticket)
        caller = None if asked is None else self._accounts.caller_with_pass(asked.user, asked.epoch, asked.token)
        if caller is None:
            raise NotLoggedInError("this link was used already, or is too old", "ask for another with `pond open`")
        verbs = caller.verbs or frozenset()
        _, secret = self._accounts.tokens.issue(caller.user, TokenKind.SESSION, SESSION_S, "browser, by a link", verbs)
        return caller.user, secret
