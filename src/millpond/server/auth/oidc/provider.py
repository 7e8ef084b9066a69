"""Requests to an OpenID Connect provider: its metadata, its keys, and the exchange of a code for tokens.

Every answer is bounded in size and time, and no redirect is followed: secrets go where the provider's own description
says, and nowhere else. Sources: OpenID Connect Core 1.0 (sections 3.1.3, 5.3), Discovery 1.0 (section 4), RFC 7636.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, urlsplit

from millpond.model.errors import NotLoggedInError, UnavailableError
from millpond.node.host.clocks import WallClock
from millpond.server.http.outgoing import AddressScope, bounded
from millpond.specs.config.oidc import OidcRules, is_safe_url

if TYPE_CHECKING:
    import httpx2

TIMEOUT_S: Final = 10.0
LARGEST_ANSWER: Final = 1 << 20
KEPT_S: Final = 3_600.0
"""So long the provider's description and keys are used before they are fetched again."""
KEYS_AT_MOST_EVERY_S: Final = 30.0
"""A token with an unknown key has the keys fetched again, but no more often: every client can send such tokens."""
FAILURE_COUNTS_S: Final = 3.0
"""So long it is not asked again for what it has just failed to give."""
MOST_AT_ONCE: Final = 8
WAITS_S: Final = 5.0
"""A slow provider may hold so many requests, and others so long: everything else needs threads too."""

_WELL_KNOWN: Final = "/.well-known/openid-configuration"


@dataclass(frozen=True, slots=True)
class Description:
    """What a provider says of itself.

    Attributes:
        userinfo_endpoint: empty where it has none.
        secret_in_body: it takes the client's secret in the body alone.
        names_itself: it adds its issuer to what it sends people back with (RFC 9207).
    """

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str = ""
    secret_in_body: bool = False
    names_itself: bool = False


@dataclass(frozen=True, slots=True)
class OidcTokens:
    """What a code was exchanged for."""

    id_token: str
    access_token: str = ""


