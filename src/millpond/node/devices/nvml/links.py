"""How NVIDIA cards are joined, by NVLink and over PCIe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from millpond.model.hardware.telemetry import DeviceLink
from millpond.model.hardware.topology import Link
from millpond.node.devices.nvml.library import Nvml, text

_TO_GPU, _TO_SWITCH = 0, 2
_MOST_LINKS = 18
_MULTIPLE_SWITCHES, _SAME_SOCKET = 20, 40
"""``nvmlGpuTopologyLevel_t`` of nvml.h: up to here cards are behind common PCIe switches, or on one CPU socket."""


def nvidia_links(nvml: Nvml, cards: Mapping[str, Any]) -> tuple[DeviceLink, ...]:
    """Every pair of cards, by what the driver knows of it.

    Args:
        cards: handles by UUID.
    """
    buses = {_bus(nvml.ask("nvmlDeviceGetPciInfo", card)): uuid for uuid, card in cards.items()}
    peers = {uuid: _peers(nvml, card, buses) for uuid, card in cards.items()}
    return tuple(
        DeviceLink(one, other, _link(nvml, (cards[one], cards[other]), (peers[one], peers[other]), (one, other)))
        for one, other in combinations(cards, 2)
    )


def _link(
    nvml: Nvml, handles: tuple[Any, Any], peers: tuple[Counter[str], Counter[str]], uuids: tuple[str, str]
) -> Link:
    mine, others = peers
    if mine[_SWITCH] and others[_SWITCH]:
        return Link.NVSWITCH
    bonds = max(mine[uuids[1]], others[uuids[0]])
    if bonds:
        return Link.NVLINK_DOUBLE if bonds > 1 else Link.NVLINK_SINGLE
    if mine[_SOME_GPU] and others[_SOME_GPU]:
        return Link.NVLINK_SINGLE
    level = nvml.ask("nvmlDeviceGetTopologyCommonAncestor", *handles)
    if level is None:  # virtual machines hide the bus; some report at least which memory is near
        places = [nvml.ask("nvmlDeviceGetNumaNodeId", handle) for handle in handles]
        return Link.SOCKET if places[0] is not None and places[0] == places[1] else Link.CROSS_SOCKET
    if level > _SAME_SOCKET:
        return Link.CROSS_SOCKET
    return Link.PCIE_SWITCH if level <= _MULTIPLE_SWITCHES else Link.SOCKET


_SWITCH = "switch"
_SOME_GPU = "gpu"
"""Stands for a peer that the driver does not name."""


def _peers(nvml: Nvml, card: Any, buses: Mapping[str, str]) -> Counter[str]:
    """Where the NVLinks of a card lead, and how many to each."""
    found: Counter[str] = Counter()
    for link in range(nvml.constant("NVML_NVLINK_MAX_LINKS", _MOST_LINKS)):
        if not nvml.ask("nvmlDeviceGetNvLinkState", card, link):
            continue
        kind = nvml.ask("nvmlDeviceGetNvLinkRemoteDeviceType", card, link)
        if kind == _TO_SWITCH:
            found[_SWITCH] += 1
        elif kind == _TO_GPU:
            remote = _bus(nvml.ask("nvmlDeviceGetNvLinkRemotePciInfo", card, link))
            found[buses.get(remote, "") if remote else _SOME_GPU] += 1
    return found


def _bus(info: Any) -> str:
    return "" if info is None else text(info.busId).lower()
