"""The options that podman and docker share. Source of the options: podman-run(1), docker-run(1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from millpond.node.containers.container import STATE_LABEL, Container
from millpond.node.sandbox.sandbox import Mount

_SHARES_OF_A_CPU = 1024
_LEAST_SHARES = 2
_OWN_TMP = "rw,exec,mode=1777"


@dataclass(frozen=True, slots=True)
class OciProgram(ABC):
    """A command line in the manner of docker's.

    Attributes:
        program: its path.
        limits: it may keep containers to an amount of memory and a weight of CPU.
    """

    program: str
    limits: bool = True
    enters: ClassVar[bool] = False
    empty_option: ClassVar[str] = ""

    @abstractmethod
    def own_options(self, container: Container) -> list[str]:
        """The options of this program alone."""

    def run(self, container: Container) -> list[str]:
        """See ``Runtime``. The image's own entry point stands aside: a job says what it runs."""
        # A first process that passes signals on and collects orphans: programs are not written to be process 1.
        options = ["--init", "--network", "host", "--ipc", "host", "--uts", "host"]
        options += ["--security-opt", "no-new-privileges", "--log-driver", "none", "--pull", "never"]
        options += ["--entrypoint", "", "--tmpfs", f"/tmp:{_OWN_TMP}", "--workdir", str(container.workdir)]
        options += ["--env-file", str(container.variables)]
        if container.reads_input:
            options.append("--interactive")
        for name, value in container.labels.items():
            options += ["--label", f"{name}={value}"]
        for folder in container.hidden:
            options += ["--tmpfs", f"{folder}{self.empty_option}"]
        for mount in container.mounts:
            options += ["--volume", volume(mount)]
        if container.owner is not None:
            options += ["--user", "{}:{}".format(*container.owner)]
        if self.limits and container.memory_mib:
            options += ["--memory", f"{container.memory_mib}m", "--memory-swap", f"{container.memory_mib}m"]
        if self.limits and container.processes:
            options += ["--pids-limit", str(container.processes)]
        if self.limits and container.cpu_milli:
            shares = max(_LEAST_SHARES, container.cpu_milli * _SHARES_OF_A_CPU // 1000)
            options += ["--cpu-shares", str(shares)]
        options += self.own_options(container)
        return [self.program, "run", "--name", container.name, *options, container.image, *container.argv]

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """See ``Runtime``. Nothing: a job's variables must not speak to the program, which has the server's rights."""
        return {}

    def execute(self, name: str, variables: Path, workdir: Path) -> list[str]:
        """See ``Runtime``."""
        return [self.program, "exec", "-i", "--env-file", str(variables), "--workdir", str(workdir), name]

    def was_out_of_memory(self, name: str) -> list[str]:
        """See ``Runtime``."""
        return [self.program, "container", "inspect", "--format", "{{.State.OOMKilled}}", name]

    def end_of(self, name: str) -> list[str]:
        """See ``Runtime``."""
        return [self.program, "container", "inspect", "--format", "{{json .State.FinishedAt}}", name]

    def remove(self, name: str) -> list[str]:
        """See ``Runtime``."""
        return [self.program, "rm", "--force", "--volumes", name]

    def ended(self, state: str) -> list[str]:
        """See ``Runtime``."""
        filters = ["--filter", f"label={STATE_LABEL}={state}", "--filter", "status=exited"]
        return [self.program, "ps", "--all", *filters, "--filter", "status=created", "--format", "{{.Names}}"]


def volume(mount: Mount) -> str:
    """A path that is the same inside and outside."""
    return f"{mount.path}:{mount.path}:{'rw' if mount.writable else 'ro'}"
