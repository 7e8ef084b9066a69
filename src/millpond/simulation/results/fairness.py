"""Who got how much of what they wanted: Jain's index and finish-time fairness."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millpond.scheduling.placement.arrays import FloatArray
from millpond.simulation.results.history import History


@dataclass(frozen=True, slots=True)
class TenantShare:
    """One user or queue.

    Attributes:
        rho: mean finish-time fairness of its jobs (Mahajan et al., NSDI'20, "Themis"): completion time in the
            shared cluster over completion time alone on its equal part of it; below 1 sharing paid off.
    """

    name: str
    jobs: int
    gpu_hours: float
    mean_jct_s: float
    rho: float


def tenant_shares(history: History) -> list[TenantShare]:
    """Every tenant that has a finished job, by name.

    Alone, a job of G cards on a part of P cards takes its duration, stretched by G / P where G is larger. Times below a
    second count as one.
    """
    names = np.array(history.tenants)
    part_milli = history.capacity_milli / max(len(set(history.tenants)), 1)
    stretch = np.maximum(history.gpu_milli / max(part_milli, 1.0), 1.0)
    rho = np.maximum(history.jct_s, 1.0) / np.maximum(history.duration_s * stretch, 1.0)
    shares = []
    for name in sorted(set(history.tenants)):
        mine = (names == name) & history.finished
        if mine.any():
            gpu_hours = float((history.held_s[mine] * history.gpu_milli[mine]).sum() / 3_600_000)
            mean_jct_s, mean_rho = float(history.jct_s[mine].mean()), float(rho[mine].mean())
            shares.append(TenantShare(str(name), int(mine.sum()), gpu_hours, mean_jct_s, mean_rho))
    return shares


def jain_index(values: FloatArray) -> float:
    """Jain's index of fairness: 1 when all are equal, 1/n when one has everything; NaN of nothing."""
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares else float("nan")
