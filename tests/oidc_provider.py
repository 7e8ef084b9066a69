"""A small OpenID Connect provider in memory, which does everything right until it is told otherwise.

``served`` has it answer at a port of this machine, for real servers.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
from joserfc import jwt
from joserfc.jwk import Key, RSAKey

from millpond.specs.config.oidc import OidcRules

ISSUER = "https://login.test/realm"
CLIENT = "millpond"
SECRET = "between us"
ADA = {"sub": "0001", "preferred_username": "ada", "groups": ["people"]}

FIRST_KEY = RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})

Change = Callable[[dict[str, Any]], None]


def rules(**more: Any) -> OidcRules:
    """What a server's configuration says of this provider."""
    return OidcRules(
        issuer=ISSUER, client_id=CLIENT, **{"client_secret": SECRET, "public_url": "http://testserver"} | more
    )


class FakeProvider(httpx2.BaseTransport):
    """The provider, as the transport of a server's requests to it.

    Attributes:
        person: claims of whoever logs in next.
        claims: changes the claims of an ID token before it is signed.
        described: changes what it says of itself.
        forge: makes the ID token of these claims, instead of signing them properly.
        answer: given instead of everything, when set: an error to raise, or a response.
        shown: its keys, or what it shows instead of one.
        asked: paths of the requests it got.
    """

    def __init__(self, clock: Callable[[], float], issuer: str = ISSUER) -> None:
        self.clock = clock
        self.issuer = issuer
        self._numbers = itertools.count(1)
        self._codes: dict[str, dict[str, str]] = {}
        self.behave()

    def behave(self) -> None:
        """Do everything right again."""
        self.person: dict[str, Any] = dict(ADA)
        self.claims: Change = lambda claims: None
        self.described: Change = lambda said: None
        self.userinfo: dict[str, Any] = {}
        self.forge: Callable[[dict[str, Any]], str] | None = None
        self.answer: Exception | httpx2.Response | None = None
        self.asked: list[str] = []
        self.key: Key = FIRST_KEY
        self.shown: list[Any] = [self.key]

    def rotate(self) -> None:
        """Sign with another key from now on, and show that one alone."""
        self.key = RSAKey.generate_key(2048, {"kid": f"later-{next(self._numbers)}", "use": "sig"})
        self.shown = [self.key]

    def log_in(self, url: str) -> str:
        """Somebody logs in where a server has sent them; the address that they are sent back to."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert url.startswith(f"{self.issuer}/authorize?")
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT)
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = f"code-{next(self._numbers)}"
        self._codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer the server."""
        path = str(request.url).removeprefix(self.issuer)
        self.asked.append(path)
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is not None:
            return self.answer
        match path:
            case "/.well-known/openid-configuration":
                return httpx2.Response(200, json=self._description())
            case "/keys":
                shown = [key if isinstance(key, dict | str) else key.as_dict(private=False) for key in self.shown]
                return httpx2.Response(200, json={"keys": shown})
            case "/token":
                return self._exchanged(request)
            case "/userinfo":
                assert request.headers["authorization"] == "Bearer at"
                return httpx2.Response(200, json=self.userinfo)
        return httpx2.Response(404)

    def _description(self) -> dict[str, Any]:
        said = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
        }
        self.described(said)
        return said

    def _exchanged(self, request: httpx2.Request) -> httpx2.Response:
        form = {name: values[0] for name, values in parse_qs(request.read().decode()).items()}
        pair = base64.b64encode(f"{CLIENT}:{SECRET.replace(' ', '+')}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {pair}" and form.get("client_secret") != SECRET:
            return httpx2.Response(401, json={"error": "invalid_client"})
        asked = self._codes.pop(form["code"], None)
        if asked is None or form["redirect_uri"] != asked["redirect_uri"]:
            return httpx2.Response(400, json={"error": "invalid_grant"})
        if _base64(hashlib.sha256(form["code_verifier"].encode()).digest()) != asked["code_challenge"]:
            return httpx2.Response(400, json={"error": "invalid_grant"})
        now = int(self.clock())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": asked["nonce"],
            **self.person,
        }
        self.claims(claims)
        token = self.forge(claims) if self.forge else self.signed(claims)
        return httpx2.Response(200, json={"id_token": token, "access_token": "at", "token_type": "Bearer"})

    def signed(self, claims: dict[str, Any], key: Key | None = None, **header: Any) -> str:
        """An ID token as it should be, or signed with another key."""
        return jwt.encode({"alg": "RS256", "kid": self.key.kid, **header}, claims, key or self.key)

    def unsigned(self, claims: dict[str, Any]) -> str:
        """An ID token of the algorithm ``none``."""
        return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."

    def by_secret(self, claims: dict[str, Any]) -> str:
        """An ID token signed with what anybody knows of the provider: its public key, taken for a shared secret."""
        signed = f"{_encoded({'alg': 'HS256', 'kid': self.key.kid})}.{_encoded(claims)}"
        secret = self.key.as_pem(private=False)
        return f"{signed}.{_base64(hmac.digest(secret, signed.encode(), 'sha256'))}"


@contextmanager
def served(provider: FakeProvider) -> Iterator[None]:
    """The provider at a free port of this machine; ``issuer`` is its address from then on."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            url = f"http://{self.headers['Host']}{self.path}"
            answer = provider.handle_request(
                httpx2.Request(self.command, url, headers=dict(self.headers), content=sent)
            )
            self.send_response(answer.status_code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_POST = do_GET  # noqa: N815

        def log_message(self, _template: str, *_args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.issuer = f"http://127.0.0.1:{server.server_address[1]}/realm"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield
        server.shutdown()
        thread.join()


def _encoded(part: dict[str, Any]) -> str:
    return _base64(json.dumps(part).encode())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
