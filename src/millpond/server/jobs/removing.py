"""Dropping jobs that have ended, with all that they wrote."""

from __future__ import annotations

import asyncio

from millpond.model.errors import ConflictError, UnavailableError
from millpond.server.ground import Ground
from millpond.server.retention import remove_folder
from millpond.specs.job_bodies import JobInfo


class Removal:
    """Drops jobs; what they used stays in the books."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    async def delete(self, job: str) -> JobInfo:
        """Drop a job.

        Raises:
            NotFoundError, ConflictError: it never was, or has not ended.
            UnavailableError: what it wrote cannot be removed.
        """
        info = await asyncio.to_thread(self._ground.loop.lookup.look, job)
        if self._ground.loop.board.get(job) is not None:
            raise ConflictError(f"job {job!r} has not ended ({info.state})", f"end it first: pond stop {job}")
        if info.parent:
            raise ConflictError(f"job {job!r} is part of an array", f"delete all of it: pond delete {info.parent}")
        await asyncio.to_thread(self._delete, info)
        return info

    def _delete(self, info: JobInfo) -> None:
        job = info.id
        try:
            for member in () if info.array is None else self._ground.store.jobs.member_states(job):
                remove_folder(self._ground.state_dir, member)
            remove_folder(self._ground.state_dir, job)
        except OSError as error:
            raise UnavailableError(
                f"{error.filename} cannot be removed ({error.strerror})", "remove it by hand"
            ) from error
        self._ground.store.delete(job)
        self._ground.job_files.forget(job)
