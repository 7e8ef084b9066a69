"""Cells that guarantees need whole, and which devices a placement must leave alone for them.

A cell is a switch, a socket, a node or a rack. It is wholly free when all its devices are usable and hold
nothing. A caller that owes whole cells to a tenant says how many free cells of each level may still be broken;
a placement that would break more is vetoed.

Source: Zhao et al., "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees", OSDI 2020 (cells by level;
here as a count per level, not as a binding of virtual to physical cells).
"""

from __future__ import annotations

from millpond.scheduling.placement.arrays import (
    COMPUTE_FREE,
    DEVICE_MEMORY,
    DEVICE_MEMORY_FREE,
    DEVICE_TOTAL,
    DEVICE_USABLE,
    FIRST_DEVICE,
    NODE_USABLE,
    RACK,
    SOCKET,
    SWITCH,
    Int64Array,
)
from millpond.scheduling.placement.kernels import lean_kernel

# Positions in ``level_spare``.
SWITCH_LEVEL, SOCKET_LEVEL, NODE_LEVEL, RACK_LEVEL = range(4)
LEVELS = 4


@lean_kernel
def device_idle(devices: Int64Array, device: int) -> bool:
    """Whether a device is usable and holds nothing."""
    return bool(
        devices[DEVICE_USABLE, device] != 0
        and devices[COMPUTE_FREE, device] == 1000
        and devices[DEVICE_MEMORY_FREE, device] == devices[DEVICE_MEMORY, device]
    )


@lean_kernel
def node_idle(nodes: Int64Array, devices: Int64Array, node: int) -> bool:
    """Whether a node is usable, has devices, and all of them are idle."""
    if nodes[NODE_USABLE, node] == 0 or nodes[DEVICE_TOTAL, node] == 0:
        return False
    first = nodes[FIRST_DEVICE, node]
    for device in range(first, first + nodes[DEVICE_TOTAL, node]):  # noqa: SIM110 - numba has no generators in all()
        if not device_idle(devices, device):
            return False
    return True


@lean_kernel
def refresh_racks(
    nodes: Int64Array,
    devices: Int64Array,
    changed: Int64Array,
    begin: int,
    head: int,
    known: int,
    count: int,
    occupied: Int64Array,
    busy: Int64Array,
) -> None:
    """Bring ``occupied`` (racks,), the busy nodes with devices of each, and ``busy`` (N,) up to the log's head.

    ``begin`` < 0 rebuilds. Nodes from ``known`` to ``count`` are new.
    """
    if begin < 0:
        occupied[:] = 0
        busy[:] = 0
        known = 0
        begin = head
    size = changed.shape[0]
    for entry in range(begin, head):
        node = changed[entry % size]
        if node < known:
            refresh_busy(nodes, devices, node, occupied, busy)
    for node in range(known, count):
        refresh_busy(nodes, devices, node, occupied, busy)


@lean_kernel
def refresh_busy(nodes: Int64Array, devices: Int64Array, node: int, occupied: Int64Array, busy: Int64Array) -> None:
    """Recompute one node's share in ``occupied``; ``busy`` remembers which rack it counted in, plus one."""
    now = 0
    if nodes[DEVICE_TOTAL, node] > 0 and not node_idle(nodes, devices, node):
        now = nodes[RACK, node] + 1
    before = busy[node]
    if now == before:
        return
    if before > 0:
        occupied[before - 1] -= 1
    if now > 0:
        occupied[now - 1] += 1
    busy[node] = now


@lean_kernel
def guarded_devices(nodes: Int64Array, devices: Int64Array, node: int, spare: Int64Array, occupied: Int64Array) -> int:
    """Devices of the node, as bits, that lie in a wholly free cell of a level without spare cells."""
    total = nodes[DEVICE_TOTAL, node]
    everything = (1 << total) - 1
    node_owed = spare[NODE_LEVEL] <= 0
    rack_owed = spare[RACK_LEVEL] <= 0 and occupied[nodes[RACK, node]] == 0
    if (node_owed or rack_owed) and node_idle(nodes, devices, node):
        return int(everything)
    guarded = 0
    if spare[SWITCH_LEVEL] <= 0:
        guarded |= idle_groups(nodes, devices, node, SWITCH)
    if spare[SOCKET_LEVEL] <= 0:
        guarded |= idle_groups(nodes, devices, node, SOCKET)
    return guarded


@lean_kernel
def count_broken(
    nodes: Int64Array, devices: Int64Array, node: int, cards: int, occupied: Int64Array, broken: Int64Array
) -> None:
    """How many wholly free cells of each level taking ``cards`` (bits) of the node breaks, into ``broken`` (4,)."""
    broken[:] = 0
    if cards == 0:
        return
    broken[SWITCH_LEVEL] = broken_groups(nodes, devices, node, SWITCH, cards)
    broken[SOCKET_LEVEL] = broken_groups(nodes, devices, node, SOCKET, cards)
    if node_idle(nodes, devices, node):
        broken[NODE_LEVEL] = 1
        if occupied[nodes[RACK, node]] == 0:
            broken[RACK_LEVEL] = 1


@lean_kernel
def idle_groups(nodes: Int64Array, devices: Int64Array, node: int, field: int) -> int:
    """Devices of the node, as bits, whose whole switch or socket (``field``) is idle."""
    first = nodes[FIRST_DEVICE, node]
    total = nodes[DEVICE_TOTAL, node]
    idle = 0
    for index in range(total):
        whole = True
        for other in range(total):
            if devices[field, first + other] == devices[field, first + index]:
                whole = whole and device_idle(devices, first + other)
        if whole:
            idle |= 1 << index
    return idle


@lean_kernel
def broken_groups(nodes: Int64Array, devices: Int64Array, node: int, field: int, cards: int) -> int:
    """How many wholly idle switches or sockets (``field``) taking ``cards`` would break."""
    first = nodes[FIRST_DEVICE, node]
    total = nodes[DEVICE_TOTAL, node]
    touched = idle_groups(nodes, devices, node, field) & cards
    broken = 0
    for index in range(total):
        if (touched >> index) & 1 == 0:
            continue
        broken += 1
        for other in range(index + 1, total):
            if devices[field, first + other] == devices[field, first + index]:
                touched &= ~(1 << other)
    return broken
