"""How a job's tasks run in containers: the runtime, the image and the mounts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millpond.node.containers.detection import Containers
from millpond.node.containers.images import LocalImage
from millpond.node.host.controllers import Amounts
from millpond.node.sandbox.sandbox import Mount


@dataclass(frozen=True, slots=True)
class ContainerLaunch:
    """That a job's tasks run in containers.

    Attributes:
        containers: the runtime.
        image: the image of the containers.
        state_dir: the server's, in which no container finds anything but what is its own.
        amounts: by role, what its containers are kept to.
        owner: whom they run as; None: as the runtime's own way is.
    """

    containers: Containers
    image: LocalImage
    state_dir: Path
    amounts: Mapping[str, Amounts] = field(default_factory=dict)
    owner: tuple[int, int] | None = None

    @property
    def home(self) -> dict[str, str]:
        """An account that the image need not know has no home in it."""
        return {"HOME": "/tmp"} if self.owner is not None and self.owner[0] != 0 else {}


def outer_first(mounts: Sequence[Mount]) -> list[Mount]:
    """Each path once, the outer before the inner; of one path twice, the writable counts."""
    found: dict[Path, bool] = {}
    for mount in mounts:
        found[mount.path] = found.get(mount.path, False) or mount.writable
    return [Mount(path, found[path]) for path in sorted(found, key=lambda path: (len(path.parts), str(path)))]


def default_owner(containers: Containers) -> tuple[int, int] | None:
    """Whom a container's files belong to where tasks run as the server does."""
    return None if containers.runtime.as_caller else (os.geteuid(), os.getegid())
