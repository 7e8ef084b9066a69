"""The roster: running work as arrays, so that a kernel can look for victims.

One row for each task's holding, chained by node; one slot for each job with what victim rules look at. It mirrors what
runs now and may be asked to leave: work that is stopping or suspended is not on it. All fields of one row lie side
by side in memory, for rows are visited one by one; slots are read field by field, all of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple, TypeVar

import numpy as np

from millpond.model.workloads import CheckpointMode, Kind, Priority
from millpond.scheduling.feasibility.name_index import EXTRA_LIMIT
from millpond.scheduling.ledger.holdings import Holding
from millpond.scheduling.placement.arrays import BoolArray, FloatArray, Int64Array, cells_of
from millpond.scheduling.records import JobRecord

Array = TypeVar("Array", Int64Array, FloatArray)

# Fields of a row.
ROW_NODE, ROW_SLOT, ROW_CPU, ROW_RAM, ROW_COMPUTE, ROW_LIMIT, ROW_DEVICES, ROW_NEXT, ROW_PREVIOUS = range(9)
ROW_FIRST_EXTRA = 9
_ROW_FIELDS = ROW_FIRST_EXTRA + EXTRA_LIMIT
_ROW = Struct(f"{_ROW_FIELDS}q")
_NO_EXTRAS = (0,) * EXTRA_LIMIT

# Fields of a slot.
(
    SLOT_ALIVE,
    SLOT_CARDS,
    SLOT_WAITED,
    SLOT_ATTAINED,
    SLOT_STARTED,
    SLOT_DEBT,
    SLOT_WHOLE,  # length by a trusted forecast; infinite when unknown
    SLOT_EXACT,  # 1 when that is certain: it cannot be outlived
    SLOT_PRIORITY,
    SLOT_PROTECTED_UNTIL,
    SLOT_CLASS,  # size class, see ordering.survival
    SLOT_WEIGHT,  # by which the ordering multiplies seconds left, for the size of the job
    SLOT_CHARGE,  # what the cost of its preemption adds to the key that displaces it
    SLOT_LIMIT,  # time limit in seconds of service; infinite when there is none
    SLOT_SEQUENCE,  # order of arrival: breaks ties
    SLOT_BIN,  # up to which bin of service it has been counted, see ordering.survival
    SLOT_LOSS,  # what each second of its run adds to that charge, where a preemption loses them
    SLOT_REACHED,  # the most service that an earlier run came to
    SLOT_OWNER,  # number of its queue, for work with cards another than for work without
    SLOT_IN_CELLS,  # 1 when it is in cells that its queue is owed
    SLOT_SAVES,  # 1 when it trains and saves itself on notice: it loses little by an end and a start
) = range(21)
_SLOT_FIELDS = 21


NO_NODE = -1
"""``ROW_NODE`` of a row that was given back."""

MOST_MOVED_CARDS = 7
"""Only jobs of up to so many cards of one node are moved aside for others."""

_FEW_SLOTS = 1_024
"""The rows of so many jobs are sooner put together than looked for among all."""

LEAST_MOVING_CARDS = 2.0
"""Only for jobs of so many cards are others moved aside."""


_PLACE_NODE, _PLACE_SLOT, _PLACE_MILLI = range(3)
"""Fields of a place: node and slot of a row, and the compute, in milli, that the job holds in all."""

_TABLES = (
    "rows", "row_devices", "row_memory", "node_head", "slots", "live", "_places",
    "_row_bytes", "_row_cells", "_device_cells", "_memory_cells", "_head_cells", "_slot_cells", "_place_cells",
)  # fmt: skip
"""All tables of a roster, and the same memory as cells."""


class RosterTables(NamedTuple):
    """The tables of a roster that say what lies on which node, see ``Roster``, as kernels hand them on to each other.

    Kernels that Python calls make such a tuple themselves, as to be called with one takes longer than with its arrays.
    """

    rows: Int64Array
    row_devices: Int64Array
    row_memory: Int64Array
    node_head: Int64Array


class _Sharers:
    """How many rosters have the same tables."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 1


