"""This machine as nodes of the pool: its cores, its memory, its devices, real or pretended."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from millpond.model.amounts import count_text
from millpond.model.errors import UnavailableError
from millpond.model.hardware.devices import SWAP_SHARE, Device
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.telemetry import DeviceLink
from millpond.model.hardware.topology import Link
from millpond.model.units import MIB
from millpond.node.devices.discovery import FoundVendors, find_vendors
from millpond.node.devices.fake import VENDOR, FakeVendor, fake_nodes
from millpond.node.devices.nvidia import VENDOR as NVIDIA
from millpond.node.devices.vendor import NO_PROCESSES, DeviceVendor, OwnProcesses, PowerControl
from millpond.node.host import controllers
from millpond.node.host.device_filter import DeviceNumber

_BOARD_DEVICES = 8


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine offers.

    Attributes:
        nodes: one real node, or several pretended ones.
        vendors: who answers for the devices, by ``Device.vendor``.
        notes: remarks on it for the user, such as why no GPU was found.
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

    def device_numbers(self) -> dict[str, DeviceNumber]:
        """The numbers of the files by which programs open whole cards, by UUID, as far as they are known."""
        files = {uuid: path for vendor in self.vendors.values() for uuid, path in vendor.device_files().items()}
        return {uuid: number for uuid, path in files.items() if (number := _device_number(path)) is not None}

    @property
    def remaps(self) -> bool:
        """Whether work can be moved from card to card here while it runs."""
        return any(device.remaps for node in self.nodes for device in node.devices)

    def without_remaps(self) -> Machine:
        """The same, but for that."""
        nodes = (
            replace(node, devices=tuple(replace(device, remaps=False) for device in node.devices))
            for node in self.nodes
        )
        return replace(self, nodes=tuple(nodes))


def _device_number(path: Path) -> DeviceNumber | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (os.major(found.st_rdev), os.minor(found.st_rdev)) if stat.S_ISCHR(found.st_mode) else None


def fake_machine(nodes: tuple[Node, ...]) -> Machine:
    """Pretended nodes that stand in for this machine."""
    cards = sum(len(node.devices) for node in nodes)
    vendor = FakeVendor(nodes)
    nodes = tuple(replace(node, devices=with_cap_ranges(node.devices, vendor.power())) for node in nodes)
    return Machine(
        nodes, {VENDOR: vendor}, (f"{count_text(cards, 'fake GPU')} on {count_text(len(nodes), 'fake node')}",)
    )


def describe_machine(
    fake_gpus: str = "",
    own: OwnProcesses = NO_PROCESSES,
    found: FoundVendors | None = None,
    swap_mib: int | None = None,
) -> Machine:
    """Look at this machine.

    Args:
        fake_gpus: as given to ``--fake-gpus``; then the pretended nodes stand in for the machine.
        own: what tasks of an earlier server use still (``node.task.runner.running_now``), which is not foreign.
        found: whom to ask for devices; by default all vendors that are installed.
        swap_mib: host memory for swapped work; by default a ``SWAP_SHARE``-th of it where devices can swap.

    Raises:
        InvalidInputError: ``fake_gpus`` cannot be read.
    """
    if fake_gpus:
        return fake_machine(fake_nodes(fake_gpus, swap_mib))
    found = find_vendors() if found is None else found
    inventories = [_inventory(vendor, own) for vendor in found.vendors]
    present = [each for each in inventories if each.devices]
    memory_mib = _memory_bytes() // MIB
    can_swap = any(each.vendor.swaps() for each in present)
    node = Node(
        name=socket.gethostname(),
        cpu_milli=len(os.sched_getaffinity(0)) * 1000,
        memory_mib=memory_mib,
        devices=tuple(device for each in present for device in each.devices),
        link_map=present[0].link_map if len(present) == 1 else "",
        swap_mib=0 if not can_swap else memory_mib // SWAP_SHARE if swap_mib is None else swap_mib,
    )
    return Machine((node,), {each.vendor.name: each.vendor for each in present}, _notes(inventories, found.broken))


@dataclass(frozen=True, slots=True)
class _VendorInventory:
    """The devices of one vendor on this machine."""

    vendor: DeviceVendor
    devices: tuple[Device, ...] = ()
    link_map: str = ""
    trouble: str = ""
    installed: bool = True


def _inventory(vendor: DeviceVendor, own: OwnProcesses) -> _VendorInventory:
    availability = vendor.available()
    if not availability.usable:
        return _VendorInventory(vendor, trouble=availability.reason, installed=availability.installed)
    try:
        devices, links = vendor.discover(own), vendor.links()
    except UnavailableError as error:
        return _VendorInventory(vendor, trouble=error.cause)
    if vendor.remaps():
        devices = tuple(replace(device, remaps=not device.parent) for device in devices)
    devices = with_cap_ranges(devices, vendor.power())
    return _VendorInventory(vendor, placed(devices, links), link_map(devices, links))


def with_cap_ranges(devices: Sequence[Device], control: PowerControl | None) -> tuple[Device, ...]:
    """The devices with the power caps that their drivers allow."""
    found = []
    for device in devices:
        limits = None if control is None else control.limits(device.uuid)
        if limits is not None and limits.least_w and limits.most_w:
            device = replace(device, cap_range_w=(limits.least_w, limits.most_w))
        found.append(device)
    return tuple(found)


def _notes(inventories: Sequence[_VendorInventory], broken: Mapping[str, str]) -> tuple[str, ...]:
    """For the user: why devices are missing, and which are not proven."""
    if any(each.devices for each in inventories):
        broken_ones = [each for each in inventories if each.trouble and each.installed]
        notes = [f"{each.vendor.title} devices cannot be used: {each.trouble}" for each in broken_ones]
    else:
        reasons = [each.trouble for each in inventories if each.installed or each.vendor.name == NVIDIA]
        notes = [f"no GPUs: {'; '.join(reasons) or 'no vendor of devices is installed'}"]
    notes += [
        f"support for {each.vendor.title} devices is experimental: it has not met one yet"
        for each in inventories
        if each.devices and each.vendor.experimental
    ]
    return (*notes, *(f"the device plugin {name!r} is left out: {why}" for name, why in broken.items()))


def _memory_bytes() -> int:
    """Memory of the machine, or of the container we are in when that is less."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = controllers.memory_limit_bytes()
    return physical if limit is None else min(physical, limit)


