"""What has to stand before anybody can ask: the store, the accounts, the core, and an engine that agrees with it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from millpond.engines.local.engine import EngineOptions, LocalEngine
from millpond.node.devices.nvidia import NvidiaVendor
from millpond.node.machine import Machine
from millpond.node.sharing.gating import GateHold
from millpond.node.sharing.mps import MpsHold
from millpond.server.acceleration import accelerate
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.owner import TOKEN_FILE, owner_name, token_in
from millpond.server.auth.security import Oidc, Security, open_security
from millpond.server.board import Board
from millpond.server.files.service import Files
from millpond.server.ground import Ground
from millpond.server.inbox import wall_clock
from millpond.server.isolation import Isolation
from millpond.server.job_files import JobFiles
from millpond.server.local import Launcher, Rules
from millpond.server.loop import Loop
from millpond.server.options import ServerOptions
from millpond.server.policies import Policies
from millpond.server.provisions.outfit import Outfit
from millpond.server.recovery import expected_tasks, no_longer_placeable, recover, running_jobs
from millpond.server.ssh.opening import Doorway, open_doorway
from millpond.server.startup.configuration import Current, configured
from millpond.server.startup.identity import COPY, adopt_files, identify
from millpond.server.startup.lead import Lead
from millpond.server.startup.site import Site, survey
from millpond.server.state_dir import DATABASE_FILE
from millpond.server.steady_clock import KeptOffset, SteadyClock
from millpond.server.store.connecting import sqlite_url
from millpond.server.store.store import Store
from millpond.server.tenants import Tenants
from millpond.server.vault.secrets import Vault
from millpond.server.webhooks.courier import Courier
from millpond.specs.origins import JobOrigins

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Foundation:
    """It stands: the scheduler runs, and jobs that were there go on.

    Attributes:
        token: the owner's; passes to the programs of jobs are signed with it, too.
        doorway: where people knock who come with SSH; None: nowhere.
        origins: where browsers reach what jobs serve.
        unplaceable: which jobs this start leaves without a machine that could take them, in words.
    """

    site: Site
    ground: Ground
    security: Security
    tenants: Tenants
    token: str
    engine: LocalEngine
    doorway: Doorway | None
    origins: JobOrigins
    unplaceable: tuple[str, ...] = ()


@contextmanager
def lay_foundation(options: ServerOptions, current: Current, lead: Lead) -> Iterator[Foundation]:
    """Make all of it, and take it down in the opposite order.

    Raises:
        UnavailableError: the database, the port for SSH, or what was required of the machine cannot be had.
        InvalidInputError: the configuration is wrong.
    """
    config = current.config
    site = survey(options, config, lead.state.path)
    is_new = not (site.state_dir / TOKEN_FILE).exists()
    token = token_in(site.state_dir)
    origins = JobOrigins.of(config.listening, lead.post.left.url)
    with ExitStack() as held:
        store = Store(options.store or sqlite_url(site.state_dir / DATABASE_FILE), lead.leadership)
        held.callback(store.close)
        identity = identify(store, site.state_dir, is_new, options.take_over)
        if identity.is_copy:
            site = replace(site, machine=Machine((), {}))
        security = open_security(store, owner_name(), token, wall_clock, oidc=Oidc(current.oidc))
        held.callback(security.close)
        ground = _lay_ground(options.policies, current, site, store, security.accounts)
        loop, isolation = ground.loop, ground.isolation
        courier = Courier(store, current.webhooks, ground.vault, wall_clock)
        held.callback(courier.close)
        loop.address, loop.on_told = courier.address, courier.wake
        doorway = open_doorway(config.ssh, site.state_dir) if config.ssh and not identity.is_copy else None
        engine = _make_engine(current, site, ground, origins, identity.servers)
        held.callback(engine.close)
        tenants = Tenants(security.accounts, isolation, loop, wall_clock)
        unplaceable: tuple[str, ...] = ()
        if identity.is_copy:
            loop.stand_apart(COPY)
        else:
            if identity.took_over and identity.original is not None:
                adopt_files(identity.original, site.state_dir, expected_tasks(loop.core, site.machine.nodes))
            change = options.policies.change(loop.core.scheduler.settings, wall_clock())
            for event in change:
                log.info("other policies from now on: %s", event)
            ran = running_jobs(loop.core)
            loop.settle(engine, (*change, *configured(config), *isolation.events(loop.core)))
            unplaceable = no_longer_placeable(loop.core, ran)
            tenants.start()
        loop.start()
        held.callback(loop.close)
        if not identity.is_copy:
            courier.start()
            accelerate(loop, len(site.machine.nodes), loop.core.scheduler.settings)
        yield Foundation(site, ground, security, tenants, token, engine, doorway, origins, unplaceable)


def _lay_ground(policies: Policies, current: Current, site: Site, store: Store, accounts: Accounts) -> Ground:
    state_dir = site.state_dir
    vault = Vault(store.secrets, state_dir, current.cipher, wall_clock)
    outfit = Outfit(store, state_dir, vault, current.means(site.machine, lambda: loop.wake()))
    core = recover(store, policies)
    clock = SteadyClock(core.now, kept=KeptOffset(state_dir / "clock.json"))
    loop = Loop(store, core, Board(), clock, outfit.staging)
    loop.skipped = clock.skipped
    files = Files(state_dir, store, outfit.rules, outfit.cache.copy_of)
    isolation = Isolation(site.apart, accounts, owner_name(), state_dir, current.run_as, wall_clock)
    return Ground(state_dir, store, loop, accounts, isolation, vault, files, JobFiles(store), outfit)


def _make_engine(
    current: Current, site: Site, ground: Ground, origins: JobOrigins, servers: Sequence[str]
) -> LocalEngine:
    state_dir, rules = site.state_dir, Rules(current.tasks, current.slice_rules)
    files, provisions = ground.files, ground.outfit.provisions
    launcher = Launcher(ground.job_files, files, ground.isolation, ground.vault, provisions, state_dir, rules, origins)
    gate = GateHold(state_dir / "gate", state_dir / "cards")
    holds = {NvidiaVendor.name: (gate, MpsHold())}
    means = EngineOptions(
        wake=ground.loop.wake, sandbox=site.apart.sandbox, limiter=site.limiter, holds=holds, servers=servers
    )
    return LocalEngine(site.machine, state_dir, launcher.launch_of, means)
