"""Why not me, and when? The reason a job waits, with numbers, a remedy that was tried, and an estimate.

The cycle stores nothing about jobs that wait; this looks on request. Every remedy offered has been tried on the
ledger, in a trial that was rolled back, with the quotas in force.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millpond.model import windows
from millpond.model.errors import NotFoundError
from millpond.model.reasons import Cause, Reason, Remedy, StartEstimate
from millpond.model.states import JobState
from millpond.model.workloads import Job
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.explaining import estimate
from millpond.scheduling.explaining.capacity_gap import CapacityGap
from millpond.scheduling.explaining.cordon_reasons import closed_for
from millpond.scheduling.explaining.infeasibility import Infeasibility
from millpond.scheduling.explaining.quota import quota_in_the_way
from millpond.scheduling.explaining.suspended import behind_frozen, frozen_in_the_way, why_parked, why_suspended
from millpond.scheduling.explaining.what_if_trial import WhatIfTrial
from millpond.scheduling.feasibility.empty_cluster import EmptyCluster
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State
from millpond.scheduling.suspension.suspension import why_suspend_refused
from millpond.scheduling.suspension.time_slicing import TimeSlicing
from millpond.scheduling.tenancy.queue_rank import QueueRank


class Explainer:
    """Answers questions about one state."""

    def __init__(self, state: State, placer: Placer, claims: Claims, time_slicing: TimeSlicing) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims
        self._time_slicing = time_slicing
        self._capacity = EmptyCluster(state, placer)
        self._capacity_gap = CapacityGap(state, placer, claims)
        self._what_if = WhatIfTrial(state, placer)

    # ---- before a job is accepted -------------------------------------------------------------------------------

    def impossible(self, job: Job) -> Reason | None:
        """Why the cluster could never take the job, were it empty; None if it could."""
        infeasibility = self._capacity.infeasibility(job) or self._capacity.swap_infeasibility(job)
        return None if infeasibility is None else _impossible(infeasibility)

    # ---- while it waits -----------------------------------------------------------------------------------------

    def explain(self, job_id: str) -> Reason:
        """The full answer for one job.

        Raises:
            NotFoundError: there is no such job.
        """
        return self._asked(job_id, self._answer)

    def cause(self, job_id: str) -> Reason:
        """The cause alone: for lists, which can do without the remedy and the estimate that take long to find.

        Raises:
            NotFoundError: there is no such job.
        """
        return self._asked(job_id, lambda record: self._out_of_line(record) or self._in_line(record))

    def _asked(self, job_id: str, answer: Callable[[JobRecord], Reason]) -> Reason:
        record = self._state.jobs.get(job_id)
        if record is None:
            raise NotFoundError(f"no job {job_id!r}", "list them with `pond ps --all`")
        selector = self._placer.selector
        rounds = selector.rounds
        reason = answer(record)
        # What is tried here places nothing: a placement that draws lots goes on as before.
        selector.rounds = rounds
        return reason

    def _answer(self, record: JobRecord) -> Reason:
        reason = self._out_of_line(record)
        if reason is not None:
            return replace(reason, position=self._position(record))
        reason = self._in_line(record)
        helpless = reason.cause in (Cause.BEHIND, Cause.NOT_CONSIDERED)
        return replace(
            reason,
            remedy=None if helpless else reason.remedy or self._remedy(record),
            position=self._position(record),
            start=estimate.start_of(self._state, self._placer, record),
        )

    def _out_of_line(self, record: JobRecord) -> Reason | None:
        """Why a job is in no line, or why being in one does not help; None when it may be its turn."""
        if record.state is not JobState.QUEUED:
            return self._explain_moving(record)
        if record.is_parked:
            return why_parked(record)
        if record.scaled_to_zero:
            return Reason(Cause.SCALED_TO_ZERO, f"scaled to zero: {record.scaled_to_zero}")
        infeasibility = self._capacity.infeasibility(record.job)
        if infeasibility is not None:
            return _impossible(infeasibility)
        if not self._state.is_in_window(record):
            return self._out_of_hours(record)
        if self._state.holds:
            cause, text = next(iter(self._state.holds.items()))
            return Reason(cause, f"nothing new starts: {text}")
        if not record.line and record.retry_at > self._state.now:
            why = next((f" ({task.detail})" for task in record.tasks if task.detail), "")
            start = StartEstimate(record.retry_at, None, "its delay after the failure is over then")
            return Reason(
                Cause.RETRY_DELAYED, f"its last run failed{why}; it is tried again after a delay", start=start
            )
        if not record.line:
            why = next((f" ({task.detail})" for task in record.tasks if task.detail), "")
            return Reason(Cause.NOT_CONSIDERED, f"its last start was refused{why}; it lines up again after a pause")
        return None

    def _in_line(self, record: JobRecord) -> Reason:
        self._placer.refresh()
        first = self._first_of_pool(record) if self._state.ordering.strict else record
        return self._explain_waiting(record) if first is record else self._behind(first)

    def _out_of_hours(self, record: JobRecord) -> Reason:
        """It waits for its window, in no line."""
        hours = " and ".join(map(str, record.job.windows))
        opens_at = windows.opens_at(record.job.windows, self._state.now)
        start = StartEstimate(opens_at, None, "its window opens then; what runs by that time is not known")
        return Reason(Cause.WINDOW_CLOSED, f"it waits for its window ({hours})", start=start, opens_at=opens_at)

    def _explain_moving(self, record: JobRecord) -> Reason:
        if record.state is JobState.SUSPENDED:
            return why_suspended(self._state, record)
        nodes = sorted({task.placement.node for task in record.tasks if task.placement is not None})
        where = f" on {', '.join(nodes)}" if nodes else ""
        if (kept := record.kept) is not None:
            return _kept(record, kept)
        if record.state is JobState.STOPPING:
            cause = record.stop_cause or Cause.STOP_REQUESTED
            moves = f", {record.migration.text}" if cause is Cause.MIGRATED and record.migration is not None else ""
            return Reason(cause, f"being ended{where}: {cause.value}{moves}")
        if record.state.ended:
            return Reason(Cause.FITS, f"it has ended: {record.state.value}")
        moved = f"; {record.migration.text}" if record.migration is not None else ""
        suspend_refused = f"; it {text}" if (text := why_suspend_refused(record)) else ""
        return Reason(Cause.FITS, f"{record.state.value}{where}, run {record.attempt}{moved}{suspend_refused}")

    def _explain_waiting(self, record: JobRecord) -> Reason:
        state = self._state
        claim = self._claims.by_job.get(record.id)
        if claim is not None:
            return Reason(
                Cause.ROOM_BEING_MADE,
                f"{len(claim.victims)} job{'s' * (len(claim.victims) != 1)} ended or made smaller to make room for it",
                (("victims", len(claim.victims)),),
                blocked_by=claim.victims[0][0],
            )
        reason = quota_in_the_way(state, record)
        if reason is not None:
            return reason
        closing = self._claims.mask_of_closings(record)
        if (
            self._claims.mask_of_others(record) is not None
            and not self._what_if.fits(record, self._claims.mask(record))
            and self._what_if.fits(record, closing)
        ):
            holder = self._claims.holder_against(record)
            return Reason(
                Cause.RESERVED,
                f"there is room, but it is kept for {holder}, which is ahead and would otherwise starve",
                blocked_by=holder,
                nodes=self._capacity_gap.filters(record),
            )
        if self._what_if.finds_room(record, self._claims.mask(record)):
            if state.holds_back(record):
                return Reason(
                    Cause.HELD_BACK, "there is room, but it is left for a while to shorter work that is expected"
                )
            since = "it came in just now" if record.requeued_at == state.now else "there is room for it now"
            return Reason(Cause.NOT_CONSIDERED, f"{since}; the next cycle looks at it")
        return self._closed_for(record) or self._no_room(record)

    def _no_room(self, record: JobRecord) -> Reason:
        reason, hindrance = self._capacity_gap.no_room(record), self._time_slicing.hindrance(record)
        if hindrance:
            return replace(reason, summary=f"{reason.summary}; {hindrance}")
        mask = self._claims.mask(record)
        holder = frozen_in_the_way(self._state, record, lambda: self._what_if.finds_room(record, mask))
        return reason if holder is None else behind_frozen(self._state, reason, holder)

    def _closed_for(self, record: JobRecord) -> Reason | None:
        if not self._state.cordons.by_node:
            return None
        reason = closed_for(self._state, self._claims, record, lambda mask: self._what_if.fits(record, mask))
        return None if reason is None else replace(reason, nodes=self._capacity_gap.filters(record))

    def _first_of_pool(self, record: JobRecord) -> JobRecord:
        """Who is first in line for the pool of this job."""
        ranked = self._state.waiting.ranked(QueueRank(self._state).rank)
        return next(other for other in ranked if other.job.pool == record.job.pool)

    def _behind(self, first: JobRecord) -> Reason:
        return Reason(
            Cause.BEHIND,
            f"the ordering {self._state.settings.ordering!r} lets nobody overtake; {first.id} is first and waits",
            blocked_by=first.id,
        )

    def _position(self, record: JobRecord) -> int | None:
        """Its place in the order of all that wait in a line, from 1; None when it stands in none."""
        if not record.line:
            return None
        ranked = self._state.waiting.ranked(QueueRank(self._state).rank)
        return next(place for place, other in enumerate(ranked, 1) if other is record)

    def _remedy(self, record: JobRecord) -> Remedy | None:
        rooms = [need.total for need in self._capacity_gap.needs(record)]
        return self._what_if.remedy(record, rooms, self._claims.mask(record))


def _kept(record: JobRecord, kept: TaskRecord) -> Reason:
    which = f" --task {kept.number}" if len(record.tasks) > 1 else ""
    where = f" on {kept.placement.node}" if kept.placement is not None else ""
    attach, stop = f"pond attach{which} {record.id}", f"pond stop {record.id}"
    remedy = Remedy(f"`{attach}` looks inside, `{stop}` gives the place back", "", "")
    return Reason(
        Cause.KEPT, f"failed ({kept.detail}); its place{where} is kept", remedy=remedy, opens_at=kept.kept_until
    )


def _impossible(infeasibility: Infeasibility) -> Reason:
    remedy = Remedy(infeasibility.remedy, infeasibility.field, infeasibility.value) if infeasibility.remedy else None
    return Reason(Cause.IMPOSSIBLE, infeasibility.what, infeasibility.numbers, remedy=remedy)
