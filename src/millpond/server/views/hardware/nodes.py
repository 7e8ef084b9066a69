"""Nodes as the API shows them."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.model.hardware.nodes import Cordon
from millpond.scheduling.nodes.views import DeviceUse, NodeView
from millpond.server.monitoring.telemetry.views import device_facts, power_state_of
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
