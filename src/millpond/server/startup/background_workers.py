"""All that runs beside the scheduler and the API, on threads of its own, while a server serves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Protocol

from millpond.engines.local.engine import LocalEngine
from millpond.node.host.periodic_worker import PeriodicWorker
from millpond.scheduling.nodes.views import NodeView
from millpond.scheduling.tenancy.queue_views import QueueStatus
from millpond.server.api.service import Service
from millpond.server.jobs import task_inputs
from millpond.server.jobs.adaptation.night_record import FILE, NightRecord
from millpond.server.jobs.adaptation.policy_adaptation import PolicyAdapter
from millpond.server.jobs.monitors.deadlines import DeadlineWatch
from millpond.server.jobs.monitors.idle_jobs import IdleWatch
from millpond.server.jobs.monitors.notice_watch import NoticeWatch, WatchSources
from millpond.server.jobs.monitors.wait_watch import WaitWatch
from millpond.server.jobs.progress.watch import MeasuredCards, ProgressWatch
from millpond.server.jobs.sweeps.sweep_watch import SweepWatch
from millpond.server.monitoring.card_use import CardUseRecorder, CardUseSources
from millpond.server.monitoring.load_watch import HeldCards, LoadSources, LoadWatch
from millpond.server.monitoring.power_enforcement import Policy, PowerEnforcer
from millpond.server.monitoring.rate_watch import RateWatch
from millpond.server.monitoring.telemetry.job_cards import JobCardsRecorder
from millpond.server.monitoring.telemetry.sampling import Telemetry
from millpond.server.monitoring.telemetry.slices import SliceMeter, Sources
from millpond.server.monitoring.telemetry.views import caps_by_device, classes_by_device, tenants_of
from millpond.server.monitoring.time_series.recorder import TimeSeriesRecorder
from millpond.server.operations.card_layouts import CardLayoutWorker, is_under_way
from millpond.server.operations.disk_watch import DiskWatch, HoldersWatch
from millpond.server.operations.node_power import NodePowerWorker
from millpond.server.operations.retention import RetentionLimits, RetentionWorker
from millpond.server.operations.spare_nodes import SpareNodes
from millpond.server.runtime.clock import since_boot
from millpond.server.runtime.core import Core
from millpond.server.runtime.loop import Loop
from millpond.server.serving.autoscaler import Autoscaler
from millpond.server.serving.replica_counts import Sizing
from millpond.server.serving.replica_forecasts import ReplicaForecasts
from millpond.server.sessions.ssh.authorizer import SshAuthorizer
from millpond.server.sessions.ssh.gateway_process import Gateway
from millpond.server.startup.components import CoreComponents
from millpond.server.startup.configuration import Current
from millpond.server.startup.energy_watch import EnergyWatch
from millpond.server.startup.kubernetes_engine import adopter_of
from millpond.server.startup.local_engine import pretend
from millpond.server.startup.options import ServerOptions
from millpond.server.views.prometheus.metrics_page import nearest_to_root
from millpond.specs.config.kubernetes import AdoptFile


class BackgroundWorker(Protocol):
    """Something that looks after one thing."""

    def start(self) -> None:
        """Begin."""

    def close(self) -> object:
        """End; the next server goes on with what is under way."""


@contextmanager
def attended(options: ServerOptions, current: Current, base: CoreComponents, service: Service) -> Iterator[None]:
    """All of them run; they end in the opposite order. In a copy of another server's state none runs."""
    if base.components.loop.read_only is not None:
        yield
        return
    with ExitStack() as held:

        def attend(worker: BackgroundWorker) -> None:
            worker.start()
            held.callback(worker.close)

        held.callback(base.components.provisioning.images.close)
        for worker in _of_store_and_disk(options, base, service):
            attend(worker)
        held.callback(service.closing.set)
        power = _power_enforcer(current, base, service)
        for worker in _of_devices(current, base, service, power):
            attend(worker)
        if options.config is not None:
            attend(EnergyWatch(options.config, current))
        for worker in _of_work(current, base, service, power):
            attend(worker)
        nights = NightRecord(base.components.state_dir / FILE)
        adapter = PolicyAdapter(
            base.components.loop, service.history, lambda: current.config.adapt, options.policies, nights
        )
        service.about.policies_by = adapter.info
        attend(adapter)
        if base.listener is not None:
            authorizer = SshAuthorizer(
                service.access, service.lookup, service.activity, service.sessions, base.security
            )
            uid = base.components.isolation.gateway_uid()
            attend(Gateway(base.listener.listener, base.listener.host_key, authorizer, uid))
        yield


def _of_store_and_disk(options: ServerOptions, base: CoreComponents, service: Service) -> list[BackgroundWorker]:
    components = base.components
    components.files.collector.also(components.provisioning.tidy)
    return [
        RetentionWorker(
            components.store,
            components.state_dir,
            RetentionLimits(options.keep_jobs, options.keep_logs_gib),
            time.time,
        ),
        components.provisioning.staging,
        components.files.collector,
        DiskWatch(
            components.loop,
            components.store,
            service.disk,
            components.state_dir,
            options.keep_free_gib,
            time.time,
        ),
        HoldersWatch(components.loop, service.disk, time.time),
    ]


