"""What comes of a cycle: places are taken, work starts or is asked to leave, and claims become starts.

A place that was found on a trial ledger is taken again on the ledger as it is; where that fails because others have to
leave first, it is claimed until they have left.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace

from millpond.model.reasons import Cause
from millpond.model.states import TaskState
from millpond.scheduling import runs
from millpond.scheduling.cycle.claims import Claim, Claims, Victims, charge_placed
from millpond.scheduling.cycle.job_placement import Placed, Placer
from millpond.scheduling.cycle.reserved_places import note_start
from millpond.scheduling.elastic.gang_sizes import is_enough
from millpond.scheduling.ledger.holdings import Holding, HoldState
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.reclaiming import suspend_instead
from millpond.scheduling.reclaiming.attempts import hold_all
from millpond.scheduling.reclaiming.plans import Planner
from millpond.scheduling.reclaiming.searching import Plan
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.reserving.counted_reservations import claim_fits_beside_reserved
from millpond.scheduling.state import State
from millpond.scheduling.suspension.suspension import HOLD_OF, is_leaving, suspended_tasks

Found = Sequence[tuple[JobRecord, Placed, Cause]]
"""Who was placed, where, and why there."""


class Starter:
    """Starts work on one state, and keeps claims for what cannot start yet."""

    def __init__(self, state: State, placer: Placer, claims: Claims, planner: Planner) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims
        self._planner = planner

    def start(self, record: JobRecord, placed: Placed, cause: Cause) -> None:
        """Start tasks on places that are taken and charged for."""
        self._claims.drop(record.id)
        self._claims.end_reservation(record)
        if self._placer.affinities is not None:
            self._placer.affinities.mark(record, placed)
        load_milli = self._placer.load_of(record.job, placed)
        self._state.outbox.append(runs.start(self._state, record, placed, cause, load_milli))
        if self._state.reserved.by_name:
            note_start(self._state, record)

    def start_again(self, record: JobRecord, placed: Placed, cause: Cause) -> None:
        """Start tasks where a cycle started them before."""
        for _, holding in placed:
            self._state.cluster.change(holding, HoldState.RUNNING)
        charge_placed(self._state, record, placed)
        self.start(record, placed, cause)

    def carry_out(self, found: Found, plans: Sequence[Plan], unclaimed: Container[str]) -> None:
        """Ask the victims to leave; start what fits without that; claim the rest.

        Args:
            unclaimed: ids of those whose turn has not come if it takes departures: who leaves waits before them then.
        """
        state, claims = self._state, self._claims
        if any(plan.by_ordering for plan in plans):
            claims.displaced_at = state.now
        asking = {plan.record.id for plan in plans if plan.asked_later}
        state.is_unfinished = any(plan.is_unfinished for plan in plans)
        claimed: list[tuple[JobRecord, Claim]] = []
        for record, placed, cause in found:
            grows = not record.line
            if grows and self._planner.has_asked(record):
                continue
            if self._take_again(record, placed):
                self.start(record, placed, cause)
            elif not (grows or record.job.is_background or record.id in unclaimed):  # these have another turn
                claimed.append((record, Claim(placed, _victims(record, placed, plans), cause, record.id in asking)))
        for record, claim in claimed:
            claims.put(record.id, claim)
        for plan in plans:
            for moved, placed in plan.moved:
                claims.put(moved.id, Claim(placed, _victims(moved, placed, plans), Cause.FITS))
            suspend_instead.ask_to_leave(state, plan.asked_now, plan.suspended, plan.cause, plan.record.id)
            for victim, tasks in plan.shrunk:
                runs.stop(state, victim, Trigger.ENDED_FOR_RETRY, Cause.SHRUNK, tasks=tasks, for_job=plan.record.id)

    def ask_more(self) -> bool:
        """Go on with a plan that has too many victims for one cycle: ask the next of them; False if there is none."""
        state, claims = self._state, self._claims
        asking = [job for job, claim in claims.by_job.items() if claim.asks and claim.cause is not Cause.CONSOLIDATED]
        if not asking:
            return False
        job, claim = asking[0], claims.by_job[asking[0]]
        unasked = [victim for victim, tasks in claims.present(claim) if not tasks and victim.slot >= 0]
        victims = unasked[: suspend_instead.ASKED_PER_CYCLE]
        record = state.jobs[job]
        amount = state.amounts.of_placed(record, claim.placed)
        mark = state.journal.begin()
        self._look_ahead({node for victim in victims for node in state.roster.nodes_of(victim.slot)}, record)
        softened = suspend_instead.soften(state, victims, lambda: state.queues.limiting(record.queue, amount) is None)
        state.journal.rollback(mark)
        suspend_instead.ask_to_leave(state, victims, softened, claim.cause, job)
        if len(victims) == len(unasked):
            claims.put(job, replace(claim, asks=False))
        return True

    def _look_ahead(self, nodes: Container[int], record: JobRecord) -> None:
        """Count some nodes, on a trial ledger, as they will be when all claims have been fulfilled.

        Where anything bounds what queues hold, all nodes: then it counts for all claims but that of ``record``.
        """
        state, claims = self._state, self._claims
        leaving = dict(pair for claim in claims.by_job.values() for pair in claims.present(claim))
        claims.charge(1, but=record.id)
        for victim, tasks in leaving.items():
            held = (task.holding for task in victim.tasks if task.holding is not None)
            if not state.has_bounds and not any(holding.node in nodes for holding in held):
                continue
            if tasks or victim.slot < 0:
                self._let_leave(victim)
            else:
                hold_all(state, victim, HoldState.NOTHING)
        for claim in claims.by_job.values():
            for _, holding in claim.placed:
                if holding.node in nodes:
                    state.cluster.change(holding, HoldState.RUNNING)

    # ---- claims -------------------------------------------------------------------------------------------------

    def settle_claims(self) -> None:
        """Start what has been waiting for others to leave, if they have and its place is still good."""
        claims = self._claims
        for job, claim in list(claims.by_job.items()):
            record = self._state.jobs[job]
            if not record.line or not claims.is_settled(job, claim):
                continue
            placed = self._still_good(record, claim)
            if placed is not None and self._fits_beside_reserved(record, placed):
                if self._take_again(record, placed):
                    self.start(record, placed, claim.cause)
                    continue
                if self._is_being_vacated(record, placed):
                    continue
            claims.drop(job)

    def _still_good(self, record: JobRecord, claim: Claim) -> Placed | None:
        """The place of a claim without tasks that were given up since; None if it is too small or closes too soon."""
        placed = [(task, holding) for task, holding in claim.placed if task.state is TaskState.QUEUED]
        enough = is_enough(record.job, [task for task, _ in placed])
        return placed if enough and not self._claims.closes_too_soon(record, placed) else None

    def _fits_beside_reserved(self, record: JobRecord, placed: Placed) -> bool:
        amount = self._state.amounts.of_placed(record, placed)
        return claim_fits_beside_reserved(self._state, record, amount)

    def _is_being_vacated(self, record: JobRecord, placed: Placed) -> bool:
        """Whether a place, and the quota for it, are a job's once all work that is leaving has left."""
        state = self._state
        mark = state.journal.begin()
        for other in state.running.values():
            self._let_leave(other)
        vacated = self._take_again(record, placed)
        state.journal.rollback(mark)
        return vacated

    def _let_leave(self, other: JobRecord) -> None:
        """Count what is leaving of a job as gone, on a trial ledger."""
        state = self._state
        leaving, hold = [task for task in other.tasks if task.state is TaskState.STOPPING], HoldState.NOTHING
        if not leaving and is_leaving(other):
            leaving, hold = suspended_tasks(other), HOLD_OF[other.suspend_mode]
        if leaving:
            state.charge(other, state.amounts.held(other, leaving), -1)
            for task in leaving:
                if task.holding is not None:
                    state.cluster.change(task.holding, hold)
            state.charge(other, state.amounts.held(other, leaving), 1)
        if other.is_ending:
            state.limits.count(other, -1)

    def _take_again(self, record: JobRecord, placed: Placed) -> bool:
        """Take the very same places on the ledger as it is; False, and nothing taken, if room or quota forbid it."""
        if not self._state.entitlements.keeps_limits(record, self._state.amounts.of_placed(record, placed)):
            return False
        cluster, journal = self._state.cluster, self._state.journal
        if any(cluster.lacks_compute(holding) for _, holding in placed):
            return False
        mark = journal.begin()
        for _, holding in placed:
            cluster.change(holding, HoldState.RUNNING)
            if cluster.is_overdrawn(holding):
                journal.rollback(mark)
                return False
        if not self._state.settle(record, [holding for _, holding in placed]):
            journal.rollback(mark)
            return False
        charge_placed(self._state, record, placed)
        journal.commit()
        return True

    def awaits_its_place(self, record: JobRecord) -> bool:
        """Whether a job has a claim, and gets its place as soon as all work that is leaving has left."""
        claim = self._claims.by_job.get(record.id)
        placed = None if claim is None else self._still_good(record, claim)
        return placed is not None and self._is_being_vacated(record, placed)


