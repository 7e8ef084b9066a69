"""The cluster as arrays: what placement reads, and nothing else.

Two tables, one row per field and one column per node or device, so that a kernel takes two arguments
instead of twenty. Every field is also an attribute: a C-contiguous view of its row, to be written in
place (``arrays.cpu_free_milli[node] -= 2000``). The views are replaced when a table grows, so hold the
``ClusterArrays``, not a view. A caller that changes a node calls ``touch(node)``: the change log is how the
cached scores of the selector stay exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
Int64Array = NDArray[np.int64]
NodeMask = NDArray[np.uint8]

NODE_FIELDS = (
    "cpu_free_milli",
    "memory_free_mib",
    "first_device",
    "device_total",
    "node_usable",
    "rack",
    "zone",
    "pool",
    "swap_free_mib",
    "link_type",
)
DEVICE_FIELDS = (
    "compute_free_milli",
    "limit_free_milli",
    "device_memory_free_mib",
    "device_memory_mib",
    "device_model",
    "device_usable",
    "socket",
    "switch",
    "load_base_milli",
    "load_rate_milli",
    "load_milli",
)

# Row numbers, spelled out because kernels need plain integers.
CPU_FREE, MEMORY_FREE, FIRST_DEVICE, DEVICE_TOTAL, NODE_USABLE, RACK, ZONE, POOL, SWAP_FREE, LINK_TYPE = range(10)
FIRST_EXTRA = 10
COMPUTE_FREE, LIMIT_FREE, DEVICE_MEMORY_FREE, DEVICE_MEMORY, DEVICE_MODEL, DEVICE_USABLE, SOCKET, SWITCH = range(8)
LOAD_BASE, LOAD_RATE = 8, 9

WHOLE_CARD_MILLI = 1000
NOT_MEASURED = -1
MODEL_LIMIT = 63
DEVICES_PER_NODE_LIMIT = 62

_FEW_CHANGES = 64
"""So many entries of the log are sooner looked at one by one."""


class ClusterArrays:
    """Struct-of-arrays state of the nodes and devices, with a change log.

    Shapes: ``node_table`` (10 + extras, node capacity), ``device_table`` (11, device capacity), both int64;
    attributes named in ``NODE_FIELDS`` and ``DEVICE_FIELDS`` are their rows. ``extra_free`` has shape (N, E).
    Only the first ``node_count`` nodes and ``device_count`` devices are live; node n owns the devices
    ``first_device[n] .. first_device[n] + device_total[n]``.

    ``cells`` of a field are the same memory for access to one entry at a time, which numpy is slow at.

    Units: CPU and compute in milli, memory in MiB. ``device_memory_mib`` 0 means unknown: memory then fits by
    share only. ``device_memory_free_mib`` must be lowered by every holder, so that a card is wholly free
    exactly when its compute and its memory both are. A device is expected to be used to ``load_base_milli`` less
    ``load_rate_milli`` thousandths of what is free of its compute (``ledger.card_loads``);
    ``load_milli`` is its load as measured.
    """

    node_table: Int64Array
    device_table: Int64Array
    cpu_free_milli: Int64Array
    memory_free_mib: Int64Array
    first_device: Int64Array
    device_total: Int64Array
    node_usable: Int64Array
    rack: Int64Array
    zone: Int64Array
    pool: Int64Array
    swap_free_mib: Int64Array
    link_type: Int64Array
    extra_free: Int64Array
    compute_free_milli: Int64Array
    limit_free_milli: Int64Array
    device_memory_free_mib: Int64Array
    device_memory_mib: Int64Array
    device_model: Int64Array
    device_usable: Int64Array
    socket: Int64Array
    switch: Int64Array
    load_base_milli: Int64Array
    load_rate_milli: Int64Array
    load_milli: Int64Array
    cpu_free_cells: memoryview[int]
    memory_free_cells: memoryview[int]
    compute_free_cells: memoryview[int]
    limit_free_cells: memoryview[int]
    device_memory_free_cells: memoryview[int]
    device_memory_cells: memoryview[int]
    device_usable_cells: memoryview[int]
    first_device_cells: memoryview[int]
    node_usable_cells: memoryview[int]
    swap_free_cells: memoryview[int]

    def __init__(
        self, node_capacity: int = 64, device_capacity: int = 512, *, extras: int = 0, log_size: int = 16_384
    ) -> None:
        self.node_count = 0
        self.device_count = 0
        self.extras = extras
        self.changed: Int64Array = np.zeros(log_size, dtype=np.int64)
        self._changed_cells = cells_of(self.changed)
        self.change_head = 0
        self._span = (0, 0)
        self._nodes_of_span: Int64Array = self.changed[:0]
        self._hold_nodes(np.zeros((FIRST_EXTRA + extras, max(node_capacity, 1)), dtype=np.int64))
        self._hold_devices(np.zeros((len(DEVICE_FIELDS), max(device_capacity, 1)), dtype=np.int64))

    def touch(self, node: int) -> None:
        """Log that ``node`` changed; call it after every mutation of the node or its devices."""
        head = self.change_head
        self._changed_cells[head % len(self._changed_cells)] = node
        self.change_head = head + 1

    def changed_since(self, head: int) -> Int64Array:
        """The nodes that changed since ``change_head`` was ``head``; all where the log is too short for that."""
        span, size = (head, self.change_head), len(self.changed)
        if span != self._span:
            self._span = span
            if self.change_head - head > size:
                self._nodes_of_span = np.arange(self.node_count)
            elif self.change_head - head <= _FEW_CHANGES:
                cells = self._changed_cells
                self._nodes_of_span = np.array(sorted({cells[each % size] for each in range(*span)}), dtype=np.int64)
            else:
                self._nodes_of_span = np.unique(self.changed[np.arange(*span) % size])
        return self._nodes_of_span

    def reserve(self, nodes: int, devices: int) -> None:
        """Make room for at least ``nodes`` and ``devices`` in all, doubling the tables when they are full."""
        if nodes > self.node_table.shape[1]:
            self._hold_nodes(_widened(self.node_table, max(nodes, 2 * self.node_table.shape[1])))
        if devices > self.device_table.shape[1]:
            self._hold_devices(_widened(self.device_table, max(devices, 2 * self.device_table.shape[1])))

    def append_node(
        self,
        *,
        cpu_milli: int,
        memory_mib: int,
        models: Sequence[int] = (),
        device_memory_mib: Sequence[int] | int = 0,
        limit_milli: int = WHOLE_CARD_MILLI,
        sockets: Sequence[int] | None = None,
        switches: Sequence[int] | None = None,
        rack: int = 0,
        zone: int = 0,
        pool: int = 0,
        swap_mib: int = 0,
        extras: Sequence[int] = (),
    ) -> int:
        """Add an idle, usable node with one device per entry of ``models``; return its index."""
        if len(models) > DEVICES_PER_NODE_LIMIT:
            raise ValueError(f"a node holds at most {DEVICES_PER_NODE_LIMIT} devices, not {len(models)}")
        node, first, count = self.node_count, self.device_count, len(models)
        self.reserve(node + 1, first + count)
        self.node_table[:, node] = [
            cpu_milli, memory_mib, first, count, 1, rack, zone, pool, swap_mib, 0,
            *extras, *([0] * (self.extras - len(extras))),
        ]  # fmt: skip
        owned = slice(first, first + count)
        self.compute_free_milli[owned] = WHOLE_CARD_MILLI
        self.limit_free_milli[owned] = limit_milli
        self.device_memory_mib[owned] = device_memory_mib
        self.device_memory_free_mib[owned] = device_memory_mib
        self.device_model[owned] = models
        self.device_usable[owned] = 1
        self.socket[owned] = 0 if sockets is None else sockets
        self.switch[owned] = 0 if switches is None else switches
        self.load_base_milli[owned] = self.load_rate_milli[owned] = WHOLE_CARD_MILLI
        self.load_milli[owned] = NOT_MEASURED
        self.node_count, self.device_count = node + 1, first + count
        self.touch(node)
        return node

    def copy_from(self, other: ClusterArrays) -> None:
        """Become like another one with the same extras and a log of the same size, as a fork of the scheduler does."""
        # Without the room to grow: new memory costs more than what is written to it.
        self._hold_nodes(other.node_table[:, : max(other.node_count, 1)].copy())
        self._hold_devices(other.device_table[:, : max(other.device_count, 1)].copy())
        self.changed[:] = other.changed
        self.change_head = other.change_head
        self._span = (0, 0)
        self.node_count, self.device_count = other.node_count, other.device_count

    def _hold_nodes(self, table: Int64Array) -> None:
        self.node_table = table
        for row, name in enumerate(NODE_FIELDS):
            setattr(self, name, table[row])
        self.extra_free = table[FIRST_EXTRA:].T
        self.cpu_free_cells, self.memory_free_cells = cells_of(table[CPU_FREE]), cells_of(table[MEMORY_FREE])
        self.first_device_cells, self.node_usable_cells = cells_of(table[FIRST_DEVICE]), cells_of(table[NODE_USABLE])
        self.swap_free_cells = cells_of(table[SWAP_FREE])

    def _hold_devices(self, table: Int64Array) -> None:
        self.device_table = table
        for row, name in enumerate(DEVICE_FIELDS):
            setattr(self, name, table[row])
        self.compute_free_cells, self.limit_free_cells = cells_of(table[COMPUTE_FREE]), cells_of(table[LIMIT_FREE])
        self.device_memory_free_cells = cells_of(table[DEVICE_MEMORY_FREE])
        self.device_memory_cells, self.device_usable_cells = (
            cells_of(table[DEVICE_MEMORY]),
            cells_of(table[DEVICE_USABLE]),
        )


def cells_of(table: Int64Array) -> memoryview[int]:
    """The same memory, flat, for access to one entry at a time."""
    return table.data.cast("B").cast("q")


def _widened(table: Int64Array, columns: int) -> Int64Array:
    wider = np.zeros((table.shape[0], columns), dtype=np.int64)
    wider[:, : table.shape[1]] = table
    return wider
