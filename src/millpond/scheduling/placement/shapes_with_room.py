"""Which of several shapes fit on some node, asked again and again while placements change a few nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millpond.scheduling.placement.arrays import BoolArray, Int64Array
from millpond.scheduling.placement.selector import Selector
from millpond.scheduling.placement.shapes import Shape


class ShapesWithRoom:
    """Room for shapes anywhere: of those that fitted nowhere, only nodes that have changed since are looked at.

    To be used for as long as the cluster has the same extra resources.
    """

    def __init__(self, selector: Selector, shapes: Sequence[Shape]) -> None:
        self._selector = selector
        self._shapes = shapes
        self._vectors = selector.vectors(shapes)
        self._nowhere_at: Int64Array = np.full(len(shapes), -1)
        """(shapes,) how long the change log was when each fitted nowhere; -1: it fitted, or was not looked for yet."""

    def of(self, asked: Int64Array) -> BoolArray:
        """(asked,) whether each of the shapes with these numbers fits on some node now."""
        arrays = self._selector.arrays
        head, nowhere_at = arrays.change_head, self._nowhere_at[asked]
        have_room = nowhere_at < head
        for since in np.unique(nowhere_at[(nowhere_at >= 0) & have_room]).tolist():
            rows = np.flatnonzero(nowhere_at == since)
            have_room[rows] = self._selector.fit_on(arrays.changed_since(since), self._vectors[asked[rows]])
        rows = np.flatnonzero(have_room)
        if len(rows):
            have_room[rows] = self._selector.fit_anywhere([self._shapes[number] for number in asked[rows].tolist()])
        self._nowhere_at[asked] = np.where(have_room, -1, head)
        return have_room
