"""Check what a job requires of the server before it is accepted: a new job, or the next revision of a service."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from millpond.model.errors import InvalidInputError
from millpond.model.workloads import Job
from millpond.node.sandbox import namespaces
from millpond.node.sessions.task_socket import LONGEST_NAME, PROGRAM_SOCKET, program_folder, task_socket_name
from millpond.server.auth.queues import QueuePlace
from millpond.server.auth.roles import Caller
from millpond.server.jobs.admission.dependency_names import AwaitedJobs
from millpond.server.runtime.batch import refusal
from millpond.server.server_components import ServerComponents
from millpond.server.storage.disk_use import DiskBooks
from millpond.server.storage.provisioning.admission import Settled
from millpond.specs.job.job_file import JobFile
from millpond.specs.job.job_spec import JobSpec


def require_listening(file: JobFile, state_dir: Path) -> None:
    """Check that a job can have the network, and its program the place to listen, that its file names.

    Raises:
        InvalidInputError: it cannot, on this machine or in a container.
    """
    listening = "port" if file.serve is None else file.serve.listen
    if file.network_named == "private" and file.image is not None:
        raise InvalidInputError("a container cannot have a private network here", "use serve.listen: socket")
    if file.network_named == "private" and (found := namespaces.network_trouble()):
        raise InvalidInputError(f"there are no private networks here: {found}", "use serve.listen: port or socket")
    if listening == "socket":
        example = program_folder(state_dir, task_socket_name("", 1, 0)) / PROGRAM_SOCKET
        if len(os.fsencode(example)) > LONGEST_NAME:
            cause = f"serve.listen: socket does not work here: {state_dir} is too long for the name of a socket"
            raise InvalidInputError(cause, "use port or private, or a state directory with a shorter path")


class Requirements:
    """Checks what jobs need.

    Args:
        disk: what all users hold on disk.
    """

    def __init__(self, components: ServerComponents, disk: DiskBooks) -> None:
        self._components = components
        self._disk = disk

    async def check_available(self, file: JobFile, place: QueuePlace, caller: Caller) -> None:
        """Whether the server can give a job what it needs of it: a place apart from others, room on disk, its secrets.

        Raises:
            UnavailableError: jobs of several people could not be kept apart here, or the disk is full.
            ConflictError: its user or group holds too much on disk.
            InvalidInputError: a secret is not there for it, its program cannot listen where the file says, or it names
                what belongs to the server, or to the owner of the server's account.
        """
        self._disk.check(place.user, place.group)
        if self._components.pods_of(file.pool) is None:
            self._components.isolation.check(caller.user)
            await self._check_on_machine(file, caller)
        if file.secrets:
            await asyncio.to_thread(self._components.vault.check, place.user, place.group, file.secrets)

    async def _check_on_machine(self, file: JobFile, caller: Caller) -> None:
        """Whether the machine can give it what it needs of it."""
        if file.workdir is not None and not file.ship:
            await asyncio.to_thread(self._components.isolation.working_folder, file.workdir, caller.user)
        if file.named_paths:
            await asyncio.to_thread(
                self._components.isolation.check_paths, file, caller.user, self._components.files.is_listed
            )
        if file.serve is not None:
            await asyncio.to_thread(require_listening, file, self._components.state_dir)

    def on_cluster(self, spec: JobSpec) -> JobSpec:
        """As ``ServerComponents.on_cluster``."""
        return self._components.on_cluster(spec)

    async def check_possible(self, job: Job) -> None:
        """Whether the cluster could take a job, were it empty.

        Raises:
            InvalidInputError: it never could.
        """
        reason = await self._components.loop.ask(lambda core: core.scheduler.check(job))
        if reason is not None:
            raise refusal(reason)

    def awaited_jobs(self, caller: Caller) -> AwaitedJobs:
        """Finds the jobs that ``after`` names in one submission."""
        loop = self._components.loop
        return AwaitedJobs(loop.job_cache, self._components.lookup, self._components.store.jobs, caller)

    async def admit(self, file: JobFile, document: dict[str, Any], caller: Caller) -> Settled:
        """What a job refers to, checked, and how its file is kept."""
        if (pods := self._components.pods_of(file.pool)) is not None:
            return await pods.admit(file, document, caller)
        isolation = self._components.isolation
        is_another = isolation.is_another(caller.user)
        identity = await asyncio.to_thread(isolation.identity_of, caller.user) if is_another else None
        document = await self._components.files.admit(file, document, caller, identity)
        return await self._components.provisioning.provisions.admit(file, document, caller, identity)
