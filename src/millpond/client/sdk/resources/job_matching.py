"""Which job is meant by a few letters, where several begin with them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from millpond.model.errors import ConflictError
from millpond.model.states import JobState
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.job_ids import service_of

_NAMED_IN_DOUBT = 4


def meant_by(prefix: str, jobs: Sequence[JobInfo]) -> list[JobInfo]:
    """The jobs whose ids or names begin with ``prefix``, as it was typed."""
    typed = unicodedata.normalize("NFC", prefix)
    return [job for job in jobs if job.id.startswith(typed) or job.name.startswith(typed)]


def the_one_meant(prefix: str, found: Sequence[JobInfo], *, unambiguous: bool = False) -> JobInfo:
    """The job that is meant of those whose ids or names begin with ``prefix``, the newest first.

    Revisions of one service are one: the one that lives counts, or the last. Else those with exactly this name come
    first, and of these the one that has not ended. If all have, and are one user's, the one submitted last.

    Args:
        unambiguous: of several that have ended, do not take the last.

    Raises:
        ConflictError: it may be several.
    """
    if len({service_of(job.id) for job in found}) == 1:
        return next(iter(_living(found)), found[0])
    named = [job for job in found if job.name == unicodedata.normalize("NFC", prefix)]
    living = _living(named)
    left = living if len(living) == 1 else named or found
    if named and not living and not unambiguous and len({job.user for job in named}) == 1:
        left = named[:1]
    if len(left) == 1:
        return left[0]
    some = ", ".join(f"{job.id} {job.state_text}" for job in left[:_NAMED_IN_DOUBT])
    more = ", …" if len(left) > _NAMED_IN_DOUBT else ""
    raise ConflictError(
        f"{len(left)} jobs begin with {prefix!r}, the newest first: {some}{more}", "write more of the id"
    )


def _living(jobs: Sequence[JobInfo]) -> list[JobInfo]:
    return [job for job in jobs if not JobState(job.state).ended]
