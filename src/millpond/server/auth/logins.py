"""Log in with a password or an invitation for a token or a session; guessing is slowed (``throttle``)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from millpond.model.errors import InvalidInputError, NotLoggedInError, UnavailableError
from millpond.node.host.clocks import WallClock
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.records import Token, TokenKind, User
from millpond.server.auth.secrets import Passwords, id_of
from millpond.server.auth.throttle import Throttle

T = TypeVar("T")

LOGIN_S: Final = 30 * 86_400.0
SESSION_S: Final = 12 * 3_600.0
INVITATION_S: Final = 7 * 86_400.0
_AT_ONCE: Final = 2
"""Password hashes computed at the same time: each takes 64 MiB and a core."""
_WAITS_S: Final = 10.0


class Logins:
    """Checks who a client is.

    Args:
        passwords: makes and checks hashes.
        clock: for the pauses after failures.

    Attributes:
        throttle: counts failures, those of other kinds of login too.
    """

    def __init__(self, accounts: Accounts, passwords: Passwords, clock: WallClock) -> None:
        self._accounts = accounts
        self._passwords = passwords
        self.throttle = Throttle(clock)
        self._hashing = threading.BoundedSemaphore(_AT_ONCE)

    def by_password(self, name: str, password: str, address: str) -> User:
        """The account that this is the password of.

        Raises:
            NotLoggedInError: it is not, or there is no such account, or it is disabled: which, is not said.
            TooManyTriesError: too many attempts failed.
        """
        self.throttle.attempt(name, address)
        user = next((user for user in self._accounts.users() if user.name == name), None)
        usable = user is not None and not user.disabled and not user.service
        good = self._hashed(lambda: self._passwords.check(password, user.password if user and usable else ""))
        if user is None or not good:
            raise _wrong_password()
        self.throttle.succeeded(name, address)
        return user

    def by_invitation(self, secret: str, password: str, address: str) -> User:
        """The account that was invited, now with this password.

        Raises:
            NotLoggedInError: it is no invitation, or has been used, or has expired.
            InvalidInputError: the password cannot be used; the invitation still can.
            TooManyTriesError: too many attempts failed.
        """
        tried = f"invitation {id_of(secret) or ''}"
        self.throttle.attempt(tried, address)
        user = self._accounts.invited(secret)
        self.throttle.succeeded(tried, address)
        return self.choose_password(user.name, password, invitation=secret)

    def change_password(self, name: str, present: str | None, password: str, address: str, keep: str) -> None:
        """Another password for an account.

        Args:
            present: the password until now; None when it need not be shown.
            keep: id of the token in use, which stays valid.

        Raises:
            NotLoggedInError: the present password is wrong.
            InvalidInputError: the new one cannot be used, or the account is a service's.
        """
        if present is not None and self._accounts.user(name).password:
            self.by_password(name, present, address)
        self.choose_password(name, password, keep)

    def choose_password(self, name: str, password: str, keep: str = "", invitation: str = "") -> User:
        """Set an account's password without asking for the present one; arguments as for ``Accounts.set_password``."""
        if self._accounts.user(name).service:
            raise InvalidInputError(f"{name!r} is a service: it has no password", "make it a token")
        made = self._hashed(lambda: self._passwords.make(password, name))
        return self._accounts.set_password(name, made, keep, invitation)

    def invite(self, name: str, label: str = "to choose a password") -> tuple[Token, str]:
        """A secret by which a user chooses a password, once.

        Raises:
            InvalidInputError: the account is a service's.
        """
        if self._accounts.user(name).service:
            raise InvalidInputError(f"{name!r} is a service: it has no password", "make it a token")
        return self._accounts.tokens.issue(name, TokenKind.INVITATION, INVITATION_S, label)

    def admit(self, user: User, session: bool, label: str) -> tuple[Token, str]:
        """A token for a user who has shown who they are.

        Raises:
            NotLoggedInError: their password was replaced meanwhile, which ends all logins.
        """
        kind, lifetime_s = (TokenKind.SESSION, SESSION_S) if session else (TokenKind.LOGIN, LOGIN_S)
        tokens = self._accounts.tokens
        token, secret = tokens.issue(user.name, kind, lifetime_s, label or ("browser" if session else "pond login"))
        if self._accounts.user(user.name).password != user.password:
            tokens.revoke(token)
            raise _wrong_password()
        return token, secret

    def _hashed(self, work: Callable[[], T]) -> T:
        if not self._hashing.acquire(timeout=_WAITS_S):
            raise UnavailableError("too many people are logging in", "try again in a moment")
        try:
            return work()
        finally:
            self._hashing.release()


def _wrong_password() -> NotLoggedInError:
    return NotLoggedInError("user or password is wrong", "try again, or ask an admin for an invitation")