def _victims(record: JobRecord, placed: Placed, plans: Sequence[Plan]) -> Victims:
    """Those of the job's own plan; without one, who has its cards, or is on its nodes; if none does, all that leave."""
    found = _departures([plan for plan in plans if plan.record is record])
    if not found:
        departures = _departures(plans)
        cards = {card for _, holding in placed for card in holding.devices}
        nodes = {holding.node for _, holding in placed}

        def of(shares: Callable[[Holding], bool]) -> list[tuple[JobRecord, tuple[TaskRecord, ...]]]:
            return [
                (victim, tasks)
                for victim, tasks in departures
                if victim is record or any(task.holding and shares(task.holding) for task in tasks or victim.tasks)
            ]

        found = (
            of(lambda holding: not cards.isdisjoint(holding.devices))
            or of(lambda holding: holding.node in nodes)
            or departures
        )
    return tuple([(victim.id, victim.attempt, tuple([task.number for task in tasks])) for victim, tasks in found])


def _departures(plans: Sequence[Plan]) -> list[tuple[JobRecord, tuple[TaskRecord, ...]]]:
    """Who leaves by these plans, whole jobs first, and which tasks of it; none: all."""
    whole: list[tuple[JobRecord, tuple[TaskRecord, ...]]] = [(victim, ()) for plan in plans for victim in plan.leaving]
    return whole + [part for plan in plans for part in plan.shrunk]
