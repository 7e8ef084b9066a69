"""Reasons of suspended jobs: what they still hold, what keeps them so, and what has to happen before they go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Final

from millpond.model import windows
from millpond.model.amounts import memory_text
from millpond.model.decisions import SuspendMode
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.reasons import Cause, Reason, Remedy
from millpond.scheduling.explaining.node_names import placed_on
from millpond.scheduling.ledger.holdings import HoldState
from millpond.scheduling.records import BY_REQUEST, JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.suspension.suspension import (
    BY_LENDING,
    BY_REST,
    BY_TURN,
    BY_WINDOW,
    gives_up_at,
    is_suspending,
    may_vacate,
)

MOST_TRIED: Final = 50
"""Halted jobs that are looked at for one answer."""
_WHEN_FREE = "as soon as its devices are free and its queue admits it"


def why_suspended(state: State, record: JobRecord) -> Reason:
    """The reason of a suspended job."""
    where = placed_on(record)
    memory = sum(sum(task.holding.memory_mib) for task in record.tasks if task.holding is not None)
    swapped = record.suspend_mode is SuspendMode.SWAP
    by = f" by {record.suspend_requester}" if record.suspended_by == BY_REQUEST and record.suspend_requester else ""
    holds = f", {memory_text(memory)} of device memory {'in host memory' if swapped else 'on the card'}"
    cause, until, opens_at = _until(state, record)
    leaves = "being suspended" if is_suspending(state, record) else "suspended"
    return Reason(
        cause,
        f"{leaves}{where}{by}{holds if memory else ''}; it goes on {until}{_failed_cards(state, record)}",
        (("device_memory_mib", 0 if swapped else memory), ("swapped_mib", memory if swapped else 0)),
        opens_at=opens_at,
    )


def frozen_in_the_way(state: State, record: JobRecord, fits: Callable[[], object]) -> JobRecord | None:
    """A job that was halted on request, and without whose device memory the waiting one would find room.

    Args:
        fits: whether the waiting one finds room now; asked in a trial that is rolled back.
    """
    frozen = (
        other
        for other in state.suspended.values()
        if other.suspended_by == BY_REQUEST
        and other.suspend_mode is SuspendMode.FREEZE
        and other.job.pool == record.job.pool
    )
    for other in islice(frozen, MOST_TRIED):
        mark = state.journal.begin()
        for task in other.tasks:
            if task.holding is not None:
                state.cluster.change(task.holding, HoldState.NOTHING)
        found = bool(fits())
        state.journal.rollback(mark)
        if found:
            return other
    return None


def behind_frozen(state: State, reason: Reason, holder: JobRecord) -> Reason:
    """The reason of a job that finds no room, with who keeps it although it computes nothing, and what would help."""
    how = "swap it to host memory (pond suspend --swap)" if may_vacate(state, holder) else "stop it (pond stop)"
    text = f"{holder.id} is suspended and keeps its device memory on its cards, which would be room enough"
    remedy = Remedy(f"{how}, or resume it so that it ends: {holder.id}", "", "")
    return replace(reason, summary=f"{reason.summary}; {text}", blocked_by=holder.id, remedy=remedy)


def why_parked(record: JobRecord) -> Reason:
    """The reason of a job that lost its run while users kept it suspended."""
    text = next((f" ({task.detail})" for task in record.tasks if task.detail), "")
    lost = f"suspended on request, and its run ended meanwhile{text}"
    return Reason(Cause.SUSPENDED, f"{lost}; it lines up again once it is resumed")


def _until(state: State, record: JobRecord) -> tuple[Cause, str, float | None]:
    """Why it is suspended, when it goes on in words, and as an instant where that is known."""
    by = record.suspended_by
    if by in (BY_WINDOW, BY_LENDING):
        own = by == BY_WINDOW
        hours = record.job.windows if own else state.cluster.pools[record.job.pool].lending
        text = f"when its {'window opens' if own else 'pool lends again'} ({' and '.join(map(str, hours))})"
        return Cause.WINDOW_CLOSED if own else Cause.LENDING_OVER, text, windows.opens_at(hours, state.now)
    if by == BY_REST:
        took = f"; coming back took {record.return_s:.1f} s the last time" if record.return_s else ""
        text = (
            f"with the next request, as soon as its devices are free, or freed for it, and its queue admits it "
            f"({record.scaled_to_zero}{took})"
        )
        return Cause.SCALED_TO_ZERO, text, None
    if by == BY_TURN:
        return Cause.SUSPENDED, "when its turn on these cards comes", None
    if by == BY_REQUEST:
        return Cause.SUSPENDED, f"when asked to, {_WHEN_FREE}", None
    return Cause.SUSPENDED, _when_there_is_room(state, record), None


def _when_there_is_room(state: State, record: JobRecord) -> str:
    end_at = gives_up_at(state, record)
    if end_at is None:
        return _WHEN_FREE
    why = record.suspended_why.value if record.suspended_why is not None else "for others"
    return (
        f"{_WHEN_FREE}; it left for others ({why}), and is ended and lined up for another run if there is no room "
        f"for {max(end_at - state.now, 0.0):.0f} s more"
    )


def _failed_cards(state: State, record: JobRecord) -> str:
    """Those that it left and that have failed since: it comes back elsewhere."""
    devices = [device for task in record.tasks if task.holding is not None for device in task.holding.devices]
    found = [pair for pair in map(state.cluster.device, devices) if pair is not None]
    failed = [f"{node.name}/{device.index}" for node, device in found if device.health is DeviceHealth.FAULTY]
    return f"; on another card, as {', '.join(failed)} has failed" if failed else ""
