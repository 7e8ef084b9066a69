"""What visitors would lose if cells of the topology were returned to those who are owed them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.tenancy.cells.chains import Chain

EACH_VISIT = 1e-12
"""So little each visit counts beside what work loses: of cells that cost as much, the quietest comes first."""


class CellLosses:
    """Losses by cell, found for a level when they are asked for.

    Args:
        cards: by chain, which cards work holds, and the number of the work: (cards,) each.
        losses: (works,) what each loses if it has to leave.
    """

    def __init__(self, cards: dict[str, tuple[Int64Array, Int64Array]], losses: NDArray[np.float64]) -> None:
        self._cards = cards
        self._losses = losses
        self._found: dict[tuple[str, int], NDArray[np.float64]] = {}

    def of(self, chain: Chain, level: int) -> NDArray[np.float64]:
        """(cells,) what all visitors of a cell lose; work on several of its cards loses once."""
        found = self._found.get((chain.spec.name, level))
        if found is None:
            leaves, works = self._cards[chain.spec.name]
            count, width = len(chain.visitors[level]), len(self._losses)
            cells, works = np.divmod(np.unique(leaves // chain.size[level] * width + works), width)
            lost: NDArray[np.float64] = np.bincount(cells, self._losses[works], count).astype(np.float64)
            found = self._found[chain.spec.name, level] = lost + EACH_VISIT * np.array(chain.visitors[level])
        return found

    def in_order(self, chain: Chain, level: int, cells: int) -> list[int]:
        """These cells, as bits, from that on which least is lost."""
        losses = self.of(chain, level)
        packed = np.frombuffer(cells.to_bytes(-(-len(losses) // 8), "little"), dtype=np.uint8)
        numbers = np.flatnonzero(np.unpackbits(packed, count=len(losses), bitorder="little"))
        ordered: list[int] = numbers[np.argsort(losses[numbers], kind="stable")].tolist()
        return ordered
