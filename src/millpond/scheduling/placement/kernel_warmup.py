"""Compiling everything a selector calls, ahead of the first decision.

Compilation takes seconds to tens of seconds, loading from the cache on disk well under one. A server runs this in a
background thread or at install time and swaps the kernels in when it returns.
"""

from __future__ import annotations

import numpy as np

from millpond.scheduling.placement.arrays import ClusterArrays
from millpond.scheduling.placement.kernels import KernelSet, compiled
from millpond.scheduling.placement.mix import TypicalMix
from millpond.scheduling.placement.selector import Selector
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placement.tables import Scorer, build_tables


def warm() -> KernelSet:
    """The compiled kernels, with those of the selector ready to run; raises what ``compiled`` raises."""
    kernels = compiled()
    arrays = ClusterArrays(2, 4)
    arrays.append_node(cpu_milli=8_000, memory_mib=8_192, models=[0, 0])
    shape, mask = Shape(1_000, 0, 2), np.ones(1, dtype=np.uint8)
    selector = Selector(arrays, build_tables(TypicalMix.from_counts([(shape, 1)])), kernels=kernels)
    selector.place(shape)
    for _ in range(2):  # what has fitted nowhere is looked for on changed nodes
        arrays.touch(0)
        selector.fit_anywhere([Shape(9_000, 0, 1)])
    selector.choose_devices(0, shape)
    selector.fit(0, shape)
    selector.failures(shape, mask)
    selector.member_room(shape, mask)
    selector.use_tables(build_tables(TypicalMix(), Scorer.RANDOM))
    selector.place(shape)
    return kernels
