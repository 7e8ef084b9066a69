"""Where jobs run: as processes of this machine, or as pods of Kubernetes clusters; and the engine for that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from millpond.engines.clusters.engine_router import EngineRouter
from millpond.engines.clusters.late_engine import ClusterEngine
from millpond.engines.local.engine import LocalEngine
from millpond.engines.local.options import EngineOptions
from millpond.engines.server_engine import ServerEngine
from millpond.model.errors import InvalidInputError
from millpond.model.hardware.nodes import Node
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
from millpond.server.auth.isolation import IsolationLevel, look_around
from millpond.server.auth.owner import token_in
from millpond.server.server_components import ServerComponents
from millpond.server.startup.configuration import Current
from millpond.server.startup.kubernetes_engine import Carriage, PodEngines, PodLauncher, ProgramKeys
from millpond.server.startup.local_engine import Launcher, Rules, describe, make_limiter
from millpond.server.startup.options import ServerOptions
from millpond.specs.config.cluster import ClusterConfig
from millpond.specs.config.kubernetes import KubernetesFile
from millpond.specs.config.origins import JobOrigins


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
    if config.kubernetes is not None and config.kubernetes.machine is None:
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
    if config.kubernetes is not None and (pool := config.kubernetes.machine):
        machine = replace(machine, nodes=tuple(replace(node, pool=pool) for node in machine.nodes))
    return HostEnvironment(state_dir, machine, apart, limiter)


def make_engine(
    current: Current,
    host: HostEnvironment,
    components: ServerComponents,
    origins: JobOrigins,
    servers: Sequence[str],
    known: Iterable[Node],
) -> tuple[ServerEngine, HostEnvironment]:
    """What carries decisions out, and the environment with what is to be said of it.

    Args:
        known: the nodes that the core knows.

    Raises:
        UnavailableError: the cluster cannot be looked at, or the way to one of several is not known.
        InvalidInputError: two of several clusters are one, or jobs stand for pods of one that is not among them.
    """
    settings = current.config.kubernetes
    make_local = partial(_make_local_engine, current, host, components, origins, servers)
    if components.pods is None or settings is None:
        return make_local(), host
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
    opening = PodEngines(host.state_dir, launcher, servers, components.loop.wake, components.runs)
    if settings.adopt is not None:
        launcher.require_clusters(settings.each)
    if not settings.clusters:
        engine = opening.open(settings)
        return engine, replace(host, machine=replace(host.machine, notes=engine.notes()))
    router = _open_several(opening, settings, known, make_local, components.loop.wake)
    notes = (*host.machine.notes, *opening.notes, *router.notes())
    return router, replace(host, machine=replace(host.machine, notes=notes))


def _open_several(
    opening: PodEngines,
    settings: KubernetesFile,
    known: Iterable[Node],
    make_local: Callable[[], ServerEngine],
    wake: Callable[[], None],
) -> EngineRouter:
    """An engine for each cluster, and one for this machine where it is among them; all are closed if one cannot be
    opened."""
    with ExitStack() as opened:
        engines: dict[str, ServerEngine] = {}
        clusters: dict[str, ClusterEngine] = {}
        if settings.machine:
            engines[settings.machine] = make_local()
            opened.callback(engines[settings.machine].close)
        for name, own in settings.each.items():
            clusters[name] = opening.open_one_of_several(
                name, own, settings.clusters[name], [node for node in known if node.cluster == name]
            )
            opened.callback(clusters[name].close)
        router = EngineRouter(engines | clusters, wake, clusters if settings.adopt else {})
        router.inventory()  # which of its nodes count
        opened.pop_all()
    return router


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
