"""The waiting lines as columns: what a cycle compares of the first job of each line, for all lines at once.

A row stands for one line. Rows are dense and in no order. Accounts, requests and pools have small numbers, which are
given back with the last line that uses them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

import numpy as np

from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.placement.arrays import BoolArray, FloatArray, Int64Array
from millpond.scheduling.records import JobRecord

LineKey = tuple[object, ...]
Item = TypeVar("Item", bound=Hashable)

KEY, DISPLACES_ABOVE, SEQUENCE, PRIORITY, SUBMITTED, ATTAINED, REACHED, DEBT = range(8)
EXPECTED, CAUTIOUS, LIMIT, SIZE_CLASS, LEAST_MILLI, ASKED_MILLI, ASKED_CPU_MILLI, GROUPED, TASKS = range(8, 17)
FIGURES = 17
"""Columns of ``figures``: as in the record, infinite where there is no forecast or time limit (the key is the one that
the cluster's ordering gives); then the compute of the least size in which it may start, what it holds at least once it
has started, whether (1 or 0) its group has an ordering of its own, and how many tasks it has."""

ACCOUNT, QUEUE, REQUEST, POOL = range(4)
"""Columns of ``numbers``: positions in ``accounts``, ``queues``, ``requests`` and ``pools``."""

_FIRST_ROOM = 64


class Numbering(Generic[Item]):
    """Small numbers for what is in use, by count.

    Attributes:
        items: by number; None where a number is free.
        version: rises whenever a number is given to another item than before.
    """

    __slots__ = ("_free", "_numbers", "_uses", "items", "version")

    def __init__(self) -> None:
        self.items: list[Item | None] = []
        self.version = 0
        self._numbers: dict[Item, int] = {}
        self._uses: list[int] = []
        self._free: list[int] = []

    def take(self, item: Item) -> int:
        """The number of an item, used once more."""
        number = self._numbers.get(item)
        if number is None:
            if self._free:
                number = self._free.pop()
                self.items[number] = item
            else:
                number = len(self.items)
                self.items.append(item)
                self._uses.append(0)
            self._numbers[item] = number
            self.version += 1
        self._uses[number] += 1
        return number

    def number_of(self, item: Item) -> int | None:
        """The number of an item if it is in use."""
        return self._numbers.get(item)

    def give_back(self, number: int) -> None:
        """It is used once less."""
        self._uses[number] -= 1
        item = self.items[number]
        if self._uses[number] == 0 and item is not None:
            del self._numbers[item]
            self.items[number] = None
            self._free.append(number)


class LineTable:
    """The first job of every line.

    Attributes:
        keys: the line of each row.
        firsts: its first job.
        accounts: (queue, user).
    """

    __slots__ = ("_figures", "_numbers", "_row_of", "accounts", "firsts", "keys", "pools", "queues", "requests")

    def __init__(self) -> None:
        self._figures: FloatArray = np.zeros((FIGURES, _FIRST_ROOM))
        self._numbers: Int64Array = np.zeros((4, _FIRST_ROOM), dtype=np.int64)
        self.keys: list[LineKey] = []
        self.firsts: list[JobRecord] = []
        self._row_of: dict[LineKey, int] = {}
        self.accounts: Numbering[tuple[str, str]] = Numbering()
        self.queues: Numbering[str] = Numbering()
        self.requests: Numbering[RequestClass] = Numbering()
        self.pools: Numbering[str] = Numbering()

    def __contains__(self, key: LineKey) -> bool:
        return key in self._row_of

    def __len__(self) -> int:
        return len(self.keys)

    def figure(self, which: int) -> FloatArray:
        """(lines,) one column of the figures."""
        figure: FloatArray = self._figures[which, : len(self.keys)]
        return figure

    def number(self, which: int) -> Int64Array:
        """(lines,) one column of the numbers."""
        number: Int64Array = self._numbers[which, : len(self.keys)]
        return number

    def are_of(self, which: int, numbers: Collection[int]) -> BoolArray:
        """(lines,) whose number in a column is one of these."""
        column = self.number(which)
        wanted = np.zeros(int(column.max(initial=-1)) + 1, dtype=np.bool_)
        wanted[[number for number in numbers if number < len(wanted)]] = True
        are: BoolArray = wanted[column]
        return are

    def only(self, rows: Int64Array) -> LineTable:
        """Some of the lines by themselves, to be read: (rows,)."""
        some = LineTable()
        some._figures, some._numbers = self._figures.take(rows, axis=1), self._numbers.take(rows, axis=1)
        some.keys = [self.keys[row] for row in rows.tolist()]
        some.firsts = [self.firsts[row] for row in rows.tolist()]
        some.accounts, some.queues, some.requests, some.pools = self.accounts, self.queues, self.requests, self.pools
        return some

    def put(self, key: LineKey, first: JobRecord) -> None:
        """A job is the first of its line, perhaps of a new one, or its figures have changed."""
        row = self._row_of.get(key)
        if row is None:
            row = self._row_of[key] = len(self.keys)
            if row == self._figures.shape[1]:
                self._figures = np.hstack([self._figures, np.zeros_like(self._figures)])
                self._numbers = np.hstack([self._numbers, np.zeros_like(self._numbers)])
            self.keys.append(key)
            self.firsts.append(first)
            self._numbers[:, row] = (
                self.accounts.take((first.queue, first.job.user)),
                self.queues.take(first.queue),
                self.requests.take(first.demand),
                self.pools.take(first.job.pool),
            )
        self.firsts[row] = first
        least, limit = first.demand.least_amount, first.job.time_limit_s
        is_whole = len(first.tasks) == 1 or len(first.queued()) == len(first.tasks)
        self._figures[:, row] = (
            first.turn, first.displaces_above, first.sequence, first.job.priority,
            first.submitted_at, first.attained_s, first.reached_s, first.debt_s,
            np.inf if first.expected_s is None else first.expected_s,
            np.inf if first.cautious_s is None else first.cautious_s,
            np.inf if limit is None else limit,
            first.size_class, least.gpu_milli,
            least.gpu_milli if is_whole else 0, least.cpu_milli if is_whole else 0,
            first.group is not None, len(first.tasks),
        )  # fmt: skip

    def drop(self, key: LineKey) -> None:
        """A line is gone; the last row takes its place."""
        row = self._row_of.pop(key)
        account, queue, request, pool = self._numbers[:, row].tolist()
        self.accounts.give_back(account)
        self.queues.give_back(queue)
        self.requests.give_back(request)
        self.pools.give_back(pool)
        moved, first, last = self.keys.pop(), self.firsts.pop(), len(self.keys)
        if row != last:
            self.keys[row], self.firsts[row] = moved, first
            self._row_of[moved] = row
            self._figures[:, row] = self._figures[:, last]
            self._numbers[:, row] = self._numbers[:, last]
