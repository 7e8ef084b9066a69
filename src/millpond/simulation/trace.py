"""A workload to replay: jobs with the instants and lengths that a trace recorded, whatever its file looked like."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cache

from millpond.model.errors import InvalidInputError
from millpond.model.hardware.nodes import DEFAULT_POOL, Pool, SharingPolicy
from millpond.model.reasons import Reason
from millpond.model.resources import CARD_MILLI, SliceRequest, TaskRequest
from millpond.model.tenancy.tenants import DEFAULT_QUEUE, Queue
from millpond.model.workloads import Checkpoint, Job, Role

ERRORS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace.

    Attributes:
        submit_at: seconds on the trace's clock.
        duration_s: how long it runs when nothing disturbs it. Only the pretending engine may read it.
        where: file and line it came from.
        stop_at: when its user stops it, whether it runs by then or not.
        busy: which part of each of its cards it keeps busy in the mean; None: as usual for its kind.
    """

    job: Job
    submit_at: float
    duration_s: float
    where: str = ""
    stop_at: float = math.inf
    busy: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in order of submission.

    Attributes:
        source: the file, or how the jobs were made.
        skipped: one line for each row that was left out because it is wrong.
        dropped: rows left out by the format's own rule (jobs without GPUs), counted.
    """

    jobs: tuple[TraceJob, ...]
    source: str
    skipped: tuple[str, ...] = ()
    dropped: int = 0

    def queues(self) -> tuple[Queue, ...]:
        """A queue for each name that jobs use, beside the default one; all weigh the same."""
        names = sorted({entry.job.queue for entry in self.jobs} - {DEFAULT_QUEUE})
        return tuple(Queue(name) for name in names)

    def pool(self) -> Pool:
        """The default pool: cards are exclusive unless a job asks for a part of one."""
        shared = any(
            role.request.devices and role.request.slice.compute_milli < CARD_MILLI
            for entry in self.jobs
            for role in entry.job.roles
        )
        return Pool(DEFAULT_POOL, SharingPolicy.SLICED if shared else SharingPolicy.EXCLUSIVE)


def refuse_rows(errors: list[str], skip_bad_rows: bool, what: str = "rows", remedy: str = "correct them") -> None:
    """Raise one error that shows the first few of ``errors``, unless they are to be skipped.

    Args:
        what: is wrong.
        remedy: besides leaving them out.
    """
    if errors and not skip_bad_rows:
        more = len(errors) - ERRORS_SHOWN
        shown = errors[:ERRORS_SHOWN] + ([f"and {more} more such {what}"] if more > 0 else [])
        raise InvalidInputError("\n".join(shown), f"{remedy}, or leave such {what} out with --skip-bad-rows")


def admissible(workload: Workload, check: Callable[[Job], Reason | None], *, skip_bad_rows: bool) -> Workload:
    """The workload without jobs that the cluster could never take.

    Args:
        check: ``Scheduler.check`` of a scheduler that knows the cluster's nodes and queues.

    Raises:
        InvalidInputError: there are such jobs and they are not to be skipped, or nothing else is left.
    """
    verdicts: dict[Hashable, Reason | None] = {}
    kept: list[TraceJob] = []
    errors: list[str] = []
    for entry in workload.jobs:
        job = entry.job
        key = (job.roles, job.queue, job.pool, job.together, job.together_required)
        if key not in verdicts:
            verdicts[key] = check(job)
        reason = verdicts[key]
        if reason is None:
            kept.append(entry)
        else:
            advice = f" ({reason.remedy.change})" if reason.remedy else ""
            errors.append(f"{entry.where}: job {job.id!r} can never run here: {reason.summary}{advice}")
    refuse_rows(errors, skip_bad_rows, "jobs", "give a larger cluster")
    if not kept:
        raise InvalidInputError(f"no job of {workload.source} fits the cluster", "give a larger cluster")
    return replace(workload, jobs=tuple(kept), skipped=(*workload.skipped, *errors))


@cache
def gang_roles(
    gpus: int, cards_per_node: int, cpu_milli: int = 0, memory_mib: int = 0, models: tuple[str, ...] = ()
) -> tuple[Role, ...]:
    """Roles of a job of ``gpus`` whole cards: one task if a node can hold it, else full nodes and one remainder.

    ``cpu_milli`` and ``memory_mib`` are the job's totals, spread over its tasks by their cards.
    """

    def task(cards: int) -> TaskRequest:
        part = cards / gpus if gpus else 1.0
        return TaskRequest(round(cpu_milli * part), round(memory_mib * part), cards, SliceRequest(), models)

    if gpus <= cards_per_node:
        return (Role.rigid(task(gpus), 1),)
    full, rest = divmod(gpus, cards_per_node)
    roles = (Role.rigid(task(cards_per_node), full),)
    return (*roles, Role.rigid(task(rest), 1, "remainder")) if rest else roles


def anonymous(jobs: Iterable[TraceJob], checkpoint: Checkpoint, *, keeps_names: bool) -> list[Job]:
    """The jobs as a policy without any knowledge may see them: a number and how many cards, nothing else.

    Names, users, queues, priorities, deadlines, CPU, memory and card models are all left out, so that nothing
    in the file but submission and GPU count can steer the policy.

    Args:
        checkpoint: how they all save their work.
        keeps_names: but for their names: which of them are alike.
    """
    return [
        Job(
            f"job-{number}",
            _anonymous_roles(entry.job.roles),
            name=entry.job.name if keeps_names else "",
            checkpoint=checkpoint,
        )
        for number, entry in enumerate(jobs)
    ]


@cache
def _anonymous_roles(roles: tuple[Role, ...]) -> tuple[Role, ...]:
    return tuple(replace(role, request=TaskRequest(0, 0, role.request.devices, role.request.slice)) for role in roles)