# ---- how the devices are joined --------------------------------------------------------------------------------------


def placed(devices: Sequence[Device], links: Sequence[DeviceLink]) -> tuple[Device, ...]:
    """The devices with the numbers of the PCIe switch and the CPU socket they hang on.

    Only links over PCIe show that; where none is known, devices stay as they are.
    """
    buses = [link for link in links if link.link >= Link.PCIE_SWITCH]
    if not buses:
        return tuple(devices)
    switches = _groups(devices, buses, Link.PCIE_SWITCH)
    sockets = _groups(devices, buses, Link.SOCKET)
    return tuple(
        replace(device, switch=switches[device.parent or device.uuid], socket=sockets[device.parent or device.uuid])
        for device in devices
    )


def link_map(devices: Sequence[Device], links: Sequence[DeviceLink]) -> str:
    """The name in ``topology.LINK_MAPS`` of how the devices are joined; empty when only PCIe joins them."""
    if len(devices) != _BOARD_DEVICES:
        return ""
    kinds = {link.link for link in links}
    if Link.NVSWITCH in kinds:
        return "nvswitch-8"
    if kinds & {Link.NVLINK_DOUBLE, Link.NVLINK_SINGLE} and all(device.model == "V100" for device in devices):
        return "v100-cube-mesh"
    return ""


def _groups(devices: Sequence[Device], links: Sequence[DeviceLink], nearest: Link) -> dict[str, int]:
    """Numbers the groups of cards that have nothing farther than ``nearest`` between them."""
    cards = list(dict.fromkeys(device.parent or device.uuid for device in devices))
    near = {frozenset((link.one, link.other)) for link in links if link.link <= nearest}
    groups: dict[str, int] = {}
    for position, card in enumerate(cards):
        first = next((other for other in cards[:position] if frozenset((other, card)) in near), None)
        groups[card] = max(groups.values(), default=-1) + 1 if first is None else groups[first]
    return groups
