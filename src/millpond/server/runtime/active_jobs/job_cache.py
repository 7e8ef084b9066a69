"""The views of jobs that have not ended: immutable, made anew by the scheduler's thread as jobs change."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from millpond.model.amounts import memory_text, milli_text
from millpond.model.confinement import UNTOLD, Confinement
from millpond.model.decisions import Placement, SuspendMode
from millpond.model.events import ProgressMeasured
from millpond.model.hardware.devices import Device
from millpond.model.reasons import Cause
from millpond.model.resources import CARD_MILLI
from millpond.model.states import JobState, Outcome, TaskState
from millpond.model.workloads import Job, Kind
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.suspension.suspension import is_leaving, why_suspend_refused
from millpond.specs.api.jobs.jobs import DeadlineInfo, DeviceGrant, JobInfo, ProgressInfo, TaskInfo
from millpond.specs.api.models import adapter_of
from millpond.specs.job.job_ids import split_member

FAILED_WITHOUT_CODE = 1
STOPPED_WITHOUT_CODE = 143
"""As a shell shows a program that was ended by SIGTERM."""
LISTED_INDICES = 200
"""Letters of an array's indices in a list."""

_OWN_FAULT = (Outcome.USER_ERROR, Outcome.OUT_OF_MEMORY, Outcome.START_FAILED)


class JobCache:
    """The views of all jobs that have not ended, in the order of their submission.

    Args:
        on_first_start: called with the view of a job that has just started for the first time; must return at once.
        on_suspended: the same of one that has just left its cards for a while.

    Attributes:
        version: rises with each change.
    """

    def __init__(
        self,
        on_first_start: Callable[[JobInfo], None] = lambda _: None,
        on_suspended: Callable[[JobInfo], None] = lambda _: None,
    ) -> None:
        self._on_first_start = on_first_start
        self._on_suspended = on_suspended
        self._lock = threading.Lock()
        self.version = 0
        self._jobs: dict[str, JobInfo] = {}
        self._encoded: dict[str, tuple[JobInfo, bytes]] = {}

    def put(self, info: JobInfo) -> None:
        """Put a job's new view in."""
        before = self._jobs.get(info.id)
        with self._lock:
            self._jobs[info.id] = info
            self.version += 1
        if before is not None and before.first_started_at is None and info.first_started_at is not None:
            self._on_first_start(info)
        if before is not None and info.state == JobState.SUSPENDED != before.state:
            self._on_suspended(info)

    def drop(self, job: str) -> None:
        """Remove a job: it has ended, and the store has it."""
        with self._lock:
            self._jobs.pop(job, None)
            self.version += 1
            self._encoded.pop(job, None)

    def get(self, job: str) -> JobInfo | None:
        """A job's latest view; None when it is not here."""
        return self._jobs.get(job)

    def encoded(self, info: JobInfo) -> bytes:
        """A job as JSON, as lists have it; that of its latest view is kept."""
        of, encoded = self._encoded.get(info.id, (None, b""))
        if of is not info:
            encoded = adapter_of(JobInfo).dump_json(_as_listed(info))
            with self._lock:
                if self._jobs.get(info.id) is info:
                    self._encoded[info.id] = info, encoded
        return encoded

    def newest_first(self) -> list[JobInfo]:
        """All jobs that have not ended, the one submitted last first."""
        with self._lock:
            return list(reversed(self._jobs.values()))

    def counts(self) -> Counter[str]:
        """How many are in which state; of arrays, the members count that the scheduler has."""
        return Counter(info.state for info in self.newest_first() if info.array is None)


def _as_listed(info: JobInfo) -> JobInfo:
    """A job in a list, in which one array may not take the room of thousands of jobs."""
    if info.array is None or len(info.array.indices) <= LISTED_INDICES:
        return info
    return replace(info, array=replace(info.array, indices=info.array.indices_within(LISTED_INDICES)))


