"""What Gittins ranks are for says survival; here they are made of the chances of ending."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

NOBODY_LEFT = 1e-4
"""Of the jobs that have reached a bin: once fewer are left, it is not asked how they go on."""


def gittins_ranks(hazards: FloatArray, edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``ranks`` (classes, bins), seconds: the index of a job of the class that has reached the bin.

    And ``ends`` (2, classes, bins): the service after which half, and all but a tenth, of such jobs have ended.

    Args:
        hazards: (classes, bins) chance of ending in the bin, above 0, for a job that has reached it.
        edges: (bins + 1,) seconds.
    """
    bins = hazards.shape[1]
    begun = np.tri(bins, dtype=bool).T  # (bin reached, bin asked about)
    going_on = np.where(begun, (1.0 - hazards)[:, np.newaxis, :], 1.0)
    left = np.multiply.accumulate(going_on, axis=2)  # (classes, bin reached, bin asked about), at its end
    before = np.ones_like(left)
    before[:, :, 1:] = left[:, :, :-1]
    ending = np.where(begun, hazards[:, np.newaxis, :], 0.0)
    service = np.where(begun, np.diff(edges), 0.0)
    chance = np.add.accumulate(before * ending, axis=2)
    spent = np.add.accumulate(before * service * (1.0 - 0.5 * ending), axis=2)
    ratio = np.full_like(left, np.inf)
    np.divide(spent, chance, out=ratio, where=begun & (before >= NOBODY_LEFT))
    past = [np.minimum(1 + np.count_nonzero(left > part, axis=2), bins) for part in (0.5, 0.1)]
    return ratio.min(axis=2), edges[np.array(past)]
