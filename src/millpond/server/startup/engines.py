"""Where jobs run: as processes of this machine, or as pods of a Kubernetes cluster; and the engine for that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from millpond.engines.local.engine import LocalEngine
from millpond.engines.local.options import EngineOptions
from millpond.engines.task_access import TaskAccess
from millpond.model.errors import InvalidInputError
from millpond.model.hardware.telemetry import SliceReading
from millpond.node.devices.nvidia import NvidiaVendor
from millpond.node.host.controllers import GroupMode
from millpond.node.host.device_memory import pci_address, regions
from millpond.node.host.machine import Machine
from millpond.node.sandbox.detection import SandboxMode
from millpond.node.sharing.backend import SliceEnforcer
from millpond.node.sharing.dmem import DmemEnforcer
from millpond.node.sharing.gate_enforcer import GateEnforcer
from millpond.node.sharing.mps import MpsEnforcer
from millpond.node.task.limits import Limiter
from millpond.node.task.records import RunRecord
from millpond.server.auth.isolation import IsolationLevel, look_around
from millpond.server.auth.owner import token_in
from millpond.server.runtime.loop_dependencies import AdoptingEngine
from millpond.server.server_components import ServerComponents
from millpond.server.startup.configuration import Current
from millpond.server.startup.kubernetes_engine import Carriage, PodLauncher, ProgramKeys, open_engine
from millpond.server.startup.local_engine import Launcher, Rules, describe, make_limiter
from millpond.server.startup.options import ServerOptions
from millpond.specs.config.cluster import ClusterConfig
from millpond.specs.config.origins import JobOrigins


class ServerEngine(AdoptingEngine, Protocol):
    """An engine as a server uses it."""

    @property
    def running(self) -> Sequence[RunRecord]:
        """The tasks that run on this machine."""

    @property
    def access(self) -> TaskAccess:
        """The ways into running tasks."""

    def slice_readings(self) -> Iterable[SliceReading]:
        """What tasks make of their parts of devices, as far as that is counted."""

    def card_loads(self) -> Mapping[str, int]:
        """The mean use of cards of other machines as measured there, in milli, by UUID."""

    def why_nothing_is_shared(self) -> str:
        """Why slices are refused; empty where they are not."""

    def why_nothing_is_halted(self) -> str:
        """Why jobs are neither halted nor swapped; empty where they can be."""

    def why_no_card_is_closed(self) -> str:
        """Why single cards cannot be closed; empty where they can."""

    def close(self) -> None:
        """End the engine. What runs goes on."""


@dataclass(frozen=True, slots=True)
class HostEnvironment:
    """Where jobs will run.

    Attributes:
        apart: how tasks are kept apart.
        limiter: keeps tasks to their amounts.
    """

    state_dir: Path
    machine: Machine
    apart: IsolationLevel
    limiter: Limiter


def survey(options: ServerOptions, config: ClusterConfig, state_dir: Path) -> HostEnvironment:
    """Look at the machine, or at the pretended nodes that stand in for it.

    Raises:
        UnavailableError: a sandbox or control groups are required, and cannot be had.
        InvalidInputError: two nodes have one name, or the pretended devices cannot be read.
    """
    if config.kubernetes is not None:
        if options.fake_gpus:
            raise InvalidInputError(
                "there are no pretended devices in a Kubernetes cluster", "start with --fake-gpus none"
            )
        return HostEnvironment(state_dir, Machine((), {}), IsolationLevel(SandboxMode.OFF), Limiter())
    machine = describe(options.fake_gpus, config, state_dir)
    apart = look_around(SandboxMode(options.sandbox), state_dir, config.run_as)
    limiter = make_limiter(GroupMode(options.control_groups), machine, config.tasks.cards)
    if limiter.open_to_all:
        note = f"tasks can open cards that are not theirs: {limiter.open_to_all}"
        machine = replace(machine, notes=(*machine.notes, note))
    return HostEnvironment(state_dir, machine, apart, limiter)


def make_engine(
    current: Current, host: HostEnvironment, components: ServerComponents, origins: JobOrigins, servers: Sequence[str]
) -> tuple[ServerEngine, HostEnvironment]:
    """What carries decisions out, and the environment with what is to be said of it.

    Raises:
        UnavailableError: the cluster cannot be looked at.
    """
    if components.pods is None:
        return _make_local_engine(current, host, components, origins, servers), host
    settings = current.config.kubernetes
    assert settings is not None
    assert components.runs is not None
    carriage = Carriage(
        components.accounts.runs,
        components.pods.server_url,
        lambda: (current.config.kubernetes or settings).helper_image or "",
        lambda: current.config.listening.certificate,
    )
    launcher = PodLauncher(
        components.job_files,
        components.pods,
        components.vault,
        components.files,
        ProgramKeys(token_in(host.state_dir)),
        carriage,
        current.slice_rules,
        origins,
    )
    engine = open_engine(settings, host.state_dir, launcher, servers, components.loop.wake, components.runs)
    return engine, replace(host, machine=Machine((), {}, engine.notes()))


def _make_local_engine(
    current: Current, host: HostEnvironment, components: ServerComponents, origins: JobOrigins, servers: Sequence[str]
) -> LocalEngine:
    state_dir, rules = host.state_dir, Rules(lambda: current.config.tasks, current.slice_rules)
    files, provisions = components.files, components.provisioning.provisions
    launcher = Launcher(
        components.job_files, files, components.isolation, components.vault, provisions, state_dir, rules, origins
    )
    gate = GateEnforcer(state_dir / "gate", state_dir / "cards")
    kernel = _kernel_enforcer(host)
    holds: dict[str, tuple[SliceEnforcer, ...]] = dict.fromkeys(host.machine.vendors, (kernel,))
    holds[NvidiaVendor.name] = (gate, MpsEnforcer(), kernel)
    engine_options = EngineOptions(
        wake=components.loop.wake, sandbox=host.apart.sandbox, limiter=host.limiter, holds=holds, servers=servers
    )
    return LocalEngine(host.machine, state_dir, launcher.launch_of, engine_options)


def _kernel_enforcer(host: HostEnvironment) -> DmemEnforcer:
    """What bounds device memory by control group, where the kernel counts it."""
    controllers, names = host.limiter.controllers, regions()
    trouble = ""
    if controllers is None:
        trouble = f"tasks have no control groups of their own ({host.limiter.trouble})"
    elif "dmem" not in controllers.folders:
        trouble = "the server's control group has no say about device memory (dmem), which takes Linux 6.14"
    vendors = host.machine.vendors.values() if names else ()
    places = {uuid: pci_address(place) for each in vendors for uuid, place in each.pci_addresses().items()}
    return DmemEnforcer({uuid: names[place] for uuid, place in places.items() if place in names}, trouble)
