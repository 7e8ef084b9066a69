"""One try to make room: who may be asked to leave, whom it has asked so far, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from millpond.model.reasons import Cause
from millpond.scheduling.cycle.job_placement import Placed
from millpond.scheduling.ledger.holdings import NOTHING, RUNNING, HoldState
from millpond.scheduling.packing.pairs import guest_of
from millpond.scheduling.placement.arrays import FloatArray, Int64Array, NodeMask
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.reclaiming.shrink import ShrinkPart
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State

NO_MOVES: FloatArray = np.zeros(0)
NO_BUDGET: FloatArray = np.zeros(0)


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may be asked to leave for a job.

    Attributes:
        harm: (slots,) cost of ending each running job; infinite for those that may not be asked.
        preference: (slots,) who leaves first on a node, highest first.
        move_harm: (slots,) cost of moving each aside; infinite for those that may not be moved; or empty.
        charges: (slots,) what each takes of the budget if it leaves, or less; or empty: there is none.
        budget: the most that all may take of it.
        parts: what others can give up without ending running work, the dearest first.
        under: the queue whose limit is in the way; those below it can help wherever they run; empty when none is.
        is_open: whether work of a job's queue and class may leave; asked of each part when its turn comes.
        still: asked of each victim when its turn comes, with those that leave before it.
        may_grow: whether an elastic job may take so many tasks into the room that was made.
        tasks: those of a running gang that are to join it, all or none; empty for a job that waits.
        slots: those who may be ended or moved, and perhaps others; None: it may be any.
    """

    cause: Cause
    harm: FloatArray
    preference: FloatArray
    mask: NodeMask | None
    may_grow: Callable[[list[TaskRecord]], bool]
    move_harm: FloatArray = field(default_factory=lambda: NO_MOVES)
    charges: FloatArray = field(default_factory=lambda: NO_BUDGET)
    budget: float = np.inf
    parts: Sequence[ShrinkPart] = ()
    under: str = ""
    is_open: Callable[[JobRecord], bool] = lambda job: True
    still: Callable[[JobRecord, Sequence[JobRecord]], bool] = lambda victim, before: True
    by_ordering: bool = False
    tasks: Sequence[TaskRecord] = ()
    slots: Int64Array | None = None


class RoomCosts:
    """What making room for one task of a shape costs on each node, see ``room_costs.cheapest_room``.

    Attributes:
        as_of: head of the arrays' change log up to which it is up to date; -1: it was never computed.
        surplus: -1 where ``costs`` holds a lower bound only.
    """

    __slots__ = ("as_of", "costs", "roomiest", "spent", "surplus")

    def __init__(self, nodes: int) -> None:
        self.as_of = -1
        self.costs: FloatArray = np.zeros(nodes)
        self.spent: FloatArray = np.zeros(nodes)
        self.surplus: Int64Array = np.zeros(nodes, dtype=np.int64)
        self.roomiest: Int64Array = np.zeros(2, dtype=np.int64)


