"""A server from start to end: state directory, store, core, engine, HTTP; and back in the opposite order."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from millpond.engines.local.engine import EngineOptions, LocalEngine
from millpond.model import events
from millpond.model.errors import InconsistentStateError, MillpondError
from millpond.model.nodes import Node
from millpond.node.cgroups import GroupMode
from millpond.node.devices.nvidia import NvidiaVendor
from millpond.node.machine import Machine
from millpond.node.sandbox import SandboxMode
from millpond.scheduling.settings import Settings
from millpond.server.acceleration import accelerate
from millpond.server.api.app import make_app
from millpond.server.auth.first_login import prepare_first_login
from millpond.server.auth.oidc.id_tokens import jose
from millpond.server.auth.owner import TOKEN_FILE, owner_name, token_in
from millpond.server.auth.security import Oidc, Security, open_security
from millpond.server.board import Board
from millpond.server.disk_watch import DiskWatch
from millpond.server.files.service import Files
from millpond.server.http import HttpServer, is_loopback, listen, url_of
from millpond.server.idling import IdleWatch, cpu_s_of
from millpond.server.inbox import wall_clock
from millpond.server.isolation import Isolation, look_around
from millpond.server.local import Launcher, describe, make_limiter, unlimited_text
from millpond.server.loop import Loop
from millpond.server.options import ServerOptions, parse_options
from millpond.server.outside import seen_from_outside
from millpond.server.provisions.outfit import Means, Outfit
from millpond.server.recovery import recover
from millpond.server.retention import Janitor, Limits
from millpond.server.server_log import LogFormat, set_up_log
from millpond.server.service import Identity, Service
from millpond.server.serving.scaling import Autoscaler
from millpond.server.serving.sizing import Sizing
from millpond.server.ssh.gatekeeper import Gatekeeper
from millpond.server.ssh.opening import open_doorway
from millpond.server.standby import Post, seat_at, stand_by
from millpond.server.state_dir import StateDir
from millpond.server.store.connecting import claim, sqlite_url
from millpond.server.store.store import Store
from millpond.server.sweeps.watching import SweepWatch
from millpond.server.tenants import Tenants
from millpond.server.tls import Encryption, open_encryption, renew
from millpond.server.vault.ciphers import Cipher
from millpond.server.vault.secrets import Vault
from millpond.server.version import VERSION
from millpond.server.webhooks.courier import Courier
from millpond.specs.api import ServerFile
from millpond.specs.cluster import ClusterConfig, PriceList, QueuePaths, Webhook, load_cluster
from millpond.specs.confining import RunAs, TaskRules
from millpond.specs.listening import Listening
from millpond.specs.oidc import OidcRules
from millpond.specs.provisioning import Provisioning
from millpond.specs.ssh import SshInfo

log = logging.getLogger(__name__)

DATABASE_FILE: Final = "millpond.db"
JOBS_END_WITHIN_S: Final = 90.0
_INTERRUPTED: Final = 130


class LeadLostError(MillpondError):
    """Another server leads. Not a fault of the start: whoever looks after services may start it again."""


def run(arguments: Sequence[str]) -> int:
    """Serve as a command line says; returns the exit code. Errors are one line on standard error."""
    options = parse_options(arguments)
    set_up_log(LogFormat(options.log_format))
    try:
        serve(options)
    except MillpondError as error:
        if isinstance(error, InconsistentStateError):
            log.critical("a defect", exc_info=error)
        print(f"pond: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # before the server itself listens to signals
        return _INTERRUPTED
    return 0


def serve(options: ServerOptions) -> None:
    """Serve until SIGINT or SIGTERM, perhaps after standing by.

    Raises:
        LeadLostError: another server has taken over.
        UnavailableError: the state directory, the port or the database cannot be used.
        InvalidInputError: the options or the configuration file are wrong.
        InconsistentStateError: the scheduler stopped by a defect; its jobs go on.
    """
    config = load_cluster(options.config) if options.config else ClusterConfig()
    if config.oidc is not None:
        jose()
    with contextlib.ExitStack() as held:
        path = options.state_dir.expanduser().absolute()
        if not options.standby:
            state = held.enter_context(StateDir(path))
        listener = held.enter_context(listen(options.host, options.port))
        encryption = open_encryption(config.listening)
        url = url_of(listener, "http" if encryption is None else "https")
        left = _server_file(url, path, encryption)
        leadership = claim(options.store, seat_at(url, path)) if options.store else None
        if leadership is not None:
            held.callback(leadership.close)
        if options.standby:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not stand_by(leadership, Post(path, listener, encryption, left)):
                return
            state = held.enter_context(StateDir(path, takes_over=True))
        machine = describe(options.fake_gpus, config, state.path)
        apart = look_around(SandboxMode(options.sandbox), state.path, config.run_as)
        limiter = make_limiter(GroupMode(options.control_groups), machine)
        token = token_in(state.path)
        store = Store(options.store or sqlite_url(state.path / DATABASE_FILE), leadership)
        security: Security | None = None
        try:
            current = Current(config)
            security = open_security(store, owner_name(), token, wall_clock, oidc=Oidc(current.oidc))
            outfit = Outfit(store, state.path, current.means(machine, lambda: loop.wake()))
            loop = Loop(store, recover(store, options.policies), Board(), stages=outfit.staging)
            vault = Vault(store.secrets, state.path, current.cipher, wall_clock)
            courier = Courier(store, current.webhooks, vault, wall_clock)
            loop.address, loop.on_told = courier.address, courier.wake
            files = Files(state.path, store, outfit.rules, outfit.cache.place)
            doorway = open_doorway(config.ssh, state.path) if config.ssh else None
            isolation = Isolation(apart, security.accounts, owner_name(), state.path, current.run_as, wall_clock)
            launcher = Launcher(store, files, isolation, vault, outfit.provisions, state.path, current.tasks)
            means = EngineOptions(wake=loop.wake, sandbox=apart.sandbox, limiter=limiter)
            engine = LocalEngine(machine, state.path, launcher.launch_of, means)
            try:
                change = options.policies.change(loop.core.scheduler.settings, wall_clock())
                for event in change:
                    log.info("other policies from now on: %s", event)
                loop.settle(engine, (*change, *_configured(config), *isolation.events(loop.core)))
                tenants = Tenants(security.accounts, isolation, loop, wall_clock)
                tenants.start()
                loop.start()
                outfit.staging.start()
                courier.start()
                janitor = Janitor(store, state.path, Limits(options.keep_jobs, options.keep_logs_gib), wall_clock)
                janitor.start()
                accelerate(loop, len(machine.nodes), loop.core.scheduler.settings)
                identity = replace(
                    _identity(url, state.path, loop.core.scheduler.settings, unlimited_text(limiter)),
                    longest_dev_s=config.dev.longest_s,
                    ssh=doorway.info if doorway else SshInfo(),
                )
                service = Service(
                    loop, store, identity, security.accounts, isolation, vault, files, outfit, current.prices
                )
                watch = IdleWatch(loop, service.activity, state.path, config.dev, wall_clock, cpu_s_of)
                names = filter(None, [urlsplit(config.listening.public_url).hostname])
                app = seen_from_outside(
                    make_app(service, security, tenants, options.host, token, names), config.listening
                )
                is_reached = not is_loopback(options.host) or bool(config.listening.trusted_proxies)
                invitation = prepare_first_login(security, owner_name(), state.path, is_reached)
                notes = (
                    *_notes(machine, isolation),
                    *_notes_on_the_way(options.host, config.listening, encryption),
                    *_first_login_notes(invitation),
                )

                def on_hangup() -> None:
                    reload(options.config, loop, current)
                    if encryption is not None:
                        renew(encryption)

                http = _http_server(app, service, state, left, notes, on_hangup, encryption)
                loop.on_failure = http.stop
                if leadership is not None:
                    leadership.on_lost = http.stop
                    if leadership.lost:
                        http.stop()
                files.collector.also(outfit.tidy)
                files.collector.start()
                disk = DiskWatch(loop, service.disk, state.path, options.keep_free_gib, wall_clock)
                disk.start()
                front = service.front
                sizing = Sizing(loop, front.balancer, wall_clock)
                scaler = Autoscaler(loop, sizing, service.file_of, front.meter, machine.use_milli, wall_clock)
                scaler.is_spoken_for = service.rollouts.speaks_for
                gateway = doorway.gateway(Gatekeeper(service, security)) if doorway else None
                sweeps = SweepWatch(loop, service.sweeps)
                watch.start()
                scaler.start()
                service.rollouts.start()
                sweeps.start()
                _keep_what_is_loaded()
                if gateway is not None:
                    gateway.start()
                try:
                    http.run(listener)
                finally:
                    if gateway is not None:
                        gateway.close()
                    watch.close()
                    scaler.close()
                    service.rollouts.close()
                    sweeps.close()
                    disk.close()
                    service.closing = True
                    files.collector.close()
                    outfit.staging.close()
                    state.withdraw()
                    janitor.close()
                if options.stop_jobs_on_exit and loop.alive and not (leadership is not None and leadership.lost):
                    _stop_jobs(loop)
                loop.close()
            finally:
                engine.close()
                courier.close()
        finally:
            if security is not None:
                security.close()
            store.close()
    if leadership is not None and leadership.lost:
        raise LeadLostError("another server has taken over", "start this one again with --standby")
    if loop.failure is not None:
        raise InconsistentStateError(
            f"the scheduler stopped by a defect ({loop.failure})",
            "its log says more; jobs go on; start the server again",
        ) from loop.failure


@dataclass(slots=True)
class Current:
    """The configuration as it was read last."""

    config: ClusterConfig

    def webhooks(self) -> dict[str, Webhook]:
        """Receivers by name."""
        return {hook.name: hook for hook in self.config.webhooks}

    def paths(self) -> Mapping[str, QueuePaths]:
        """Folders that jobs may use, by queue."""
        return self.config.paths

    def run_as(self) -> RunAs:
        """Whom tasks run as."""
        return self.config.run_as

    def cipher(self) -> Cipher:
        """What secrets are encrypted with from now on."""
        return Cipher(self.config.cipher)

    def tasks(self) -> TaskRules:
        """What tasks are kept to besides what they ask for."""
        return self.config.tasks

    def oidc(self) -> OidcRules | None:
        """The provider at which people may log in."""
        return self.config.oidc

    def provisioning(self) -> Provisioning:
        """What jobs are provided with."""
        return self.config.provisioning

    def means(self, machine: Machine, wake: Callable[[], None]) -> Means:
        """What provides for jobs on a machine."""
        has_cards = any(device.vendor == NvidiaVendor.name for node in machine.nodes for device in node.devices)
        return Means(self.paths, self.provisioning, wake, has_cards, tuple(node.name for node in machine.nodes))

    def prices(self) -> PriceList:
        """The price list."""
        return self.config.prices


def reload(config: Path | None, loop: Loop, current: Current) -> None:
    """Read the configuration again; what it says of machines counts from the next start on, all else at once.

    One that is wrong changes nothing; the log says what is wrong with it.
    """
    if config is None:
        log.info("told to read the configuration again, and there is none (--config)")
        return
    try:
        fresh = load_cluster(config)
    except MillpondError as error:
        log.error("the configuration stays as it was: %s", error)
        return
    loop.tell(_configured(fresh))
    current.config = fresh
    log.info("read %s again", config)


def _http_server(
    app: ASGIApp,
    service: Service,
    state: StateDir,
    left: ServerFile,
    notes: Sequence[str],
    on_hangup: Callable[[], None],
    encryption: Encryption | None,
) -> HttpServer:
    def ready() -> None:
        state.announce(left)
        print(f"Millpond {VERSION} is up at {left.url}", flush=True)
        for note in notes:
            print(note, flush=True)

    def stopping() -> None:
        service.closing = True

    return HttpServer(app, ready, stopping, on_hangup, None if encryption is None else encryption.context)


def _server_file(url: str, state_dir: Path, encryption: Encryption | None) -> ServerFile:
    """What is left about this server in its state directory."""
    return ServerFile(
        url=url,
        pid=os.getpid(),
        token_path=str(state_dir / TOKEN_FILE),
        version=VERSION,
        certificate_path="" if encryption is None else str(encryption.certificate.path),
    )


def _keep_what_is_loaded() -> None:
    """From here on garbage is looked for among what requests leave behind only: a full look costs them a pause."""
    gc.freeze()
    gc.enable()


def _notes(machine: Machine, isolation: Isolation) -> list[str]:
    """What is said of the machine when the server is up."""
    apart = isolation.apart.trouble
    return [
        *(machine.notes or (_summary(machine.nodes),)),
        *([f"jobs are not kept apart from each other: {apart}"] if apart else []),
        *([isolation.warning] if isolation.warning else []),
    ]


def _notes_on_the_way(host: str, listening: Listening, encryption: Encryption | None) -> list[str]:
    """What is said of the way that requests take."""
    notes = []
    if encryption is not None:
        notes.append(encryption.certificate.trouble(wall_clock()))
    if not listening.is_encrypted and not is_loopback(host):
        notes.append(
            "requests from elsewhere are not encrypted: set listen.certificate and listen.key, or put a proxy in front "
            "and name it in listen.trusted_proxies (docs/security.md)"
        )
    return [note for note in notes if note]


def _first_login_notes(invitation: Path | None) -> list[str]:
    """How to log in from elsewhere for the first time; the secret itself on a terminal only, never in a log."""
    if invitation is None:
        return []
    how = "first login from elsewhere: pond login URL --invitation"
    return [f"{how}, and this: {invitation.read_text().strip()}" if sys.stdout.isatty() else f"{how}; see {invitation}"]


def _summary(nodes: Sequence[Node]) -> str:
    cards = [device for node in nodes for device in node.devices]
    return f"{len(nodes)} node{'s' * (len(nodes) != 1)}, {len(cards)} GPU{'s' * (len(cards) != 1)}"


def _identity(url: str, state_dir: Path, settings: Settings, unlimited: str) -> Identity:
    return Identity(
        VERSION, url, "local", os.getpid(), state_dir, wall_clock(), settings.ordering, settings.placement, unlimited
    )


def _configured(config: ClusterConfig) -> list[events.Event]:
    """The configuration as events; the same ones again change nothing."""
    now = wall_clock()
    return [
        *(events.PoolChanged(now, pool) for pool in config.pools),
        *(events.QueueChanged(now, queue) for queue in config.queues),
    ]


def _stop_jobs(loop: Loop) -> None:
    """End all jobs, arrays and those that wait first, so that none starts in the room that becomes free."""
    jobs = sorted(loop.board.newest_first(), key=lambda info: (info.array is None, info.state != "queued"))
    for info in jobs:
        loop.stop_job(info.id, owner_name())
    give_up_at = time.monotonic() + JOBS_END_WITHIN_S
    while loop.board.newest_first() and loop.alive:
        if time.monotonic() > give_up_at:
            log.warning("%d jobs have not ended in time and go on", len(loop.board.newest_first()))
            return
        time.sleep(0.05)
