"""A login at a provider from start to end: to the provider, back, and the session or token that follows.

A browser is sent away with a state, a nonce and a PKCE challenge that count once, for a few minutes, and only with the
cookie it was given (OpenID Connect Core 1.0, section 3.1; RFC 9700). Three things can have been begun: a session of
this browser, or one of two ways to let a program act for the person (``programs``).
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

from millpond.model.errors import MillpondError, NotAllowedError, NotFoundError, NotLoggedInError
from millpond.node.host.clocks import WallClock
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.oidc.admission import Admitted, OidcAdmission
from millpond.server.auth.oidc.id_tokens import IdTokens, Person
from millpond.server.auth.oidc.identities import Identities
from millpond.server.auth.oidc.pending_logins import OVER, PendingLogins
from millpond.server.auth.oidc.programs import Begun, Programs
from millpond.server.auth.oidc.provider import OidcProvider
from millpond.server.auth.records import User
from millpond.server.auth.secrets import csrf_of, digest_of, is_same
from millpond.server.auth.throttle import Throttle
from millpond.server.http.origins import PLATFORM_COOKIES
from millpond.specs.config.oidc import OidcRules

if TYPE_CHECKING:
    import httpx2

COOKIE: Final = f"{PLATFORM_COOKIES}sign_on"
COOKIE_PATH: Final = "/oidc/"
LONGEST_CODE: Final = 4_096


@dataclass(frozen=True, slots=True)
class Departure:
    """A browser on its way to the provider.

    Attributes:
        browser: what its cookie holds.
    """

    url: str
    browser: str


@dataclass(frozen=True, slots=True)
class Return:
    """A person who came back and got in.

    Attributes:
        for_browser: they wanted a session; otherwise, to let a program act for them.
        begun: what that program began; None while they have not said which.
        then: what a browser asked to see afterwards, as it said it.
    """

    person: Person
    admitted: Admitted
    for_browser: bool
    begun: Begun | None = None
    then: str = ""


@dataclass(frozen=True, slots=True)
class _PendingLogin:
    """What has to come back from the provider: ``wants`` is ``browser``, ``code``, or the id of a program's login."""

    browser: str
    nonce: str
    verifier: str
    begun_at: float
    wants: str
    then: str


@dataclass(frozen=True, slots=True)
class _Parts:
    """What belongs to one set of rules; made anew when the configuration is read again."""

    rules: OidcRules
    provider: OidcProvider
    id_tokens: IdTokens
    admission: OidcAdmission


