"""Other devices of the same node for one task that is there already, or whose memory lies in its host memory.

Its engine can bring device memory back on another device of the same vendor and model (``Device.remaps``). The task
keeps what it has of the node itself, and the devices it leaves are not chosen again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from millpond.model.hardware.devices import Device
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.ledger.holdings import Holding, HoldState
from millpond.scheduling.placement.shapes import Shape


def why_fixed(cluster: Cluster, holding: Holding) -> str:
    """Why the memory of a task cannot come back on other devices than these; empty when it can."""
    for device in _descriptions(cluster, holding.devices):
        if device.parent:
            return "an instance of a divided card (MIG) cannot be left without ending"
        if not device.remaps:
            return f"nothing on node {cluster.node_name(holding.node)} can bring device memory back on another card"
    return ""


def why_not_onto(cluster: Cluster, holding: Holding, devices: Iterable[int]) -> str:
    """Why the memory of a task cannot come back on these devices of its node; empty when it can."""
    kind = _kind(cluster, holding)
    for device in _descriptions(cluster, devices):
        if not _is_of(kind, device):
            return f"card {device.index} is of another model, and memory comes back on cards of the same model only"
    return ""


def has_others(cluster: Cluster, holding: Holding) -> bool:
    """Whether the node has enough devices, free or not, on which the memory of a task could come back."""
    if why_fixed(cluster, holding):
        return False
    node, kind = cluster.nodes[holding.node], _kind(cluster, holding)
    devices = () if node is None else node.devices
    usable = cluster.hardware.is_usable
    return sum(_is_of(kind, device) and usable(device) for device in devices) >= len(holding.devices)


def find_elsewhere(placer: Placer, holding: Holding) -> Holding | None:
    """The best devices of the node for what a task holds, if not those; None if there are none. Nothing is taken.

    One that runs leaves all the devices it has; one whose memory lies in host memory may have some of them again.
    """
    cluster, journal = placer.cluster, placer.cluster.journal
    mark = journal.begin()
    left = holding.devices if holding.hold is HoldState.RUNNING else ()
    cluster.change(holding, HoldState.NOTHING)
    bar(cluster, (*left, *_unfit(cluster, holding)))
    found = placer.take_on(holding.node, holding.shape)
    journal.rollback(mark)
    return found


def bar(cluster: Cluster, devices: Iterable[int]) -> None:
    """Take all compute that is left of these devices, in the open transaction: nothing more fits on them."""
    compute, limit = cluster.arrays.compute_free_cells, cluster.arrays.limit_free_cells
    for device in devices:
        free, most = max(compute[device], 0), max(limit[device], 0)
        if most:
            rest = Shape(devices=1, compute_milli=min(free, most), limit_milli=most, device_memory_mib=1)
            cluster.change(Holding(cluster.node_of(device), rest, (device,), (0,)), HoldState.RUNNING)


def devices_alone(holding: Holding) -> Holding:
    """What a task has of its devices without what it has of the node, not yet taken."""
    shape = replace(holding.shape, cpu_milli=0, memory_mib=0, extras=())
    return Holding(holding.node, shape, holding.devices, holding.memory_mib)


def names_of(cluster: Cluster, devices: Iterable[int]) -> str:
    """Devices as people name them: ``node/0, node/1``."""
    found = (cluster.device(device) for device in devices)
    return ", ".join(f"{node.name}/{device.index}" for node, device in (pair for pair in found if pair is not None))


def _descriptions(cluster: Cluster, devices: Iterable[int]) -> list[Device]:
    found = (cluster.device(device) for device in devices)
    return [pair[1] for pair in found if pair is not None]


def _kind(cluster: Cluster, holding: Holding) -> tuple[str, str]:
    device = _descriptions(cluster, holding.devices)[0]
    return device.vendor, device.model


def _is_of(kind: tuple[str, str], device: Device) -> bool:
    return (device.vendor, device.model) == kind and device.remaps and not device.parent


def _unfit(cluster: Cluster, holding: Holding) -> list[int]:
    kind, first = _kind(cluster, holding), int(cluster.arrays.first_device[holding.node])
    total = int(cluster.arrays.device_total[holding.node])
    pairs = ((device, cluster.device(device)) for device in range(first, first + total))
    return [device for device, pair in pairs if pair is None or not _is_of(kind, pair[1])]
