"""The roster: running work as arrays, so that a kernel can look for victims.

One row for each task's holding, chained by node; one slot for each job with what victim rules look at. It mirrors what
runs now and may be asked to leave: work that is stopping or suspended is not on it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from millpond.model.workloads import Priority
from millpond.scheduling.cluster import EXTRA_LIMIT
from millpond.scheduling.holdings import Holding
from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.records import JobRecord

FloatArray = NDArray[np.float64]

# Fields of a row.
ROW_NODE, ROW_SLOT, ROW_CPU, ROW_RAM, ROW_COMPUTE, ROW_LIMIT, ROW_DEVICES, ROW_NEXT, ROW_PREVIOUS = range(9)
ROW_FIRST_EXTRA = 9
_ROW_FIELDS = ROW_FIRST_EXTRA + EXTRA_LIMIT
_NO_EXTRAS = (0,) * EXTRA_LIMIT

# Fields of a slot.
(
    SLOT_ALIVE,
    SLOT_CARDS,
    SLOT_WAITED,
    SLOT_ATTAINED,
    SLOT_STARTED,
    SLOT_DEBT,
    SLOT_WHOLE,  # length by forecast or time limit; infinite when unknown
    SLOT_EXACT,  # 1 when that is certain: it cannot be outlived
    SLOT_PRIORITY,
    SLOT_PROTECTED_UNTIL,
    SLOT_CLASS,  # size class, see ordering.survival
    SLOT_WEIGHT,  # by which the ordering multiplies seconds left, for the size of the job
    SLOT_CHARGE,  # what the cost of its preemption adds to the key that displaces it
    SLOT_LIMIT,  # time limit in seconds of service; infinite when there is none
    SLOT_SEQUENCE,  # order of arrival: breaks ties
    SLOT_BIN,  # up to which bin of service it has been counted, see ordering.survival
) = range(16)
_SLOT_FIELDS = 16


MOST_MOVED_CARDS = 7
"""Only jobs of up to so many cards of one node are moved aside for others."""


class Roster:
    """Rows and slots with free lists; tables double when full.

    Attributes:
        rows: int64 (17, rows); row_devices, row_memory: int64 (rows, most devices of a task).
        node_head: int64 (nodes,), the first row of each node, -1 for none.
        slots: float64 (16, slots).
        records: the job of each slot, None where it is free.
    """

    def __init__(self) -> None:
        self.rows: Int64Array = np.zeros((_ROW_FIELDS, 64), dtype=np.int64)
        self.row_devices: Int64Array = np.zeros((64, 8), dtype=np.int64)
        self.row_memory: Int64Array = np.zeros((64, 8), dtype=np.int64)
        self.node_head: Int64Array = np.full(64, -1, dtype=np.int64)
        self.slots: FloatArray = np.zeros((_SLOT_FIELDS, 64))
        self.records: list[JobRecord | None] = [None] * 64
        self.version = 0
        """Rises with every change."""
        self._by_priority = [0] * len(Priority)
        self.used = 0
        """One more than the highest slot ever used: slots beyond it need not be read."""
        self._slot_rows: list[list[int]] = [[] for _ in range(64)]
        self._free_rows = list(range(63, -1, -1))
        self._free_slots = list(range(63, -1, -1))

    def add(self, record: JobRecord, now: float, sizes: tuple[float, float, float, float]) -> None:
        """Enter a job that runs, with all its holdings.

        Args:
            sizes: its length as the ordering knows it (infinite when it does not), whether that is certain (1.0 or
                0.0), and what the ordering makes of its size and of the cost of its preemption.
        """
        if record.slot >= 0:
            self.remove(record)
        if not self._free_slots:
            self._grow_slots()
        slot = record.slot = self._free_slots.pop()
        self.used = max(self.used, slot + 1)
        self.records[slot] = record
        whole_s, exact, weight, charge = sizes
        started = now if record.started_at is None else record.started_at
        job = record.job
        exempt = not job.preemptible or record.preemptions >= job.preemption_budget
        self.slots[:, slot] = (
            1.0,
            max(record.gpu_milli, 10) / 1000.0,
            max(started - record.submitted_at - record.attained_s, 0.0),
            record.attained_s,
            started,
            record.debt_s,
            whole_s,
            exact,
            float(job.priority),
            float("inf") if exempt else started + job.minimum_run_s,
            float(record.size_class),
            weight,
            charge,
            float("inf") if job.time_limit_s is None else job.time_limit_s,
            float(record.sequence),
            float(record.bins_outlived),
        )
        self.version += 1
        self._by_priority[job.priority] += 1
        rows = self._slot_rows[slot]
        for task in record.tasks:
            if task.holding is not None:
                rows.append(self._add_row(slot, task.holding))

    def remove(self, record: JobRecord) -> None:
        """Take a job off; nothing happens if it is not on the roster."""
        slot = record.slot
        if slot < 0:
            return
        for row in self._slot_rows[slot]:
            self._remove_row(row)
        self._slot_rows[slot].clear()
        self.slots[SLOT_ALIVE, slot] = 0.0
        self._by_priority[record.job.priority] -= 1
        record.bins_outlived = int(self.slots[SLOT_BIN, slot])
        self.records[slot] = None
        self._free_slots.append(slot)
        record.slot = -1
        self.version += 1

    def rows_of(self, slots: Int64Array) -> Int64Array:
        """The rows of these jobs, all in one array."""
        return np.array([row for slot in slots.tolist() for row in self._slot_rows[slot]], dtype=np.int64)

    def least_priority(self) -> float:
        """The lowest class among the jobs on the roster; infinite when it is empty."""
        for priority, count in enumerate(self._by_priority):
            if count:
                return float(priority)
        return float("inf")

    def _add_row(self, slot: int, holding: Holding) -> int:
        if not self._free_rows:
            self._grow_rows()
        node, count = holding.node, len(holding.devices)
        if node >= self.node_head.shape[0]:
            wider = np.full(max(node + 1, 2 * self.node_head.shape[0]), -1, dtype=np.int64)
            wider[: self.node_head.shape[0]] = self.node_head
            self.node_head = wider
        if count > self.row_devices.shape[1]:
            self.row_devices = _wider(self.row_devices, self.row_devices.shape[0], count)
            self.row_memory = _wider(self.row_memory, self.row_memory.shape[0], count)
        row = self._free_rows.pop()
        head = int(self.node_head[node])
        self.rows[:, row] = (
            node, slot, holding.cpu_milli, holding.ram_mib, holding.compute_milli, holding.limit_milli, count, head, -1,
            *holding.extras, *_NO_EXTRAS[len(holding.extras) :],
        )  # fmt: skip
        self.row_devices[row, :count] = holding.devices
        self.row_memory[row, :count] = holding.memory_mib
        if head >= 0:
            self.rows[ROW_PREVIOUS, head] = row
        self.node_head[node] = row
        return row

    def _remove_row(self, row: int) -> None:
        after, before = int(self.rows[ROW_NEXT, row]), int(self.rows[ROW_PREVIOUS, row])
        if before >= 0:
            self.rows[ROW_NEXT, before] = after
        else:
            self.node_head[self.rows[ROW_NODE, row]] = after
        if after >= 0:
            self.rows[ROW_PREVIOUS, after] = before
        self._free_rows.append(row)

    def _grow_slots(self) -> None:
        count = self.slots.shape[1]
        wider = np.zeros((_SLOT_FIELDS, 2 * count))
        wider[:, :count] = self.slots
        self.slots = wider
        self.records += [None] * count
        self._slot_rows += [[] for _ in range(count)]
        self._free_slots = list(range(2 * count - 1, count - 1, -1))

    def _grow_rows(self) -> None:
        count = self.rows.shape[1]
        rows = np.zeros((_ROW_FIELDS, 2 * count), dtype=np.int64)
        rows[:, :count] = self.rows
        self.rows = rows
        width = self.row_devices.shape[1]
        self.row_devices = _wider(self.row_devices, 2 * count, width)
        self.row_memory = _wider(self.row_memory, 2 * count, width)
        self._free_rows = list(range(2 * count - 1, count - 1, -1))


def _wider(table: Int64Array, rows: int, columns: int) -> Int64Array:
    grown = np.zeros((rows, columns), dtype=np.int64)
    grown[: table.shape[0], : table.shape[1]] = table
    return grown
