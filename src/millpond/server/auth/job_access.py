"""The right to get inside a job: to what it serves, or to its tasks."""

from __future__ import annotations

from millpond.model.workloads import Kind
from millpond.server.auth.roles import AccessTarget, Verb
from millpond.specs.api.jobs import JobInfo


def job_target(info: JobInfo, name: str = "") -> AccessTarget:
    """A job as what a verb is applied to.

    Args:
        name: as it was asked for; empty: by its id.
    """
    return AccessTarget("job", name or info.id, info.user, frozenset((info.group,)) if info.group else frozenset())


def entrance(info: JobInfo) -> tuple[Verb, AccessTarget]:
    """The verb for opening what a job serves: a service is there to be visited, other work is its user's own."""
    verb = Verb.VISIT_SERVICES if info.kind == Kind.SERVICE.value else Verb.USE_JOBS
    return verb, job_target(info)
