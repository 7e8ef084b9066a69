"""All that wait, in order: what positions and futures begin with.

They are ranked all at once, as a cycle ranks the first of all lines, and kept as columns: of ten thousand that wait, a
question reads the ranks of a few hundred.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millpond.scheduling.ordering.line_table import POOL
from millpond.scheduling.placement.arrays import FloatArray, Int64Array
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.queue_rank import QueueRank, Rank

Ranked = tuple[Rank, int, JobRecord]
"""Rank, the arrival that decides among equals, and who."""


class LineOrder:
    """The order of one instant.

    Attributes:
        records: first to last.
    """

    def __init__(self, state: State) -> None:
        waiting, table = state.waiting, state.waiting.table
        lines = [waiting.lines[key] for key in table.keys]
        rows = np.repeat(np.arange(len(lines)), np.array([len(line) for line in lines], dtype=np.int64))
        records = [record for line in lines for _, _, record in line]
        places = np.array(QueueRank(state).places_of(table, rows, records))
        order = np.lexsort(places[::-1])
        self.records = list(map(records.__getitem__, order.tolist()))
        self._places: FloatArray = places.T[order]
        # Only those who have an ordering of their own go by the arrivals of others.
        sequences = np.array([float(record.sequence) for record in records]) if waiting.turns else places[-1]
        self._sequences = sequences[order]
        self._pools: Int64Array = table.number(POOL)[rows[order]]
        self._pool_numbers = {pool: number for number, pool in enumerate(table.pools.items)}

    def __contains__(self, record: JobRecord) -> bool:
        return any(self.records[place] is record for place in _places_of(self._sequences, record))

    def place_of(self, record: JobRecord) -> int:
        """How many go before one of them."""
        return _places_of(self._sequences, record)[0]

    def of_pool(self, pool: str) -> PoolOrder:
        """Those of a pool that still wait."""
        records = self.records
        of_pool = np.flatnonzero(self._pools == self._pool_numbers[pool]).tolist()
        places = np.array([place for place in of_pool if records[place].line], dtype=np.int64)
        return PoolOrder([records[place] for place in places.tolist()], self._places[places], self._sequences[places])


class PoolOrder:
    """The order of those that wait for one pool.

    Args:
        records: first to last.
        places: (jobs, parts) their ranks, and behind them the arrivals.
        sequences: (jobs,) their own arrivals.
    """

    def __init__(self, records: Sequence[JobRecord], places: FloatArray, sequences: FloatArray) -> None:
        self._records = records
        self._places = places
        self._sequences = sequences

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, record: JobRecord) -> bool:
        return bool(_places_of(self._sequences, record))

    def place_of(self, record: JobRecord) -> int:
        """How many go before one of them."""
        return _places_of(self._sequences, record)[0]

    def ranked(self, places: range) -> list[Ranked]:
        """Those at some places, with what they were ranked by."""
        of_places: list[list[float]] = self._places[list(places)].tolist()
        return [
            (tuple(rank), int(arrival), self._records[place])
            for place, (*rank, arrival) in zip(places, of_places, strict=True)
        ]


def _places_of(sequences: FloatArray, record: JobRecord) -> list[int]:
    """Where the job of an arrival stands; empty if it is not among them."""
    places: list[int] = np.flatnonzero(sequences == record.sequence).tolist()
    return places
