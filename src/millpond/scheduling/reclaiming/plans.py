"""Plans: whom to ask to leave so that one waiting job gets its whole placement, proved before anyone is asked.

``tenancy.displacement`` says who may be asked, by one of four entitlements. *Guarantee*: a queue within its guarantee
takes back what others borrowed. *Priority*: a higher class ends lower work. *Ordering*: a selective ordering lets a
waiting job displace running work whose key is enough worse to pay for the preemption; where growth is measured, it has
equals give growth back first. Before all of these, any job but background work itself has background work leave. An
elastic job asks for its least size only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from millpond.model.reasons import Cause
from millpond.model.workloads import Priority
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.elastic.gang_sizes import first_tasks
from millpond.scheduling.elastic.measured_speed import is_measured, worth_of_each
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.ordering.base import Displaceable
from millpond.scheduling.placement.arrays import BoolArray, FloatArray, NodeMask
from millpond.scheduling.placement.kernels import KernelSet, interpreted
from millpond.scheduling.reclaiming.attempts import NO_MOVES, Rule
from millpond.scheduling.reclaiming.displacement_bounds import DisplacementBounds
from millpond.scheduling.reclaiming.limits import within
from millpond.scheduling.reclaiming.owed_work import OwedWork
from millpond.scheduling.reclaiming.preemption_budget import cost_of
from millpond.scheduling.reclaiming.request_bounds import moving_for
from millpond.scheduling.reclaiming.roster import (
    SLOT_ALIVE,
    SLOT_CARDS,
    SLOT_IN_CELLS,
    SLOT_OWNER,
    SLOT_PRIORITY,
    SLOT_STARTED,
)
from millpond.scheduling.reclaiming.running_work import RunningWork
from millpond.scheduling.reclaiming.searching import Plan, VictimSearch
from millpond.scheduling.reclaiming.shrink import Shrink, ShrinkPart
from millpond.scheduling.reclaiming.vain_searches import Judged, VainSearches
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import is_admitted, is_covered_alike, limit_in_the_way
from millpond.scheduling.tenancy.displacement import Displacement, Entitlement
from millpond.scheduling.tenancy.queue_rank import QueueRank

BACKGROUND_HARM = 1e-9
"""So little what background work loses counts beside what other work does."""

CLASS_HARM = 10.0 ** (6.0 * np.arange(len(Priority)))
"""Weight of what work of each class loses, the lowest class first: a lower class leaves first, whatever it costs."""

OWED_HARM = 1e12
"""So much more counts what work loses to which a guarantee is owed,"""

LATER_S = 1e11
"""and as if it had started so long before it does it leave among what is on its node."""


class Planner:
    """Searches plans on a state. A plan that is found stays on the trial ledger; the walk decides about it."""

    def __init__(self, state: State, placer: Placer) -> None:
        self.state = state
        self._search = VictimSearch(state, placer)
        self._shrink = Shrink(state)
        self._selector = placer.selector
        self._holders: dict[RequestClass, list[JobRecord]] = {}
        self._running = RunningWork(state)
        self._displacement = Displacement(state)
        self._owed = OwedWork(state, self._displacement)
        self.bounds = DisplacementBounds(state, self._running, self._displacement)
        self._vain = VainSearches(state, placer, self._running, self.bounds)
        self.use_kernels(interpreted())

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels from now on; plans are the same."""
        self._search.use_kernels(kernels)
        self._running.use_kernels(kernels)
        self.bounds.use_kernels(kernels)

    def begin(self, ranks: QueueRank) -> None:
        """A walk begins: no work has been asked to leave in it yet."""
        self._holders.clear()
        self._vain.begin()
        self._running.begin()
        self._displacement.begin(ranks)
        self._owed.begin()
        self.bounds.begin()

    def block(self, record: JobRecord) -> None:
        """A job is the first of its pool that has found no room in this walk."""
        self._displacement.block(record)

    @property
    def turns(self) -> tuple[object, ...]:
        """Differs whenever it may have become the turn of other queues than before in this walk."""
        return self._displacement.turns

    def has_asked(self, record: JobRecord) -> bool:
        """Whether the job, or some of its tasks, was asked to leave in this walk."""
        return record.id in self._running.leaving

    # ---- who may be asked ---------------------------------------------------------------------------------------

    def by_guarantee(
        self, record: JobRecord, mask: NodeMask | None, accepts: Callable[[Plan], bool] | None = None
    ) -> Plan | None:
        """Take back borrowed room for a queue that is within its guarantee.

        Where guarantees name models of cards, of one of those models that it covers.

        Args:
            accepts: as for ``of_background``.
        """
        if not self.state.queues.guarantees_by_card:
            return self._of_borrowed(record, mask, accepts)
        for choice in self.state.entitlements.guaranteed_choices(record):
            with self.state.entitlements.on_choice(record, choice):
                plan = self._of_borrowed(record, mask, accepts)
            if plan is not None:
                return plan
        return None

    def _of_borrowed(
        self, record: JobRecord, mask: NodeMask | None, accepts: Callable[[Plan], bool] | None
    ) -> Plan | None:
        state = self.state
        slots = state.roster.live
        is_open, still = self._entitled(record, Entitlement.GUARANTEE)
        parts, limiting = self.parts(is_open), limit_in_the_way(state, record)
        if not parts and limiting is None and not any(map(is_open, self._in_the_way(record))):
            return None
        allowed = self._displaceable(slots, (Priority.BACKGROUND, Priority.CRITICAL), Entitlement.GUARANTEE, is_open)
        if not parts and not allowed.any():
            return None
        harm, preference = self._lost_work(slots)

        def may_grow(tasks: list[TaskRecord]) -> bool:
            return is_covered_alike(state, record, tasks) and is_admitted(state, record, tasks)

        harm = np.where(allowed, harm, np.inf)
        rule = Rule(Cause.RECLAIMED, harm, preference, mask, may_grow, parts=parts, is_open=is_open, still=still)
        if limiting is None:
            return self._find_borrowed(record, rule, accepts)
        # Those who hold what the limit allows help twice if they also hold the room, so they are asked alone first.
        under = limiting.queue.name
        harm = within(state, under, harm)
        parts = [part for part in parts if state.queues.is_below(part.record.queue, under)]
        if not parts and not (harm < np.inf).any():
            return None
        plan = self._find_borrowed(record, replace(rule, harm=harm, parts=parts, under=under), accepts)
        return plan or self._find_borrowed(record, replace(rule, under=under), accepts)

    def _find_borrowed(self, record: JobRecord, rule: Rule, accepts: Callable[[Plan], bool] | None) -> Plan | None:
        """Search, and once more if work would leave to which a guarantee is owed, for what is borrowed instead.

        That would only take back the same from others, and had lost its run for nothing.
        """
        would_leave: list[JobRecord] = []

        def spares_owed(plan: Plan) -> bool:
            would_leave.extend(job for job in plan.leaving if self._displacement.owing(job) is not None)
            return not would_leave and (accepts is None or accepts(plan))

        plan = self._find(record, rule, spares_owed)
        if not would_leave:
            return plan
        owed = self._owed.are_owed(rule.harm < np.inf)
        harm = np.where(owed, OWED_HARM * rule.harm, rule.harm)
        return self._find(record, replace(rule, harm=harm, preference=rule.preference - LATER_S * owed), accepts)

    def by_priority(self, record: JobRecord, mask: NodeMask | None) -> Plan | None:
        """End work of lower classes."""
        rule = self._of_lower_classes(record, mask, Entitlement.PRIORITY, record.job.priority - 1)
        return None if rule is None else self._find(record, rule)

    def of_background(
        self, record: JobRecord, mask: NodeMask | None, accepts: Callable[[Plan], bool] | None = None
    ) -> Plan | None:
        """Have background work leave, and no other.

        Args:
            accepts: asked of the plan that was found, while it stands on the ledger; it is undone if not.
        """
        rule = self._of_lower_classes(record, mask, Entitlement.OUTSIDE_QUOTAS, Priority.BACKGROUND)
        return None if rule is None else self._find(record, rule, accepts)

    def growth(self, record: JobRecord, tasks: Sequence[TaskRecord], mask: NodeMask | None) -> Plan | None:
        """Have background work leave for tasks that a running gang misses: for as many of them as that helps."""
        rule = self._of_lower_classes(record, mask, Entitlement.OUTSIDE_QUOTAS, Priority.BACKGROUND)
        if rule is None:
            return None

        def would_help(some: list[TaskRecord]) -> bool:
            found: list[Plan] = []

            def note(plan: Plan) -> bool:
                if not plan.asked_later:  # a gang that runs has no claim, by which more could be asked
                    found.append(plan)
                return False

            self._find(record, replace(rule, tasks=some), note)
            return bool(found)

        some = first_tasks(tasks, would_help)
        return self._find(record, replace(rule, tasks=some)) if some else None

    def grown(self) -> Iterator[JobRecord]:
        """Running gangs whose speed is measured, where they give growth back to jobs that wait."""
        pools = self.state.cluster.pools
        return (
            record
            for record in self.state.elastic.values()
            if record.speeds and record.kept is None and pools[record.job.pool].measured_growth and is_measured(record)
        )

    def of_growth(self, record: JobRecord, mask: NodeMask | None) -> Plan | None:
        """Have gangs of the same class give back tasks for a job that waits, those worth least first.

        The job gets what it cannot start without, and grows later by what that is worth.
        """
        is_open, still = self._entitled(record, Entitlement.ORDERING)
        grown = {gang.id for gang in self.grown() if gang.job.pool == record.job.pool}
        parts = self.parts(lambda gang: gang.id in grown and is_open(gang))
        if not parts:
            return None
        spare: dict[str, list[TaskRecord]] = {}
        for part in parts:
            spare.setdefault(part.record.id, []).extend(part.tasks)
        worths = {
            (job, task.number): worth
            for job, tasks in spare.items()
            for task, worth in zip(tasks, worth_of_each(self.state.running[job], tasks), strict=True)
        }
        parts.sort(key=lambda part: -worths[part.record.id, part.tasks[0].number])
        nobody = np.full(self.state.roster.live.shape[1], np.inf)
        rule = Rule(
            Cause.SHRUNK,
            nobody,
            np.zeros_like(nobody),
            mask,
            lambda _: False,
            parts=parts,
            is_open=is_open,
            still=still,
        )
        return self._find(record, rule)

    def _of_lower_classes(
        self,
        record: JobRecord,
        mask: NodeMask | None,
        by: Entitlement,
        highest: int,
    ) -> Rule | None:
        """Who may be asked of the classes up to one; None if nobody."""
        slots = self.state.roster.live
        is_open, still = self._entitled(record, by)
        allowed = self._displaceable(slots, (Priority.BACKGROUND, highest), by, is_open)
        parts = self.parts(is_open)
        if not parts and not allowed.any():
            return None
        harm, preference = self._lost_work(slots)
        harm = harm * CLASS_HARM[slots[SLOT_PRIORITY].astype(np.int64) - Priority.BACKGROUND]
        return Rule(
            Cause.PREEMPTED,
            np.where(allowed, harm, np.inf),
            preference,
            mask,
            partial(is_admitted, self.state, record),
            parts=parts,
            is_open=is_open,
            still=still,
        )

    def by_ordering(self, record: JobRecord, mask: NodeMask | None) -> Plan | None:
        """End work of the same class that the ordering puts later, if that pays for itself."""
        vain = self._vain
        vain.look()
        asked = vain.asked(record, mask)
        reached = vain.reached(record, asked)
        if vain.has_no_room(record, reached):
            return None
        alike = vain.alike(record)
        found = None if alike is None else vain.judged.get(alike)
        if found is None:
            found = Judged.of(self._judged(record))
            if alike is not None:
                vain.judged[alike] = found
        judged = found.work
        if judged is None:
            vain.note_no_room(record, reached)
            return None
        searched = vain.searched(record, asked, found)
        if vain.was_vain(searched):
            return None
        rule = Rule(
            Cause.PREEMPTED,
            judged.harm,
            judged.preference,
            mask,
            partial(is_admitted, self.state, record),
            judged.move_harm,
            charges=self._running.costs(),
            budget=self._running.payable,
            still=self._entitled(record, Entitlement.ORDERING)[1],
            by_ordering=True,
            slots=judged.slots,
        )
        turned_down = self._displacement.turned_down
        plan = self._find(record, rule)
        if plan is None and not self._search.found_room:
            vain.note_no_room(record, reached)
        elif plan is None and len(judged.move_harm):
            plan = self._find(record, replace(rule, move_harm=NO_MOVES))
        if plan is None:
            vain.hold()
            if self._displacement.turned_down == turned_down:
                vain.note_vain(searched)
        return plan

    def _judged(self, record: JobRecord) -> Displaceable | None:
        """Which work of the same class the ordering lets a job displace; None for none."""
        state, roster, keys = self.state, self.state.roster, self._running.keys()
        moving = moving_for(record.gpu_milli) if self._vain.may_move(record) else 0.0
        allowed = self._running.above(record.displaces_above, record.job.priority, moving)
        if self.bounds.by_queue:
            allowed = allowed[self.bounds.open_to(record)[roster.owners[allowed]]]
        judged = state.ordering.victims(record, roster.live, state.now, keys, allowed, self._running.budget)
        if judged is None:
            return None
        if self.bounds.kept_turns.are_asked:
            self._withhold_turns(record, judged)
        if state.queues.has_guarantees:
            self._owed.withhold(record, judged)
        return judged if judged.may_any_end else None

    def _withhold_turns(self, record: JobRecord, judged: Displaceable) -> None:
        """Work stays whose queue would have its turn first without it."""
        leave = self._running.above(record.displaces_above, record.job.priority)
        kept = self.bounds.kept_turns.of(record.queue, leave)
        if kept is not None:
            judged.withhold(leave[~kept])

    def _find(self, record: JobRecord, rule: Rule, accepts: Callable[[Plan], bool] | None = None) -> Plan | None:
        """Search, and remember who leaves; what the ordering displaces has to be covered by the budget for that."""
        state, journal = self.state, self.state.journal
        mark = journal.begin()
        plan = self._search.find(record, rule)
        cost = 0.0
        if plan is not None and accepts is not None and not accepts(plan):
            journal.rollback(mark)
            return None
        if plan is not None and rule.by_ordering:
            cost = sum(cost_of(job, state.settings.preemption_cost, state.now) for job in plan.leaving)
            if cost > self._running.budget:
                journal.rollback(mark)
                return None
        journal.commit()
        if plan is not None:
            self.leave(plan, cost)
        return plan

    @property
    def leaving(self) -> Collection[JobRecord]:
        """Who leaves, wholly or in part, by the plans of this walk."""
        return self._running.leaving.values()

    def leave(self, plan: Plan, cost: float = 0.0) -> None:
        """Remember who leaves by a plan, and what that takes of the budget of the ordering."""
        self._running.ask((*plan.leaving, *(job for job, _ in plan.shrunk)), cost)
        for job in plan.leaving:
            self._displacement.leave(job)

    def may_displace_visitor(self, record: JobRecord, visitor: JobRecord, owner: str) -> bool:
        """See ``Displacement``."""
        return self._displacement.may_displace_visitor(record, visitor, owner)

    def loss_of_visitors(self) -> FloatArray:
        """(slots,) what work beside cells loses if these are taken back, most where a guarantee is owed to it.

        Infinite where it cannot be asked, 0 where it is in cells, or leaves already.
        """
        slots = self.state.roster.live
        everybody = Priority.BACKGROUND, Priority.CRITICAL
        asked = self._running.outside_cells(everybody)
        loss, _ = self._lost_work(slots)
        if self.state.queues.has_guarantees:
            loss[self._owed.are_owed(asked)] *= OWED_HARM
        loss[~asked] = np.inf
        loss[(slots[SLOT_ALIVE] == 0.0) | (slots[SLOT_IN_CELLS] > 0.0)] = 0.0
        loss[[job.slot for job in self.leaving if job.slot >= 0]] = 0.0
        return loss

    def unprotected(self, classes: tuple[int, int]) -> BoolArray:
        """(slots,) whom nothing keeps from being asked to leave, of those from the lowest to the highest class."""
        return self._running.unprotected(classes)

    def _entitled(
        self, record: JobRecord, by: Entitlement
    ) -> tuple[Callable[[JobRecord], bool], Callable[[JobRecord, Sequence[JobRecord]], bool]]:
        """What says of running work whether its queue and class may leave for a job, and whether it may itself."""
        displacement = self._displacement

        def still(victim: JobRecord, before: Sequence[JobRecord]) -> bool:
            return displacement.may_displace(record, victim, by, before)

        return partial(displacement.is_open, record, by=by), still

    def _displaceable(
        self, slots: FloatArray, classes: tuple[int, int], by: Entitlement, is_open: Callable[[JobRecord], bool]
    ) -> BoolArray:
        """(slots,) who may be asked to leave, of those from the lowest to the highest of two classes."""
        free = self._running.outside_cells(classes)
        if self._displacement.is_by_queue(by):
            # Within these classes the answer is the same for all work of a queue with cards, and for all without.
            for victim in self.state.roster.one_of_each_owner(np.flatnonzero(free)):
                if not is_open(victim):
                    free = free & (slots[SLOT_OWNER] != slots[SLOT_OWNER, victim.slot])
        return free

    def _in_the_way(self, record: JobRecord) -> list[JobRecord]:
        """A running job of each owner that has some where tasks like those of a job could be, now or ever."""
        found = self._holders.get(record.demand)
        if found is None:
            may_hold = map(self._selector.may_ever_hold, self.state.cluster.words.shapes_of(record.demand))
            nodes = np.logical_or.reduce(list(may_hold))
            found = self._holders[record.demand] = self.state.roster.holders_on(nodes)
        return found

    def parts(self, may_ask: Callable[[JobRecord], bool]) -> list[ShrinkPart]:
        """What can be had without ending running work."""
        if not self.state.suspended and not self.state.elastic and not self.state.kept:
            return []
        return self._shrink.candidates(may_ask, self._running.leaving)

    def _lost_work(self, slots: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Harm: GPU-seconds of the present run, at least one; hardly any for background work, which leaves first.

        Preference: background work leaves first, then the youngest run.
        """
        run = np.maximum(self.state.now - slots[SLOT_STARTED], 0.0) + 1.0
        harm, is_background = run * slots[SLOT_CARDS], slots[SLOT_PRIORITY] == Priority.BACKGROUND
        harm[is_background] *= BACKGROUND_HARM
        return harm, slots[SLOT_STARTED] + LATER_S * is_background
