"""Docker. Source of the options: docker-run(1) of docker 20.10 and later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from millpond.node.containers.container import Container
from millpond.node.containers.oci import OciProgram


@dataclass(frozen=True, slots=True)
class Docker(OciProgram):
    """Docker; its containers are its daemon's children."""

    name: ClassVar[str] = "docker"
    leads: ClassVar[bool] = False
    as_caller: ClassVar[bool] = False

    def own_options(self, container: Container) -> list[str]:
        """The first process passes signals on to the whole group of the command, as a terminal would."""
        options = ["--env", "TINI_KILL_PROCESS_GROUP=1"]
        if container.cards:
            options += ["--gpus", '"device={}"'.format(",".join(container.cards))]
        return options

    def kill(self, name: str) -> list[str]:
        """See ``Runtime``."""
        return [self.program, "kill", "--signal", "KILL", name]
