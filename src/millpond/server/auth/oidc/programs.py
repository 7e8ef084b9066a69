"""Logins that a program such as ``pond login`` begins and a user finishes in a browser.

The program keeps a secret and shows its hash; nothing is handed out without the secret. Where the browser runs on the
same machine, a second half comes to the program through a port of that machine (RFC 8252), so that a login that another
person began cannot be finished by mistake. Elsewhere the person types a code that the program shows (after RFC 8628).
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass, field
from typing import Final

from millpond.model.errors import MillpondError, NotFoundError, NotLoggedInError, TooManyTriesError
from millpond.node.host.clocks import WallClock
from millpond.server.auth.oidc.pending_logins import OVER, PendingLogins
from millpond.server.auth.secrets import digest_of, is_same

ASK_EVERY_S: Final = 2.0
_USED: Final = "this login was used already"
_AGAIN: Final = "begin it again with `pond login`"
_LEAST_PAUSE_S: Final = 0.5
_CODE_LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"
"""No vowels, so that no code is a word (RFC 8628, section 6.1)."""


@dataclass(slots=True)
class Begun:
    """A login that a program began.

    Attributes:
        challenge: SHA-256 of the program's secret.
        port: where it listens at 127.0.0.1 of the person's machine; None: it does not.
        address: where it asked from.
        user: who has allowed it; empty until then.
        refusal: why it will not be; None while it may be.
        handover: hash of what came to the port; empty where nothing had to.
    """

    id: str
    code: str
    challenge: str
    port: int | None
    label: str
    address: str
    asked_at: float = 0.0
    user: str = ""
    refusal: MillpondError | None = None
    handover: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def shown_code(self) -> str:
        """The code as people read it."""
        return f"{self.code[:4]}-{self.code[4:]}"


class Programs:
    """The logins that programs began."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._begun: PendingLogins[Begun] = PendingLogins(clock)
        self._codes: PendingLogins[str] = PendingLogins(clock)

    def begin(self, challenge: str, port: int | None, label: str, address: str) -> tuple[Begun, float]:
        """A new one, and until when it can be finished.

        Raises:
            UnavailableError: too many wait already.
        """
        code = "".join(secrets.choice(_CODE_LETTERS) for _ in range(8))
        made = Begun(secrets.token_urlsafe(18), code, challenge, port, label, address)
        until = self._begun.put(made.id, made, address)
        self._codes.put(code, made.id, address)
        return made, until

    def find(self, login: str) -> Begun:
        """The one with this id.

        Raises:
            NotFoundError: there is none, or it was used, or is too old.
        """
        begun = self._begun.get(login)
        if begun is None:
            raise NotFoundError(OVER, _AGAIN)
        return begun

    def by_code(self, typed: str) -> Begun | None:
        """The one whose program shows this code, however it is written; None when there is none."""
        login = self._codes.get("".join(letter for letter in typed.upper() if letter.isalpha()))
        begun = None if login is None else self._begun.get(login)
        return None if begun is None or begun.user or begun.refusal else begun

    def allow(self, begun: Begun, user: str) -> str:
        """A person lets the program act as them; returns what has to come to its port.

        Raises:
            NotFoundError: it was used before.
        """
        handover = secrets.token_urlsafe(32)
        with begun.lock:
            if begun.user or begun.refusal:
                raise NotFoundError(_USED, _AGAIN)
            begun.handover = digest_of(handover) if begun.port is not None else ""
            begun.user = user
        return handover

    def refuse(self, login: str, why: MillpondError) -> None:
        """It will not be allowed; its program, if it still waits, gets the reason."""
        begun = self._begun.get(login)
        if begun is None:
            return
        with begun.lock:
            if not begun.user:
                begun.refusal = why

    def claim(self, login: str, secret: str, handover: str) -> Begun | None:
        """The login that a person has allowed, once; None until then.

        Raises:
            NotFoundError: there is no such login, or the secret is another one's.
            TooManyTriesError: it asks too often.
            MillpondError: it was refused, for this reason.
        """
        begun = self.find(login)
        if not is_same(digest_of(secret), begun.challenge):
            raise NotFoundError(OVER, _AGAIN)
        with begun.lock:
            now = self._clock()
            if begun.refusal is None and not begun.user and 0.0 <= now - begun.asked_at < _LEAST_PAUSE_S:
                raise TooManyTriesError("this login is asked about too often", f"ask every {ASK_EVERY_S:g} s")
            begun.asked_at = now
            if begun.refusal is not None:
                self._begun.take(login)
                raise type(begun.refusal)(begun.refusal.cause, begun.refusal.remedy)
            if not begun.user or (begun.handover and not handover):
                return None
            if begun.handover and not is_same(digest_of(handover), begun.handover):
                raise NotLoggedInError("what came through the browser belongs to another login", "begin it again")
            if self._begun.take(login) is None:
                raise NotFoundError(_USED, _AGAIN)
            return begun