def job_view(
    record: JobRecord,
    devices: Mapping[str, Device],
    clusters: Mapping[str, str],
    confinement: Confinement = UNTOLD,
    submitted_at: float | None = None,
) -> JobInfo:
    """A job as the API shows it.

    Args:
        clusters: the cluster of each node; empty where there is one.
        confinement: how well its latest run was kept apart, and kept to its amounts.
        submitted_at: when its user submitted it; None: when the core was told of it.
    """
    job = record.job
    return JobInfo(
        **_asked(job, _held_tasks(record)),
        state=record.state.value,
        attempt=record.attempt,
        submitted_at=record.submitted_at if submitted_at is None else submitted_at,
        eligible_at=record.submitted_at,
        first_started_at=record.first_started_at,
        started_at=record.began_at,
        suspended_at=record.left_at,
        suspended_s=record.suspended_s,
        switching_s=record.leave_s + record.return_s,
        ended_at=record.ended_at,
        gpu_milli=record.gpu_milli,
        tasks=[_task(task, devices, clusters) for task in record.tasks],
        preemptions=record.preemptions,
        failures=record.failures,
        exit_code=_exit_code(record),
        limit_ends_at=limit_ends_at(record),
        kept_until=next((task.kept_until for task in record.tasks if task.kept_until is not None), None),
        unsandboxed=not confinement.sandboxed,
        limited_by=confinement.limits.value,
        held_by=confinement.slices.value,
        hold_reason=confinement.slices_reason,
        memory_by_kernel=confinement.memory_by_kernel,
        network=confinement.network.value,
        scaled_to_zero="" if record.state.ended else record.scaled_to_zero,
        suspension=_suspension(record),
        leaving=record.state is JobState.SUSPENDED and is_leaving(record),
        migration="" if record.migration is None else record.migration.text,
        deadline=_deadline(record),
        power_cap_w=record.cap_w if record.state is JobState.RUNNING else 0.0,
        shares_with=record.packed_with,
        progress=_progress(record),
    )


def limit_ends_at(record: JobRecord) -> float | None:
    """When the time limit of a job's present run ends, if it runs on; None: it has none, or does not run."""
    limit_s, started_at = record.job.time_limit_s, record.started_at
    if limit_s is None or started_at is None or record.state.ended or record.kept is not None:
        return None
    return started_at + record.debt_s + max(limit_s - record.attained_s, 0.0)


def _progress(record: JobRecord) -> ProgressInfo | None:
    """How fast its present or last run makes steps."""
    measured = record.progress
    if measured is None or measured.attempt != record.attempt:
        return None
    runs_or_ran = record.state is JobState.RUNNING or record.state.ended
    return progress_view(measured) if runs_or_ran else None


def progress_view(measured: ProgressMeasured) -> ProgressInfo:
    """A measurement as the API shows it."""
    rate, cards = measured.steps_per_s, measured.gpu_milli / CARD_MILLI
    per_card = rate / cards if rate is not None and cards else None
    return ProgressInfo(at=measured.at, steps_per_s=rate, per_card=per_card, ignored=measured.ignored)


def _deadline(record: JobRecord) -> DeadlineInfo | None:
    """When a job should have ended; of one that has ended, whether it did."""
    at, ended_at = record.job.deadline_s, record.ended_at
    if at is None:
        return None
    if ended_at is not None and ended_at > at:
        return DeadlineInfo(at=at, verdict="missed")
    return DeadlineInfo(at=at, verdict="met" if record.state is JobState.SUCCEEDED else "")


def _asked(job: Job, held: Sequence[int] | None = None) -> dict[str, Any]:
    """What a job is and asks for, whatever becomes of it; ``held``: as for ``gpus_text``."""
    return {
        "id": job.id,
        "name": job.name,
        "queue": job.queue,
        "pool": job.pool,
        "user": job.user,
        "group": job.group,
        "kind": job.kind.value,
        "priority": job.priority.name.lower(),
        "share_class": job.share_class.value,
        "gpus": gpus_text(job, held),
        "max_slowdown": job.max_slowdown,
        **_membership(job.id),
    }


def _suspension(record: JobRecord) -> str:
    """How and why a job is suspended, or why it could not be; empty when that was not asked of its present run."""
    suspend_refused = why_suspend_refused(record)
    if record.state is JobState.RUNNING:
        return suspend_refused
    if record.is_parked:
        return "suspended on request, and its run ended meanwhile"
    if record.state is not JobState.SUSPENDED:
        return ""
    if record.suspend_mode is SuspendMode.SWAP:
        how = "on its way to host memory" if is_leaving(record) else "swapped to host memory"
    else:
        how = (
            "being halted" if is_leaving(record) else f"frozen, and {suspend_refused}" if suspend_refused else "frozen"
        )
    if record.suspended_why is None:
        return how
    asked = record.suspended_why is Cause.SUSPEND_REQUESTED and record.suspend_requester
    return f"{how} ({f'suspended by {asked}' if asked else record.suspended_why.value})"


def view_before_start(job: Job, submitted_at: float) -> JobInfo:
    """A job that the core does not know yet, as it waits for others."""
    roles = [role for role in job.roles for _ in range(role.desired)]
    queued = JobState.QUEUED.value
    return JobInfo(
        **_asked(job),
        state=queued,
        attempt=0,
        submitted_at=submitted_at,
        gpu_milli=job.gpu_milli,
        deadline=None if job.deadline_s is None else DeadlineInfo(at=job.deadline_s),
        tasks=[TaskInfo(task=number, role=role.name, state=queued) for number, role in enumerate(roles)],
    )


