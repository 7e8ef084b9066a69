"""Who may be on a device now, within what the core has granted.

Where the grants on a device fit into its memory, everybody stays. Where they do not (a pool that over-commits memory),
a task of higher precedence on the device gets room by the swap of those after it, which return when there is room
again. The core gets totals; who holds a grant never changes here. Each request ends by its deadline, done or refused
with the numbers.

Any number of threads may ask. The lock guards the books only and is never held while a task is moved.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

from millpond.model.amounts import memory_text
from millpond.model.errors import InconsistentStateError
from millpond.node.sharing.backend import DONE, HAS_ENDED, STAYS, MoveOutcome, MoveResult
from millpond.node.sharing.ledger import Ledger, LedgerEntry, Residence
from millpond.node.sharing.movers import VendorMover
from millpond.node.task.records import TaskId

_MOVING = (Residence.LEAVING, Residence.RETURNING)


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What an arbiter has around it.

    Attributes:
        clock: seconds, monotonic.
        on_lost: called with each task that did not survive being moved, and why; it has to be ended.
        on_displaced: called with who has made room for which job, and with no job named, who is back.
        available_mib: by node, returns the host memory that is available at this moment; none for a pretended node.
    """

    clock: Callable[[], float]
    on_lost: Callable[[TaskId, str], None] = field(default=lambda task, reason: None)
    on_displaced: Callable[[TaskId, str], None] = field(default=lambda task, for_job: None)
    available_mib: Mapping[str, Callable[[], int]] = field(default_factory=dict)


