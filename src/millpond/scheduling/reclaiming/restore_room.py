"""Room for suspended work that is wanted back: who came to its cards meanwhile and ranks below it leaves them again.

Suspended work goes on where it was, so it does not line up and no plan is made for it. Where it may go on and does not
fit, those that hold its devices are asked to leave for it if all of them rank below it: of a lower class of priority,
or of the same and a lower share class (an online service comes back to the card that backfill has used while it was
quiet). They leave in the gentlest way that makes room enough, and its place is claimed until they have.
"""

from __future__ import annotations

from collections.abc import Sequence

from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.scheduling.cycle.claims import Claim, Claims
from millpond.scheduling.ledger.holdings import NOTHING
from millpond.scheduling.reclaiming.attempts import hold_all
from millpond.scheduling.reclaiming.roster import SLOT_PROTECTED_UNTIL
from millpond.scheduling.reclaiming.suspend_instead import ask_to_leave, soften
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.suspension.holders import DeviceHolders
from millpond.scheduling.suspension.suspension import can_retake, is_suspending
from millpond.scheduling.tenancy.displacement import Displacement, Entitlement


def bring_back(state: State, claims: Claims, left: Sequence[JobRecord]) -> None:
    """Ask work that ranks below suspended work to leave its devices.

    Args:
        left: work that may go on and cannot.
    """
    pools = state.cluster.pools
    wanted = [record for record in left if record.job.pool in pools and pools[record.job.pool].suspends]
    wanted = [record for record in wanted if record.id not in claims.by_job and not is_suspending(state, record)]
    wanted = [record for record in wanted if not claims.are_on_nodes_of(record)]
    if not wanted:
        return
    holders, rule = DeviceHolders(state, wanted), Displacement(state)
    for record in wanted:
        if not claims.are_on_nodes_of(record) and _make_way(state, claims, rule, record, holders.of(record)):
            rule = Displacement(state)  # others run now than it has seen


def _make_way(
    state: State, claims: Claims, rule: Displacement, record: JobRecord, victims: Sequence[JobRecord]
) -> bool:
    """Ask all of them to leave for a suspended job; False, and nothing changed, if they may not be, or it is in vain.

    Args:
        rule: made since others were last asked.
    """
    if not victims:
        return False
    mark = state.journal.begin()
    for number, victim in enumerate(victims):
        if not _may_ask(state, rule, record, victim, victims[:number]):
            state.journal.rollback(mark)
            return False
        hold_all(state, victim, NOTHING)
    fits = can_retake(state, record)
    softened = soften(state, victims, lambda: True) if fits else ()
    state.journal.rollback(mark)
    if not fits:
        return False
    placed = [(task, task.holding) for task in record.tasks if task.holding is not None]
    claims.put(record.id, Claim(placed, tuple((each.id, each.attempt, ()) for each in victims), Cause.PREEMPTED))
    ask_to_leave(state, victims, softened, Cause.PREEMPTED, record.id)
    return True


def _may_ask(
    state: State, rule: Displacement, record: JobRecord, other: JobRecord, before: Sequence[JobRecord]
) -> bool:
    """Whether work ranks below the job and is not protected, those before it having been released."""
    is_less_urgent = other.job.share_class.rank > record.job.share_class.rank
    is_below = rule.may_displace(record, other, Entitlement.PRIORITY, before) or (
        is_less_urgent and rule.may_displace(record, other, Entitlement.ORDERING, before)
    )
    if not is_below or other.state is not JobState.RUNNING or other.slot < 0:
        return False
    return bool(state.roster.slots[SLOT_PROTECTED_UNTIL, other.slot] <= state.now)
