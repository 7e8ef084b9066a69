"""Victims of a plan are suspended instead of ended, where that makes room enough.

Tried victim by victim on the trial ledger of a plan that was found, from the least disruptive way to the most: frozen,
if the place of the successor needs its compute alone and its device memory may stay beside; swapped, if the host memory
set aside takes its device memory; else it is ended. What the plan has proved stays proved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millpond.model.decisions import SuspendMode
from millpond.model.reasons import Cause
from millpond.scheduling import runs
from millpond.scheduling.ledger.holdings import FROZEN, SWAPPED, Holding
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.suspension.suspension import HOLD_OF, can_swap, leaves_by, suspend

ASKED_PER_CYCLE = 512
"""How many victims of one plan leave in one cycle where the pool suspends: a bound on work. A plan that has more asks
all of them in the cycles that follow at once."""


def soften(
    state: State, victims: Sequence[JobRecord], is_enough: Callable[[], bool]
) -> tuple[tuple[JobRecord, SuspendMode], ...]:
    """Those of the victims that need not end, with how they leave; what they keep is taken on the trial ledger.

    Args:
        is_enough: whether the limits above the job they make room for still admit it.
    """
    ways = ((victim, _soften(state, victim, is_enough)) for victim in victims)
    return tuple((victim, mode) for victim, mode in ways if mode is not None)


def ask_to_leave(
    state: State,
    victims: Sequence[JobRecord],
    softened: Sequence[tuple[JobRecord, SuspendMode]],
    cause: Cause,
    for_job: str,
) -> None:
    """Decide that victims leave for a job: in the way that ``soften`` found for them, else by an end.

    Args:
        softened: as ``soften`` gives it.
    """
    ways = {victim.id: mode for victim, mode in softened}
    for victim in victims:
        if victim.id in ways:
            suspend(state, victim, ways[victim.id], cause, for_job)
        else:
            runs.stop(state, victim, Trigger.ENDED_FOR_RETRY, cause, for_job=for_job)


def _soften(state: State, victim: JobRecord, is_enough: Callable[[], bool]) -> SuspendMode | None:
    holders = victim.holding_tasks()
    holdings = [task.holding for task in holders if task.holding is not None]
    for mode in leaves_by(state, victim):
        hold = HOLD_OF[mode]
        if hold is SWAPPED and not can_swap(state, victim):
            continue
        if hold is FROZEN and not all(map(state.cluster.has_device_memory, holdings)):
            continue
        mark = state.journal.begin()
        for holding in holdings:
            state.cluster.change(holding, hold)
        state.charge(victim, state.amounts.held(victim, holders), 1)
        state.limits.count(victim, 1)
        if is_enough() and _is_possible(state, holdings):
            state.journal.commit()
            return mode
        state.journal.rollback(mark)
    return None


def _is_possible(state: State, holdings: Sequence[Holding]) -> bool:
    """Whether what is held now can be held beside what these holdings keep, and the factor of the pool allows it."""
    cluster = state.cluster
    return not any(cluster.is_overdrawn(each) or cluster.swapped.is_beyond(each.devices) for each in holdings)
