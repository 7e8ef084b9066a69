"""Podman. Source of the options: podman-run(1) of podman 4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from millpond.node.containers.container import Container
from millpond.node.containers.oci import OciProgram


@dataclass(frozen=True, slots=True)
class Podman(OciProgram):
    """Podman, with root's rights or without.

    Attributes:
        rootless: it runs for an account of its own, which a container's files then belong to.
    """

    rootless: bool = False
    name: ClassVar[str] = "podman"
    leads: ClassVar[bool] = True
    empty_option: ClassVar[str] = ":notmpcopyup"
    """Otherwise what is hidden would be copied into what hides it."""

    @property
    def as_caller(self) -> bool:
        """See ``Runtime``."""
        return self.rootless

    def own_options(self, container: Container) -> list[str]:
        """Cards by the Container Device Interface; who may read the mounts is settled by rights, not by labels."""
        options = ["--security-opt", "label=disable"]
        # The supervisor itself gives notice to the processes; passed on as well, they would hear it twice.
        options.append("--sig-proxy=false")
        if self.rootless and container.owner is None:
            options += ["--userns", "keep-id"]
        for card in container.cards:
            options += ["--device", f"nvidia.com/gpu={card}"]
        return options

    def kill(self, name: str) -> list[str]:
        """See ``Runtime``."""
        return []
