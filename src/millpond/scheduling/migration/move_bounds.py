"""What bounds the moves that the platform wants: who may move, what it costs, and how many are on their way at once.

A job that has moved rests for a while (``recent_moves``), few cards move at once, and a move has to bring ``PAY_BACK``
times what it costs within ``HORIZON_S``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from millpond.model.states import JobState, TaskState
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.placement.arrays import BoolArray, FloatArray
from millpond.scheduling.reclaiming.roster import SLOT_ALIVE, SLOT_CARDS, SLOT_IN_CELLS, SLOT_PROTECTED_UNTIL
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

PAY_BACK: Final = 3.0
"""A move has to bring so many times what it costs."""
HORIZON_S: Final = 3_600.0
"""What it brings later than that does not count."""
MOST_MOVING: Final = 0.05
"""Of the cards of a pool so many move at once; in a small pool one job does in any case."""


class MoveBounds:
    """The bounds of moves within one state."""

    def __init__(self, state: State, claims: Claims) -> None:
        self._state = state
        self._claims = claims

    def may_move(self) -> BoolArray:
        """(slots,) which running jobs are not protected, do not rest, and share no card as a pair."""
        state, slots = self._state, self._state.roster.live
        may_move: BoolArray = slots[SLOT_ALIVE] > 0.0
        may_move &= (slots[SLOT_PROTECTED_UNTIL] <= state.now) & (slots[SLOT_IN_CELLS] == 0.0)
        jobs = (state.jobs.get(job) for job in (*state.moves.by_job, *state.reserved.users))
        resting = [job.slot for job in (*jobs, *self._claims.asked()) if job is not None and job.slot >= 0]
        may_move[resting] = False
        hosts = [state.jobs[guest.packed_with].slot for guest in state.guests.values()]
        may_move[[slot for slot in hosts if slot >= 0]] = False
        return may_move

    def restart_costs(self) -> FloatArray:
        """(slots,) what an end and a start elsewhere costs each running job, in card-seconds."""
        state, size = self._state, self._state.roster.live[SLOT_CARDS]
        expected = state.settings.preemption_cost
        repeated_s = np.where(size > expected.large_above_gpus, expected.large_s, expected.small_s)
        costs: FloatArray = (state.moves.away_s + repeated_s) * size
        return costs

    def restart_cost_s(self, job: JobRecord) -> float:
        """What it costs each card of a job, in seconds."""
        return self._state.moves.cost_s(job.gpu_milli, self._state.settings.preemption_cost)

    def may_begin(self, jobs: Sequence[JobRecord]) -> bool:
        """Whether so many cards of their pool may be on their way at once."""
        state, pool = self._state, jobs[0].job.pool
        moving = [job for job in map(state.jobs.get, state.moves.under_way()) if job and self._is_moving(job, pool)]
        if not moving and len(jobs) == 1:
            return True
        return sum(job.gpu_milli for job in (*moving, *jobs)) <= MOST_MOVING * state.cluster.capacity.gpu_milli_of(pool)

    def _is_moving(self, job: JobRecord, pool: str) -> bool:
        is_under_way = job.id in self._claims.by_job or job.state in (JobState.STOPPING, JobState.STARTING)
        return is_under_way and job.job.pool == pool


def runs_wholly(job: JobRecord) -> bool:
    """Whether all tasks of a job run, and none is on its way from one card to another."""
    return (
        job.state is JobState.RUNNING
        and job.kept is None
        and all(task.state is TaskState.RUNNING and task.vacating is None for task in job.wanted())
    )
