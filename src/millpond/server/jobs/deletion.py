"""Dropping jobs that have ended, with all that they wrote; what they used stays in the books."""

from __future__ import annotations

from millpond.model.errors import ConflictError, UnavailableError
from millpond.server.operations.retention import remove_folder
from millpond.server.startup.server_components import ServerComponents
from millpond.specs.api.jobs import JobInfo


def delete_job(components: ServerComponents, job: str) -> JobInfo:
    """Drop a job. Blocks.

    Raises:
        NotFoundError, ConflictError: it never was, has not ended, or is part of an array.
        UnavailableError: what it wrote cannot be removed.
    """
    info = components.lookup.look(job)
    if components.loop.job_cache.get(job) is not None:
        raise ConflictError(f"job {job!r} has not ended ({info.state})", f"end it first: pond stop {job}")
    if info.parent:
        raise ConflictError(f"job {job!r} is part of an array", f"delete all of it: pond delete {info.parent}")
    try:
        for member in () if info.array is None else components.store.jobs.member_states(job):
            remove_folder(components.state_dir, member)
        remove_folder(components.state_dir, job)
    except OSError as error:
        raise UnavailableError(f"{error.filename} cannot be removed ({error.strerror})", "remove it by hand") from error
    components.store.deletion.delete(job)
    components.job_files.forget(job)
    return info
