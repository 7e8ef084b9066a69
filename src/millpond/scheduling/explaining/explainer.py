"""Why not me, and when? The reason a job waits, with numbers, a remedy that was tried, and an estimate.

The cycle stores nothing about jobs that wait; this looks on request. Every remedy offered has been tried on the
ledger, in a trial that was rolled back, with the quotas in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from millpond.model import windows
from millpond.model.amounts import count_text, seconds_text
from millpond.model.errors import NotFoundError
from millpond.model.hardware.nodes import Node
from millpond.model.reasons import Cause, DeadlineOutlook, Reason, Remedy, StartEstimate
from millpond.model.states import JobState, TaskState
from millpond.model.workloads import Job
from millpond.scheduling.capping.capping import why_never_capped
from millpond.scheduling.cycle.admission_cycle import AdmissionCycle
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.fetch_waits import FetchWait
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.cycle.starting import Starter
from millpond.scheduling.elastic.growth import missing_tasks
from millpond.scheduling.elastic.measured_speed import WORTH, is_measured
from millpond.scheduling.estimating.kept_estimates import KeptEstimates
from millpond.scheduling.estimating.line_order import LineOrder
from millpond.scheduling.explaining.capacity_gap import CapacityGap
from millpond.scheduling.explaining.cells import with_cells
from millpond.scheduling.explaining.cordon_reasons import being_divided, closed_cards_for, closed_for, may_be_divided
from millpond.scheduling.explaining.deadlines import outlook_of
from millpond.scheduling.explaining.held import held_start, why_held
from millpond.scheduling.explaining.infeasibility import Infeasibility
from millpond.scheduling.explaining.kept_room import KeptRoom
from millpond.scheduling.explaining.node_names import placed_on
from millpond.scheduling.explaining.protected import behind_ended, ended_in_the_way, protected_in_the_way
from millpond.scheduling.explaining.quota import closed_models, quota_in_the_way, quota_on_larger_models, until_lent
from millpond.scheduling.explaining.reserved import (
    closed_on_reserved,
    sooner_by_reservation,
    why_not_begun,
    why_reservation_full,
    with_scattered_cards,
)
from millpond.scheduling.explaining.suspended import behind_frozen, frozen_in_the_way, why_parked, why_suspended
from millpond.scheduling.explaining.turn import first_in_the_way, reservations_ahead_of, turn_of
from millpond.scheduling.explaining.what_if_trial import WhatIfTrial
from millpond.scheduling.feasibility.class_infeasibility import class_infeasibility
from millpond.scheduling.feasibility.empty_cluster import EmptyCluster
from millpond.scheduling.ordering.queueing import is_in_window
from millpond.scheduling.packing.partners import why_shares_none
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.runs import MOVING
from millpond.scheduling.state import State
from millpond.scheduling.suspension.suspension import why_suspend_refused
from millpond.scheduling.suspension.time_slicing import TimeSlicing


class Explainer:
    """Answers questions about one state. What they are about is of the moment; estimates may be of some seconds ago.

    Attributes:
        estimates: has to be told of all that happens.
    """

    def __init__(
        self,
        state: State,
        placer: Placer,
        claims: Claims,
        time_slicing: TimeSlicing,
        cycle: AdmissionCycle,
        starter: Starter,
    ) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims
        self._starter = starter
        self._time_slicing = time_slicing
        self._capacity = EmptyCluster(state, placer)
        self._places = cycle.places
        self._fetch_waits = cycle.fetch_waits
        self._capacity_gap = CapacityGap(state, placer, claims)
        self._what_if = WhatIfTrial(state, placer, claims, cycle)
        self._kept_room = KeptRoom(state, claims, self._places, self._capacity_gap)
        self.estimates = KeptEstimates(state, placer, claims)

    # ---- before a job is accepted -------------------------------------------------------------------------------

    def impossible(self, job: Job) -> Reason | None:
        """Why the cluster could never take the job, were it empty; None if it could."""
        capacity = self._capacity
        infeasibility = (
            capacity.infeasibility(job)
            or class_infeasibility(self._state.queues, job)
            or capacity.swap_infeasibility(job)
        )
        return None if infeasibility is None else _impossible(infeasibility)

    # ---- while it waits -----------------------------------------------------------------------------------------

    def explain(self, job_id: str, within_s: float) -> Reason:
        """The full answer for one job; position and estimate may be of so many seconds ago.

        Raises:
            NotFoundError: there is no such job.
        """
        return self._asked(job_id, lambda record: self._answer(record, within_s))

    def cause(self, job_id: str) -> Reason:
        """The cause alone: for lists, which can do without the remedy and the estimate that take long to find.

        Raises:
            NotFoundError: there is no such job.
        """
        return self._asked(job_id, lambda record: self._out_of_line(record) or self._in_line(record))

    def deadline_outlook(self, job_id: str, within_s: float) -> DeadlineOutlook | None:
        """Whether a job should end by its deadline; None for one that has none, or has ended.

        Raises:
            NotFoundError: there is no such job.
        """
        record = self._known(job_id)
        if record.job.deadline_s is None or record.state.ended:
            return None
        if record.held_until > self._state.now:
            return outlook_of(self._state, record, held_start(self._state, record))
        return outlook_of(self._state, record, self._start_of(record, within_s) if record.line else None)

    def _start_of(self, record: JobRecord, within_s: float) -> StartEstimate:
        if record.id in self._claims.by_job:
            return self._start_of_claim(record)
        selector = self._placer.selector
        rounds = selector.rounds
        fits_now = bool(self._what_if.finds_room(record, self._claims.mask(record)))
        selector.rounds = rounds
        if fits_now and record.id in self._state.fetch_waits and (wait := self._fetch_wait(record)) is not None:
            node = self._state.cluster.node_name(wait.node)
            basis = f"node {node} should be free then; at the latest it takes what there is"
            return StartEstimate(self._state.now, wait.until, basis, likely_at=wait.free_at)
        found = until_lent(self._state, record, self.estimates.of(record, within_s).of(record, fits_now=fits_now))
        return sooner_by_reservation(self._state, record, found) if self._state.reserved.by_name else found

    def _start_of_claim(self, record: JobRecord) -> StartEstimate:
        """Those who have been asked to end do so within their grace; how long others take is not known."""
        now, leaving = self._state.now, self._claims.leaving_for(record.id)
        if not all(any(task.state is TaskState.STOPPING for task in other.tasks) for other in leaving):
            why = "it starts when those who make room for it have left, which is up to them"
            return StartEstimate(now, None, "", unknown=why)
        if (closed := self._closed_under(leaving)) is not None:
            where, why = f"those who make room for it end on node {closed.name}", closed.unschedulable_reason
            return StartEstimate(now, None, "", unknown=f"{where}, which is closed: {why}")
        grace_s = max((other.job.checkpoint.grace_s for other in leaving), default=0.0)
        basis = f"those who make room for it end within {seconds_text(round(grace_s))}"
        return StartEstimate(now, now + grace_s, basis, likely_at=now + grace_s)

    def _closed_under(self, leaving: Iterable[JobRecord]) -> Node | None:
        """A node that its engine has closed, as if it is silent, where tasks that were asked to end have not ended."""
        tasks = (task for other in leaving for task in other.tasks if task.state is TaskState.STOPPING)
        nodes = (self._state.cluster.nodes[task.holding.node] for task in tasks if task.holding is not None)
        return next((node for node in nodes if node is not None and not node.schedulable), None)

    def _known(self, job_id: str) -> JobRecord:
        record = self._state.jobs.get(job_id)
        if record is None:
            raise NotFoundError(f"no job {job_id!r}", "list them with `pond ps --all`")
        return record

    def _asked(self, job_id: str, answer: Callable[[JobRecord], Reason]) -> Reason:
        record = self._known(job_id)
        selector = self._placer.selector
        rounds = selector.rounds
        reason = answer(record)
        # What is tried here places nothing: a placement that draws lots goes on as before.
        selector.rounds = rounds
        return reason

    def _answer(self, record: JobRecord, within_s: float) -> Reason:
        reason = self._out_of_line(record)
        if reason is not None:
            return replace(reason, position=self._position(record, within_s))
        reason = self._in_line(record)
        helpless = reason.cause in (Cause.BEHIND, Cause.NOT_CONSIDERED, Cause.ROOM_BEING_MADE)
        return replace(
            reason,
            remedy=None if helpless or self._replans else reason.remedy or self._remedy(record),
            position=self._position(record, within_s),
            start=reason.start or self._still_to_come(reason, self._start_of(record, within_s)),
        )

    def _still_to_come(self, reason: Reason, start: StartEstimate) -> StartEstimate:
        """An estimate; not known where it is that a job starts now, which the cycle has just not had it do."""
        if reason.cause in (Cause.NOT_CONSIDERED, Cause.ROOM_BEING_MADE) or start.unknown:
            return start
        if start.latest_at is None or start.latest_at > self._state.now:
            return start
        why = "what the estimate knows of would have let it start by now"
        return StartEstimate(start.earliest_at, None, "", unknown=why)

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
        if record.held_until > self._state.now:
            return why_held(self._state, record)
        if not is_in_window(self._state, record):
            return why_not_begun(self._state, record) or self._out_of_hours(record)
        if self._state.holds:
            cause, text = next(iter(self._state.holds.items()))
            return Reason(cause, f"nothing new starts: {text}")
        return None if record.line else self._after_a_pause(record)

    def _after_a_pause(self, record: JobRecord) -> Reason:
        """Its last run failed, or its last start was refused: it is in no line for a while."""
        detail = next((f" ({task.detail})" for task in record.tasks if task.detail), "")
        if record.retry_at > self._state.now:
            text, basis = f"its last run failed{detail}; it is tried again after a delay", "its delay after the failure"
        else:
            text, basis = f"its last start was refused{detail}; it lines up again after a pause", "its pause"
        end_at = min((at for at, _, other in self._state.paused if other is record), default=record.retry_at)
        start = StartEstimate(end_at, None, f"{basis} is over then")
        return Reason(Cause.RETRY_DELAYED, text, start=start)

    def _in_line(self, record: JobRecord) -> Reason:
        self._placer.refresh()
        if self._replans:
            return self._explain_replanned(record)
        if awaited := self._state.card_cordons.awaited_by(record.id):
            return being_divided(self._state, awaited)
        claim = self._claims.by_job.get(record.id)
        if self._starter.awaits_its_place(record) or (claim is not None and claim.cause is Cause.CONSOLIDATED):
            return self._with_prefetches(record, self._room_being_made(record))
        with turn_of(self._state, self._claims, record):
            first = first_in_the_way(self._state, self._claims, record)
            reason = self._explain_waiting(record) if first is None else self._behind(record, first)
        if reason.cause is Cause.GUARANTEE_OF_OTHERS:
            closed = closed_on_reserved(self._state, self._placer, self._claims, record)
            reason = reason if closed is None else replace(closed, nodes=self._capacity_gap.filters(record))
        reason = with_scattered_cards(self._state, record, self._with_prefetches(record, reason))
        return with_cells(self._state, record, reason)

    def _with_prefetches(self, record: JobRecord, reason: Reason) -> Reason:
        """With the nodes that fetch what a job needs before it starts."""
        nodes = self._state.prefetches.nodes_for(record.id)
        if not nodes:
            return reason
        return replace(reason, summary=f"{reason.summary}; what it needs is being fetched to {', '.join(nodes)}")

    def _out_of_hours(self, record: JobRecord) -> Reason:
        """It waits for its window, in no line."""
        hours = " and ".join(map(str, record.job.windows))
        opens_at = windows.opens_at(record.job.windows, self._state.now)
        start = StartEstimate(opens_at, None, "its window opens then; what runs by that time is not known")
        return Reason(Cause.WINDOW_CLOSED, f"it waits for its window ({hours})", start=start, opens_at=opens_at)

    def _explain_moving(self, record: JobRecord) -> Reason:
        if record.state is JobState.SUSPENDED:
            return why_suspended(self._state, record)
        where = placed_on(record)
        if (kept := record.kept) is not None:
            return _kept(record, kept)
        if record.state is JobState.STOPPING:
            cause = record.stop_cause or Cause.STOP_REQUESTED
            moves = f", {record.migration.text}" if cause in MOVING and record.migration is not None else ""
            return Reason(cause, f"being ended{where}: {cause.value}{moves}{self._unheard(record)}")
        if record.state.ended:
            return Reason(Cause.FITS, f"it has ended: {record.state.value}")
        moved = f"; {record.migration.text}" if record.migration is not None else ""
        suspend_refused = f"; it {text}" if (text := why_suspend_refused(record)) else ""
        size = self._why_no_larger(record)
        shares = f"; it shares its cards with {record.packed_with}" if record.packed_with else ""
        no_cap = f"; {text}" if (text := why_never_capped(self._state, record)) else ""
        run = f"{record.state.value}{where}, run {record.attempt}"
        comes = f"{self._fetching(record)}{self._unheard(record)}"
        return Reason(Cause.FITS, f"{run}{comes}{moved}{suspend_refused}{size}{shares}{no_cap}")

    def _unheard(self, record: JobRecord) -> str:
        """Why nothing is heard of a node that it is on; empty where all are heard of."""
        nodes = (self._state.cluster.nodes[task.holding.node] for task in record.tasks if task.holding is not None)
        silent = next((node for node in nodes if node is not None and node.is_silent), None)
        return "" if silent is None else f"; node {silent.name} is closed: {silent.unschedulable_reason}"

    def _fetching(self, record: JobRecord) -> str:
        """Which node of a job that starts fetches longest, as far as nodes have told; empty where none does."""
        contents = self._state.cluster.contents
        seconds = contents.fetch_s(record.job.contents) if record.state is JobState.STARTING else None
        nodes = [task.holding.node for task in record.tasks if task.holding is not None]
        if seconds is None or not nodes:
            return ""
        last = max(nodes, key=lambda node: float(seconds[node]))
        if not seconds[last]:
            return ""
        name, took = self._state.cluster.node_name(last), seconds_text(round(float(seconds[last])))
        return f"; what it needs takes {took} to fetch to {name}"

    def _why_no_larger(self, record: JobRecord) -> str:
        """Why a running gang lacks tasks, where its speed decides that; empty if it does not."""
        if record.state is not JobState.RUNNING or not record.elastic or missing_tasks(self._state, record):
            return ""
        missing = len(record.queued())
        if not missing:
            return ""
        left_out = f"{count_text(missing, 'task')} {'is' if missing == 1 else 'are'} left out"
        if not is_measured(record):
            return f"; {left_out} until it is measured how fast it is with those that it has"
        part = f"{WORTH:.0%} of what each of its first cards does"
        return f"; {left_out}, as another would add less than {part}"

    def _explain_waiting(self, record: JobRecord) -> Reason:
        """Asked in the turn of the job."""
        state, claims = self._state, self._claims
        with reservations_ahead_of(state, record):
            reason = why_reservation_full(state, claims, record) or quota_in_the_way(state, claims, record)
        if reason is not None:
            return reason
        if state.holds_back(record) and self._places.has_any(record):
            text = "there is room, but it is left for a while to shorter work that is expected"
            return Reason(Cause.HELD_BACK, text)
        if (wait := self._fetch_wait(record)) is not None:
            node, soon_s = state.cluster.node_name(wait.node), seconds_text(round(wait.free_at - state.now))
            text = f"there is room, but node {node}, where less of what it needs is missing, should be free in {soon_s}"
            return Reason(
                Cause.NEARER_CONTENTS, f"{text}; to fetch it elsewhere takes {seconds_text(round(wait.fetch_s))}"
            )
        mask = claims.mask(record)
        if not self._what_if.finds_room(record, mask):
            return (
                quota_on_larger_models(state, claims, record, self._could_run)
                or self._kept_room.for_others(record)
                or self._kept_room.for_reservation(record)
                or self._kept_room.for_both(record)
                or self._closed_for(record)
                or self._no_room(record, mask)
            )
        if self._breaks_into_cells(record):
            return Reason(
                Cause.NO_ROOM,
                "cards are free, but with it there, as it is not preemptible, "
                "the cells that queues are owed would lack hardware",
            )
        since = "it came in just now" if record.requeued_at == state.now else "there is room for it now"
        return Reason(Cause.NOT_CONSIDERED, f"{since}; the next cycle looks at it")

    def _fetch_wait(self, record: JobRecord) -> FetchWait | None:
        placed = self._places.first(record) if record.job.contents else None
        return None if placed is None else self._fetch_waits.find(record, placed)

    def _breaks_into_cells(self, record: JobRecord) -> bool:
        """Whether a job has no place but such as would leave less than is owed as cells."""
        state = self._state
        may_break = state.cluster.cells.allocator is not None and not record.job.preemptible
        return may_break and not state.reserved.open_to(record, state.now) and not self._places.has_any(record)

    def _could_run(self, job: Job) -> bool:
        return self._capacity.infeasibility(job) is None

    @property
    def _replans(self) -> bool:
        """Whether a published preemptive ordering decides, not the admission cycle."""
        return self._state.ordering.replans and self._state.settings.preempt

    def _explain_replanned(self, record: JobRecord) -> Reason:
        state = self._state
        reason = quota_in_the_way(state, self._claims, record)
        if reason is not None:
            return reason
        if not self._what_if.finds_room(record, None):
            quota = quota_on_larger_models(state, self._claims, record, self._could_run)
            return quota or self._closed_for(record) or self._capacity_gap.no_room(record)
        period = state.settings.replan_period_s
        if record in state.fresh or (period > 0.0 and record.requeued_at > state.now // period * period):
            return Reason(Cause.NOT_CONSIDERED, "it came in after the last replanning; the next one looks at it")
        ordering = f"the ordering {state.orderings.base_name!r}"
        return Reason(
            Cause.BEHIND, f"there is room, but {ordering} has given all cards of its pool to work that is ahead"
        )

    def _room_being_made(self, record: JobRecord) -> Reason:
        leaving = self._claims.leaving_for(record.id)
        if not leaving:
            return Reason(Cause.NOT_CONSIDERED, "its room has been made; the next cycle looks at it")
        one = len(leaving) == 1
        is_moved = self._claims.by_job[record.id].cause is Cause.CONSOLIDATED
        how = "being moved to other nodes" if is_moved else "leaving or being made smaller"
        return Reason(
            Cause.ROOM_BEING_MADE,
            f"{len(leaving)} job{'' if one else 's'} {'is' if one else 'are'} {how}, and the room is claimed for it",
            (("victims", len(leaving)),),
            blocked_by=leaving[0].id,
        )

    def _no_room(self, record: JobRecord, mask: NodeMask | None) -> Reason:
        fits = partial(self._what_if.finds_room, record, mask)
        reason = self._capacity_gap.no_room(record)
        if divided := may_be_divided(self._state, record):
            reason = replace(reason, summary=f"{reason.summary}{divided}")
        if alone := why_shares_none(self._state, record):
            reason = replace(reason, summary=f"{reason.summary}; {alone}")
        if closed := closed_models(self._state, record):
            reason = replace(reason, summary=f"{reason.summary}; {'; '.join(closed)}")
        if ending := ended_in_the_way(self._state, record, fits):
            return behind_ended(reason, ending)
        protected = protected_in_the_way(self._state, record, fits)
        if protected is not None:
            return replace(protected, nodes=reason.nodes)
        hindrance = self._time_slicing.hindrance(record)
        if hindrance:
            return replace(reason, summary=f"{reason.summary}; {hindrance}")
        holder = frozen_in_the_way(self._state, record, fits)
        return reason if holder is None else behind_frozen(self._state, reason, holder)

    def _closed_for(self, record: JobRecord) -> Reason | None:
        state, fits = self._state, partial(self._what_if.finds_room, record)
        reason = closed_for(state, self._claims, record, fits) if state.cordons.has_spans else None
        if reason is None and state.cluster.closed_cards:
            reason = closed_cards_for(state, self._claims, record, fits)
        return None if reason is None else replace(reason, nodes=self._capacity_gap.filters(record))

    def _behind(self, record: JobRecord, first: JobRecord) -> Reason:
        return Reason(
            Cause.BEHIND,
            f"the ordering {self._ordering_of_both(record, first)} lets nobody overtake; {first.id} is first and waits",
            blocked_by=first.id,
        )

    def _ordering_of_both(self, record: JobRecord, first: JobRecord) -> str:
        """The ordering that has one job wait behind another, by name; and whose, if not the cluster's."""
        if record.group is None or record.group != first.group or not self._state.orderings.of(record.group).strict:
            return repr(self._state.orderings.base_name)
        return f"{record.group[0]!r} of {record.job.kind} jobs in queue {record.queue}"

    def _position(self, record: JobRecord, within_s: float) -> int | None:
        """Its place in the order of all that wait in a line, from 1; None when it stands in none."""
        if not record.line:
            return None
        if record.id not in self._claims.by_job and not self._state.reserved.by_name:
            return 1 + self.estimates.of(record, within_s).order.place_of(record)
        with turn_of(self._state, self._claims, record):
            return 1 + LineOrder(self._state).place_of(record)

    def _remedy(self, record: JobRecord) -> Remedy | None:
        with turn_of(self._state, self._claims, record):
            rooms = [need.total for need in self._capacity_gap.needs(record)]
        return self._what_if.remedy(record, rooms, self.impossible)


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
