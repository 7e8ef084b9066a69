"""What runs hold of the nodes of a future, and how much harm it does at least that they leave room there."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from millpond.scheduling.estimating.rooms import Taken
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.placement.arrays import FloatArray, Int64Array

NodeBound = tuple[float, int, int]
"""What harm is done at least on a node; its place, of which the lowest goes first; and the node."""


class HeldOnNode(NamedTuple):
    """What a run holds of a node: in the order in which runs of lower classes leave it, from the last."""

    begun_s: float
    number: int
    amount: int


class HeldNodes:
    """What is held of each node.

    Attributes:
        on_node: by whom, in the order in which they began.
    """

    def __init__(self) -> None:
        self.on_node: dict[int, list[HeldOnNode]] = {}
        self._order: Int64Array = np.zeros(0, dtype=np.int64)
        """The nodes of ``on_node``."""
        self._parts: Int64Array = np.zeros((3, 0), dtype=np.int64)
        """(number, node, amount; parts) of all that began, of those that are gone too; never written to,"""
        self._begun: list[tuple[int, int, int]] = []
        """but for these."""

    def fork(self) -> HeldNodes:
        """A twin with which a future begins."""
        self._join_begun()
        twin = HeldNodes()
        twin.on_node = {node: held.copy() for node, held in self.on_node.items()}
        twin._order, twin._parts = self._order, self._parts
        return twin

    def add(self, number: int, begun_s: float, taken: Taken) -> None:
        """A job has begun to run."""
        for node, amount in taken:
            insort(self.on_node.setdefault(node, []), HeldOnNode(begun_s, number, amount))
            self._begun.append((number, node, amount))

    def remove(self, number: int, begun_s: float, taken: Taken) -> None:
        """It runs no longer."""
        for node, amount in taken:
            held = self.on_node[node]
            del held[bisect_left(held, HeldOnNode(begun_s, number, amount))]

    def bounds(self, harm: FloatArray, amount: int, free: Sequence[int]) -> tuple[list[NodeBound], int]:
        """The nodes on which a task may get room as runs leave, the least bound first; and how many these hold.

        One of them has to leave at least, and no unit costs less than the cheapest.

        Args:
            harm: (numbers,) of their leaving; infinite for those that stay.
            amount: of the task.
            free: of each node.
        """
        self._join_begun()
        numbers, nodes, amounts = self._parts
        of_parts = harm[numbers]
        leaving = (of_parts < NEVER).nonzero()[0]
        nodes, amounts, of_parts = nodes[leaving], amounts[leaving], of_parts[leaving]
        room, (of_one, of_unit) = np.bincount(nodes, amounts, len(free)), np.full((2, len(free)), NEVER)
        np.minimum.at(of_one, nodes, of_parts)
        np.minimum.at(of_unit, nodes, of_parts / np.maximum(amounts, 1))
        missing, has_any = amount - np.array(free), of_one < NEVER
        places = (has_any & (room >= missing))[self._order].nonzero()[0]
        open_to_it = self._order[places]
        least = np.maximum(of_one[open_to_it], of_unit[open_to_it] * missing[open_to_it])
        in_turn = np.argsort(least, kind="stable")
        found = zip(least[in_turn].tolist(), places[in_turn].tolist(), open_to_it[in_turn].tolist(), strict=True)
        return list(found), int(has_any.sum())

    def _join_begun(self) -> None:
        if self._begun:
            self._parts = np.concatenate((self._parts, np.array(self._begun, dtype=np.int64).T), axis=1)
            self._begun.clear()
        if len(self._order) < len(self.on_node):
            self._order = np.array(list(self.on_node), dtype=np.int64)