class Arbiter:
    """Gives and takes room on devices."""

    def __init__(self, ledger: Ledger, mover: VendorMover, context: NodeContext) -> None:
        self.ledger = ledger
        self.mover = mover
        self.context = context
        self._changed = threading.Condition()
        self._time_slicing: dict[TaskId, threading.Lock] = {}

    @property
    def anybody_displaced(self) -> bool:
        """Whether a task made room for another and waits to return."""
        with self._changed:
            return any(entry.displaced for entry in self.ledger)

    def turn(self, task: TaskId) -> threading.Lock:
        """Held while a task is frozen, thawed or moved."""
        with self._changed:
            return self._time_slicing.setdefault(task, threading.Lock())

    def arrive(self, entry: LedgerEntry, deadline: float) -> MoveResult:
        """Make room for a task that is to start, and enter it.

        Args:
            deadline: on the clock.
        """
        return self._make_room(entry, deadline, lambda: self.ledger.add(entry))

    def join(self, entry: LedgerEntry) -> None:
        """Enter a task that starts on cards which another has and keeps: the two see themselves to their memory."""
        with self._changed:
            self.ledger.observe(entry)

    def swap_out(self, task: TaskId, deadline: float) -> MoveResult:
        """Take a task's memory off its devices, because the core says so."""
        with self._changed:
            entry = self._at_rest(task, deadline)
            if isinstance(entry, MoveResult):
                return entry
            if entry.residence is Residence.SWAPPED:
                self.ledger.move(task, Residence.SWAPPED, displaced=False)
                return DONE
            refusal = self._host_refusal(entry)
            if refusal is not None:
                return refusal
            self.ledger.move(task, Residence.LEAVING, displaced=False)
        return self._leave(task, deadline)

    def swap_in(self, task: TaskId, deadline: float) -> MoveResult:
        """Bring a task's memory back to its devices, making room where it goes first."""
        with self._changed:
            entry = self._at_rest(task, deadline)
            if isinstance(entry, MoveResult):
                return entry
            if entry.residence is Residence.RESIDENT:
                return DONE
        answer = self._make_room(entry, deadline, lambda: self.ledger.move(task, Residence.RETURNING, displaced=False))
        return self._return(task, deadline) if answer.ok else answer

    def reassign(self, task: TaskId, devices: Sequence[str], deadline: float) -> MoveResult:
        """A task whose memory is on the host is to come back on these devices from now on."""
        with self._changed:
            entry = self._at_rest(task, deadline)
            if isinstance(entry, MoveResult):
                return entry
            self.ledger.reassign(task, devices)
        return DONE

    def leave(self, task: TaskId) -> None:
        """A task is over, or never came to start."""
        with self._changed:
            self.ledger.remove(task)
            self._time_slicing.pop(task, None)
            self._changed.notify_all()

    def bring_back(self, deadline: float) -> list[TaskId]:
        """Let those return who had to make room and for whom there is room now, those first that go first.

        Returns:
            Who came back.
        """
        came: list[TaskId] = []
        tried: set[TaskId] = set()
        while (entry := self._next_to_return(tried)) is not None:
            tried.add(entry.task)
            if self._return(entry.task, deadline).ok:
                self.context.on_displaced(entry.task, "")
                came.append(entry.task)
        return came

    def _at_rest(self, task: TaskId, deadline: float) -> LedgerEntry | MoveResult:
        """A task's entry once it is not being moved, or why there is none."""
        while (entry := self.ledger.get(task)) is not None and entry.residence in _MOVING:
            if not self._wait(deadline):
                return MoveResult(MoveOutcome.TIMEOUT, "it is being moved at this moment")
        return HAS_ENDED if entry is None else entry

    def _next_to_return(self, besides: set[TaskId]) -> LedgerEntry | None:
        """The first who fits, already counted as returning."""
        with self._changed:
            waiting = [entry for entry in self.ledger if entry.displaced and entry.residence is Residence.SWAPPED]
            for entry in sorted(waiting, key=lambda each: (each.share_class.rank, each.arrived)):
                if entry.task not in besides and not self.ledger.shortage(entry):
                    self.ledger.move(entry.task, Residence.RETURNING)
                    return entry
        return None

    def _make_room(self, entry: LedgerEntry, deadline: float, take: Callable[[], None]) -> MoveResult:
        """Swap those who come after until there is room, then take it in the same breath."""
        trouble: dict[TaskId, str] = {}
        while True:
            with self._changed:
                if entry.residence is not Residence.RESIDENT and self.ledger.get(entry.task) is None:
                    return HAS_ENDED
                missing = self.ledger.shortage(entry)
                if not missing:
                    take()
                    return DONE
                if self.context.clock() >= deadline:
                    return self._too_late(missing, trouble)
                victim = self._victim(entry, missing, trouble)
                task_leaves = any(other.residence in _MOVING for other in self.ledger.on(missing))
                if victim is None and not (task_leaves and self._wait(deadline)):
                    return self._too_late(missing, trouble)
                if victim is not None:
                    self.ledger.move(victim.task, Residence.LEAVING, displaced=True)
            if victim is not None:
                answer = self._leave(victim.task, deadline)
                if answer.ok:
                    self.context.on_displaced(victim.task, entry.task.job)
                else:
                    trouble[victim.task] = f"{victim.task.job} could not leave: {answer.reason}"

    def _victim(self, entry: LedgerEntry, missing: dict[str, int], besides: Container[TaskId]) -> LedgerEntry | None:
        """Who leaves next, if those who come after hold enough in all; None: no departure would help."""
        after = [
            other
            for other in self.ledger.on(missing)
            if other.share_class.rank > entry.share_class.rank
            and other.residence is Residence.RESIDENT
            and other.movable
            and other.task not in besides
            and self._host_refusal(other) is None
        ]
        for device, mib in missing.items():
            if sum(other.memory_mib.get(device, 0) for other in after) < mib:
                return None
        device, mib = max(missing.items(), key=lambda item: item[1])
        here = [other for other in after if other.memory_mib.get(device)]
        lowest = max(other.share_class.rank for other in here)
        of_lowest = [other for other in here if other.share_class.rank == lowest]
        # The smallest that is enough alone, else the largest; of equals, who came last.
        enough = [other for other in of_lowest if other.memory_mib[device] >= mib]
        if enough:
            return min(enough, key=lambda other: (other.memory_mib[device], -other.arrived))
        return max(of_lowest, key=lambda other: (other.memory_mib[device], other.arrived))

    def _host_refusal(self, entry: LedgerEntry) -> MoveResult | None:
        free, all_of_it = self.ledger.host_free_mib(entry.node), self.ledger.host_mib(entry.node)
        if entry.total_mib <= free:
            return self._shortage_on_host(entry)
        reason = (
            f"its {memory_text(entry.total_mib)} of device memory do not fit into host memory: node {entry.node} sets "
            f"{memory_text(all_of_it)} aside for swapped work, and {memory_text(max(free, 0))} of it are free"
        )
        return MoveResult(MoveOutcome.UNSUPPORTED, reason)

    def _shortage_on_host(self, entry: LedgerEntry) -> MoveResult | None:
        """What was set aside is of no use where others have taken it since."""
        available = self.context.available_mib.get(entry.node, lambda: entry.total_mib)()
        if entry.total_mib <= available:
            return None
        reason = (
            f"its {memory_text(entry.total_mib)} of device memory do not fit into host memory: "
            f"{memory_text(available)} of node {entry.node} are available at this moment"
        )
        return MoveResult(MoveOutcome.TIMEOUT, reason)

    def _leave(self, task: TaskId, deadline: float) -> MoveResult:
        with self.turn(task):
            answer = self.mover.swap_out(task, max(0.0, deadline - self.context.clock()))
        self._book(task, answer, Residence.SWAPPED, Residence.RESIDENT)
        if answer.outcome is MoveOutcome.UNSUPPORTED:
            with self._changed:
                if self.ledger.get(task) is not None:
                    self.ledger.fix(task)
        return answer

    def _return(self, task: TaskId, deadline: float) -> MoveResult:
        with self.turn(task):
            entry = self.ledger.get(task)
            moves = STAYS if entry is None else entry.moves
            answer = self.mover.swap_in(task, max(0.0, deadline - self.context.clock()), moves)
        self._book(task, answer, Residence.RESIDENT, Residence.SWAPPED)
        return answer

    def _book(self, task: TaskId, answer: MoveResult, then: Residence, otherwise: Residence) -> None:
        with self._changed:
            entry = self.ledger.get(task)
            if answer.outcome is MoveOutcome.LOST:
                self.ledger.remove(task)
            elif entry is not None:
                came_back = then is Residence.RESIDENT and answer.ok
                stayed = otherwise is Residence.RESIDENT and not answer.ok
                self.ledger.move(
                    task, then if answer.ok else otherwise, False if came_back or stayed else entry.displaced
                )
            self._changed.notify_all()
        if answer.is_lost:
            self.context.on_lost(task, answer.reason)

    def _wait(self, deadline: float) -> bool:
        """Until something moved; False when the deadline is here."""
        left = deadline - self.context.clock()
        return left > 0 and self._changed.wait(left)

    def _too_late(self, missing: dict[str, int], trouble: dict[TaskId, str]) -> MoveResult:
        if not missing:
            raise InconsistentStateError("a refusal where nothing is missing")
        parts = []
        for device, mib in missing.items():
            account = self.ledger.account(device)
            parts.append(
                f"device {device} lacks {mib} MiB: {account.resident_mib} of its {account.capacity_mib} MiB are in "
                "use, and those after it hold too little to make room"
            )
        return MoveResult(MoveOutcome.TIMEOUT, "; ".join([*parts, *trouble.values()]))
