"""Services of a server: what stands behind their addresses, and one revision replacing another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from millpond.client.sdk.transport.connection import Requests, segment
from millpond.model.errors import ConflictError
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.services import RevisionPlan, ServiceInfo
from millpond.specs.job.job_ids import service_of

Act: TypeAlias = Literal["pause", "resume", "promote", "undo"]


class ServicesClient(Requests):
    """What can be asked of services; made by ``Client.services``.

    Args:
        ask: sends a request and reads its answer.
    """

    def info(self, job_id: str) -> ServiceInfo:
        """What stands behind the address of a service.

        Raises:
            ConflictError: the job is none.
        """
        return self._ask(ServiceInfo, "GET", f"/jobs/{segment(job_id)}/service")

    def plan(self, job_id: str, document: Mapping[str, Any]) -> RevisionPlan:
        """What another job file would change; nothing is."""
        path = f"/jobs/{segment(job_id)}/revisions/plan"
        return self._ask(RevisionPlan, "POST", path, json={"document": dict(document)})

    def begin(self, job_id: str, document: Mapping[str, Any], canary: float | None = None) -> ServiceInfo:
        """Have another revision take the place of the present one, replica by replica.

        Args:
            canary: percentage of the requests that it gets first, until it is promoted.

        Raises:
            InvalidInputError: the job file is wrong, or the cluster could never run it.
            ConflictError: another revision is on its way.
        """
        body = {"document": dict(document), "canary": canary}
        return self._ask(ServiceInfo, "POST", f"/jobs/{segment(job_id)}/revisions", json=body)

    def act(self, job_id: str, act: Act) -> ServiceInfo:
        """Pause, go on with, promote or withdraw the revision on its way; without one, ``undo`` goes back by one.

        Raises:
            ConflictError: there is none, it is no canary, or there is nothing to go back to.
        """
        return self._ask(ServiceInfo, "POST", f"/jobs/{segment(job_id)}/rollout", json={"act": act})


def named(jobs: list[JobInfo], name: str, user: str) -> str | None:
    """A job of the one service of this name and user that has not ended; None when there is none.

    Raises:
        ConflictError: there are several such services.
    """
    found = {service_of(job.id): job.id for job in jobs if (job.kind, job.name, job.user) == ("service", name, user)}
    if len(found) > 1:
        cause = f"{len(found)} services are called {name} ({', '.join(sorted(found))})"
        raise ConflictError(cause, "say which with --update JOB, or --new for one more")
    return next(iter(found.values()), None)
