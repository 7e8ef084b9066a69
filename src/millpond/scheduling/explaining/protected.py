"""Work that a waiting job could take the room of, if only it might be ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from millpond.model.reasons import Cause, Reason
from millpond.scheduling.ledger.holdings import HoldState
from millpond.scheduling.reclaiming.roster import SLOT_ALIVE, SLOT_PRIORITY, SLOT_PROTECTED_UNTIL
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
    by = _entitlement(state, record)
    if by is None:
        return None
    open_to_it, protected = _those_below(state, record, by)
    if not protected or _fits_without(state, open_to_it, fits) or not _fits_without(
        state, [*open_to_it, *protected], fits
    ):  # fmt: skip
        return None
    needed = _least(protected, lambda some: _fits_without(state, [*open_to_it, *some], fits))
    whose = "of lower priority"
    if by is Entitlement.GUARANTEE:
        whose = f"{whose} or on borrowed room" if state.settings.preempt_by_priority else "on borrowed room"
    one = len(needed) == 1
    why = dict.fromkeys(_protection(state, other, record) for other in needed)
    return Reason(
        Cause.VICTIMS_PROTECTED,
        f"{len(needed)} job{'' if one else 's'} {whose} would have to end for it, but may not be ended now "
        f"({', '.join(why)})",
        (("protected", len(needed)),),
        blocked_by=needed[0].id,
    )


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


def _entitlement(state: State, record: JobRecord) -> Entitlement | None:
    """By what the job may have running work ended, whatever the ordering says."""
    if is_guaranteed(state, record):
        return Entitlement.GUARANTEE
    return Entitlement.PRIORITY if state.settings.preempt_by_priority else None


def _those_below(state: State, record: JobRecord, by: Entitlement) -> tuple[list[JobRecord], list[JobRecord]]:
    """Work of the pool that would leave for a job: what may be ended, and what is protected."""
    may_leave: list[JobRecord] = []
    protected: list[JobRecord] = []
    by_priority_alone = by is not Entitlement.GUARANTEE
    if by_priority_alone and not _any_lower(state, record):
        return may_leave, protected
    rule, until = Displacement(state), state.roster.slots[SLOT_PROTECTED_UNTIL]
    is_open: dict[tuple[str, bool], bool] = {}
    """By owner and whether it has cards: all that the rule for guarantees looks at of running work."""
    for other in state.running.values():
        if other.slot < 0 or other.job.pool != record.job.pool:
            continue
        if len(may_leave) + len(protected) == MOST_BELOW:
            break
        is_lower = other.job.priority < record.job.priority
        is_lower &= state.settings.preempt_by_priority or other.job.is_background
        by_guarantee = False
        if not by_priority_alone:
            owner = (other.queue, other.gpu_milli > 0)
            if owner not in is_open:
                is_open[owner] = rule.is_open(record, other, by)
            by_guarantee = is_open[owner]
        if not is_lower and not by_guarantee:
            continue
        allowed = any(
            rule.may_displace(record, other, each)
            for each, holds in ((Entitlement.GUARANTEE, by_guarantee), (Entitlement.PRIORITY, is_lower))
            if holds
        )
        (may_leave if allowed and until[other.slot] <= state.now else protected).append(other)
    return may_leave, protected


def _any_lower(state: State, record: JobRecord) -> bool:
    """Whether any running work has a lower class than a job."""
    live = state.roster.live
    return bool((live[SLOT_PRIORITY][live[SLOT_ALIVE] > 0.0] < record.job.priority).any())


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
