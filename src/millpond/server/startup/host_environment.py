"""The machine as a server finds it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from millpond.node.host.cgroups import GroupMode
from millpond.node.host.machine import Machine
from millpond.node.sandbox.detection import SandboxMode
from millpond.node.task.limits import Limiter
from millpond.server.options import ServerOptions
from millpond.server.startup.isolation import IsolationLevel, look_around
from millpond.server.startup.local_engine import describe, make_limiter
from millpond.specs.config.cluster import ClusterConfig


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
    machine = describe(options.fake_gpus, config, state_dir)
    apart = look_around(SandboxMode(options.sandbox), state_dir, config.run_as)
    return HostEnvironment(state_dir, machine, apart, make_limiter(GroupMode(options.control_groups), machine))