class OidcProvider:
    """One provider, as the server talks to it. Any thread.

    Args:
        transport: how requests travel; None: over the network.
    """

    def __init__(self, rules: OidcRules, clock: WallClock, transport: httpx2.BaseTransport | None = None) -> None:
        self._rules = rules
        self._clock = clock
        self._transport = transport
        self._lock = threading.Lock()
        self._queries = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._description: tuple[Description, float] | None = None
        self._keys: tuple[dict[str, Any], float] | None = None
        self._reach: set[AddressScope] = set()
        self._failure: tuple[UnavailableError, float] | None = None

    def description(self) -> Description:
        """Where its endpoints are.

        Raises:
            UnavailableError: it does not answer, or with something else.
        """
        with self._lock:
            if self._description is None or self._age_s(self._description[1]) >= KEPT_S:
                said = self._fetch(f"{self._rules.issuer.rstrip('/')}{_WELL_KNOWN}")
                self._description = self._checked(said), self._clock()
            return self._description[0]

    def keys(self, fresh: bool = False) -> dict[str, Any]:
        """Its public keys, a JSON Web Key Set (RFC 7517).

        Args:
            fresh: those that are known have not sufficed.

        Raises:
            UnavailableError: it does not answer, or with something else.
        """
        address = self.description().jwks_uri
        with self._lock:
            age = KEPT_S if self._keys is None else self._age_s(self._keys[1])
            if age >= KEPT_S or (fresh and age >= KEYS_AT_MOST_EVERY_S):
                said = self._fetch(address)
                if not isinstance(said.get("keys"), list):
                    raise self._nonsense("keys")
                self._keys = said, self._clock()
            assert self._keys is not None
            return self._keys[0]

    def exchange(self, code: str, verifier: str) -> OidcTokens:
        """The tokens for a code.

        Args:
            verifier: whose hash went there with the person (PKCE).

        Raises:
            NotLoggedInError: the provider does not take the code.
            UnavailableError: it does not answer, or does not take this server for its client.
        """
        rules, description = self._rules, self.description()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": rules.callback,
            "code_verifier": verifier,
        }
        more: dict[str, Any] = {}
        if not rules.client_secret or description.secret_in_body:
            form["client_id"] = rules.client_id
        if rules.client_secret and description.secret_in_body:
            form["client_secret"] = rules.client_secret
        elif rules.client_secret:
            more["auth"] = quote_plus(rules.client_id), quote_plus(rules.client_secret)  # RFC 6749, section 2.3.1
        said = self._ask("POST", description.token_endpoint, data=form, **more)
        if not isinstance(said.get("id_token"), str):
            raise self._nonsense("id_token")
        access = said.get("access_token")
        return OidcTokens(said["id_token"], access if isinstance(access, str) else "")

    def userinfo(self, access_token: str) -> dict[str, Any]:
        """What it says of the person whose token this is, beyond the ID token; nothing where it has no such endpoint.

        Raises:
            UnavailableError: it does not answer, or with something else.
        """
        address = self.description().userinfo_endpoint
        if not address or not access_token:
            return {}
        return self._ask("GET", address, headers={"Authorization": f"Bearer {access_token}"})

    def _checked(self, said: Mapping[str, Any]) -> Description:
        if said.get("issuer") != self._rules.issuer:
            raise UnavailableError(
                f"the provider calls itself {said.get('issuer')!r}, and oidc.issuer says {self._rules.issuer!r}",
                "an admin writes oidc.issuer exactly as the provider calls itself",
            )
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not isinstance(said.get(name), str) or not is_safe_url(said[name]):
                raise self._nonsense(name)
        userinfo = said.get("userinfo_endpoint")
        methods = said.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        return Description(
            said["authorization_endpoint"],
            said["token_endpoint"],
            said["jwks_uri"],
            userinfo if isinstance(userinfo, str) and is_safe_url(userinfo) else "",
            "client_secret_basic" not in methods and "client_secret_post" in methods,
            said.get("authorization_response_iss_parameter_supported") is True,
        )

    def _fetch(self, url: str) -> dict[str, Any]:
        """Fetch with the lock held. Requests that waited while it failed get its error at once."""
        if self._failure is not None and self._age_s(self._failure[1]) < FAILURE_COUNTS_S:
            raise UnavailableError(self._failure[0].cause, self._failure[0].remedy)
        try:
            return self._ask("GET", url)
        except UnavailableError as error:
            self._failure = error, self._clock()
            raise

    def _age_s(self, at: float) -> float:
        """How old something is; very old where the clock was set back since."""
        age_s = self._clock() - at
        return age_s if age_s >= 0.0 else KEPT_S

    def _ask(self, method: str, url: str, **more: Any) -> dict[str, Any]:
        more["headers"] = {"Accept-Encoding": "identity", **more.get("headers", {})}
        if not self._queries.acquire(timeout=WAITS_S):
            raise UnavailableError("too many people are logging in", "try again in a moment")
        try:
            return self._answer(method, url, **more)
        finally:
            self._queries.release()

    def _answer(self, method: str, url: str, **more: Any) -> dict[str, Any]:
        status, content = self._exchange(method, url, **more)
        try:
            said = json.loads(content)
        except (ValueError, RecursionError):
            said = None
        if status in (400, 401, 403) and isinstance(said, dict):
            raise self._refusal(said)
        if not 200 <= status < 300:
            raise UnavailableError(
                f"the provider {self._rules.issuer} answers with {status}",
                "try again in a moment; passwords and tokens go on working",
            )
        if not isinstance(said, dict):
            raise self._nonsense("a JSON object")
        return said

    def _exchange(self, method: str, url: str, **more: Any) -> tuple[int, bytes]:
        """Send a request; the status and the content of its answer."""
        import httpx2  # here, as most servers have no provider

        issuer, give_up_at = self._rules.issuer, self._clock() + TIMEOUT_S
        try:
            with (
                bounded(url, TIMEOUT_S, self._may_reach) as extensions,
                httpx2.Client(timeout=TIMEOUT_S, transport=self._transport, follow_redirects=False) as http,
                http.stream(method, url, extensions=extensions, **more) as response,
            ):
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise self._nonsense("an answer that is not compressed")  # a few bytes could become any number
                content = b""
                for piece in response.iter_bytes():
                    content += piece
                    if len(content) > LARGEST_ANSWER:
                        raise self._nonsense("an end of its answer")
                    if self._clock() > give_up_at:
                        raise httpx2.ReadTimeout("it takes too long to say everything")
                return response.status_code, content
        except PermissionError as error:
            raise UnavailableError(
                f"the provider {issuer} sends this server to an inner address ({error})",
                "an admin asks who runs the provider what it says of itself",
            ) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise UnavailableError(
                f"the provider {issuer} does not answer ({type(error).__name__})",
                "try again in a moment; passwords and tokens go on working",
            ) from error

    def _may_reach(self, host: str, reach: AddressScope) -> bool:
        """Whether an endpoint may be where it is: out in the world, or no nearer to this server than the issuer is."""
        if host == (urlsplit(self._rules.issuer).hostname or "").lower():
            self._reach.add(reach)
        return reach is AddressScope.WORLD or reach in self._reach

    def _refusal(self, said: Mapping[str, Any]) -> NotLoggedInError | UnavailableError:
        if said.get("error") in ("invalid_client", "unauthorized_client"):
            return UnavailableError(
                f"the provider {self._rules.issuer} does not take this server for its client",
                "an admin compares oidc.client_id and its secret with what the provider has",
            )
        return NotLoggedInError("the provider does not take this login any more", "begin it again")

    def _nonsense(self, missing: str) -> UnavailableError:
        return UnavailableError(
            f"what answers at {self._rules.issuer} is no OpenID Connect provider: {missing} is missing or wrong",
            "an admin checks oidc.issuer",
        )
