"""What follows from how the devices of a machine are joined: groups of near ones, and boards that are known by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millpond.model.devices import Device
from millpond.model.telemetry import DeviceLink
from millpond.model.topology import Link

_BOARD_DEVICES = 8


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
