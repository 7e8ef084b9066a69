"""Podman and docker, which share most options.

Source of the options: podman-run(1) of podman 4, docker-run(1) of docker 20.10 and later.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from millpond.model.sharing import NO_CARDS, VISIBLE_TO_RUNTIME
from millpond.node.containers.container import STATE_LABEL, Container, Runtime
from millpond.node.sandbox.sandbox import Mount

_SHARES_OF_A_CPU = 1024
_LEAST_SHARES = 2
_OWN_TMP = "rw,exec,mode=1777"


@dataclass(frozen=True, slots=True)
class OciProgram(Runtime):
    """A command line in the manner of docker's.

    Attributes:
        program: its path.
        limits: it may keep containers to an amount of memory and a weight of CPU.
    """

    program: str
    limits: bool = True
    empty_option: ClassVar[str] = ""

    @abstractmethod
    def own_options(self, container: Container) -> list[str]:
        """The options of this program alone."""

    def run(self, container: Container) -> list[str]:
        """See ``Runtime``. The image's own entry point and health check stand aside: a job says what runs."""
        # A first process that passes signals on and collects orphans: programs are not written to be process 1.
        options = ["--init", "--network", "host", "--ipc", "host", "--uts", "host"]
        options += ["--security-opt", "no-new-privileges", "--log-driver", "none", "--pull", "never"]
        options += ["--entrypoint", "", "--no-healthcheck", "--workdir", str(container.workdir)]
        size = f",size={container.memory_mib}m" if container.memory_mib else ""
        options += ["--tmpfs", f"/tmp:{_OWN_TMP}{size}"]
        options += ["--env-file", str(container.variables)]
        if not container.cards:
            options += ["--env", f"{VISIBLE_TO_RUNTIME}={NO_CARDS}"]
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

    def try_out(self, image: str, mount: Mount, argv: Sequence[str]) -> list[str]:
        """See ``Runtime``."""
        options = ["--rm", "--network", "none", "--log-driver", "none", "--pull", "never", "--entrypoint", ""]
        return [self.program, "run", *options, "--volume", volume(mount), image, *argv]

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
        return self._listed(state, "exited", "created")

    def running(self, state: str) -> list[str]:
        """See ``Runtime``."""
        return self._listed(state, "running")

    def _listed(self, state: str, *statuses: str) -> list[str]:
        filters = [f"label={STATE_LABEL}={state}", *(f"status={status}" for status in statuses)]
        options = [option for each in filters for option in ("--filter", each)]
        return [self.program, "ps", "--all", *options, "--format", "{{.Names}}"]


@dataclass(frozen=True, slots=True)
class Podman(OciProgram):
    """Podman, with root's rights or without.

    Attributes:
        rootless: it runs for an account of its own, which a container's files then belong to.
    """

    rootless: bool = False
    name: ClassVar[str] = "podman"
    empty_option: ClassVar[str] = ":notmpcopyup"
    """Otherwise what is hidden would be copied into what hides it."""

    @property
    def as_caller(self) -> bool:
        """See ``Runtime``."""
        return self.rootless

    def own_options(self, container: Container) -> list[str]:
        """Cards by the Container Device Interface; who may read the mounts is settled by rights, not by labels."""
        # The supervisor itself gives notice to the processes; passed on as well, they would hear it twice.
        options = ["--security-opt", "label=disable", "--sig-proxy=false"]
        if self.rootless and container.owner is None:
            options += ["--userns", "keep-id"]
        for card in container.cards:
            options += ["--device", f"nvidia.com/gpu={card}"]
        return options


@dataclass(frozen=True, slots=True)
class Docker(OciProgram):
    """Docker; its containers are its daemon's children."""

    name: ClassVar[str] = "docker"
    leads: ClassVar[bool] = False

    def own_options(self, container: Container) -> list[str]:
        """The first process passes signals on to the whole group of the command, as a terminal would."""
        options = ["--env", "TINI_KILL_PROCESS_GROUP=1"]
        if container.cards:
            options += ["--gpus", '"device={}"'.format(",".join(container.cards))]
        return options

    def kill(self, name: str) -> list[str]:
        """See ``Runtime``."""
        return [self.program, "kill", "--signal", "KILL", name]


def volume(mount: Mount) -> str:
    """A path that is the same inside and outside."""
    return f"{mount.path}:{mount.path}:{'rw' if mount.writable else 'ro'}"
