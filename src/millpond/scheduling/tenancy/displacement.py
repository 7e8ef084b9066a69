"""Which running work a waiting job may displace: the one rule that every plan asks.

1. A job within the guarantee of its queue displaces what other queues have borrowed, of whatever class.
2. Work within its guarantee is displaced by no job that lives on another promise.
3. Between the rest the class of priority decides, and between equals the ordering.

Protections come before all of this and are kept with the work itself: its minimum run time, its budget of preemptions,
and whether it is preemptible (``reclaiming.roster``).

That evictions end follows: where one job displaces another, either work within a guarantee takes the place of borrowed
work, and no borrower takes it back (2), or both live on the same promise or both borrow, and a higher class, or a key
that is lower by a margin, takes the place of a lower one. The classes and promises of running work rise with each
eviction, and there are finitely many. Time, too, changes keys; how often it does is bounded by the margin.
"""

from __future__ import annotations

from enum import Enum

from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State


class Entitlement(Enum):
    """By what a waiting job displaces running work."""

    GUARANTEE = "guarantee"
    """Asked only for a job that is within the guarantee of its queue."""
    PRIORITY = "priority"
    ORDERING = "ordering"


def may_displace(state: State, record: JobRecord, victim: JobRecord, by: Entitlement) -> bool:
    """Whether a job may displace running work by this entitlement, going by what their queues use now."""
    queues = state.queues
    if by is Entitlement.GUARANTEE:
        return victim.queue != record.queue and queues.may_take_back(record.queue, victim.queue)
    newcomer, holder = record.job.priority, victim.job.priority
    if holder >= newcomer if by is Entitlement.PRIORITY else holder != newcomer:
        return False
    return not queues.shields(victim.queue, record.queue)
