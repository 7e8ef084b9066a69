"""What is made before requests are served: the store, the accounts, the core, and an engine that agrees with it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from millpond.engines.kubernetes.pods.carried_runs import CarriedRuns
from millpond.engines.server_engine import ServerEngine
from millpond.model.hardware.nodes import amount_of_nodes
from millpond.node.host.machine import Machine
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.components import Oidc, Security, open_security
from millpond.server.auth.isolation import Isolation
from millpond.server.auth.owner import owner_name, token_in
from millpond.server.auth.vault.ciphers import Cipher
from millpond.server.auth.vault.secrets import Vault
from millpond.server.monitoring.activity import Activity
from millpond.server.monitoring.instruments import Instruments
from millpond.server.notifications.components import NotificationSources, make_notifications
from millpond.server.notifications.messages import MessageWriter
from millpond.server.notifications.settings import NotificationContext
from millpond.server.notifications.webhook_carrier import WebhookRules
from millpond.server.operations.pod_address import url_for_pods
from millpond.server.runtime.active_jobs.job_cache import JobCache
from millpond.server.runtime.clock import KeptOffset, SteadyClock, since_boot
from millpond.server.runtime.core import Core
from millpond.server.runtime.forecasts import Forecaster
from millpond.server.runtime.kernel_compilation import accelerate
from millpond.server.runtime.loop import Loop
from millpond.server.runtime.loop_dependencies import LoopDependencies
from millpond.server.runtime.queue_settings.effects import shortage_of
from millpond.server.runtime.queue_settings.service import QueueSettings
from millpond.server.runtime.recovery import expected_tasks, no_longer_placeable, policy_change, recover, running_jobs
from millpond.server.runtime.scheduler_thread import SchedulerThread
from millpond.server.runtime.tenants import Tenants
from millpond.server.runtime.turn_processor import TurnProcessor
from millpond.server.server_components import ServerComponents
from millpond.server.sessions.ssh.listener import SshListener, open_listener
from millpond.server.startup.configuration import Current, setting_events
from millpond.server.startup.engines import HostEnvironment, make_engine, survey
from millpond.server.startup.identity import COPY, adopt_files, identify
from millpond.server.startup.leadership import ServingRight
from millpond.server.startup.lost_cards import with_lost_cards
from millpond.server.startup.options import ServerOptions, remember
from millpond.server.state_dir import DATABASE_FILE
from millpond.server.storage.files.mounts import FolderRules
from millpond.server.storage.files.service import FileService
from millpond.server.storage.files.volumes import VolumeRules
from millpond.server.storage.job_files import JobFiles
from millpond.server.storage.provisioning.components import Provisioning
from millpond.server.storage.provisioning.pod_jobs import PodJobs
from millpond.server.storage.provisioning.staging import NOTHING_TO_STAGE
from millpond.server.store.connection.database import sqlite_url
from millpond.server.store.store import Store
from millpond.specs.config.cluster import ClusterConfig
from millpond.specs.config.kubernetes import KubernetesFile
from millpond.specs.config.origins import JobOrigins

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CoreComponents:
    """The parts of a server whose scheduler runs, and whose earlier jobs go on.

    Attributes:
        token: the owner's; access tokens of the programs of jobs are signed with it, too.
        listener: where SSH clients connect; None: nowhere.
        warnings: cards that are lost, guarantees and jobs that this start leaves without machines, in words.
    """

    host: HostEnvironment
    components: ServerComponents
    security: Security
    tenants: Tenants
    token: str
    engine: ServerEngine
    listener: SshListener | None
    origins: JobOrigins
    warnings: tuple[str, ...] = ()


@contextmanager
def open_components(options: ServerOptions, current: Current, lead: ServingRight) -> Iterator[CoreComponents]:
    """Make all of it, and take it down in the opposite order.

    Raises:
        UnavailableError: the database, the port for SSH, or what was required of the machine cannot be had.
        InvalidInputError: the configuration is wrong.
    """
    config = current.config
    host = survey(options, config, lead.state.path)
    token = token_in(host.state_dir)
    origins = JobOrigins.of(config.listening, lead.post.left.url)
    with ExitStack() as held:
        store = Store(options.store or sqlite_url(host.state_dir / DATABASE_FILE), lead.leadership)
        held.callback(store.close)
        identity = identify(store, host.state_dir, options.take_over)
        remember(options)  # not earlier: a start that was refused leaves the next one as it was
        if identity.is_copy:
            host = replace(host, machine=Machine((), {}))
        security = open_security(store, owner_name(), token, time.time, oidc=Oidc(lambda: current.config.oidc))
        held.callback(security.close)
        core = recover(store, options.policies)
        machine, warnings = with_lost_cards(host.machine, core.scheduler.node_views())
        host = replace(host, machine=machine)
        components, scheduler = _make_components(
            core, current, host, store, security.accounts, lambda: lead.post.left.url
        )
        held.callback(components.notifications.close)
        listener = open_listener(config.ssh, host.state_dir) if config.ssh and not identity.is_copy else None
        known = core.scheduler.machines()
        engine, host = make_engine(current, host, components, origins, identity.servers, known)
        held.callback(engine.close)
        tenants = Tenants(security.accounts, components.isolation, components.loop, time.time)
        base = CoreComponents(host, components, security, tenants, token, engine, listener, origins, warnings)
        if identity.is_copy:
            scheduler.serve_read_only(COPY)
        else:
            if identity.took_over and identity.original is not None:
                adopt_files(identity.original, host.state_dir, expected_tasks(core, host.machine.nodes))
            base = _settle(options, config, core, scheduler, base)
        settings = core.scheduler.settings
        scheduler.start()
        held.callback(scheduler.close)
        if not identity.is_copy:
            components.notifications.start()
            accelerate(components.loop, len(core.scheduler.node_views()), settings)
        yield base


def _settle(
    options: ServerOptions, config: ClusterConfig, core: Core, scheduler: SchedulerThread, base: CoreComponents
) -> CoreComponents:
    """Have the core, the engine and the configuration agree; the components with what that leaves without machines."""
    components, tenants = base.components, base.tenants
    change = policy_change(options.policies, core.scheduler.settings, time.time())
    for event in change:
        core.scheduler.require_policies(event)
        log.info("other policies from now on: %s", event)
    ran = running_jobs(core)
    components.notifications.receivers.take_file()
    queues, texts = components.queue_settings, config.queue_documents if options.config else None
    nodes = base.host.machine.nodes if config.kubernetes is None else ()  # those of a cluster are not known yet
    machines = amount_of_nodes(nodes, {pool.name: pool for pool in config.pools})
    scheduler.settle(
        base.engine,
        lambda: (
            *(*change, *setting_events(config, core.scheduler.settings.usage_half_life_s)),
            *(*queues.begin(core, texts, config.located, machines, nodes), *tenants.isolation_events(core)),
        ),
    )
    warnings = (*base.warnings, *no_longer_placeable(core, ran))
    if shortage := shortage_of(core.scheduler.queue_statuses()):
        warnings = (f"warning: {shortage}", *warnings)
    components.loop.notify(tenants.events(core))
    return replace(base, warnings=warnings)


def _make_components(
    core: Core,
    current: Current,
    host: HostEnvironment,
    store: Store,
    accounts: Accounts,
    own_url: Callable[[], str],
) -> tuple[ServerComponents, SchedulerThread]:
    state_dir = host.state_dir
    vault = Vault(store.secrets, state_dir, lambda: Cipher(current.config.cipher), time.time)
    provided = current.provisioning_on(host.machine, lambda: loop.wake(), lambda: queue_settings.rules)
    provisioning = Provisioning(store, state_dir, vault, provided)
    notifications = make_notifications(
        NotificationSources(
            store,
            accounts,
            vault,
            MessageWriter(lambda: current.config.listening.public_url or own_url()),
            WebhookRules(current.webhooks, lambda: current.config.notifications.chat),
        ),
        NotificationContext(lambda: current.config.notifications, time.time, lambda: loop.read_only),
    )
    forecaster, instruments = Forecaster(lambda most: store.jobs.ended_jobs(most, of=None)), Instruments()
    activity = Activity(since_boot)
    clock = SteadyClock(core.now, kept=KeptOffset(state_dir / "clock.json"))
    kubernetes = current.config.kubernetes
    runs_here = kubernetes is None or kubernetes.machine is not None  # kubelets fetch images themselves
    dependencies = LoopDependencies(
        clock=clock,
        clock_jump=clock.skipped,
        stages=provisioning.staging if runs_here else NOTHING_TO_STAGE,
        notices=notifications.outbox,
        forecast=forecaster.predict_at_once,
        on_cycle=instruments.cycled,
        on_ended=(forecaster.note, instruments.ended, activity.ended),
    )
    loop = Loop(JobCache(instruments.started, instruments.suspended))
    queue_settings = QueueSettings(store.queue_settings, loop, accounts, time.time)
    processor = TurnProcessor(store, core, loop, dependencies)
    runs = CarriedRuns(1 if kubernetes is None else len(kubernetes.each))
    accounts.runs.lives = runs.lives
    volumes = VolumeRules(provisioning.rules, lambda: _cluster_settings(current).volumes)

    def folders_of(pool: str) -> FolderRules:
        return provisioning.rules if kubernetes is None or kubernetes.machine == pool else volumes

    files = FileService(state_dir, store, folders_of, provisioning.cache.copy_of)
    pods = PodJobs(
        provisioning.sources,
        volumes,
        files,
        lambda: _cluster_settings(current).image or "",
        lambda: url_for_pods(current.config, own_url()),
        {} if kubernetes is None else kubernetes.extras,
        {} if kubernetes is None else {name: way.image for name, way in kubernetes.clusters.items() if way.image},
    )
    isolation = Isolation(host.apart, accounts, owner_name(), state_dir, current.config.run_as, time.time)
    components = ServerComponents(
        state_dir=state_dir,
        store=store,
        loop=loop,
        lookup=processor.lookup,
        reason_outside_core=processor.reason_outside_core,
        accounts=accounts,
        isolation=isolation,
        vault=vault,
        files=files,
        job_files=JobFiles(store.jobs),
        provisioning=provisioning,
        queue_settings=queue_settings,
        notifications=notifications,
        forecaster=forecaster,
        instruments=instruments,
        activity=activity,
        pods=None if kubernetes is None else pods,
        clusters=() if kubernetes is None else kubernetes.names,
        machine_pool="" if kubernetes is None else kubernetes.machine or "",
        runs=None if kubernetes is None else runs,
    )
    return components, SchedulerThread(loop, processor)


def _cluster_settings(current: Current) -> KubernetesFile:
    """What the configuration says of the cluster at this moment."""
    return current.config.kubernetes or KubernetesFile()
