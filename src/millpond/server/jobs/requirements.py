"""What a job needs of the server before it is taken on; a new job as much as the next revision of a service."""

from __future__ import annotations

import asyncio
from typing import Any

from millpond.model.workloads import Job
from millpond.server.asking import Asking
from millpond.server.auth.queues import Place
from millpond.server.auth.roles import Caller
from millpond.server.batch import refusal
from millpond.server.disk_use import DiskBooks
from millpond.server.doors import require_listening
from millpond.server.ground import Ground
from millpond.server.jobs.awaited import AwaitedJobs
from millpond.server.provisions.admission import Settled
from millpond.specs.job import JobFile


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
            InvalidInputError: a secret is not there for it, its program cannot listen where the file says, or it names
                what belongs to the server, or to the owner of the server's account.
        """
        self._ground.isolation.check(caller.user)
        self._disk.check(place.user, place.group)
        if file.workdir is not None and not file.ship:
            await asyncio.to_thread(self._ground.isolation.working_folder, file.workdir, caller.user)
        if file.named_paths:
            await asyncio.to_thread(self._ground.isolation.check_paths, file, caller.user, self._ground.files.is_listed)
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

    def awaited_jobs(self, caller: Caller) -> AwaitedJobs:
        """Finds the jobs that ``after`` names in one submission."""
        loop = self._ground.loop
        return AwaitedJobs(loop.board, loop.lookup, self._ground.store, caller)

    async def admit(self, file: JobFile, document: dict[str, Any], caller: Caller) -> Settled:
        """What a job refers to, checked, and how its file is kept."""
        isolation = self._ground.isolation
        is_another = isolation.is_another(caller.user)
        identity = await asyncio.to_thread(isolation.identity_of, caller.user) if is_another else None
        document = await self._ground.files.admit(file, document, caller, identity)
        return await self._ground.outfit.provisions.admit(file, document, caller, identity)