class Attempt:
    """One try on the trial ledger: its own copy of the costs, and whom it has asked so far.

    Attributes:
        bounds: (3, N) lower bounds of what room costs on each node, see ``room_costs.bound_costs``; None until needed.
    """

    def __init__(self, state: State, rule: Rule, mask: NodeMask | None) -> None:
        self._state = state
        self.rule = rule
        self.mask = mask
        self.harm = rule.harm
        self.move_harm = rule.move_harm
        """Those of the rule, until anything of them has changed."""
        self.victims: list[JobRecord] = []
        self.moved: list[JobRecord] = []
        self.parts: list[ShrinkPart] = []
        self.targets: list[tuple[JobRecord, Placed]] = []
        self.placed: Placed = []
        self.cost = 0.0
        self.left = rule.budget
        """Of the budget."""
        self.bounds: FloatArray | None = None
        self._room_costs: dict[Shape, RoomCosts] = {}

    def narrow(self, mask: NodeMask | None) -> None:
        """Look at these nodes alone from now on; what was known of the costs of others may hold no more."""
        self.mask = mask
        self._room_costs.clear()

    def room_costs(self, shape: Shape) -> RoomCosts:
        """What is known of the costs of room for a task of a shape."""
        known = self._room_costs.get(shape)
        if known is None:
            known = self._room_costs[shape] = RoomCosts(self._state.cluster.arrays.node_count)
        return known

    def _own_harms(self) -> None:
        """Before a change of ``harm`` or ``move_harm``: those of the rule stay as they are."""
        if self.harm is self.rule.harm:
            self.harm, self.move_harm = self.harm.copy(), self.move_harm.copy()

    def exclude(self, slot: int) -> None:
        """A job may not be ended any more."""
        self._own_harms()
        self.harm[slot] = np.inf

    def release_all(self, chosen: Sequence[int]) -> bool:
        """Take jobs off the trial ledger; False, and all stay, if one of them may no longer be asked.

        Args:
            chosen: twice the slot of each, plus one if it is moved.
        """
        journal, slots = self._state.journal, [code >> 1 for code in chosen]
        harm, move_harm = self.harm[slots], self.move_harm[slots] if len(self.move_harm) else NO_MOVES
        before, mark = (self.cost, self.left, len(self.victims), len(self.moved)), journal.begin()
        for number, code in enumerate(chosen):
            if not self.release(code >> 1, is_moved=bool(code & 1)):
                journal.rollback(mark)
                self.cost, self.left, victims, moved = before
                del self.victims[victims:], self.moved[moved:]
                self.harm[slots[:number]] = harm[:number]
                if len(move_harm):
                    self.move_harm[slots[:number]] = move_harm[:number]
                return False
        journal.commit()
        return True

    def release(self, slot: int, *, is_moved: bool = False) -> bool:
        """Take a job off the trial ledger, not to be asked again; False if it may no longer be asked."""
        victim = self._state.roster.records[slot]
        self.cost += float(self.move_harm[slot] if is_moved else self.harm[slot])
        self.left -= float(self.rule.charges[slot]) if len(self.rule.charges) else 0.0
        self.exclude(slot)
        if is_moved:
            self.move_harm[slot] = np.inf
        guest = None if victim is None else guest_of(self._state, victim)
        if victim is None or not self._may_leave(victim, guest):
            for node in self._state.roster.nodes_of(slot):
                self._state.cluster.arrays.touch(node)  # room there costs something else now
            return False
        if guest is not None:
            self.victims.append(guest)
            hold_all(self._state, guest, NOTHING)
        (self.moved if is_moved else self.victims).append(victim)
        hold_all(self._state, victim, NOTHING)
        return True

    def _may_leave(self, victim: JobRecord, guest: JobRecord | None) -> bool:
        """Whether a job may still be asked, with those that leave before it, and so may who shares its cards."""
        if not self.rule.still(victim, self.victims):
            return False
        return guest is None or self.rule.still(guest, [*self.victims, victim])

    def spare(self, victim: JobRecord, is_enough: Callable[[], bool]) -> None:
        """Let a job that was released stay after all, with its guest, if those that are left are enough."""
        journal, guest = self._state.journal, guest_of(self._state, victim)
        staying = [victim] if guest is None else [victim, guest]
        mark = journal.begin()
        for job in staying:
            hold_all(self._state, job, RUNNING)
        if not is_enough():
            journal.rollback(mark)
            return
        journal.commit()
        for job in staying:
            self.victims.remove(job)
        self.cost -= float(self.rule.harm[victim.slot])


def hold_all(state: State, victim: JobRecord, hold: HoldState) -> None:
    """Count all tasks of a running job as running, or as gone, on a trial ledger."""
    sign = -1 if hold is NOTHING else 1
    holders = []
    for task in victim.tasks:
        if task.holding is not None:
            holders.append(task)
            state.cluster.change(task.holding, hold)
    state.charge(victim, state.amounts.asked(victim, holders), sign)
    state.limits.count(victim, sign)
