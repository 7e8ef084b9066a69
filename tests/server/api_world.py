"""A running server without a socket, for tests of the REST API: real scheduler and store, a world without processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fresh_databases import fresh_sqlite
from notice_world import make_told
from one_loop import client_of
from server_world import Clock, World, WorldEngine, cheap_passwords
from starlette.routing import BaseRoute

from millpond.engines.local.task_access import LocalTaskAccess
from millpond.node.sandbox.detection import SandboxMode
from millpond.server.api.app import make_app
from millpond.server.api.service import Service
from millpond.server.auth.components import NO_OIDC, Oidc, open_security
from millpond.server.auth.isolation import Isolation, IsolationLevel
from millpond.server.auth.vault.ciphers import Cipher
from millpond.server.auth.vault.secrets import Vault
from millpond.server.monitoring.activity import Activity
from millpond.server.monitoring.instruments import Instruments
from millpond.server.notifications.settings import NotificationContext
from millpond.server.runtime.active_jobs.job_cache import JobCache
from millpond.server.runtime.forecasts import Forecaster
from millpond.server.runtime.loop import Loop
from millpond.server.runtime.loop_dependencies import LoopDependencies
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
from millpond.specs.api.base import ErrorBody, ErrorInfo
from millpond.specs.api.codec import from_json
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.config.notifications import NotificationRules
from millpond.specs.config.provisioning import ProvisioningRules
from millpond.specs.config.queues import QueueRules

TOKEN = "secret"
_PLAIN = ProvisioningRules()
Paths = Callable[[], Mapping[str, QueueRules]]
JOBS = "/api/v1/jobs"


def forecasts_of(store: Store) -> Forecaster:
    """A forecaster that has learnt what the store knows."""
    return Forecaster(lambda most: store.jobs.ended_jobs(most, of=None))


def dependencies(
    clock: Clock, provisioning: Provisioning, forecaster: Forecaster, instruments: Instruments, activity: Activity
) -> LoopDependencies:
    """What a whole server's loop is given, but for webhooks."""
    return LoopDependencies(
        clock=clock,
        stages=provisioning.staging,
        forecast=forecaster.predict_at_once,
        on_cycle=instruments.cycled,
        on_ended=(forecaster.note, instruments.ended, activity.ended),
    )


class RunningServer:
    """A running server without a socket.

    Args:
        owner, token: who set it up, and their token.
        url: of its database; without one, it lies in the state directory.
        rules: those of notifications.
        facts: what it says of itself beside its address.
    """

    def __init__(
        self,
        state_dir: Path,
        owner: str,
        token: str,
        clock: Clock,
        world: World,
        *,
        url: str = "",
        provisioning: ProvisioningRules = _PLAIN,
        paths: Paths = dict,
        rules: Callable[[], NotificationRules] = NotificationRules,
        oidc: Oidc = NO_OIDC,
        pages: Iterable[BaseRoute] = (),
        **facts: Any,
    ) -> None:
        self.state_dir, self.clock, self.world = state_dir, clock, world
        self.engine = WorldEngine(world, clock)
        self.store = Store(url or fresh_sqlite(state_dir))
        self.vault = Vault(self.store.secrets, state_dir, lambda: Cipher.AES_256_GCM, clock)
        means = ProvisioningDependencies(paths, lambda: provisioning, lambda: self.loop.wake(), nodes=("n1",))
        self.provisioning = Provisioning(self.store, state_dir, self.vault, means)
        self.core = recover(self.store)
        forecaster, instruments = forecasts_of(self.store), Instruments()
        activity = Activity(time.time)
        watching = dependencies(clock, self.provisioning, forecaster, instruments, activity)
        self.loop = Loop(JobCache(instruments.started, instruments.suspended))
        self.processor = TurnProcessor(self.store, self.core, self.loop, watching)
        self.scheduler = SchedulerThread(self.loop, self.processor)
        self.engine.wake = self.loop.wake
        self.security = open_security(self.store, owner, token, clock, cheap_passwords(), oidc)
        self.accounts = self.security.accounts
        self.scheduler.settle(self.engine)
        apart = IsolationLevel(SandboxMode.AUTO)
        self.isolation = Isolation(apart, self.accounts, owner, state_dir, clock=clock)
        self.tenants = Tenants(self.accounts, self.isolation, self.loop, clock)
        self.loop.notify(self.tenants.events(self.core))
        self.scheduler.start()
        identity = ServerFacts("http://testserver", state_dir, 0.0, **facts)
        files = FileService(state_dir, self.store, lambda _: self.provisioning.rules, self.provisioning.cache.copy_of)
        job_files = JobFiles(self.store.jobs)
        context = NotificationContext(rules, clock, lambda: self.loop.read_only)
        self.told = make_told(self.store, self.accounts, self.vault, context)
        self.components = ServerComponents(
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
            QueueSettings(self.store.queue_settings, self.loop, self.accounts, clock),
            self.told,
            forecaster,
            instruments,
            activity,
        )
        self.service = Service(self.components, identity, LocalTaskAccess(state_dir))
        self.app = make_app(self.service, self.security, self.tenants, "testserver", token, pages=pages)

    def settled(self) -> None:
        """Everything that is under way has been handled."""
        for _ in range(3):
            self.loop.query(lambda core: None).result(60)

    def close(self) -> None:
        self.provisioning.staging.close()
        self.scheduler.close()
        self.security.close()
        self.store.close()


class Api(RunningServer):
    """One whose owner, ``ada``, is its only user.

    Args:
        world, clock: of a server before it that was killed.
    """

    def __init__(
        self,
        state_dir: Path,
        provisioning: ProvisioningRules = _PLAIN,
        paths: Paths = dict,
        world: World | None = None,
        clock: Clock | None = None,
    ) -> None:
        state_dir.mkdir(exist_ok=True)
        clock, world = clock or Clock(), world or World()
        super().__init__(state_dir, "ada", TOKEN, clock, world, provisioning=provisioning, paths=paths)
        self.client = client_of(self.app, headers={"Authorization": f"Bearer {TOKEN}"}, raise_server_exceptions=False)

    def submit(self, **fields: Any) -> JobInfo:
        answer = self.client.post(JOBS, json={"command": "work", **fields})
        assert answer.status_code == 201, answer.text
        return from_json(JobInfo, answer.content)

    def job(self, name: str) -> JobInfo:
        """A job's look after everything that is under way has been handled."""
        self.settled()
        return from_json(JobInfo, self.client.get(f"{JOBS}/{name}").content)


def error_of(answer: Any) -> ErrorBody:
    return from_json(ErrorInfo, answer.content).error
