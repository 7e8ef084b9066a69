"""In which order the pods of a packing trace arrive: inflated beyond the cluster's size and shuffled."""

from __future__ import annotations

import numpy as np

from millpond.model.errors import InvalidInputError


def inflate(gpu_milli: list[int], capacity_milli: int, until: float, seed: int) -> list[int]:
    """Indices of arriving pods: every pod once, clones until ``until`` times the capacity is asked for, shuffled once.

    Clones are drawn with replacement, each pod as likely as any other; the same seed gives the same order
    (numpy's ``default_rng``). This is the workload inflation of FGD (ATC'23, section 6.1).

    Args:
        gpu_milli: what each pod asks for.

    Raises:
        InvalidInputError: no pod asks for GPUs, so that clones would never get there.
    """
    if not any(gpu_milli):
        raise InvalidInputError("no pod asks for a GPU", "give a pod list with GPU work, or an --order file")
    draws = np.random.default_rng(seed)
    arriving = list(range(len(gpu_milli)))
    requested = sum(gpu_milli)
    goal = until * capacity_milli
    while requested < goal:
        clone = int(draws.integers(len(gpu_milli)))
        arriving.append(clone)
        requested += gpu_milli[clone]
    draws.shuffle(arriving)
    return arriving
