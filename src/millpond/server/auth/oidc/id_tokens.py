"""Check an ID token in full and return its claims (OpenID Connect Core 1.0, section 3.1.3.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from millpond.model.errors import NotLoggedInError, UnavailableError
from millpond.node.host.clocks import WallClock
from millpond.server.auth.oidc.provider import OidcProvider, OidcTokens
from millpond.specs.config.oidc import OidcRules

ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
)
"""Signatures with a key pair. Not ``none``, and none by a shared secret, with which others could sign, too."""
LONGEST_SUBJECT: Final = 255
CLOCK_SKEW_S: Final = 60
"""So far the clocks of provider and server may be apart."""
LARGEST_TOKEN: Final = 64 * 1024

_AUDITED: Final = "an admin finds more in the audit log"
_CLOCKS: Final = "an admin compares the clocks of this server and of the provider"
_REMEDIES: Final = {
    "aud": "an admin compares oidc.client_id and its secret with what the provider has",
    "exp": _CLOCKS,
    "iat": _CLOCKS,
    "nbf": _CLOCKS,
}
"""What helps where one of these claims is wrong in every login."""


@dataclass(frozen=True, slots=True)
class Person:
    """A person for whom the provider vouches.

    Attributes:
        name: what an account of theirs would be called; empty where the provider does not say.
        values: of the groups' claim.
        mail: their address, where the provider has verified it; empty: it does not say.
    """

    issuer: str
    subject: str
    name: str = ""
    values: frozenset[str] = frozenset()
    mail: str = ""


def jose() -> ModuleType:
    """The library that checks signatures.

    Raises:
        UnavailableError: it is not installed.
    """
    try:
        import joserfc
        import joserfc.errors
        import joserfc.jwk
        import joserfc.jwt
    except ImportError as error:
        raise UnavailableError(
            "logging in by OpenID Connect needs the package joserfc", "pip install 'millpond[oidc]'"
        ) from error
    return joserfc


class IdTokens:
    """Checks the ID tokens of one provider."""

    def __init__(self, rules: OidcRules, provider: OidcProvider, clock: WallClock) -> None:
        self._rules = rules
        self._provider = provider
        self._clock = clock

    def person(self, tokens: OidcTokens, nonce: str, begun_at: float) -> Person:
        """Whom the tokens are about.

        Args:
            nonce: went to the provider with this person; the token must bring it back.
            begun_at: when they went.

        Raises:
            NotLoggedInError: the token is not for this login, not for this server, not by the provider, or too old.
            UnavailableError: the provider does not answer.
        """
        claims = self._verified(tokens.id_token)
        if claims.get("nonce") != nonce:
            raise _refused("it belongs to another login")
        if claims["iat"] < begun_at - CLOCK_SKEW_S:
            raise _refused("it was issued before this login began", _CLOCKS)
        subject = claims["sub"]
        if not (0 < len(subject) <= LONGEST_SUBJECT and subject.isprintable()):
            raise _refused("its subject is too long, or cannot be printed")
        return self._described(subject, self._completed(claims, tokens))

    def _verified(self, token: str) -> dict[str, Any]:
        library = jose()
        if len(token) > LARGEST_TOKEN:
            raise _refused("it is too large")
        try:
            claims: dict[str, Any] = self._signed(library, token)
            registry = library.jwt.JWTClaimsRegistry(
                now=int(self._clock()),
                leeway=CLOCK_SKEW_S,
                iss={"essential": True, "value": self._rules.issuer},
                aud={"essential": True, "value": self._rules.client_id},
                sub={"essential": True},
                exp={"essential": True},
                iat={"essential": True},
            )
            registry.validate(claims)
        except library.errors.ClaimError as error:
            raise _refused(str(error), _REMEDIES.get(error.claim, _AUDITED)) from error
        except (library.errors.JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise _refused(str(error) or type(error).__name__) from error
        others = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", None if others else self._rules.client_id) != self._rules.client_id:
            raise _refused("it is for another client")
        return claims

    def _signed(self, library: ModuleType, token: str) -> dict[str, Any]:
        """What a token claims, signed by one of the provider's keys; they are fetched again when none fits."""
        try:
            return _decoded(library, token, self._provider.keys())
        except library.errors.InvalidKeyIdError:
            return _decoded(library, token, self._provider.keys(fresh=True))

    def _completed(self, claims: dict[str, Any], tokens: OidcTokens) -> Mapping[str, Any]:
        """The claims with those that the provider gives on request only."""
        rules = self._rules
        wanted = [rules.user_claim, *([rules.groups_claim] if rules.asks_for_groups else [])]
        wanted += ["email"] if "email" in rules.scopes else []
        if all(name in claims for name in wanted):
            return claims
        more = self._provider.userinfo(tokens.access_token)
        if more and more.get("sub") != claims["sub"]:
            raise _refused("the provider describes another user")
        return {**more, **claims}

    def _described(self, subject: str, claims: Mapping[str, Any]) -> Person:
        values = claims.get(self._rules.groups_claim, [])
        listed = [values] if isinstance(values, str) else values if isinstance(values, list) else []
        return Person(
            self._rules.issuer,
            subject,
            _text(claims.get(self._rules.user_claim)),
            frozenset(value for value in listed if isinstance(value, str)),
            _text(claims.get("email")) if claims.get("email_verified") is True else "",
        )


def _decoded(library: ModuleType, token: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    known = [key for described in keys["keys"] if (key := _key(library, described)) is not None]
    if not known:
        raise library.errors.InvalidKeyIdError("the provider shows no key that could have signed it")
    claims: dict[str, Any] = library.jwt.decode(token, library.jwk.KeySet(known), algorithms=ALGORITHMS).claims
    return claims


def _key(library: ModuleType, described: object) -> Any:
    """A key that may have signed a token; None for others, and for such as are not understood (RFC 7517, section 5)."""
    if not isinstance(described, dict) or described.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    if described.get("use", "sig") != "sig":
        return None
    try:
        return library.jwk.import_key(described)
    except (library.errors.JoseError, ValueError, TypeError, KeyError):
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _refused(why: str, remedy: str = _AUDITED) -> NotLoggedInError:
    return NotLoggedInError(f"what the provider sent is not accepted: {why}", f"begin the login again; {remedy}")
