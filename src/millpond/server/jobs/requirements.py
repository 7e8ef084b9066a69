"""What a job needs of the server before it is taken on; a new job as much as the next revision of a service."""

from __future__ import annotations

import asyncio
from typing import Any

from millpond.model.workloads import Job
from millpond.server.asking import Asking
from millpond.server.audience import audience_of
from millpond.server.auth.queues import Place
from millpond.server.auth.roles import Caller
from millpond.server.batch import refusal
from millpond.server.dependents import no_job_to_wait_for
from millpond.server.disk_use import DiskBooks
from millpond.server.doors import require_listening
from millpond.server.ground import Ground
from millpond.server.provisions.admission import Settled
from millpond.specs.job import JobFile
from millpond.specs.mounts import After


class Requirements:
    """Checks what jobs need.

    Args:
        disk: what everybody holds on disk.
    """

    def __init__(self, ground: Ground, asking: Asking, disk: DiskBooks) -> None:
        self._ground = ground
        self._asking = asking
        self._disk = disk

    async def check_means(self, file: JobFile, place: Place, caller: Caller) -> None:
        """Whether the server can give a job what it needs of it: a place apart from others, room on disk, its secrets.

        Raises:
            UnavailableError: jobs of several people could not be kept apart here, or the disk is full.
            ConflictError: its user or group holds too much on disk.
            InvalidInputError: a secret is not there for it, its program cannot listen where the file says, or it is to
                run in the server's own state.
        """
        self._ground.isolation.check(caller.user)
        self._disk.check(place.user, place.group)
        if file.workdir is not None and not file.ship:
            await asyncio.to_thread(self._ground.isolation.working_folder, file.workdir, caller.user)
        if file.serve is not None:
            await asyncio.to_thread(require_listening, file, self._ground.state_dir)
        if file.secrets:
            await asyncio.to_thread(self._ground.vault.check, place.user, place.group, file.secrets)

    async def check_possible(self, job: Job) -> None:
        """Whether the cluster could take a job, were it empty.

        Raises:
            InvalidInputError: it never could.
        """
        reason = await self._asking.ask(lambda core: core.scheduler.check(job))
        if reason is not None:
            raise refusal(reason)

    async def check_awaited(self, after: After, caller: Caller) -> None:
        """Whether there are jobs that a job waits for, as far as the caller may see.

        Raises:
            InvalidInputError: there is one that is not.
        """
        audience = audience_of(caller)
        for name in after.jobs:
            info = await asyncio.to_thread(self._ground.loop.lookup.find, name)
            if info is None or not audience.sees(info):
                raise no_job_to_wait_for(name)

    async def admit(self, file: JobFile, document: dict[str, Any], caller: Caller) -> Settled:
        """What a job refers to, checked, and how its file is kept."""
        return await self._ground.outfit.provisions.admit(
            file, await self._ground.files.admit(file, document, caller), caller
        )