def cancelled_view(before: JobInfo, at: float, account: str) -> JobInfo:
    """The last view of a job that ends before it ever queued.

    Args:
        account: why.
    """
    state = JobState.CANCELLED.value
    ended: dict[str, Any] = {"state": state, "ended_at": at, "exit_code": STOPPED_WITHOUT_CODE}
    if before.array is not None:
        array = replace(before.array, unsubmitted=0, cancelled=before.array.count)
        return replace(before, **ended, reason=account, array=array)
    tasks = [replace(task, state=state, detail=account) for task in before.tasks]
    return replace(before, **ended, tasks=tasks)


def read_only_view(info: JobInfo) -> JobInfo:
    """A living job in a copy of its server's state: what has become of it since is not known here."""
    state, reason = info.state, "this server has a copy of another's state, and starts no job"
    if info.array is None and info.state != JobState.QUEUED:
        state, reason = JobState.UNKNOWN, f"it was {info.state} under the original of this copy, and is left alone"
    return replace(info, state=str(state), reason=reason, apart=True)


def _held_tasks(record: JobRecord) -> Sequence[int] | None:
    """How many tasks of each role of an elastic job have a place; None where none has, and of other jobs."""
    if not record.elastic or record.state.ended:
        return None
    held = Counter(task.role_index for task in record.tasks if task.holding is not None)
    return [held[index] for index in range(len(record.job.roles))] if held else None


def gpus_text(job: Job, held: Sequence[int] | None = None) -> str:
    """What a job has, or asks for: ``0``, ``0.25``, ``8 GiB``, ``2``, ``4 x 2`` (tasks x cards), roles joined by ``+``.

    The bounds of an elastic role stand behind its tasks: ``3 x 2 (2-8)``.

    Args:
        held: tasks of each role that have a place; None: what it asks for.
    """
    parts = []
    for role, tasks in zip(job.roles, held or [role.desired for role in job.roles], strict=True):
        request = role.request
        if request.devices == 0:
            continue
        each = str(request.devices)
        if request.slice.compute_milli == 0:
            each = memory_text(request.slice.memory_mib)
        elif request.slice.compute_milli < CARD_MILLI:
            each = milli_text(request.slice.compute_milli)
        if role.minimum < role.maximum and job.kind is not Kind.SERVICE:  # whose least is not that of its job file
            parts.append(f"{tasks} x {each} ({role.minimum}-{role.maximum})")
        else:
            parts.append(each if tasks == 1 else f"{tasks} x {each}")
    return " + ".join(parts) or "0"


def _membership(job: str) -> dict[str, Any]:
    """Of which array a job is a member."""
    member = split_member(job)
    return {} if member is None else {"parent": member[0], "index": member[1]}


def _task(task: TaskRecord, devices: Mapping[str, Device], clusters: Mapping[str, str]) -> TaskInfo:
    placement = None if task.state is TaskState.QUEUED else task.placement  # that of an earlier run is none any more
    return TaskInfo(
        task=task.number,
        role=task.role,
        state=task.state.value,
        node=placement.node if placement else "",
        cluster=clusters.get(placement.node, "") if placement else "",
        devices=_grants(placement, devices) if placement else [],
        exit_code=task.exit_code,
        detail=task.detail,
    )


def _grants(placement: Placement, devices: Mapping[str, Device]) -> list[DeviceGrant]:
    grants = []
    for grant in placement.grants:
        device = devices.get(grant.device)
        grants.append(
            DeviceGrant(
                uuid=grant.device,
                index=device.index if device else -1,
                model=device.model if device else "",
                compute_milli=grant.compute_milli,
                limit_milli=grant.limit_milli,
                memory_mib=grant.memory_mib,
                fake=device.fake if device else False,
            )
        )
    return grants


def _exit_code(record: JobRecord) -> int | None:
    """One code for the job: of the task whose own fault it was, else of the first that did not return 0."""
    if not record.state.ended:
        return None if record.kept is None else record.kept.exit_code
    if record.state is JobState.SUCCEEDED:
        return 0
    guilty = [task for task in record.tasks if task.outcome in _OWN_FAULT] or record.tasks
    for task in guilty:
        if task.exit_code:
            return task.exit_code
    return FAILED_WITHOUT_CODE if record.state is JobState.FAILED else STOPPED_WITHOUT_CODE
