"""What happened in a replay, as arrays over jobs and a list of stretches in which cards were held."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millpond.model.decisions import Placement
from millpond.model.hardware.nodes import Node
from millpond.scheduling.placement.arrays import FloatArray
from millpond.simulation.clusters import capacity_milli
from millpond.simulation.kernel import Simulation


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch in which a job held cards.

    Attributes:
        done_s: work done meanwhile and not repeated later, in seconds at full speed.
    """

    job: int
    start_at: float
    end_at: float
    placements: tuple[Placement, ...]
    done_s: float = 0.0


@dataclass(frozen=True, slots=True)
class History:
    """A finished replay; arrays have one entry for each job, in order of submission.

    Attributes:
        first_start_at, ended_at: NaN for what never happened.
        held_s: time in which the job held cards.
        overhead_s: extra work charged for its preemptions.
        lost_s: work it did and had to repeat.
        deadline_at: NaN where there is none.
        tenants: whom each job belongs to: its user or, where no job names one, its queue.
    """

    nodes: tuple[Node, ...]
    submit_at: FloatArray
    duration_s: FloatArray
    gpu_milli: FloatArray
    first_start_at: FloatArray
    ended_at: FloatArray
    held_s: FloatArray
    overhead_s: FloatArray
    lost_s: FloatArray
    preemptions: NDArray[np.int64]
    deadline_at: FloatArray
    tenants: tuple[str, ...]
    runs: tuple[Run, ...]

    @property
    def capacity_milli(self) -> int:
        """GPU compute of the whole cluster."""
        return capacity_milli(self.nodes)

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Which jobs ended."""
        return ~np.isnan(self.ended_at)

    @property
    def jct_s(self) -> FloatArray:
        """Job completion time: from submission to end."""
        return self.ended_at - self.submit_at

    @property
    def wait_s(self) -> FloatArray:
        """All time from submission to end in which the job held nothing."""
        return np.maximum(self.jct_s - self.held_s, 0.0)


def history_of(simulation: Simulation) -> History:
    """The history of a simulation that has run."""
    entries = simulation.world.workload.jobs
    works = simulation.works
    named = any(entry.job.user for entry in entries)
    cost = simulation.world.costs.preemption
    return History(
        nodes=simulation.world.nodes,
        submit_at=np.array([entry.submit_at for entry in entries]),
        duration_s=np.array([entry.duration_s for entry in entries]),
        gpu_milli=np.array([float(entry.job.gpu_milli) for entry in entries]),
        first_start_at=np.array([work.first_start_at for work in works]),
        ended_at=np.array([work.ended_at for work in works]),
        held_s=np.array([work.held_s for work in works]),
        overhead_s=np.array([work.preemptions * cost.of(work.job.gpu_milli) for work in works]),
        lost_s=np.array([work.lost_s for work in works]),
        preemptions=np.array([work.preemptions for work in works], dtype=np.int64),
        deadline_at=np.array([np.nan if entry.job.deadline_s is None else entry.job.deadline_s for entry in entries]),
        tenants=tuple(entry.job.user if named else entry.job.queue for entry in entries),
        runs=tuple(Run(*run) for run in simulation.engine.runs),
    )
