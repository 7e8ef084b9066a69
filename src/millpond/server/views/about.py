"""What the server says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from millpond.server.startup.server_components import ServerComponents
from millpond.server.views.machines import Machines
from millpond.server.views.visibility import EVERYBODY
from millpond.specs.api.server import ServerInfo
from millpond.specs.api.ssh import SshInfo
from millpond.specs.config.origins import PATHS_ONLY, JobOrigins


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the server says about itself that does not change while it runs.

    Attributes:
        unlimited: why all processes of a task together are not kept to its amounts; empty when they are.
        longest_dev_s: how far the time limit of a place to work can be extended; None: without bound.
        ssh: where people come into jobs with SSH.
        origins: where browsers reach what jobs serve.
        notes: what was printed at its start.
        unshared: says why slices and swapping of real cards are refused; nothing where they are not.
    """

    version: str
    url: str
    engine: str
    pid: int
    state_dir: Path
    started_at: float
    ordering: str
    placement: str
    unlimited: str = ""
    longest_dev_s: float | None = None
    ssh: SshInfo = SshInfo()
    origins: JobOrigins = PATHS_ONLY
    unshared: Callable[[], str] = str
    notes: tuple[str, ...] = ()


class About:
    """Reports what the server is and how many jobs it has."""

    def __init__(self, identity: ServerFacts, components: ServerComponents, machines: Machines) -> None:
        self._identity = identity
        self._components = components
        self._machines = machines

    @property
    def notes(self) -> tuple[str, ...]:
        """What was said of its start."""
        return self._identity.notes

    async def info(self, admin: bool) -> ServerInfo:
        """The server itself; where it lies on its machine is for admins."""
        ended, nodes = (
            await asyncio.to_thread(self._components.store.jobs.ended_counts),
            await self._machines.all(EVERYBODY),
        )
        identity = self._identity
        return ServerInfo(
            version=identity.version,
            url=identity.url,
            engine=identity.engine,
            fake=any(node.fake for node in nodes),
            pid=identity.pid if admin else 0,
            state_dir=str(identity.state_dir) if admin else "",
            started_at=identity.started_at,
            ordering=identity.ordering,
            placement=identity.placement,
            unsandboxed=self._components.isolation.apart.trouble,
            unlimited=identity.unlimited,
            unshared=identity.unshared() if admin else "",
            notes=list(identity.notes) if admin else [],
            apart="" if self._components.loop.read_only is None else str(self._components.loop.read_only),
            jobs=dict(sorted((self._components.loop.job_cache.counts() | ended).items())),
        )
