"""Devices with their figures and their slices, as the API shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from millpond.model.hardware.devices import Device
from millpond.model.hardware.node_power import NodePowerState
from millpond.model.hardware.telemetry import SliceReading
from millpond.model.sharing import ShareClass
from millpond.model.states import TaskState
from millpond.node.devices.fake import Tenant
from millpond.scheduling.nodes.views import NodeView
from millpond.scheduling.state import ACTIVE
from millpond.server.monitoring.telemetry.sampling import Sampled, Telemetry
from millpond.server.monitoring.telemetry.slices import SliceKey, SliceUse
from millpond.specs.api.jobs.jobs import DeviceGrant, JobInfo, TaskInfo
from millpond.specs.api.pool.nodes import DeviceStatus, SamplePoint, SliceInfo, SliceStatus

Uses = Mapping[SliceKey, SliceUse]
Holdings = tuple[tuple[str, SliceInfo], ...]
"""Parts of devices, each behind the UUID of its device."""


def device_statuses(
    nodes: Iterable[NodeView], slices: Mapping[str, list[SliceStatus]], telemetry: Telemetry, history: int
) -> Iterator[DeviceStatus]:
    """All devices, node by node.

    Args:
        slices: by UUID of the device.
        history: how many earlier looks are listed of each.
    """
    for node in nodes:
        for use in node.devices:
            yield DeviceStatus(
                **device_facts(use.device),
                node=node.node.name,
                pool=node.node.pool,
                power=power_state_of(node),
                latest=_point(telemetry.latest(use.device.uuid)),
                slices=slices.get(use.device.uuid, []),
                history=_points(telemetry, use.device.uuid, history),
            )


def slices_by_device(jobs: Iterable[JobInfo], uses: Uses) -> dict[str, list[SliceStatus]]:
    """What all tasks hold of devices, by UUID of the device; whole devices are slices too."""
    found: dict[str, list[SliceStatus]] = {}
    for job, task, grant in _grants(jobs):
        use = uses.get(SliceKey(job.id, job.attempt, task.task, grant.uuid), SliceUse())
        found.setdefault(grant.uuid, []).append(_slice_status(job, task, grant, use))
    return found


def holdings_of(job: JobInfo) -> Holdings:
    """What the tasks of one job hold, without what they make of it."""
    return tuple((grant.uuid, SliceInfo(**_held(job, task, grant))) for job, task, grant in _grants((job,)))


def tenants_of(jobs: Iterable[JobInfo], uses: Uses) -> Iterator[Tenant]:
    """What pretended cards pretend to do: each task computes as much as it may, until it is suspended."""
    for job, task, grant in _grants(jobs):
        use = uses.get(SliceKey(job.id, job.attempt, task.task, grant.uuid), SliceUse())
        state = _state(task, use.reading)
        computes = grant.limit_milli if state == TaskState.RUNNING else 0
        yield Tenant(grant.uuid, computes, 0 if state == TaskState.SWAPPED else grant.memory_mib)


def classes_by_device(jobs: Iterable[JobInfo], uses: Uses) -> dict[str, set[ShareClass]]:
    """Which classes of work are on each device now, by UUID; what is away from it does not count."""
    found: dict[str, set[ShareClass]] = {}
    for job, task, grant in _grants(jobs):
        reading = uses.get(SliceKey(job.id, job.attempt, task.task, grant.uuid), SliceUse()).reading
        if _state(task, reading) not in (TaskState.FROZEN, TaskState.SWAPPED):
            found.setdefault(grant.uuid, set()).add(ShareClass(job.share_class))
    return found


def caps_by_device(jobs: Iterable[JobInfo]) -> dict[str, float]:
    """The power caps of jobs, by the UUIDs of the devices that they run on."""
    capped = (job for job in jobs if job.power_cap_w)
    return {grant.uuid: job.power_cap_w for job, task, grant in _grants(capped) if task.state == TaskState.RUNNING}


def _grants(jobs: Iterable[JobInfo]) -> Iterator[tuple[JobInfo, TaskInfo, DeviceGrant]]:
    for job in jobs:
        for task in job.tasks:
            if task.state in ACTIVE:
                yield from ((job, task, grant) for grant in task.devices)


def device_facts(device: Device) -> dict[str, Any]:
    """What a device is, for the fields of ``DeviceFacts``."""
    return {
        "uuid": device.uuid,
        "index": device.index,
        "vendor": device.vendor,
        "model": device.model,
        "memory_mib": device.memory_mib,
        "health": device.health.value,
        "health_detail": device.health_detail,
        "fake": device.fake,
        "instance": device.instance,
        "experimental": device.experimental,
    }


def power_state_of(view: NodeView) -> str:
    """The power of a node, as ``NodeInfo`` has it."""
    return NodePowerState.ON if view.power is None else view.power.state


def _held(job: JobInfo, task: TaskInfo, grant: DeviceGrant) -> dict[str, Any]:
    return {
        "job": job.id,
        "task": task.task,
        "state": task.state,
        "compute_milli": grant.compute_milli,
        "limit_milli": grant.limit_milli,
        "memory_mib": grant.memory_mib,
    }


def _slice_status(job: JobInfo, task: TaskInfo, grant: DeviceGrant, use: SliceUse) -> SliceStatus:
    reading = use.reading
    return SliceStatus(
        **_held(job, task, grant) | {"state": _state(task, reading)},
        attempt=job.attempt,
        role=task.role,
        user=job.user,
        share_class=job.share_class,
        hold=None if reading is None else reading.hold.value or None,
        use_milli=use.use_milli,
        memory_used_mib=use.memory_used_mib,
        swapped_mib=None if reading is None else reading.swapped_mib,
        denials=None if reading is None else reading.denials,
    )


def _state(task: TaskInfo, reading: SliceReading | None) -> str:
    """Its task's, but for one that runs by the core's account and was moved aside by its node for a while."""
    return TaskState.SWAPPED.value if reading is not None and reading.swapped_mib else task.state


def _points(telemetry: Telemetry, device: str, most: int) -> list[SamplePoint]:
    samples = telemetry.recent(device)[-most:] if most else ()
    return [point for point in map(_point, samples) if point is not None]


def _point(sampled: Sampled | None) -> SamplePoint | None:
    if sampled is None:
        return None
    sample = sampled.sample
    return SamplePoint(
        at=sampled.at,
        use_milli=sample.use_milli,
        memory_used_mib=sample.memory_used_mib,
        power_w=sample.power_w,
        energy_j=sample.energy_j,
        temperature_c=sample.temperature_c,
        clock_mhz=sample.clock_mhz,
        sm_milli=sample.sm_milli,
        tensor_milli=sample.tensor_milli,
    )
