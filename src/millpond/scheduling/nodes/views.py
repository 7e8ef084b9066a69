"""Views of nodes for display: capacity, what is free, which jobs hold what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from millpond.model.hardware.devices import Device
from millpond.model.hardware.node_power import NodePower
from millpond.model.hardware.nodes import Cordon, Node
from millpond.scheduling.ledger.holdings import HoldState
from millpond.scheduling.state import State


class DeviceUse(NamedTuple):
    """One device with its present use; a tuple, as a large pool has tens of thousands, made for each look.

    Attributes:
        compute_free_milli, memory_free_mib: what is free of it.
        holders: ids of the jobs that hold a part of it, suspended ones included.
        closure: what keeps its card closed, its node aside; None when that is open.
        probation_until: its card came back from a fault, and closes by itself if it fails once more before then.
    """

    device: Device
    compute_free_milli: int
    memory_free_mib: int
    holders: tuple[str, ...]
    closure: Cordon | None
    probation_until: float | None


@dataclass(frozen=True, slots=True)
class NodeFree:
    """What is free of a node besides its devices."""

    cpu_milli: int
    memory_mib: int
    swap_mib: int


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node with its present use.

    Attributes:
        cpu_capacity_milli: allocatable CPUs, by the factor of its pool.
        jobs: ids of the jobs that hold anything of it.
        closure: what keeps it closed now; None when it is open to new work.
        draining: preemptible work on it was asked to leave.
        planned: its closures to come, in order.
        power: None if it was never switched.
    """

    node: Node
    free: NodeFree
    devices: tuple[DeviceUse, ...]
    jobs: tuple[str, ...]
    closure: Cordon | None
    draining: bool
    planned: tuple[Cordon, ...]
    cpu_capacity_milli: int
    power: NodePower | None


def node_views(state: State, name: str = "") -> list[NodeView]:
    """All nodes, in order of joining, or the one of this name."""
    holders: dict[int, dict[str, None]] = {}
    guests: dict[int, dict[str, None]] = {}
    for record in state.running.values():
        for task in record.tasks:
            if task.holding is not None and task.holding.hold is not HoldState.NOTHING:
                guests.setdefault(task.holding.node, {})[record.id] = None
                for device in task.holding.devices:
                    holders.setdefault(device, {})[record.id] = None
    cordons, arrays = state.cordons, state.cluster.arrays
    uses = _device_uses(state, holders)
    views = []
    for index, node in enumerate(state.cluster.nodes):
        if node is None or name not in ("", node.name):
            continue
        first = int(arrays.first_device[index])
        free = NodeFree(
            int(arrays.cpu_free_milli[index]), int(arrays.memory_free_mib[index]), int(arrays.swap_free_mib[index])
        )
        views.append(
            NodeView(
                node,
                free,
                tuple(uses(first, node)),
                tuple(guests.get(index, ())),
                cordons.at(node.name, state.now),
                cordons.is_draining(node.name),
                tuple(each for each in cordons.by_node.get(node.name, ()) if each.begin > state.now),
                state.cluster.pools[node.pool].cpu_capacity_milli(node),
                cordons.power.get(node.name),
            )
        )
    return views


def _device_uses(state: State, holders: Mapping[int, Iterable[str]]) -> Callable[[int, Node], Iterator[DeviceUse]]:
    """Gives the uses of a node's devices, of which the first has this number.

    Args:
        holders: ids of jobs by the number of a device.
    """
    arrays, cards, now = state.cluster.arrays, state.card_cordons, state.now
    compute_free, memory_free = arrays.compute_free_milli.tolist(), arrays.device_memory_free_mib.tolist()
    is_any_watched = bool(cards.by_card or cards.probation or cards.layout_changes)

    def of(first: int, node: Node) -> Iterator[DeviceUse]:
        for number, device in enumerate(node.devices, start=first):
            closure, watched_until = None, None
            if is_any_watched:
                closure, watched_until = cards.closure(device.card), cards.on_probation_until(device.card, now)
            held_by = tuple(holders.get(number, ()))
            yield DeviceUse(device, compute_free[number], memory_free[number], held_by, closure, watched_until)

    return of
