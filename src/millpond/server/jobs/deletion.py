"""Dropping jobs that have ended, with all that they wrote."""

from __future__ import annotations

import asyncio

from millpond.model.errors import ConflictError, UnavailableError
from millpond.server.operations.retention import remove_folder
from millpond.server.startup.server_components import ServerComponents
from millpond.specs.api.jobs import JobInfo


class Removal:
    """Drops jobs; what they used stays in the books."""

    def __init__(self, components: ServerComponents) -> None:
        self._components = components

    async def delete(self, job: str) -> JobInfo:
        """Drop a job.

        Raises:
            NotFoundError, ConflictError: it never was, or has not ended.
            UnavailableError: what it wrote cannot be removed.
        """
        info = await asyncio.to_thread(self._components.lookup.look, job)
        if self._components.loop.job_cache.get(job) is not None:
            raise ConflictError(f"job {job!r} has not ended ({info.state})", f"end it first: pond stop {job}")
        if info.parent:
            raise ConflictError(f"job {job!r} is part of an array", f"delete all of it: pond delete {info.parent}")
        await asyncio.to_thread(self._delete, info)
        return info

    def _delete(self, info: JobInfo) -> None:
        job = info.id
        try:
            for member in () if info.array is None else self._components.store.jobs.member_states(job):
                remove_folder(self._components.state_dir, member)
            remove_folder(self._components.state_dir, job)
        except OSError as error:
            raise UnavailableError(
                f"{error.filename} cannot be removed ({error.strerror})", "remove it by hand"
            ) from error
        self._components.store.delete(job)
        self._components.job_files.forget(job)
