"""Work that a waiting job could take the room of, if only it might be ended, or once it has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from millpond.model.amounts import count_text
from millpond.model.reasons import Cause, Reason
from millpond.model.states import JobState
from millpond.scheduling.ledger.holdings import HoldState
from millpond.scheduling.placement.arrays import BoolArray
from millpond.scheduling.reclaiming.roster import SLOT_ALIVE, SLOT_OWNER, SLOT_PRIORITY, SLOT_PROTECTED_UNTIL
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import is_guaranteed
from millpond.scheduling.tenancy.displacement import Displacement, Entitlement

MOST_BELOW: Final = 200
"""Running jobs that are looked at for one answer."""


def protected_in_the_way(state: State, record: JobRecord, fits: Callable[[], object]) -> Reason | None:
    """The reason of a job that would have room if work that is protected could be ended; None if there is none such.

    Args:
        fits: whether the job finds room now; asked in a trial that is rolled back.
    """
    guaranteed = is_guaranteed(state, record)
    open_to_it, protected = _those_below(state, record, guaranteed=guaranteed)
    if not protected or _fits_without(state, open_to_it, fits) or not _fits_without(
        state, [*open_to_it, *protected], fits
    ):  # fmt: skip
        return None
    needed = _least(protected, lambda some: _fits_without(state, [*open_to_it, *some], fits))
    whose = "of lower priority or on borrowed room" if guaranteed else "of lower priority"
    one = len(needed) == 1
    why = dict.fromkeys(_protection(state, other, record) for other in needed)
    return Reason(
        Cause.VICTIMS_PROTECTED,
        f"{len(needed)} job{'' if one else 's'} {whose} would have to end for it, but may not be ended now "
        f"({', '.join(why)})",
        (("protected", len(needed)),),
        blocked_by=needed[0].id,
    )


def ended_in_the_way(state: State, record: JobRecord, fits: Callable[[], object]) -> list[JobRecord]:
    """Work that is being ended already, and without which a job would have room; none where that would not do.

    Args:
        fits: as above.
    """
    ending = [
        other for other in state.off_roster() if other.state is JobState.STOPPING and other.job.pool == record.job.pool
    ]
    if not ending or not _fits_without(state, ending, fits):
        return []
    return _least(ending, lambda some: _fits_without(state, some, fits))


def behind_ended(reason: Reason, ending: list[JobRecord]) -> Reason:
    """The reason of a job that finds no room yet, with whose end it waits for."""
    others = len(ending) - 1
    who = f"{ending[0].id} and {count_text(others, 'other job')} are" if others else f"{ending[0].id} is"
    text = f"{who} being ended, which will be room enough"
    return replace(reason, summary=f"{reason.summary}; {text}", blocked_by=ending[0].id)


def _least(jobs: list[JobRecord], do: Callable[[Sequence[JobRecord]], bool]) -> list[JobRecord]:
    """Jobs that do together, of which none can be spared: large parts are left out before small ones."""
    needed, size = jobs, max(len(jobs) // 2, 1)
    while size:
        place = 0
        while place < len(needed):
            rest = [*needed[:place], *needed[place + size :]]
            if rest and do(rest):
                needed = rest
            else:
                place += size
        size //= 2
    return needed


def _protection(state: State, record: JobRecord, waiting: JobRecord) -> str:
    """Why running work may not be ended now for a waiting job."""
    if not record.job.preemptible:
        return "not preemptible"
    if record.preemptions >= record.job.preemption_budget:
        return "its budget of preemptions is used up"
    if state.roster.slots[SLOT_PROTECTED_UNTIL, record.slot] > state.now:
        by_queue = state.minimum_run_s(record) > record.job.minimum_run_s
        return f"in the minimum run time of queue {record.queue}" if by_queue else "in its minimum run time"
    if record.took_back and waiting.left_for == record.id:
        return "it took back what this job had borrowed"
    return "within the guarantee of its queue"


def _those_below(state: State, record: JobRecord, *, guaranteed: bool) -> tuple[list[JobRecord], list[JobRecord]]:
    """Work of the pool that would leave for a job: what may be ended, and what is protected."""
    may_leave: list[JobRecord] = []
    protected: list[JobRecord] = []
    rule, until = Displacement(state), state.roster.slots[SLOT_PROTECTED_UNTIL]
    live = state.roster.live
    lower, alive = live[SLOT_PRIORITY] < record.job.priority, live[SLOT_ALIVE] > 0.0
    open_to_it = _open(state, record, rule, alive) if guaranteed else np.zeros_like(lower)
    below = alive & (lower | open_to_it)
    if not below.any():
        return may_leave, protected
    is_below, is_lower, by_guarantee = below.tolist(), lower.tolist(), open_to_it.tolist()
    for other in state.running.values():
        slot = other.slot
        if slot < 0 or not is_below[slot] or other.job.pool != record.job.pool:
            continue
        if len(may_leave) + len(protected) == MOST_BELOW:
            break
        allowed = any(
            rule.may_displace(record, other, each)
            for each, holds in ((Entitlement.GUARANTEE, by_guarantee[slot]), (Entitlement.PRIORITY, is_lower[slot]))
            if holds
        )
        (may_leave if allowed and until[slot] <= state.now else protected).append(other)
    return may_leave, protected


def _open(state: State, record: JobRecord, rule: Displacement, alive: BoolArray) -> BoolArray:
    """(slots,) whose work the rule for guarantees opens to a job: it looks at the owners of running work alone."""
    roster = state.roster
    owners = np.zeros(roster.owner_count, dtype=np.bool_)
    for other in roster.one_of_each_owner(np.flatnonzero(alive)):
        owners[int(roster.slots[SLOT_OWNER, other.slot])] = rule.is_open(record, other, Entitlement.GUARANTEE)
    return roster.are_of(owners)


def _fits_without(state: State, gone: Sequence[JobRecord], fits: Callable[[], object]) -> bool:
    """Whether the job finds room if others hold nothing."""
    mark = state.journal.begin()
    for other in gone:
        for task in other.tasks:
            if task.holding is not None:
                state.cluster.change(task.holding, HoldState.NOTHING)
    found = bool(fits())
    state.journal.rollback(mark)
    return found
