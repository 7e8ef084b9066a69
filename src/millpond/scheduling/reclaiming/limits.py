"""Room under a limit: a queue within its guarantee takes back what others borrowed of a limit above them both."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from millpond.model.resources import Amount
from millpond.scheduling.placement.arrays import FloatArray
from millpond.scheduling.reclaiming.attempts import Attempt
from millpond.scheduling.reclaiming.roster import SLOT_SEQUENCE
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State


def within(state: State, limiting: str, harm: FloatArray) -> FloatArray:
    """(slots,) the harm of ending each job, infinite for those that hold nothing of the queue's limit."""
    queues = state.queues
    allowed = harm.copy()
    for slot in np.flatnonzero(harm < np.inf).tolist():
        victim = state.roster.records[slot]
        if victim is None or not queues.is_below(victim.queue, limiting):
            allowed[slot] = np.inf
    return allowed


def make_room_under_limits(state: State, record: JobRecord, amount: Amount, attempt: Attempt) -> bool:
    """Release the cheapest victims until all limits above the job admit it; False if they never do.

    Victims that others made superfluous stay.
    """
    asked: list[JobRecord] = []
    cheapest: dict[str, Iterator[int]] = {}
    while (limiting := state.entitlements.limiting(record, amount)) is not None:
        name = limiting.queue.name
        if name not in cheapest:
            cheapest[name] = _cheapest_first(state, name, attempt)
        slot = next((slot for slot in cheapest[name] if attempt.harm[slot] < np.inf), None)
        if slot is None:
            return False
        if attempt.release(slot):
            asked.append(attempt.victims[-1])
    for victim in reversed(asked):
        attempt.spare(victim, lambda: state.entitlements.limiting(record, amount) is None)
    return True


def _cheapest_first(state: State, limiting: str, attempt: Attempt) -> Iterator[int]:
    """The slots of those who hold something of a queue's limit and may be asked."""
    harm = within(state, limiting, attempt.harm)
    order = np.lexsort((-state.roster.slots[SLOT_SEQUENCE, : len(harm)], -attempt.rule.preference, harm))
    return iter(order[harm[order] < np.inf].tolist())
