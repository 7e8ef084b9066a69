"""A running server without a socket, for tests of the REST API: real scheduler and store, a world without processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fresh_databases import fresh_sqlite
from notice_world import make_told
from one_loop import client_of
from server_world import Clock, World, WorldEngine, cheap_passwords

from millpond.engines.local.task_access import LocalTaskAccess
from millpond.node.sandbox.detection import SandboxMode
from millpond.server.api.app import make_app
from millpond.server.api.service import Service
from millpond.server.auth.components import open_security
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


class Api:
    """A running server without a socket.

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
        self.state_dir = state_dir
        self.clock = clock or Clock()
        self.world = world or World()
        self.engine = WorldEngine(self.world, self.clock)
        self.store = Store(fresh_sqlite(state_dir))
        self.vault = Vault(self.store.secrets, state_dir, lambda: Cipher.AES_256_GCM, self.clock)
        means = ProvisioningDependencies(paths, lambda: provisioning, lambda: self.loop.wake(), nodes=("n1",))
        self.provisioning = Provisioning(self.store, state_dir, self.vault, means)
        self.core = recover(self.store)
        forecaster, instruments = forecasts_of(self.store), Instruments()
        activity = Activity(time.time)
        watching = dependencies(self.clock, self.provisioning, forecaster, instruments, activity)
        self.loop = Loop(JobCache(instruments.started, instruments.suspended))
        self.processor = TurnProcessor(self.store, self.core, self.loop, watching)
        self.scheduler = SchedulerThread(self.loop, self.processor)
        self.engine.wake = self.loop.wake
        self.scheduler.settle(self.engine)
        self.scheduler.start()
        identity = ServerFacts("http://testserver", state_dir, 0.0)
        files = FileService(state_dir, self.store, lambda _: self.provisioning.rules, self.provisioning.cache.copy_of)
        self.security = open_security(self.store, "ada", TOKEN, self.clock, cheap_passwords())
        apart = IsolationLevel(SandboxMode.AUTO)
        self.isolation = Isolation(apart, self.security.accounts, "ada", state_dir, clock=self.clock)
        accounts = self.security.accounts
        job_files = JobFiles(self.store.jobs)
        context = NotificationContext(NotificationRules, self.clock, lambda: self.loop.read_only)
        components = ServerComponents(
            state_dir,
            self.store,
            self.loop,
            self.processor.lookup,
            self.processor.reason_outside_core,
            accounts,
            self.isolation,
            self.vault,
            files,
            job_files,
            self.provisioning,
            QueueSettings(self.store.queue_settings, self.loop, accounts, self.clock),
            make_told(self.store, accounts, self.vault, context),
            forecaster,
            instruments,
            activity,
        )
        self.components = components
        self.service = Service(components, identity, LocalTaskAccess(state_dir))
        self.tenants = Tenants(self.security.accounts, self.isolation, self.loop, self.clock)
        app = make_app(self.service, self.security, self.tenants, "testserver", TOKEN)
        self.client = client_of(app, headers={"Authorization": f"Bearer {TOKEN}"}, raise_server_exceptions=False)

    def submit(self, **fields: Any) -> JobInfo:
        answer = self.client.post(JOBS, json={"command": "work", **fields})
        assert answer.status_code == 201, answer.text
        return from_json(JobInfo, answer.content)

    def job(self, name: str) -> JobInfo:
        """A job's look after everything that is under way has been handled."""
        for _ in range(3):
            self.loop.query(lambda core: None).result(60)
        return from_json(JobInfo, self.client.get(f"{JOBS}/{name}").content)

    def settled(self) -> None:
        """What was told has been heard: a queue takes jobs, a page shows it."""
        self.loop.query(lambda core: None).result(60)

    def close(self) -> None:
        self.provisioning.staging.close()
        self.scheduler.close()
        self.security.close()
        self.store.close()


def error_of(answer: Any) -> ErrorBody:
    return from_json(ErrorInfo, answer.content).error
