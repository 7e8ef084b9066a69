"""Apptainer, and Singularity from which it comes. Images are files. Source of the options: apptainer-exec(1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from millpond.node.containers.container import Container, Runtime
from millpond.node.containers.oci import volume
from millpond.node.sandbox.sandbox import Mount

_FROM_OUTSIDE = "APPTAINERENV_"


@dataclass(frozen=True, slots=True)
class Apptainer(Runtime):
    """Apptainer; its containers are ordinary processes in namespaces of their own, with the uid that starts them.

    Attributes:
        program: its path.
        images: folder for what was fetched from registries.
    """

    program: str
    images: Path
    name: ClassVar[str] = "apptainer"
    enters: ClassVar[bool] = True

    @property
    def as_caller(self) -> bool:
        """See ``Runtime``."""
        return True

    def run(self, container: Container) -> list[str]:
        """See ``Runtime``."""
        options = ["--containall", "--no-home", "--writable-tmpfs", "--workdir", str(container.scratch)]
        options += ["--bind", "/dev/shm", "--pwd", str(container.workdir)]
        for folder in container.hidden:
            options += ["--scratch", str(folder)]
        for mount in container.mounts:
            options += ["--bind", volume(mount)]
        if container.cards:
            options.append("--nv")
        return [self.program, "exec", *options, container.image, *container.argv]

    def try_out(self, image: str, mount: Mount, argv: Sequence[str]) -> list[str]:
        """See ``Runtime``."""
        return [self.program, "exec", "--containall", "--no-home", "--bind", volume(mount), image, *argv]

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """See ``Runtime``."""
        return {_FROM_OUTSIDE + name: value for name, value in variables.items()}
