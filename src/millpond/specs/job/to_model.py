"""From a checked job file to the scheduler's ``Job``."""

from __future__ import annotations

from millpond.model.contents import Content
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement, NodeSelection
from millpond.model.hardware.nodes import ANY_CLUSTER, CLUSTER_LABEL
from millpond.model.hardware.topology import Level
from millpond.model.resources import CARD_MILLI, SHARE_OF_CARD, SliceRequest, TaskRequest
from millpond.model.sharing import ShareClass
from millpond.model.task_spacing import SpacingKind, SpacingRule
from millpond.model.workloads import (
    Checkpoint,
    CheckpointMode,
    FailureRule,
    GangRule,
    Job,
    Kind,
    Priority,
    RetryDelay,
    Role,
    Suspendable,
)
from millpond.specs.job.fields import CheckpointFile, Gpus
from millpond.specs.job.images import image_content
from millpond.specs.job.job_file import JobFile, RoleFile
from millpond.specs.job.windows import model_of
from millpond.specs.zoned_times import instant, is_span

_LEVELS = {"node": Level.NODE, "rack": Level.RACK, "zone": Level.ZONE, "any": Level.CLUSTER}


def build_job(file: JobFile, job_id: str, user: str) -> Job:
    """The job for the scheduler.

    Raises:
        InvalidInputError: the parts contradict each other in a way that only the model knows.
    """
    place = file.topology.require or file.topology.prefer or "any"
    return Job(
        id=job_id,
        roles=tuple(_role(role, file) for role in file.all_roles()),
        user=user,
        name=file.name or "",
        queue=file.queue,
        pool=file.pool,
        kind=Kind(file.kind),
        priority=Priority[file.priority.upper()],
        together=_LEVELS[place],
        together_required=file.topology.require not in (None, "any"),
        gang_rule=_gang_rule(file),
        retries=file.retries,
        time_limit_s=file.time_limit,
        deadline_s=None if file.deadline is None or is_span(file.deadline) else instant(file.deadline, 0.0),
        flexible_s=file.flexible or 0.0,
        max_slowdown=file.max_slowdown or 0.0,
        checkpoint=_checkpoint(file.checkpoint),
        preemptible=file.preemptible is True,
        rest_preemptible=file.preemptible == "beyond-min",
        minimum_run_s=file.min_run_time,
        windows=model_of(file.window),
        share_class=_share_class(file),
        suspendable=_suspendable(file),
        failures=FailureRule(tuple(file.retry_on), tuple(file.fail_on)),
        retry_delay=RetryDelay(file.retry_delay.first, file.retry_delay.factor, file.retry_delay.longest),
        keep_s=file.keep or 0.0,
        reservation=file.reservation or "",
        only_on=file.adopted.selection if file.adopted is not None else _in_cluster(file),
        spacing=tuple(each.rule for each in file.adopted.spacing)
        if file.adopted is not None
        else _in_one_cluster(file),
        contents=contents_of(file),
    )


def contents_of(file: JobFile) -> tuple[Content, ...]:
    """What the nodes of its tasks need, as they report it."""
    if file.adopted is not None:
        return tuple(map(Content, file.adopted.contents))
    default = None if file.pinned is None else file.pinned.default_image
    name = default if file.image is None else file.image.name
    return () if name is None else (Content(image_content(name)),)


def _in_cluster(file: JobFile) -> NodeSelection:
    """Nodes of the cluster that it names alone."""
    if file.cluster in (None, ANY_CLUSTER):
        return ()
    return ((NodeRequirement(CLUSTER_LABEL, NodeOperator.IN, (str(file.cluster),)),),)


def _in_one_cluster(file: JobFile) -> tuple[SpacingRule, ...]:
    """Tasks that may lie in any cluster lie in one; zones lie within clusters."""
    if file.cluster != ANY_CLUSTER or file.topology.require not in (None, "any"):
        return ()
    roles = file.all_roles()
    is_gang = len(roles) > 1 or (roles[0].tasks is not None and roles[0].tasks.max > 1)
    if not is_gang:
        return ()
    return (SpacingRule(SpacingKind.TOGETHER, CLUSTER_LABEL, tuple(role.name for role in roles)),)


def _gang_rule(file: JobFile) -> GangRule:
    """As written; else the replicas of a service stand for each other, and the tasks of other kinds need each other.

    What becomes of pods that the server did not make is up to whoever made them.
    """
    if file.adopted is not None:
        return GangRule.APART
    if file.kind == "service" and "on_task_lost" not in file.model_fields_set:
        return GangRule.RESTART_TASK
    return GangRule(file.on_task_lost)


def _suspendable(file: JobFile) -> Suspendable:
    """As written; a service that rests by being swapped can be swapped."""
    if file.suspend is None and file.scale is not None and file.scale.rest == "swap":
        return Suspendable.SWAP
    return Suspendable(file.suspend or "auto")


def _share_class(file: JobFile) -> ShareClass:
    """As written; else by kind and priority: users wait for a service, and not for work of low priority."""
    if file.share_class is not None:
        return ShareClass(file.share_class)
    if file.kind == "service":
        return ShareClass.ONLINE
    return ShareClass.BACKFILL if file.priority in ("background", "low") else ShareClass.NORMAL


def _role(role: RoleFile, file: JobFile) -> Role:
    """A role. The tasks of a service without roles are replicas: the first can serve before the others have room."""
    assert role.tasks is not None, "all_roles fills this in"
    request = TaskRequest(
        cpu_milli=role.cpus or 0,
        memory_mib=role.memory or 0,
        devices=role.gpus.cards if role.gpus else 0,
        slice=_slice(role.gpus) if role.gpus else SliceRequest(),
        models=tuple(role.gpu_models or ()),
        extras=tuple(sorted((role.extras or {}).items())),
    )
    least = 1 if file.kind == "service" and file.roles is None else role.tasks.min
    own = FailureRule(tuple(role.retry_on or ()), tuple(role.fail_on or ()))
    is_own = (role.retry_on, role.fail_on) != (file.retry_on, file.fail_on)
    return Role(request, role.tasks.count, least, role.tasks.max, role.name, role.daemon, own if is_own else None)


def _slice(gpus: Gpus) -> SliceRequest:
    """Whole cards unless a part was named; memory alone guarantees no compute."""
    if gpus.compute is None and gpus.memory is None:
        return SliceRequest()
    compute = 0 if gpus.compute is None else gpus.compute
    limit = compute if gpus.limit is None else gpus.limit
    memory = SHARE_OF_CARD if gpus.memory is None else gpus.memory
    if compute == CARD_MILLI:
        return SliceRequest(memory_mib=memory)
    return SliceRequest(compute, memory, limit)


def _checkpoint(written: CheckpointFile) -> Checkpoint:
    """How a job saves its work; a signal without a mode selects that mode."""
    mode = written.mode or ("signal" if "signal" in written.model_fields_set else "none")
    return Checkpoint(CheckpointMode(mode), written.signal, written.grace)
