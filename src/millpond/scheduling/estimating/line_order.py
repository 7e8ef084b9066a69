"""All that wait, in order: what positions and futures begin with.

Where there are many lines their first are ranked all at once, as a cycle does.
"""

from __future__ import annotations

from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.queue_rank import QueueRank, Rank

Ranked = tuple[Rank, int, JobRecord]
"""Rank, the arrival that decides among equals, and who."""


class LineOrder:
    """The order of one instant.

    Attributes:
        ranked: first to last.
    """

    def __init__(self, state: State) -> None:
        self.ranked = sorted(_ranked(state), key=_place)
        self._place_of = {entry[2].sequence: place for place, entry in enumerate(self.ranked)}

    def __contains__(self, record: JobRecord) -> bool:
        place = self._place_of.get(record.sequence)
        return place is not None and self.ranked[place][2] is record

    def place_of(self, record: JobRecord) -> int:
        """How many go before one of them."""
        return self._place_of[record.sequence]


def _place(entry: Ranked) -> tuple[Rank, int]:
    return entry[:2]


def _ranked(state: State) -> list[Ranked]:
    standing, waiting = QueueRank(state), state.waiting
    if waiting.are_few:
        return [(*standing.place_of(record), record) for record in waiting]
    table, found = waiting.table, list[Ranked]()
    places = zip(*(column.tolist() for column in standing.places(table)), strict=True)
    for key, (*rank, arrival) in zip(table.keys, places, strict=True):
        line = waiting.lines[key]
        found.append((tuple(rank), int(arrival), line[0][2]))
        found += [(*standing.place_of(record), record) for _, _, record in line[1:]]
    return found