class SignOn:
    """Logins at the provider that the configuration names, if it names one.

    Args:
        rules: the configuration as it is now; None: there is no provider.
        transport: how requests to the provider travel; None: over the network.
    """

    def __init__(
        self,
        rules: Callable[[], OidcRules | None],
        accounts: Accounts,
        identities: Identities,
        clock: WallClock,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self.programs = Programs(clock)
        self.identities = identities
        self._configured = rules
        self._accounts = accounts
        self._clock = clock
        self._transport = transport
        self._throttle = Throttle(clock)
        self._pending: PendingLogins[_PendingLogin] = PendingLogins(clock)
        self._confirming: PendingLogins[tuple[str, str]] = PendingLogins(clock)
        self._parts: _Parts | None = None

    @property
    def is_offered(self) -> bool:
        """Whether the configuration names a provider."""
        return self._configured() is not None

    @property
    def rules(self) -> OidcRules:
        """What the configuration says.

        Raises:
            NotFoundError: it names no provider.
        """
        rules = self._configured()
        if rules is None:
            raise NotFoundError(
                "this server knows no OpenID Connect provider",
                "log in with a password, or set oidc in its configuration",
            )
        return rules

    def depart(self, wants: str, address: str, then: str = "") -> Departure:
        """Send a browser to the provider.

        Args:
            wants: ``browser``, ``code``, or the id of a login that a program with a port began.
            then: what the browser is to see afterwards.

        Raises:
            NotFoundError: there is no provider, or no such login.
            UnavailableError: the provider does not answer, or too many people are logging in.
        """
        parts = self._current()
        if wants not in ("browser", "code") and self.programs.find(wants).port is None:
            raise NotFoundError("this login needs the code that its program shows", f"open {self.code_url}")
        endpoint = urlsplit(parts.provider.description().authorization_endpoint)
        state, browser = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        pending = _PendingLogin(
            digest_of(browser), secrets.token_urlsafe(32), secrets.token_urlsafe(48), self._clock(), wants, then
        )
        self._pending.put(state, pending, address)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(pending.verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": parts.rules.client_id,
            "redirect_uri": parts.rules.callback,
            "scope": parts.rules.scope,
            "state": state,
            "nonce": pending.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        query = "&".join(part for part in (endpoint.query, urlencode(asked)) if part)
        return Departure(urlunsplit(endpoint._replace(query=query)), browser)

    def come_back(self, said: Mapping[str, str], browser: str, address: str, know: Callable[[str], None]) -> Return:
        """A person comes back from the provider.

        Args:
            said: the parameters that it sent them with.
            browser: what the browser's cookie holds.
            know: called with the fact that it is a login we began, and then who they are as soon as that is known; for
            the audit log,
                which must not fill with returns from logins that never began.

        Raises:
            NotLoggedInError: the provider did not let them in, or something about the way back is wrong.
            NotAllowedError, ConflictError: it did, and they get no account here; see ``OidcAdmission.admit``.
            UnavailableError: the provider does not answer.
        """
        pending = self._pending.take(said.get("state", ""))
        if pending is None:
            raise self._begin_again(OVER)
        know("")
        try:
            if not is_same(digest_of(browser), pending.browser):
                raise self._begin_again(
                    "this login was not begun in this browser, or another one was since, or it keeps no cookies"
                )
            person, admitted = self._arrived(pending, said, know)
        except MillpondError as error:
            self.programs.refuse(pending.wants, error)
            raise
        if pending.wants == "browser":
            return Return(person, admitted, for_browser=True, then=pending.then)
        begun = None if pending.wants == "code" else self.programs.find(pending.wants)
        self._confirming.put(digest_of(browser), (admitted.user.name, "" if begun is None else begun.id), address)
        return Return(person, admitted, for_browser=False, begun=begun)

    def _arrived(
        self, pending: _PendingLogin, said: Mapping[str, str], know: Callable[[str], None]
    ) -> tuple[Person, Admitted]:
        parts = self._current()
        named = said.get("iss", "")
        if named != parts.rules.issuer and (named or parts.provider.description().names_itself):
            raise self._begin_again("another provider has answered")
        if "error" in said:
            raise self._begin_again(f"the provider did not log you in ({_plain(said['error'])})")
        code = said.get("code", "")
        if not 0 < len(code) <= LONGEST_CODE:
            raise self._begin_again("the provider sent no code")
        tokens = parts.provider.exchange(code, pending.verifier)
        person = parts.id_tokens.person(tokens, pending.nonce, pending.begun_at)
        know(person.name or person.subject)
        admitted = parts.admission.admit(person)
        know(admitted.user.name)
        return person, admitted

    def _begin_again(self, cause: str) -> NotLoggedInError:
        return NotLoggedInError(cause, f"begin again at {self.login_url}")

    def confirming(self, browser: str, form: str) -> tuple[User, str]:
        """Who is at a browser that may let a program act for them, and that program's login where it is known.

        Args:
            form: what the page that we sent them has beside the cookie.

        Raises:
            NotLoggedInError: no person is, or another page asks.
        """
        found = self._confirming.get(digest_of(browser))
        if found is None or not is_same(form.encode().hex(), csrf_of(browser).encode().hex()):
            raise NotLoggedInError(OVER, f"begin again at {self.code_url}")
        return self.usable(found[0]), found[1]

    def usable(self, name: str) -> User:
        """An account that may be used now: time has passed since its owner got in.

        Raises:
            NotFoundError: it is gone.
            NotAllowedError: it is disabled.
        """
        user = self._accounts.user(name)
        if user.disabled:
            raise NotAllowedError(f"the account {name!r} is disabled", "ask an admin of this server")
        return user

    def typed(self, user: User, code: str, address: str) -> Begun:
        """The login whose program shows a typed code.

        Raises:
            NotFoundError: there is none.
            TooManyTriesError: they have guessed too often.
        """
        self._throttle.attempt(user.name, address)
        begun = self.programs.by_code(code)
        if begun is None:
            raise NotFoundError("no program shows this code, or not any more", "type it as your terminal shows it")
        self._throttle.succeeded(user.name, address)
        return begun

    def confirmed(self, browser: str) -> None:
        """The person at this browser has answered."""
        self._confirming.take(digest_of(browser))

    @property
    def login_url(self) -> str:
        """Where people begin."""
        return f"{self.rules.public_url}/oidc/login"

    @property
    def code_url(self) -> str:
        """Where people type the code of a program."""
        return f"{self.rules.public_url}/oidc/code"

    def _current(self) -> _Parts:
        rules = self.rules
        parts = self._parts
        if parts is None or parts.rules != rules:
            provider = OidcProvider(rules, self._clock, self._transport)
            parts = self._parts = _Parts(
                rules,
                provider,
                IdTokens(rules, provider, self._clock),
                OidcAdmission(rules, self._accounts, self.identities),
            )
        return parts


def _plain(text: str) -> str:
    """The provider's word for an error, which every client can write into an address: letters alone, and few."""
    return "".join(letter for letter in text[:40] if letter.isascii() and (letter.isalnum() or letter in "_-"))
