"""Running work as one walk sees it: who may be asked to leave, who was asked, and what that may still cost."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from millpond.scheduling.placement.arrays import BoolArray, FloatArray, Int64Array
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.reclaiming.roster import SLOT_IN_CELLS
from millpond.scheduling.reclaiming.victims import slots_above, unprotected
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

_ROUNDING = 1.0 + 1e-9


class RunningWork:
    """Arrays over the slots of a state's roster, kept for as long as they hold.

    Attributes:
        leaving: the jobs that were asked to leave in this walk, or of which some tasks were.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.leaving: dict[str, JobRecord] = {}
        self._spent = 0.0
        self._keys: FloatArray = np.zeros(0)
        self._keys_at = (-1.0, -1)
        self._costs: FloatArray = np.zeros(0)
        self._costs_at = (-1.0, -1)
        self._bounds: dict[tuple[int, float], FloatArray] = {}
        self._moved: dict[int, tuple[FloatArray, float]] = {}
        """By class, from which key for each card on each job may be moved aside, and any; both are kept"""
        self._bounds_at = -1
        """for as long as so many have been asked to leave."""
        self._outside: dict[tuple[int, int], BoolArray] = {}
        self._outside_at = (-1.0, -1, 0)
        self._free: dict[tuple[int, int], BoolArray] = {}
        """(slots,) whom nothing keeps from being asked to leave, by classes, but that they were asked in this walk."""
        self._free_at = (-1.0, -1)
        self._slots: Int64Array = np.zeros(0, dtype=np.int64)
        """Scratch."""
        self.use_kernels(interpreted())

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; results are the same."""
        self._fill_unprotected = kernels.call(unprotected.__name__)
        self._fill_slots_above = kernels.call(slots_above.__name__)

    def begin(self) -> None:
        """A walk begins: no work has been asked to leave in it yet."""
        self.leaving.clear()
        self._bounds_at = -1
        self._outside.clear()
        self._spent = 0.0

    def ask(self, jobs: Iterable[JobRecord], cost: float) -> None:
        """Jobs are asked to leave; ``cost``: what that takes of the budget for displacing equals, in card-seconds."""
        self.leaving.update((job.id, job) for job in jobs)
        self._spent += cost

    @property
    def budget(self) -> float:
        """What displacing equals may still cost in this walk, in card-seconds."""
        return self._state.preemption_budget.left - self._spent

    @property
    def payable(self) -> float:
        """The most that what leaves together may cost by ``costs``, which are rounded."""
        return self.budget * _ROUNDING

    def keys(self) -> FloatArray:
        """(slots,) the keys of running work, computed once an instant as long as the roster does not change."""
        state = self._state
        stamp = (state.now, state.roster.version)
        if stamp != self._keys_at:
            self._keys = state.ordering.slot_keys(state.roster.live, state.now)
            self._keys_at = stamp
        return self._keys

    def costs(self) -> FloatArray:
        """(slots,) card-seconds that asking each to leave takes of the budget, or fewer."""
        state = self._state
        stamp = (state.now, state.roster.version)
        if stamp != self._costs_at:
            self._costs, self._costs_at = state.ordering.costs(state.roster.live, state.now), stamp
        return self._costs

    def unprotected(self, classes: tuple[int, int]) -> BoolArray:
        """(slots,) who may be asked to leave, of those from the lowest to the highest of two classes."""
        stamp = self._state.now, self._state.roster.version
        if stamp != self._free_at:
            self._free.clear()
            self._free_at = stamp
        found = self._free.get(classes)
        if found is None:
            slots = self._state.roster.live
            found = self._free[classes] = np.empty(slots.shape[1], dtype=np.bool_)
            self._fill_unprotected(slots, self._state.now, float(classes[0]), float(classes[1]), found)
        free = found.copy()
        if self.leaving:
            free[[job.slot for job in self.leaving.values() if job.slot >= 0]] = False
        return free

    def outside_cells(self, classes: tuple[int, int]) -> BoolArray:
        """(slots,) the same without those that are in cells which their queue is owed; to be read, not written."""
        stamp = self._state.now, self._state.roster.version, len(self.leaving)
        if stamp != self._outside_at:
            self._outside.clear()
            self._outside_at = stamp
        free = self._outside.get(classes)
        if free is None:
            free = self._outside[classes] = self.unprotected(classes)
            if self._state.cluster.cells.allocator is not None:
                free &= self._state.roster.live[SLOT_IN_CELLS] == 0.0
        return free

    def bounds(self, priority: int, asked_cards: float = 0.0) -> FloatArray:
        """(slots,) a job of a class displaces each by its key only if ``displaces_above`` is below this; or -inf.

        Args:
            asked_cards: of the job; with it, infinite for those that may be moved aside for it instead.
        """
        self._look()
        found = self._bounds.get((priority, asked_cards))
        if found is None:
            state, slots = self._state, self._state.roster.live
            if asked_cards:
                found = self.bounds(priority).copy()
                highest = float(found.max(initial=0.0))  # what a job displaces has a key above its own
                found[self._moved_from(priority)[0] * asked_cards <= highest] = np.inf
            else:
                found = state.ordering.displaced_below(slots, state.now, self.keys(), self.budget)
            found = np.where(self.outside_cells((priority, priority)), found, -np.inf)
            self._bounds[priority, asked_cards] = found
        return found

    def above(self, least: float, priority: int, asked_cards: float = 0.0) -> Int64Array:
        """The slots, in order, of which ``bounds`` are above the least that is of interest; most often they are few."""
        bounds = self.bounds(priority, asked_cards)
        if len(self._slots) < len(bounds):
            self._slots = np.empty(2 * len(bounds), dtype=np.int64)
        count = self._fill_slots_above(bounds, least, self._slots)
        return self._slots[:count].copy()

    def moved_from(self, priority: int, asked_cards: float) -> float:
        """From which key on any may be moved aside for a job of a class that asks for so many cards; or infinite."""
        self._look()
        return self._moved_from(priority)[1] * asked_cards

    def _moved_from(self, priority: int) -> tuple[FloatArray, float]:
        found = self._moved.get(priority)
        if found is None:
            state = self._state
            keys = state.ordering.moved_from(state.roster.live, state.now, self.budget)
            keys = np.where(self.outside_cells((priority, priority)), keys, np.inf)
            found = self._moved[priority] = keys, float(keys.min(initial=np.inf))
        return found

    def _look(self) -> None:
        """Forget what was found before others were asked to leave."""
        if self._bounds_at != len(self.leaving):
            self._bounds.clear()
            self._moved.clear()
            self._bounds_at = len(self.leaving)
