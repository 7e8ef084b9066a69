"""How the cards of a node are joined, as far as that is known: by its link map, else by switch and socket."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.topology import LINK_MAPS, Link
from millpond.scheduling.placement.links import id_cost


def links_of(node: Node) -> list[list[str]]:
    """A square matrix over the node's devices, in their order: a ``Link`` each, as ``nvlink-double``.

    Empty where there is one device, or nothing is known: devices of which none has a switch or socket of its own.
    """
    devices = node.devices
    costs = LINK_MAPS.get(node.link_map)
    if costs is None or len(costs) != len(devices):
        if len(devices) < 2 or not any(device.switch or device.socket for device in devices):
            return []
        costs = tuple(tuple(_cost(one, other) for other in devices) for one in devices)
    return [[_name(costs, row, column) for column in range(len(devices))] for row in range(len(devices))]


def _cost(one: Device, other: Device) -> int:
    return 0 if one is other else int(id_cost(one.switch, other.switch, one.socket, other.socket))


def _name(costs: Sequence[Sequence[int]], row: int, column: int) -> str:
    return Link(costs[row][column]).name.lower().replace("_", "-")
