"""After a restart: what is true is looked up, and what was left half done is completed.

An agent can be killed at any moment, also while it moves a task. The next one believes neither its predecessor nor
itself: it asks the driver and the processes where each task is, and compares that with what was wanted of it, which was
written down before anything was done (``desired_state``). Who is found swapped although the core does not want it so
had to make room, and returns when there is some.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from millpond.node.sharing.backend import MoveOutcome, Whereabouts
from millpond.node.sharing.desired_state import DesiredState, DesiredStates
from millpond.node.sharing.ledger import Ledger, LedgerEntry, Residence
from millpond.node.sharing.movers import VendorMover
from millpond.node.sharing.trees import TaskTrees
from millpond.node.task.records import TaskId

LOOK_S = 5.0
"""To find out where one task is, and to halt one."""
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Found:
    """One task as it was found, and what was done about it.

    Attributes:
        lost: why it cannot go on; empty when it can.
    """

    task: TaskId
    desired: DesiredState
    lost: str = ""


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Enters all tasks into an empty ledger as they are, and settles what is neither here nor there.

    Attributes:
        deadline_s: for each move.
    """

    ledger: Ledger
    mover: VendorMover
    trees: TaskTrees
    desired_states: DesiredStates
    deadline_s: float

    def reconcile(self, entries: Iterable[LedgerEntry]) -> list[Found]:
        """Settle every task of this node.

        Tasks at rest come first, as only then is it known who half-way has room to return.

        Args:
            entries: what each was granted.
        """
        looked = []
        for entry in entries:
            desired = self.desired_states.of(entry.task)
            looked.append((entry, desired, self.mover.whereabouts(entry.task, desired is DesiredState.SWAPPED, LOOK_S)))
        looked.sort(key=lambda each: each[2] is Whereabouts.HALFWAY)
        found = []
        for entry, desired, where in looked:
            lost = self._settle(entry, desired, where)
            if lost:
                self.ledger.remove(entry.task)
            found.append(Found(entry.task, desired, lost))
        return found

    def _settle(self, entry: LedgerEntry, desired: DesiredState, where: Whereabouts) -> str:
        """Why it cannot go on; empty when it can."""
        match where:
            case Whereabouts.LOST:
                return "the driver lost it while it was moved"
            case Whereabouts.HALFWAY:
                return self._finish(entry, desired)
            case Whereabouts.SWAPPED:
                return self._is_swapped(entry, desired)
            case Whereabouts.RUNNING if desired is DesiredState.FROZEN:
                self.trees.hold_launches(entry.task, held=True)
                if not any(self.trees.halt(entry.task, LOOK_S) for _ in range(_TRIES)) and self.trees.pids(entry.task):
                    return "its processes cannot be halted again"
            case Whereabouts.FROZEN | Whereabouts.RUNNING if desired is not DesiredState.FROZEN:
                # Its launches are held, too, when the agent was killed as it began to take it off its device.
                self.trees.hold_launches(entry.task, held=False)
                self.trees.go_on(entry.task)
        # One that was to be swapped and runs was not yet, or has returned already: the decision that says which is
        # repeated. One that is gone is about to begin, or has just ended: its watcher knows, and releases it.
        return self._is_resident(entry)

    def _finish(self, entry: LedgerEntry, desired: DesiredState) -> str:
        """Back to the device, where there is room; else to the host, to return when there is.

        One that was on its way to another device goes on to that: its memory may be there in part.
        """
        if not self.ledger.shortage(entry):
            answer = self.mover.swap_in(entry.task, self.deadline_s, entry.moves)
            if answer.ok or answer.ended:
                return self._is_resident(entry)
            if answer.outcome is MoveOutcome.LOST:
                return answer.reason
            if entry.left:
                return self._is_swapped(entry, desired)  # nothing of it has come to the other device
        elif entry.left:
            return "it was on its way to another device, which is full"
        answer = self.mover.swap_out(entry.task, self.deadline_s)
        if answer.ok:
            return self._is_swapped(entry, desired)
        if answer.ended:
            return self._is_resident(entry)
        return answer.reason or "it is neither on its device nor on the host"

    def _is_resident(self, entry: LedgerEntry) -> str:
        self.ledger.observe(replace(entry, residence=Residence.RESIDENT))
        return ""

    def _is_swapped(self, entry: LedgerEntry, desired: DesiredState) -> str:
        self.ledger.observe(replace(entry, residence=Residence.SWAPPED, displaced=desired is not DesiredState.SWAPPED))
        return ""
