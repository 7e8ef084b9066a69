"""A server with two groups of people, for tests of who may do what."""

from __future__ import annotations

import base64
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from api_world import RunningServer
from fastapi.testclient import TestClient
from one_loop import client_of
from server_world import Clock, World

from millpond.server.auth.components import NO_OIDC, Oidc
from millpond.server.auth.records import TokenKind, User
from millpond.server.auth.roles import UserRole
from millpond.server.web.portal import portal_routes
from millpond.specs.api.base import ErrorBody, ErrorInfo
from millpond.specs.api.codec import from_json
from millpond.specs.config.notifications import MailRules, NotificationRules
from millpond.specs.config.origins import PATHS_ONLY, JobOrigins

API = "/api/v1"
OWNER_TOKEN = "the-owners-token"
PASSWORD = "correct horse battery"

PEOPLE = {
    "lea": ("vision", UserRole.LEAD),
    "max": ("vision", UserRole.MEMBER),
    "mia": ("vision", UserRole.MEMBER),
    "vic": ("vision", UserRole.VIEWER),
    "sam": ("speech", UserRole.MEMBER),
    "sue": ("speech", UserRole.LEAD),
}


class AuthWorld(RunningServer):
    """A running server without a socket: ``olga`` owns it, ``amy`` is an admin, ``nob`` is in no group."""

    def __init__(
        self,
        state_dir: Path,
        url: str = "",
        clock: Clock | None = None,
        oidc: Oidc = NO_OIDC,
        origins: JobOrigins = PATHS_ONLY,
    ) -> None:
        self.notification_rules = NotificationRules(MailRules("127.0.0.1", 9, "none", "pond@example.org"))
        self._tokens: dict[str, str] = {}
        super().__init__(
            state_dir,
            "olga",
            OWNER_TOKEN,
            clock or Clock(1_000_000.0),
            World(),
            url=url,
            rules=lambda: self.notification_rules,
            oidc=oidc,
            pages=portal_routes(),
            origins=origins,
            unlimited="no control groups",
        )

    @property
    def routes(self) -> Any:
        """The routes behind the counting, the guard, the proxy and the fast path."""
        return self.app._app._app._others._app._app._app  # type: ignore[attr-defined]

    @classmethod
    def populated(cls, state_dir: Path, **options: Any) -> AuthWorld:
        """One that started anew on the groups and the people that a world of this process made once."""
        (state_dir / "millpond.db").write_bytes(_with_people())
        return cls(state_dir, **options)

    def populate(self) -> AuthWorld:
        """Make the groups and the people."""
        owner = self.client("olga")
        for group in ("vision", "speech"):
            assert owner.post(f"{API}/groups", json={"name": group}).status_code == 201
        self.accounts.add_user(User("amy", admin=True))
        self.accounts.add_user(User("nob"))
        for name, (group, role) in PEOPLE.items():
            self.accounts.add_user(User(name), group, role)
        return self

    def client(self, user: str = "", **headers: str) -> TestClient:
        """Requests of somebody, by a token that works; of nobody when no user is named."""
        if user == "olga":
            headers["Authorization"] = f"Bearer {OWNER_TOKEN}"
        elif user:
            headers["Authorization"] = f"Bearer {self._token_of(user)}"
        return client_of(self.app, headers=headers, raise_server_exceptions=False)

    def _token_of(self, user: str) -> str:
        secret = self._tokens.get(user, "")
        if self.accounts.caller(secret) is None:
            secret = self._tokens[user] = self.accounts.tokens.issue(user, TokenKind.PERSONAL, 3600.0)[1]
        return secret

    def submit(self, user: str, **fields: Any) -> str:
        """A job of somebody's; its id."""
        answer = self.client(user).post(f"{API}/jobs", json={"command": "work", **fields})
        assert answer.status_code == 201, answer.text
        name: str = answer.json()["id"]
        return name


@cache
def _with_people() -> bytes:
    """The database of a populated world, which takes as long to fill as a server takes to start."""
    with tempfile.TemporaryDirectory() as folder:
        AuthWorld(Path(folder)).populate().close()
        return (Path(folder) / "millpond.db").read_bytes()


def error_of(answer: Any) -> ErrorBody:
    """The error in an answer; every one says its code, its cause and what to do."""
    error = from_json(ErrorInfo, answer.content).error
    assert error.code, answer.text
    assert error.cause, answer.text
    assert error.remedy or error.details, answer.text
    return error


def public_key(name: str) -> str:
    """A key as it stands in a file; nobody has its other half."""
    fields = (b"ssh-ed25519", name.encode().ljust(32, b"."))
    blob = b"".join(len(field).to_bytes(4) + field for field in fields)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()} {name}@laptop"
