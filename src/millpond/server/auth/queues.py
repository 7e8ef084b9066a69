"""The user, the group and the queue of a submission."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from millpond.model.amounts import seconds_text
from millpond.model.errors import InvalidInputError, NotAllowedError
from millpond.model.tenancy.tenants import DEFAULT_QUEUE
from millpond.model.workloads import Job, Kind
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.roles import AccessTarget, Caller, Verb, allows
from millpond.specs.config.queues import QueueRules
from millpond.specs.job.job_spec import JobSpec, check_job


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Where a job belongs."""

    user: str
    queue: str
    group: str

    def of(self, job: Job) -> Job:
        """The job, there."""
        return replace(job, user=self.user, queue=self.queue, group=self.group)


def place_for(accounts: Accounts, caller: Caller, queue: str | None) -> QueuePlace:
    """Where a submitted job goes.

    Args:
        queue: as the job file names it; None: the queue of the first group that the caller may submit in.

    Raises:
        NotAllowedError: the queue is another group's, or the caller is in no group that takes jobs of theirs.
    """
    if queue is None:
        for member in accounts.memberships(caller.user):
            if _may_submit(caller, member.group):
                return QueuePlace(caller.user, accounts.group(member.group).queue, member.group)
        queue = DEFAULT_QUEUE
    owner = accounts.group_of_queue(queue)
    group = owner.name if owner else ""
    if not _may_submit(caller, group):
        own = [group for group, _ in caller.roles if _may_submit(caller, group)]
        queues = ", ".join(accounts.group(name).queue for name in own)
        raise NotAllowedError(
            f"{caller.user} may not submit to queue {queue!r}",
            f"use one of: {queues}" if queues else "ask a lead or an admin to be made a member of a group",
        )
    return QueuePlace(caller.user, queue, group)


def settle_place(
    accounts: Accounts, rules: Mapping[str, QueueRules], caller: Caller, spec: JobSpec
) -> tuple[JobSpec, QueuePlace]:
    """The job file with what follows from who submits it written into it, and where the job belongs.

    Args:
        rules: what holds for the jobs of queues, by queue.

    Raises:
        NotAllowedError: as for ``place_for``.
        InvalidInputError: it is a ``dev`` job and asks for more time than its user, group or queue may have.
    """
    file = spec.file
    place = place_for(accounts, caller, file.queue if "queue" in file.model_fields_set else None)
    if file.queue != place.queue:
        spec = spec.in_queue(place.queue)
    longest = longest_dev(accounts, rules, place) if file.kind == Kind.DEV.value else None
    if longest is not None and file.time_limit is None:
        settled = {**spec.document, "time_limit": seconds_text(longest.seconds)}
        return replace(check_job(settled), warnings=spec.warnings), place
    if longest is not None and file.time_limit is not None and file.time_limit > longest.seconds:
        most = seconds_text(longest.seconds)
        raise InvalidInputError(
            f"a dev job of {seconds_text(file.time_limit)}; {longest.whose} may have those of up to {most}",
            f"ask for a time_limit of at most {most}",
        )
    return spec, place


@dataclass(frozen=True, slots=True)
class DevTime:
    """How long a ``dev`` job may run, and whose limit that is."""

    seconds: float
    whose: str


def longest_dev(accounts: Accounts, rules: Mapping[str, QueueRules], place: QueuePlace) -> DevTime | None:
    """The least of the limits of a user, their group, the queue and all queues above it; None: none has any."""
    limits = [
        (accounts.limits_of_user(place.user).dev_s, place.user),
        (accounts.limits_of_group(place.group).dev_s, f"group {place.group}"),
    ]
    above = place.queue
    while above in rules:
        limits.append((rules[above].longest_dev_s, f"a job of queue {above}"))
        above = rules[above].parent
    given = (DevTime(seconds, whose) for seconds, whose in limits if seconds is not None)
    return min(given, key=lambda each: each.seconds, default=None)


def _may_submit(caller: Caller, group: str) -> bool:
    groups = frozenset({group} - {""})
    return allows(caller, Verb.SUBMIT_JOBS, AccessTarget("queue", group, groups=groups))