def _power_enforcer(current: Current, base: CoreComponents, service: Service) -> PowerEnforcer:
    newest_first = base.components.loop.job_cache.newest_first
    policy = Policy(
        lambda: current.config.power,
        lambda: classes_by_device(newest_first(), service.machines.slices.latest),
        lambda: caps_by_device(newest_first()),
    )
    return PowerEnforcer(base.host.machine, policy, base.components.state_dir)


def _of_devices(
    current: Current, base: CoreComponents, service: Service, power: PowerEnforcer
) -> list[BackgroundWorker]:
    machine, engine, job_cache = base.host.machine, base.engine, base.components.loop.job_cache
    telemetry = service.machines.telemetry = Telemetry(machine, time.time)
    sources = Sources(engine.slice_readings, lambda: engine.running)
    slices = service.machines.slices = SliceMeter(telemetry, sources, time.time)
    pretend(machine, lambda: tenants_of(job_cache.newest_first(), slices.latest))
    standing = partial(pool_standing, base.components.loop)
    recorder = TimeSeriesRecorder(standing, telemetry, base.components.store.time_series, time.time)
    use = CardUseSources(job_cache.newest_first, telemetry.recent, lambda: slices.latest, lambda: current.config.energy)
    loads = LoadSources(partial(held_cards, base.components.loop), telemetry, engine.card_loads)
    state_dir = base.components.state_dir
    return [
        telemetry,
        slices,
        power,
        recorder,
        CardUseRecorder(base.components.store.card_use, use, service.machines.idle_cards, time.time),
        JobCardsRecorder(state_dir, job_cache.newest_first, telemetry, lambda: slices.latest, time.time),
        LoadWatch(loads, base.components.loop.notify, time.time),
        RateWatch(lambda: current.config.energy, base.components.loop.notify),
    ]


def pool_standing(loop: Loop) -> tuple[list[NodeView], list[QueueStatus]]:
    """The machines and the queues as they are now; of too many queues, those nearest to the root."""

    def look(core: Core) -> tuple[list[NodeView], list[QueueStatus]]:
        return core.scheduler.node_views(), core.scheduler.queue_statuses()

    nodes, queues = loop.look_up(look, is_long=True)
    return nodes, nearest_to_root(queues, lambda each: each.queue)


def held_cards(loop: Loop) -> HeldCards | None:
    """What is held of each card; None where load decides nothing."""

    def look(core: Core) -> HeldCards | None:
        return core.scheduler.held_cards() if core.scheduler.counts_load else None

    return loop.look_up(look, is_long=True)


def _of_work(current: Current, base: CoreComponents, service: Service, power: PowerEnforcer) -> list[BackgroundWorker]:
    components = base.components
    end_silent = partial(task_inputs.end_silent, components.loop, service.inputs)
    adopter = adopter_of(lambda: _adopt_rules(current), components, base.engine)
    idle_watch = IdleWatch(
        components.loop,
        service.activity,
        components.state_dir,
        current.config.dev,
        time.time,
        service.access.cpu_s,
        base.engine.why_nothing_is_halted,
    )
    spares = SpareNodes(components.store.time_series)
    service.machines.spares = lambda: list(spares.latest)
    told = components.notifications
    pretended = {device.uuid for node in base.host.machine.nodes for device in node.devices if device.fake}
    cards = MeasuredCards(power.job_cap_w, service.machines.telemetry.recent, pretended)
    sources = WatchSources(
        components.loop, components.queue_settings, lambda: service.machines.idle_cards.since, idle_watch.ends
    )
    return [
        *([] if adopter is None else [adopter]),
        PeriodicWorker("input-watch", end_silent, task_inputs.LOOK_EVERY_S, "standard input cannot be looked after"),
        idle_watch,
        NoticeWatch(sources, told.settings.subscriptions, told.outbox, time.time),
        DeadlineWatch(components.loop, time.time),
        *_of_card_layouts(base),
        NodePowerWorker(components.loop, lambda: current.config.savings, spares),
        WaitWatch(components.loop, components.store.histories, time.time),
        _autoscaler(base, service),
        service.rollouts,
        SweepWatch(components.loop, service.sweeps),
        ProgressWatch(components.loop, components.state_dir, cards, time.time),
    ]


def _autoscaler(base: CoreComponents, service: Service) -> Autoscaler:
    components, front = base.components, service.front
    scaler = Autoscaler(
        components.loop,
        Sizing(components.loop, front.balancer, since_boot),
        components.job_files.file_of,
        front.meter,
        service.machines.telemetry.use_milli,
        ReplicaForecasts(components.store.time_series),
        time.time,
        since_boot,
    )
    scaler.is_spoken_for = service.rollouts.speaks_for
    service.services.scaling = scaler.latest
    return scaler


def _of_card_layouts(base: CoreComponents) -> list[BackgroundWorker]:
    """What divides cards, where any may be divided, or a change was begun under a rule that is gone."""
    loop, may_divide = base.components.loop, any(node.divisible for node in base.host.machine.nodes)
    if not isinstance(base.engine, LocalEngine) or not (may_divide or is_under_way(loop)):
        return []
    return [CardLayoutWorker(loop, base.engine.divide)]


def _adopt_rules(current: Current) -> AdoptFile | None:
    settings = current.config.kubernetes
    return None if settings is None else settings.adopt
