"""After a restart: what is true is looked up, and what was left half done is completed.

An agent can be killed at any moment, also while it moves a task. The next one believes neither its predecessor nor
itself: it asks the driver and the processes where each task is, and compares that with what was wanted of it, which was
written down before anything was done (``desired_state``). Who is found swapped although the core does not want it so
had to make room, and returns when there is some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from millpond.node.sharing.backend import MoveOutcome, MoveResult, Whereabouts
from millpond.node.sharing.desired_state import DesiredState
from millpond.node.sharing.ledger import Ledger, LedgerEntry, Residence
from millpond.node.task.records import TaskId


class ReconcilerActions(Protocol):
    """What the reconciler needs done."""

    def whereabouts(self, task: TaskId) -> Whereabouts:
        """Where it really is."""

    def freeze(self, task: TaskId) -> MoveResult:
        """Halt it where it is."""

    def thaw(self, task: TaskId) -> MoveResult:
        """Let it go on where it is."""

    def swap_in(self, entry: LedgerEntry) -> MoveResult:
        """Bring it onto its device, from wherever between host and device it is."""

    def swap_out(self, task: TaskId) -> MoveResult:
        """The other way round."""


@dataclass(frozen=True, slots=True)
class Found:
    """One task as it was found, and what was done about it.

    Attributes:
        lost: why it cannot go on; empty when it can.
    """

    task: TaskId
    whereabouts: Whereabouts
    desired: DesiredState
    lost: str = ""


def reconcile(
    entries: Iterable[LedgerEntry],
    desired_states: Mapping[TaskId, DesiredState],
    ledger: Ledger,
    actions: ReconcilerActions,
) -> list[Found]:
    """Enter all tasks into an empty ledger as they are, and settle what is neither here nor there.

    Tasks at rest come first, as only then is it known who half-way has room to return.

    Args:
        entries: what every task of this node was granted.
        desired_states: of those that were not to run.
    """
    looked = [(entry, actions.whereabouts(entry.task)) for entry in entries]
    looked.sort(key=lambda pair: pair[1] is Whereabouts.HALFWAY)
    found = []
    for entry, where in looked:
        desired = desired_states.get(entry.task, DesiredState.RUNNING)
        lost = _SETTLE[where](entry, desired, ledger, actions)
        if lost:
            ledger.remove(entry.task)
        found.append(Found(entry.task, where, desired, lost))
    return found


def _gone(entry: LedgerEntry, desired: DesiredState, ledger: Ledger, actions: ReconcilerActions) -> str:
    """No process of it lives: it is about to begin, or has just ended. Its watcher knows, and releases it."""
    ledger.observe(replace(entry, residence=Residence.RESIDENT))
    return ""


def _given_up(entry: LedgerEntry, desired: DesiredState, ledger: Ledger, actions: ReconcilerActions) -> str:
    return "the driver lost it while it was moved"


def _running(entry: LedgerEntry, desired: DesiredState, ledger: Ledger, actions: ReconcilerActions) -> str:
    ledger.observe(replace(entry, residence=Residence.RESIDENT))
    # One that was to be swapped was not yet, or has returned already: the decision that says which is repeated.
    return _lost(actions.freeze(entry.task)) if desired is DesiredState.FROZEN else ""


def _frozen(entry: LedgerEntry, desired: DesiredState, ledger: Ledger, actions: ReconcilerActions) -> str:
    ledger.observe(replace(entry, residence=Residence.RESIDENT))
    return "" if desired is DesiredState.FROZEN else _lost(actions.thaw(entry.task))


def _swapped(entry: LedgerEntry, desired: DesiredState, ledger: Ledger, actions: ReconcilerActions) -> str:
    ledger.observe(replace(entry, residence=Residence.SWAPPED, displaced=desired is not DesiredState.SWAPPED))
    return ""


def _halfway(entry: LedgerEntry, desired: DesiredState, ledger: Ledger, actions: ReconcilerActions) -> str:
    """Back to the device, where there is room; else to the host, to return when there is.

    One that was on its way to another device goes on to that: its memory may be there in part.
    """
    if not ledger.shortage(entry):
        answer = actions.swap_in(entry)
        if answer.ok:
            ledger.observe(replace(entry, residence=Residence.RESIDENT))
            return ""
        if answer.ended:
            return _gone(entry, desired, ledger, actions)
        if answer.outcome is MoveOutcome.LOST:
            return answer.reason
        if entry.left:
            return _swapped(entry, desired, ledger, actions)  # nothing of it has come to the other device
    elif entry.left:
        return "it was on its way to another device, which is full"
    answer = actions.swap_out(entry.task)
    if answer.ok:
        return _swapped(entry, desired, ledger, actions)
    if answer.ended:
        return _gone(entry, desired, ledger, actions)
    return answer.reason or "it is neither on its device nor on the host"


def _lost(answer: MoveResult) -> str:
    return answer.reason if answer.outcome is MoveOutcome.LOST else ""


_SETTLE: Mapping[Whereabouts, Callable[[LedgerEntry, DesiredState, Ledger, ReconcilerActions], str]] = {
    Whereabouts.RUNNING: _running,
    Whereabouts.FROZEN: _frozen,
    Whereabouts.SWAPPED: _swapped,
    Whereabouts.HALFWAY: _halfway,
    Whereabouts.GONE: _gone,
    Whereabouts.LOST: _given_up,
}
