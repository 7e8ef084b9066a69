"""The kernel that makes Gittins ranks of what has been counted; what that is, and what ranks are for, says survival."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from millpond.scheduling.placement.kernels import kernel

FloatArray = NDArray[np.float64]


@kernel
def gittins_ranks(
    ended: FloatArray,
    outlived: FloatArray,
    edges: FloatArray,
    prior: float,
    prior_weight: float,
    pooled_weight: float,
    ranks: FloatArray,
    ends: FloatArray,
) -> None:
    """Fill ``ranks`` (classes, bins), seconds: the index of a job of the class that has reached the bin.

    ``ended``, ``outlived``: (classes, bins) counts. ``edges``: (bins + 1,) seconds. ``ends`` (2, classes, bins)
    receives the service after which half, and all but a tenth, of such jobs have ended.

    Interpreted, Python's numbers take less than half the time of numpy's: hence ``float``.
    """
    classes, bins = ended.shape
    last_edge = float(edges[bins])
    pooled = np.empty(bins)
    hazard = np.empty(bins)
    for b in range(bins):
        deaths = 0.0
        trials = 0.0
        for c in range(classes):
            deaths += ended[c, b]
            trials += ended[c, b] + outlived[c, b]
        pooled[b] = (deaths + prior_weight * prior) / (trials + prior_weight)
    unseen = -1
    for c in range(classes):
        own = 0.0
        for b in range(bins):
            own += ended[c, b] + outlived[c, b]
        if own == 0.0 and unseen >= 0:  # like another of which nothing is known
            ranks[c, :] = ranks[unseen, :]
            ends[:, c, :] = ends[:, unseen, :]
            continue
        if own == 0.0:
            unseen = c
        for b in range(bins):
            hazard[b] = (ended[c, b] + pooled_weight * pooled[b]) / (ended[c, b] + outlived[c, b] + pooled_weight)
        for b in range(bins):
            alive = 1.0
            chance = 0.0
            spent = 0.0
            best = 1e30
            half = last_edge
            most = last_edge
            lower = float(edges[b])
            for e in range(b, bins):
                ending = float(hazard[e])
                upper = float(edges[e + 1])
                chance += alive * ending
                spent += alive * (upper - lower) * (1.0 - 0.5 * ending)
                alive *= 1.0 - ending
                lower = upper
                if chance > 0.0:
                    best = min(best, spent / chance)
                if alive <= 0.5:
                    half = min(half, upper)
                if alive <= 0.1:
                    most = min(most, upper)
                if alive < 1e-4:
                    break
            ends[0, c, b] = half
            ends[1, c, b] = most
            ranks[c, b] = best
