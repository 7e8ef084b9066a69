"""Nodes and reasons as the API shows them."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.model.hardware.nodes import Cordon
from millpond.model.reasons import Cause, DeadlineOutlook, Reason, StartEstimate
from millpond.model.states import JobState
from millpond.scheduling.nodes.views import DeviceUse, NodeView
from millpond.server.monitoring.telemetry.views import device_facts, power_state_of
from millpond.server.wording import local_time
from millpond.specs.api.jobs.jobs import DeadlineInfo
from millpond.specs.api.jobs.reasons import ReasonInfo, RemedyInfo, StartInfo
from millpond.specs.api.pool.nodes import CordonInfo, DeviceInfo, NodeInfo, SliceInfo


def node_info(view: NodeView, slices: Sequence[list[SliceInfo]], marks: tuple[str, str]) -> NodeInfo:
    """A machine with what is free of it.

    Args:
        slices: what tasks hold of each of its devices.
        marks: ``NodeInfo.unsandboxed`` and ``NodeInfo.unlimited``.
    """
    node = view.node
    return NodeInfo(
        name=node.name,
        pool=node.pool,
        cpu_milli=node.cpu_milli,
        free_cpu_milli=view.free.cpu_milli,
        cpu_capacity_milli=view.cpu_capacity_milli,
        memory_mib=node.memory_mib,
        free_memory_mib=view.free.memory_mib,
        devices=[_device_info(use, held) for use, held in zip(view.devices, slices, strict=True)],
        rack=node.rack_name,
        zone=node.zone_name,
        cluster=node.cluster,
        schedulable=node.schedulable and view.closure is None,
        unschedulable_reason=view.closure.reason if view.closure is not None else node.unschedulable_reason,
        silent=node.is_silent,
        fake=any(device.fake for device in node.devices),
        closure=None if view.closure is None else _closure_info(view.closure),
        draining=view.draining,
        power=power_state_of(view),
        power_detail="" if view.power is None else view.power.detail,
        planned=[_closure_info(closure) for closure in view.planned],
        jobs=list(view.jobs),
        unsandboxed=marks[0],
        unlimited=marks[1],
    )


def _closure_info(closure: Cordon) -> CordonInfo:
    return CordonInfo(
        begin=closure.begin, until=closure.until, reason=closure.reason, drain=closure.drain, by=closure.by
    )


def _device_info(use: DeviceUse, slices: list[SliceInfo]) -> DeviceInfo:
    return DeviceInfo(
        **device_facts(use.device),
        free_memory_mib=use.memory_free_mib,
        free_compute_milli=use.compute_free_milli,
        holders=list(use.holders),
        slices=slices,
        closure=None if use.closure is None else _closure_info(use.closure),
        probation_until=use.probation_until,
    )


def reason_info(job: str, state: JobState, reason: Reason) -> ReasonInfo:
    """Why a job waits or runs."""
    remedy, start = reason.remedy, reason.start
    return ReasonInfo(
        job=job,
        state=state.value,
        cause=reason.cause.value,
        summary=summary_of(reason),
        numbers=dict(reason.numbers),
        nodes={failed.value: count for failed, count in reason.nodes},
        position=reason.position,
        remedy=RemedyInfo(change=remedy.change, field=remedy.field, value=remedy.value) if remedy else None,
        start=None if start is None else _start_info(start),
        blocked_by=reason.blocked_by,
        opens_at=reason.opens_at,
    )


def deadline_info(outlook: DeadlineOutlook) -> DeadlineInfo:
    """An outlook as the API shows it."""
    return DeadlineInfo(
        at=outlook.deadline_at,
        verdict=outlook.verdict.value,
        likely_end_at=outlook.likely_end_at,
        latest_end_at=outlook.latest_end_at,
        unknown=outlook.unknown,
    )


def _start_info(start: StartEstimate) -> StartInfo:
    return StartInfo(
        earliest_at=start.earliest_at,
        latest_at=start.latest_at,
        basis=start.basis,
        likely_at=start.likely_at,
        unknown=start.unknown,
    )


def summary_of(reason: Reason) -> str:
    """A reason in words; the core knows seconds, people know the time of day."""
    if reason.cause in (Cause.WINDOW_CLOSED, Cause.LENDING_OVER) and reason.opens_at is not None:
        return f"{reason.summary}; opens {local_time(reason.opens_at)}"
    if reason.cause is Cause.CHEAPER_HOURS and reason.opens_at is not None:
        latest = local_time(dict(reason.numbers)["lines_up_by"])
        return f"{reason.summary} until {local_time(reason.opens_at)}; it lines up by {latest} at the latest"
    if reason.cause is Cause.RESERVATION and reason.opens_at is not None:
        # Of one that has not begun it is the begin, and nothing is counted; of others, the end.
        return f"{reason.summary}; {'until' if reason.numbers else 'that is'} {local_time(reason.opens_at)}"
    if reason.cause is Cause.KEPT and reason.opens_at is not None:
        return f"{reason.summary} until {local_time(reason.opens_at)}"
    if reason.cause is not Cause.NODES_CLOSED:
        return reason.summary
    if reason.opens_at is None:
        return f"{reason.summary}; open again when uncordoned"
    return f"{reason.summary}; open again {local_time(reason.opens_at)}"
