"""A server with two groups of people, for tests of who may do what."""

from __future__ import annotations

import base64
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from api_world import dependencies, forecasts_of
from fastapi.testclient import TestClient
from fresh_databases import fresh_sqlite
from notice_world import make_told
from one_loop import client_of
from server_world import Clock, World, WorldEngine, cheap_passwords

from millpond.engines.local.task_access import LocalTaskAccess
from millpond.node.sandbox.detection import SandboxMode
from millpond.server.api.app import make_app
from millpond.server.api.service import Service
from millpond.server.auth.components import NO_OIDC, Oidc, open_security
from millpond.server.auth.isolation import Isolation, IsolationLevel
from millpond.server.auth.records import TokenKind, User
from millpond.server.auth.roles import UserRole
from millpond.server.auth.vault.ciphers import Cipher
from millpond.server.auth.vault.secrets import Vault
from millpond.server.monitoring.activity import Activity
from millpond.server.monitoring.instruments import Instruments
from millpond.server.notifications.settings import NotificationContext
from millpond.server.runtime.active_jobs.job_cache import JobCache
from millpond.server.runtime.loop import Loop
from millpond.server.runtime.queue_settings.service import QueueSettings
from millpond.server.runtime.recovery import recover
from millpond.server.runtime.scheduler_thread import SchedulerThread
from millpond.server.runtime.tenants import Tenants
from millpond.server.runtime.turn_processor import TurnProcessor
from millpond.server.server_components import ServerComponents
from millpond.server.storage.files.service import FileService
from millpond.server.storage.job_files import JobFiles
from millpond.server.storage.provisioning.components import Provisioning, ProvisioningDependencies
from millpond.server.store.store import Store
from millpond.server.views.about import ServerFacts
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


class AuthWorld:
    """A running server without a socket: ``olga`` owns it, ``amy`` is an admin, ``nob`` is in no group."""

    def __init__(
        self,
        state_dir: Path,
        url: str = "",
        clock: Clock | None = None,
        oidc: Oidc = NO_OIDC,
        origins: JobOrigins = PATHS_ONLY,
    ) -> None:
        self.clock = clock or Clock(1_000_000.0)
        world = World()
        self.engine = WorldEngine(world, self.clock)
        self.store = Store(url or fresh_sqlite(state_dir))
        self.vault = Vault(self.store.secrets, state_dir, lambda: Cipher.AES_256_GCM, self.clock)
        self.provisioning = Provisioning(
            self.store, state_dir, self.vault, ProvisioningDependencies(wake=lambda: self.loop.wake(), nodes=("n1",))
        )
        core = recover(self.store)
        forecaster, instruments = forecasts_of(self.store), Instruments()
        activity = Activity(time.time)
        watching = dependencies(self.clock, self.provisioning, forecaster, instruments, activity)
        self.loop = Loop(JobCache(instruments.started, instruments.suspended))
        self.processor = TurnProcessor(self.store, core, self.loop, watching)
        self.scheduler = SchedulerThread(self.loop, self.processor)
        self.engine.wake = self.loop.wake
        self.security = open_security(self.store, "olga", OWNER_TOKEN, self.clock, cheap_passwords(), oidc)
        self.accounts = self.security.accounts
        self.scheduler.settle(self.engine)
        apart = IsolationLevel(SandboxMode.AUTO)
        self.isolation = Isolation(apart, self.accounts, "olga", state_dir, clock=self.clock)
        self.tenants = Tenants(self.accounts, self.isolation, self.loop, self.clock)
        self.loop.notify(self.tenants.events(core))
        self.scheduler.start()
        identity = ServerFacts("http://testserver", state_dir, 0.0, origins=origins, unlimited="no control groups")
        files = FileService(state_dir, self.store, lambda _: self.provisioning.rules, self.provisioning.cache.copy_of)
        job_files = JobFiles(self.store.jobs)
        self.notification_rules = NotificationRules(MailRules("127.0.0.1", 9, "none", "pond@example.org"))
        context = NotificationContext(lambda: self.notification_rules, self.clock, lambda: self.loop.read_only)
        self.told = make_told(self.store, self.accounts, self.vault, context)
        components = ServerComponents(
            state_dir,
            self.store,
            self.loop,
            self.processor.lookup,
            self.processor.reason_outside_core,
            self.accounts,
            self.isolation,
            self.vault,
            files,
            job_files,
            self.provisioning,
            QueueSettings(self.store.queue_settings, self.loop, self.accounts, self.clock),
            self.told,
            forecaster,
            instruments,
            activity,
        )
        self.service = Service(components, identity, LocalTaskAccess(state_dir))
        self._tokens: dict[str, str] = {}
        self.app = make_app(self.service, self.security, self.tenants, "testserver", OWNER_TOKEN, pages=portal_routes())

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

    def settled(self) -> None:
        """Everything that is under way has been handled."""
        for _ in range(3):
            self.loop.query(lambda core: None).result(60)

    def close(self) -> None:
        self.scheduler.close()
        self.security.close()
        self.store.close()


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