class Roster:
    """Rows and slots with free lists; tables double when full. A copy shares them until one of the two changes them.

    Attributes:
        rows: int64 (17, rows); row_devices, row_memory: int64 (rows, most devices of a task).
        node_head: int64 (nodes,), the first row of each node, -1 for none.
        slots: float64 (21, slots); live: those that were ever used.
        records: the job of each slot, None where it is free.
    """

    def __init__(self) -> None:
        self.row_devices: Int64Array = np.zeros((0, 1), dtype=np.int64)
        self.row_memory: Int64Array = np.zeros((0, 1), dtype=np.int64)
        self._places: Int64Array = np.zeros((3, 0), dtype=np.int64)
        """(3, rows), what all rows are asked for at once, field by field."""
        self._hold_rows(np.zeros((64, _ROW_FIELDS), dtype=np.int64), devices=1)
        self.live: FloatArray = np.zeros((_SLOT_FIELDS, 0))
        self._hold_slots(np.zeros((_SLOT_FIELDS, 64)))
        self._hold_heads(np.full(64, -1, dtype=np.int64))
        self.records: list[JobRecord | None] = [None] * 64
        self.version = 0
        """Rises with every change."""
        self._by_priority = dict.fromkeys(Priority, 0)
        self._owner_numbers: dict[tuple[str, bool], int] = {}
        self._slot_rows: list[tuple[int, ...]] = [()] * 64
        self._rows_used = 0
        """How many rows were ever used; ``width`` says that of slots."""
        self._owners: Int64Array = np.zeros(0, dtype=np.int64)
        self._owners_at = (-1, 0)
        """Of which version and width these are."""
        self._free_rows: list[int] = []
        self._free_slots: list[int] = []
        """Those of them that were given back."""
        self._sharers = _Sharers()

    def copy_from(self, other: Roster, jobs: dict[str, JobRecord]) -> None:
        """Have ``jobs`` in their slots, as their twins are in another roster."""
        self._sharers = other._sharers
        self._sharers.count += 1
        for name in _TABLES:
            setattr(self, name, getattr(other, name))
        self.records = [None] * len(other.records)
        self.records[: other.width] = [record and jobs[record.id] for record in other.records[: other.width]]
        self._by_priority, self._slot_rows = dict(other._by_priority), list(other._slot_rows)
        self._owner_numbers = dict(other._owner_numbers)
        self._rows_used = other._rows_used
        self._free_rows, self._free_slots = list(other._free_rows), list(other._free_slots)
        self.version = other.version

    def leave_tables(self) -> None:
        """It is used no longer: a copy may change what they have had in common."""
        self._sharers.count -= 1

    def own_tables(self) -> None:
        """Before a change of the tables: from now on no copy sees them."""
        if self._sharers.count > 1:
            self._own_tables()

    def _own_tables(self) -> None:
        """Have copies of tables that others have too; the last that has them keeps them."""
        self._sharers.count -= 1
        self._sharers = _Sharers()
        # What was never used is zero, and is not touched: memory costs more than what is written to it.
        used, rows, devices = slice(self._rows_used), self.rows.T, self.row_devices.shape[1]
        self.row_devices, self.row_memory = self.row_devices[used], self.row_memory[used]
        self._places = self._places[:, used]
        self._hold_rows(_wider(rows[used], *rows.shape), devices=devices)
        self._hold_slots(_wider(self.live, *self.slots.shape))
        self._hold_heads(self.node_head.copy())

    def add(
        self, record: JobRecord, now: float, sizes: tuple[float, float, float, float, float], minimum_run_s: float
    ) -> None:
        """Enter a job that runs, with all its holdings.

        Args:
            sizes: what the ordering makes of it, see ``Ordering.sizes``.
            minimum_run_s: how long it runs before it may be asked to leave.
        """
        if record.slot >= 0:
            self.remove(record)
        if self._sharers.count > 1:
            self._own_tables()
        slot = record.slot = self._free_slots.pop() if self._free_slots else self._unused_slot()
        self.records[slot] = record
        whole_s, exact, weight, charge, loss = sizes
        started = now if record.started_at is None else record.started_at
        job = record.job
        values = (
            1.0,
            max(record.gpu_milli, 10) / 1000.0,
            max(started - record.submitted_at - record.attained_s, 0.0),
            record.attained_s,
            started,
            record.debt_s,
            whole_s,
            exact,
            job.priority,
            _protected_until(record, started, minimum_run_s),
            record.size_class,
            weight,
            charge,
            float("inf") if job.time_limit_s is None else job.time_limit_s,
            record.sequence,
            record.bins_outlived,
            loss,
            record.reached_s,
            self._owner_numbers.setdefault((record.queue, record.gpu_milli > 0), len(self._owner_numbers)),
            0.0,
            float(job.kind is Kind.TRAIN and job.checkpoint.mode is CheckpointMode.SIGNAL),
        )
        self._slot_cells[slot :: self.slots.shape[1]] = array("d", values)
        self.version += 1
        self._by_priority[job.priority] += 1
        holdings = [task.holding for task in record.tasks if task.holding is not None]
        milli = sum([holding.shape.compute_milli * len(holding.devices) for holding in holdings])
        self._slot_rows[slot] = tuple([self._add_row(slot, holding, milli) for holding in holdings])

    def set_minimum_run(self, record: JobRecord, minimum_run_s: float) -> None:
        """A job on the roster runs so long before it may be asked to leave."""
        started = float(self.slots[SLOT_STARTED, record.slot])
        until = _protected_until(record, started, minimum_run_s)
        if until != self.slots[SLOT_PROTECTED_UNTIL, record.slot]:
            self.own_tables()
            self.slots[SLOT_PROTECTED_UNTIL, record.slot] = until
            self.version += 1

    def remove(self, record: JobRecord) -> None:
        """Take a job off; nothing happens if it is not on the roster."""
        slot = record.slot
        if slot < 0:
            return
        if self._sharers.count > 1:
            self._own_tables()
        for row in self._slot_rows[slot]:
            self._remove_row(row)
        self._slot_rows[slot] = ()
        cells, stride = self._slot_cells, self.slots.shape[1]
        cells[SLOT_ALIVE * stride + slot] = 0.0
        self._by_priority[record.job.priority] -= 1
        record.bins_outlived = int(cells[SLOT_BIN * stride + slot])
        self.records[slot] = None
        self._free_slots.append(slot)
        record.slot = -1
        self.version += 1

    def mark(self, record: JobRecord, *, is_in_cells: bool) -> None:
        """Note whether a job is in cells, if it is on the roster and that is news."""
        if record.slot >= 0 and bool(self.slots[SLOT_IN_CELLS, record.slot]) is not is_in_cells:
            self.own_tables()
            self.slots[SLOT_IN_CELLS, record.slot] = float(is_in_cells)
            self.version += 1

    @property
    def width(self) -> int:
        """How many slots were ever used: when ranks are learnt anew depends on it."""
        count: int = self.live.shape[1]
        return count

    def widen(self, width: int) -> None:
        """Make an empty roster as wide as another one became."""
        while self.slots.shape[1] <= width:
            self._grow_slots()
        self._free_slots = list(range(width - 1, -1, -1))
        self.live = self.slots[:, :width]

    def rows_of(self, slots: Int64Array) -> Int64Array:
        """The rows of these jobs, all in one array."""
        return np.array([row for slot in slots.tolist() for row in self._slot_rows[slot]], dtype=np.int64)

    @property
    def count(self) -> int:
        """How many jobs are on the roster."""
        return sum(self._by_priority.values())

    @property
    def owner_count(self) -> int:
        """How many owners the roster has known."""
        return len(self._owner_numbers)

    @property
    def owners(self) -> Int64Array:
        """(slots,) the number of whose job each has, or had last; to be read, not written."""
        stamp = self.version, self.width
        if stamp != self._owners_at:
            self._owners, self._owners_at = self.live[SLOT_OWNER].astype(np.int64), stamp
        return self._owners

    def are_of(self, owners: BoolArray) -> BoolArray:
        """(slots,) whose job is of one of these owners, (owners,); a restored roster may know no owner yet."""
        known = owners if len(owners) else np.zeros(1, dtype=np.bool_)
        of_owners: BoolArray = known[self.owners]
        return of_owners

    def one_of_each_owner(self, slots: Int64Array) -> list[JobRecord]:
        """The last job with cards of each queue, and the last without, among these slots."""
        last = np.full(len(self._owner_numbers), -1, dtype=np.int64)
        last[self.slots[SLOT_OWNER, slots].astype(np.int64)] = slots
        return [record for slot in last.tolist() if slot >= 0 and (record := self.records[slot]) is not None]

    def holders_on(self, nodes: BoolArray) -> list[JobRecord]:
        """A job of each owner that holds something on these nodes, (nodes,)."""
        return self.one_of_each_owner(self.slots_on(np.flatnonzero(nodes)))

    def slots_on(self, nodes: Int64Array) -> Int64Array:
        """The jobs that hold something on these nodes."""
        # The last stands for no node, as given back rows have it.
        (places, slots, _), there = self.places(), np.zeros(len(self.node_head) + 1, dtype=np.bool_)
        there[nodes[nodes < len(self.node_head)]] = True  # beyond are nodes that never had any
        among = np.zeros(self.width, dtype=np.bool_)
        among[slots[there[places]]] = True
        return np.flatnonzero(among & (self.live[SLOT_ALIVE] > 0.0))

    def places(self, held_by: Int64Array | None = None) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Of rows the nodes, the slots, and what compute, in milli, their jobs hold in all: (rows,) each.

        They are to be read, not written.

        Args:
            held_by: whose rows; None: all, and those that were given back too, of which the node is ``NO_NODE``.
        """
        used = self._places[:, : self._rows_used]
        if held_by is not None:
            used = used.take(self._rows_in_order(held_by), axis=1)
        return used[_PLACE_NODE], used[_PLACE_SLOT], used[_PLACE_MILLI]

    def _rows_in_order(self, slots: Int64Array) -> Int64Array:
        """As ``rows_of``, the lowest first; quicker than that for very many jobs."""
        if len(slots) <= _FEW_SLOTS:
            return np.sort(self.rows_of(slots))
        wanted, (nodes, of_rows, _) = np.zeros(self.width, dtype=np.bool_), self.places()
        wanted[slots] = True
        return np.flatnonzero(wanted[of_rows] & (nodes != NO_NODE))

    def devices_of(self, wanted: BoolArray) -> tuple[Int64Array, Int64Array]:
        """The devices that jobs, (slots,), hold, and the slots of these jobs: (holdings,) each."""
        rows = self._rows_in_order(np.flatnonzero(wanted))
        counts = self.rows[ROW_DEVICES, rows]
        held = np.arange(self.row_devices.shape[1]) < counts[:, None]
        return self.row_devices[rows][held], np.repeat(self.rows[ROW_SLOT, rows], counts)

    def of_queues(self, is_wanted: Callable[[str], bool]) -> list[JobRecord]:
        """All jobs of some queues."""
        owners = np.array([is_wanted(queue) for queue, _ in self._owner_numbers], dtype=np.bool_)
        slots = np.flatnonzero(self.are_of(owners) & (self.live[SLOT_ALIVE] > 0.0)) if owners.any() else ()
        return [record for slot in slots if (record := self.records[slot]) is not None]

    def nodes_of(self, slot: int) -> list[int]:
        """The nodes that a job holds something of, one entry a task."""
        return [self._row_cells[row * _ROW_FIELDS + ROW_NODE] for row in self._slot_rows[slot]]

    def least_priority(self) -> float:
        """The lowest class among the jobs on the roster; infinite when it is empty."""
        for priority, count in self._by_priority.items():
            if count:
                return float(priority)
        return float("inf")

    def _add_row(self, slot: int, holding: Holding, milli: int) -> int:
        node, shape, count = holding.node, holding.shape, len(holding.devices)
        if node >= self.node_head.shape[0]:
            self._grow_heads(node + 1)
        if count > self.row_devices.shape[1]:
            self._hold_rows(self.rows.T, devices=count)
        row = self._free_rows.pop() if self._free_rows else self._unused_row()
        head = self._head_cells[node]
        _ROW.pack_into(
            self._row_bytes, row * _ROW.size,
            node, slot, shape.cpu_milli, shape.memory_mib, shape.compute_milli, shape.limit_milli, count, head, -1,
            *shape.extras, *_NO_EXTRAS[len(shape.extras) :],
        )  # fmt: skip
        places, stride = self._place_cells, self._places.shape[1]
        places[_PLACE_NODE * stride + row] = node
        places[_PLACE_SLOT * stride + row] = slot
        places[_PLACE_MILLI * stride + row] = milli
        devices, memory, place = self._device_cells, self._memory_cells, row * self.row_devices.shape[1]
        for position, device in enumerate(holding.devices, place):
            devices[position] = device
            memory[position] = holding.memory_mib[position - place]
        if head >= 0:
            self._row_cells[head * _ROW_FIELDS + ROW_PREVIOUS] = row
        self._head_cells[node] = row
        return row

    def _remove_row(self, row: int) -> None:
        cells, first = self._row_cells, row * _ROW_FIELDS
        after, before = cells[first + ROW_NEXT], cells[first + ROW_PREVIOUS]
        if before >= 0:
            cells[before * _ROW_FIELDS + ROW_NEXT] = after
        else:
            self._head_cells[cells[first + ROW_NODE]] = after
        if after >= 0:
            cells[after * _ROW_FIELDS + ROW_PREVIOUS] = before
        cells[first + ROW_NODE] = NO_NODE
        self._place_cells[_PLACE_NODE * self._places.shape[1] + row] = NO_NODE
        self._free_rows.append(row)

    # ---- tables that grow ---------------------------------------------------------------------------------------

    def _unused_slot(self) -> int:
        slot = self.width
        if slot + 1 == self.slots.shape[1]:  # all of the table would be another layout, and kernels compiled for that
            self._grow_slots()
        self.live = self.slots[:, : slot + 1]
        return slot

    def _unused_row(self) -> int:
        row = self._rows_used
        if row == self.rows.shape[1]:
            self._grow_rows()
        self._rows_used = row + 1
        return row

    def _grow_slots(self) -> None:
        # Not quite twice as many: fields a power of two apart would compete for the same lines of the cache.
        count = self.slots.shape[1]
        more = count + 8
        self._hold_slots(_wider(self.slots, _SLOT_FIELDS, count + more))
        self.records += [None] * more
        self._slot_rows += [()] * more

    def _grow_rows(self) -> None:
        count = self.rows.shape[1]
        self._hold_rows(_wider(self.rows.T, 2 * count, _ROW_FIELDS), devices=self.row_devices.shape[1])

    def _grow_heads(self, nodes: int) -> None:
        wider = np.full(max(nodes, 2 * self.node_head.shape[0]), -1, dtype=np.int64)
        wider[: self.node_head.shape[0]] = self.node_head
        self._hold_heads(wider)

    def _hold_slots(self, table: FloatArray) -> None:
        self.slots: FloatArray = table
        self.live = table[:, : self.width]
        self._slot_cells: memoryview[float] = table.data.cast("B").cast("d")

    def _hold_rows(self, table: Int64Array, *, devices: int) -> None:
        """Keep rows in a table (rows, 17), seen from outside as (17, rows), with so many devices for each."""
        count = table.shape[0]
        self.row_devices = _wider(self.row_devices, count, devices)
        self.row_memory = _wider(self.row_memory, count, devices)
        self._places = _wider(self._places, len(self._places), count)
        self.rows: Int64Array = table.T
        self._row_bytes = table.data.cast("B")
        self._row_cells: memoryview[int] = self._row_bytes.cast("q")
        self._device_cells, self._memory_cells = cells_of(self.row_devices), cells_of(self.row_memory)
        self._place_cells = cells_of(self._places)

    def _hold_heads(self, heads: Int64Array) -> None:
        self.node_head: Int64Array = heads
        self._head_cells = cells_of(heads)


def _protected_until(record: JobRecord, started: float, minimum_run_s: float) -> float:
    """Until when a run may not be asked to leave for others."""
    job = record.job
    is_exempt = not job.preemptible or record.preemptions >= job.preemption_budget
    return float("inf") if is_exempt else started + minimum_run_s


def _wider(table: Array, rows: int, columns: int) -> Array:
    kind: Any = table.dtype
    grown: Array = np.zeros((rows, columns), kind)
    grown[: table.shape[0], : table.shape[1]] = table
    return grown
