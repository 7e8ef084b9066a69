"""This machine as nodes of the pool: its cores, its memory, its devices, real or pretended."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from millpond.model.devices import Device
from millpond.model.nodes import Node
from millpond.node import memory_cgroup
from millpond.node.devices.fake import FakeVendor, fake_nodes
from millpond.node.devices.nvidia import NvidiaVendor
from millpond.node.devices.vendor import NOTHING_OURS, DeviceVendor, Ours

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

    def environment(self, devices: tuple[Device, ...]) -> dict[str, str]:
        """Variables that let a process see exactly these devices of one vendor; none at all when there are none."""
        if not devices:
            return {"CUDA_VISIBLE_DEVICES": ""}
        return self.vendors[devices[0].vendor].environment(devices)

    def use_milli(self, devices: Collection[str]) -> dict[str, int]:
        """How much of the last moment each of these devices (by UUID) was computing, 0 to 1000; where that is known."""
        found: dict[str, int] = {}
        for vendor in self.vendors.values():
            found |= vendor.use_milli(devices)
        return found


def describe_machine(fake_gpus: str = "", ours: Ours = NOTHING_OURS, nvidia: NvidiaVendor | None = None) -> Machine:
    """Look at this machine.

    Args:
        fake_gpus: as given to ``--fake-gpus``; then the pretended nodes stand in for the machine.
        ours: what tasks of an earlier server use still (``runner.running_now``), lest it count as foreign.
        nvidia: the vendor to ask for NVIDIA cards; by default the installed driver.

    Raises:
        InvalidInputError: ``fake_gpus`` cannot be read.
    """
    if fake_gpus:
        nodes = fake_nodes(fake_gpus)
        cards = sum(len(node.devices) for node in nodes)
        return Machine(nodes, {"fake": FakeVendor(nodes)}, (f"{cards} fake GPUs on {len(nodes)} fake nodes",))
    nvidia = nvidia or NvidiaVendor()
    availability = nvidia.available()
    devices = nvidia.discover(ours)
    node = Node(
        name=socket.gethostname(),
        cpu_milli=len(os.sched_getaffinity(0)) * 1000,
        memory_mib=_memory_bytes() // _MIB,
        devices=devices,
        link_map=nvidia.link_map() if devices else "",
    )
    notes = () if availability.usable else (f"no GPUs: {availability.reason}",)
    return Machine((node,), {nvidia.name: nvidia}, notes)


def _memory_bytes() -> int:
    """Memory of the machine, or of the container we are in when that is less."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = memory_cgroup.limit_bytes()
    return physical if limit is None else min(physical, limit)
