"""This machine as nodes of the pool: its cores, its memory, its devices, real or pretended."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from millpond.model.devices import SWAP_SHARE, Device
from millpond.model.errors import UnavailableError
from millpond.model.nodes import Node
from millpond.node.devices.discovery import FoundVendors, find_vendors
from millpond.node.devices.fake import VENDOR, FakeVendor, fake_nodes
from millpond.node.devices.links import link_map, placed
from millpond.node.devices.nvidia import VENDOR as NVIDIA
from millpond.node.devices.vendor import NOTHING_OURS, DeviceVendor, OwnProcesses
from millpond.node.host import memory_cgroup

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine offers.

    Attributes:
        nodes: one real node, or several pretended ones.
        vendors: who answers for the devices, by ``Device.vendor``.
        notes: what a person should be told about it, such as why no GPU was found.
    """

    nodes: tuple[Node, ...]
    vendors: Mapping[str, DeviceVendor]
    notes: tuple[str, ...] = ()

    def environment(self, devices: Collection[Device]) -> dict[str, str]:
        """Variables that let a process see exactly these devices, and none of any other vendor."""
        variables = {"CUDA_VISIBLE_DEVICES": ""}
        for vendor in self.vendors.values():
            if vendor.name != VENDOR or devices:
                variables |= vendor.environment([device for device in devices if device.vendor == vendor.name])
        return variables


def describe_machine(
    fake_gpus: str = "",
    ours: OwnProcesses = NOTHING_OURS,
    found: FoundVendors | None = None,
    swap_mib: int | None = None,
) -> Machine:
    """Look at this machine.

    Args:
        fake_gpus: as given to ``--fake-gpus``; then the pretended nodes stand in for the machine.
        ours: what tasks of an earlier server use still (``node.task.runner.running_now``), lest it count as foreign.
        found: whom to ask for devices; by default all vendors that are installed.
        swap_mib: host memory for swapped work; by default a ``SWAP_SHARE``-th of it where devices can swap.

    Raises:
        InvalidInputError: ``fake_gpus`` cannot be read.
    """
    if fake_gpus:
        nodes = fake_nodes(fake_gpus, swap_mib)
        cards = sum(len(node.devices) for node in nodes)
        return Machine(nodes, {VENDOR: FakeVendor(nodes)}, (f"{cards} fake GPUs on {len(nodes)} fake nodes",))
    found = find_vendors() if found is None else found
    job_views = [_look(vendor, ours) for vendor in found.vendors]
    present = [look for look in job_views if look.devices]
    memory_mib = _memory_bytes() // _MIB
    can_swap = any(look.vendor.swaps() for look in present)
    node = Node(
        name=socket.gethostname(),
        cpu_milli=len(os.sched_getaffinity(0)) * 1000,
        memory_mib=memory_mib,
        devices=tuple(device for look in present for device in look.devices),
        link_map=present[0].link_map if len(present) == 1 else "",
        swap_mib=0 if not can_swap else memory_mib // SWAP_SHARE if swap_mib is None else swap_mib,
    )
    return Machine((node,), {look.vendor.name: look.vendor for look in present}, _notes(job_views, found.broken))


@dataclass(frozen=True, slots=True)
class _VendorDevices:
    """What one vendor has here."""

    vendor: DeviceVendor
    devices: tuple[Device, ...] = ()
    link_map: str = ""
    trouble: str = ""
    installed: bool = True


def _look(vendor: DeviceVendor, ours: OwnProcesses) -> _VendorDevices:
    availability = vendor.available()
    if not availability.usable:
        return _VendorDevices(vendor, trouble=availability.reason, installed=availability.installed)
    try:
        devices, links = vendor.discover(ours), vendor.links()
    except UnavailableError as error:
        return _VendorDevices(vendor, trouble=error.cause)
    if vendor.remaps():
        devices = tuple(replace(device, remaps=not device.parent) for device in devices)
    return _VendorDevices(vendor, placed(devices, links), link_map(devices, links))


def _notes(job_views: Sequence[_VendorDevices], broken: Mapping[str, str]) -> tuple[str, ...]:
    """What a person should be told: why devices are missing, and which are not proven."""
    if any(look.devices for look in job_views):
        broken_ones = [look for look in job_views if look.trouble and look.installed]
        notes = [f"{look.vendor.title} devices cannot be used: {look.trouble}" for look in broken_ones]
    else:
        reasons = [look.trouble for look in job_views if look.installed or look.vendor.name == NVIDIA]
        notes = [f"no GPUs: {'; '.join(reasons) or 'no vendor of devices is installed'}"]
    notes += [
        f"support for {look.vendor.title} devices is experimental: it has not met one yet"
        for look in job_views
        if look.devices and look.vendor.experimental
    ]
    return (*notes, *(f"the device plugin {name!r} is left out: {why}" for name, why in broken.items()))


def _memory_bytes() -> int:
    """Memory of the machine, or of the container we are in when that is less."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = memory_cgroup.limit_bytes()
    return physical if limit is None else min(physical, limit)
