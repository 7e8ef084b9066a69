"""All that runs beside the scheduler and the API, on threads of its own, while a server serves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

from millpond.server.disk_watch import DiskWatch
from millpond.server.idling import IdleWatch, cpu_s_of
from millpond.server.inbox import wall_clock
from millpond.server.input_watch import InputWatch
from millpond.server.local import pretend
from millpond.server.options import ServerOptions
from millpond.server.power.keeping import Policy, PowerKeeper
from millpond.server.retention import Janitor, Limits
from millpond.server.service import Service
from millpond.server.serving.scaling import Autoscaler
from millpond.server.serving.sizing import Sizing
from millpond.server.ssh.gatekeeper import Gatekeeper
from millpond.server.startup.configuration import Current
from millpond.server.startup.foundation import Foundation
from millpond.server.sweeps.watching import SweepWatch
from millpond.server.telemetry.sampling import Telemetry
from millpond.server.telemetry.showing import classes_by_device, tenants_of
from millpond.server.telemetry.slices import SliceMeter, Sources


class Attendant(Protocol):
    """Something that looks after one thing."""

    def start(self) -> None:
        """Begin."""

    def close(self) -> None:
        """End; the next server goes on with what is under way."""


@contextmanager
def attended(options: ServerOptions, current: Current, base: Foundation, service: Service) -> Iterator[None]:
    """Everybody is there; they leave in the opposite order. In a copy of another server's state nobody is."""
    if base.ground.loop.apart is not None:
        yield
        return
    with ExitStack() as held:

        def attend(attendant: Attendant) -> None:
            attendant.start()
            held.callback(attendant.close)

        for attendant in _of_store_and_disk(options, base, service):
            attend(attendant)
        held.callback(service.closing.set)
        for attendant in _of_devices(current, base, service):
            attend(attendant)
        for attendant in _of_work(current, base, service):
            attend(attendant)
        if base.doorway is not None:
            attend(base.doorway.gateway(Gatekeeper(service, base.security), base.ground.isolation.gateway_uid()))
        yield


def _of_store_and_disk(options: ServerOptions, base: Foundation, service: Service) -> list[Attendant]:
    ground = base.ground
    ground.files.collector.also(ground.outfit.tidy)
    return [
        Janitor(ground.store, ground.state_dir, Limits(options.keep_jobs, options.keep_logs_gib), wall_clock),
        ground.outfit.staging,
        ground.files.collector,
        DiskWatch(ground.loop, service.disk, ground.state_dir, options.keep_free_gib, wall_clock),
    ]


def _of_devices(current: Current, base: Foundation, service: Service) -> list[Attendant]:
    machine, engine, board = base.site.machine, base.engine, base.ground.loop.board
    telemetry = service.machines.telemetry = Telemetry(machine, wall_clock)
    sources = Sources(engine.slice_readings, lambda: engine.running)
    slices = service.machines.slices = SliceMeter(telemetry, sources, wall_clock)
    pretend(machine, lambda: tenants_of(board.newest_first(), slices.latest))
    policy = Policy(current.power, lambda: classes_by_device(board.newest_first(), slices.latest))
    return [telemetry, slices, PowerKeeper(machine, policy, base.ground.state_dir)]


def _of_work(current: Current, base: Foundation, service: Service) -> list[Attendant]:
    ground, front, use_milli = base.ground, service.front, service.machines.telemetry.use_milli
    sizing = Sizing(ground.loop, front.balancer, wall_clock)
    scaler = Autoscaler(ground.loop, sizing, ground.job_files.file_of, front.meter, use_milli, wall_clock)
    scaler.is_spoken_for = service.rollouts.speaks_for
    return [
        InputWatch(ground.loop, service.inputs),
        IdleWatch(ground.loop, service.activity, ground.state_dir, current.config.dev, wall_clock, cpu_s_of),
        scaler,
        service.rollouts,
        SweepWatch(ground.loop, service.sweeps),
    ]
