"""The scheduler: events in, decisions out. Pure and deterministic; time is what the caller says it is.

``handle`` takes events, ``decide`` runs the cycle (``cycle.scheduling_cycle``), and all else answers questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from millpond.model.decisions import Decision, Start
from millpond.model.errors import MillpondError
from millpond.model.events import Event, NodeJoined, PolicyChanged
from millpond.model.hardware.card_layouts import LayoutChange
from millpond.model.hardware.nodes import Node
from millpond.model.reasons import Cause, DeadlineOutlook, Reason
from millpond.model.resources import Amount
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.tenancy.tenants import Limit, Queue
from millpond.model.workloads import Job, Priority
from millpond.scheduling.copies import forking, snapshots
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.cycle.redo import Redo
from millpond.scheduling.cycle.scheduling_cycle import SchedulingCycle
from millpond.scheduling.cycle.wakeups import Wakeups
from millpond.scheduling.estimating.lengths import ExpectedLengths, expected_lengths
from millpond.scheduling.estimating.line_order import LineOrder
from millpond.scheduling.event_handling.event_handlers import EventHandlers
from millpond.scheduling.event_handling.requeueing import with_priority
from millpond.scheduling.explaining.explainer import Explainer
from millpond.scheduling.ledger.content_index import HeldContents
from millpond.scheduling.migration.migrations import Migrations
from millpond.scheduling.nodes.layout_planner import LayoutStep, next_layout_step
from millpond.scheduling.nodes.power_overview import PowerOverview, candidates
from millpond.scheduling.nodes.views import NodeView, node_views
from millpond.scheduling.nodes.waking import nodes_to_wake
from millpond.scheduling.placement.kernels import KernelSet
from millpond.scheduling.reserving.agreement import Misfit, misfit, require_kept, require_room_kept
from millpond.scheduling.reserving.upkeep import require_usable
from millpond.scheduling.reserving.views import ReservationView, reservation_views
from millpond.scheduling.settings import Settings
from millpond.scheduling.state import State
from millpond.scheduling.suspension.suspension import (
    why_not_vacated,
    why_suspend_refused,
)
from millpond.scheduling.tenancy.cells.cell_map import CellChain, cell_map
from millpond.scheduling.tenancy.queue_views import (
    QueueDetail,
    QueueStatus,
    QueueView,
    queue_detail,
    queue_statuses,
    queue_view,
)


class Scheduler:
    """The core. One thread owns it; other threads read snapshots.

    Attributes:
        jobs: every job it knows, by id; to be read, not written. Ended jobs stay until ``forget``.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self._assemble(settings or Settings())

    def _assemble(self, settings: Settings) -> None:
        """Make all parts, empty."""
        self._state = State(settings)
        self._placer = Placer(self._state.cluster, settings, self._state.queues)
        self._placer.allowed_nodes = self._state.entitlements.allowed_nodes
        self._claims = Claims(self._state)
        self._migrations = Migrations(self._state, self._placer, self._claims)
        self._event_handlers = EventHandlers(self._state, self._placer, self._claims, self._migrations)
        self._cycle = SchedulingCycle(self._state, self._placer, self._claims, self._migrations)
        self._redo = Redo(self._state, self._claims, self._migrations, self._cycle.starter, self._cycle.packing)
        self._explainer = Explainer(
            self._state,
            self._placer,
            self._claims,
            self._cycle.time_slicing,
            self._cycle.admission,
            self._cycle.starter,
        )
        self.jobs = self._state.jobs
        self._claims_seen: tuple[int, ...] = (0, 0, 0, 0, 0, 0)
        self._wakeups = Wakeups(self._state, self._claims, self._cycle)

    @property
    def settings(self) -> Settings:
        """Those that hold now."""
        return self._state.settings

    # ---- the cycle ----------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Take note of what happened.

        Raises:
            InvalidInputError, NotFoundError, ConflictError: the event contradicts the state; nothing has changed.
        """
        self._state.verdicts.next_event()
        try:
            if type(event) is PolicyChanged:
                self._change_policy(event)
            else:
                self._event_handlers.handle(event)
        except MillpondError:
            self._state.verdicts.refuse()
            raise
        self._explainer.estimates.note_event(event)

    def _change_policy(self, event: PolicyChanged) -> None:
        """Go on under other policies: the parts are made anew and take the jobs over, who waits is keyed anew."""
        settings = self._settings_by(event)
        require_room_kept(self._state, settings)
        self._state.now = max(self._state.now, event.at)
        before, kernels, decided = self._parts, self._placer.kernels, self._migrations.decided
        self._assemble(settings)
        self._migrations.decided = decided
        self.use_kernels(kernels)
        forking.go_on_under_other_policies(before, self._parts)

    def _settings_by(self, event: PolicyChanged) -> Settings:
        return replace(
            self.settings,
            ordering=event.ordering,
            placement=event.placement,
            preempt=event.preempt,
            reserve=event.reserve,
            trial=event.trial,
        )

    @property
    def _parts(self) -> forking.Parts:
        return forking.Parts(self._state, self._placer, self._claims)

    def decide(self, now: float) -> list[Decision]:
        """Everything that should happen next, as of ``now`` (seconds; never earlier than the last event)."""
        self._cycle.run(now)
        self._explainer.estimates.note_cycle()
        decisions, self._state.outbox = self._state.outbox, []
        return decisions

    @property
    def is_unfinished(self) -> bool:
        """Whether the latest cycle came to its bound on work: the next one goes on with it, at once."""
        return self._state.is_unfinished

    def next_wakeup(self, now: float) -> float | None:
        """The instant at which a cycle is worth running although no event arrives; None when there is none."""
        return self._wakeups.next(now)

    # ---- what was decided before, from a log ----------------------------------------------------------------------

    def expect(self, decided: Sequence[Decision], claims: Sequence[Any] | None = None) -> None:
        """Before events are handled anew: the cycle behind them came to these decisions.

        Args:
            claims: ``changed_claims`` of then. Events that were turned down then are so again.
        """
        self._migrations.decided = decided
        self._state.verdicts.expect(claims)

    def redo(self, now: float, decided: Sequence[Decision], claims: Sequence[Any] | None = None) -> None:
        """Carry out what a cycle decided, instead of ``decide``.

        Args:
            claims: ``changed_claims`` of then.

        Raises:
            InconsistentStateError: a decision is about what is not there.
        """
        if claims is not None:
            snapshots.give_nodes(claims, self._state)
            snapshots.give_fetch_waits(claims, self._state)
        kept = claims or ()
        self._redo.cycle(now, decided, snapshots.starts_in(kept), lambda: snapshots.give_rights(kept, self._state))
        self._explainer.estimates.note_cycle()
        if claims is not None:
            with self._state.journal:
                snapshots.give_claims(claims, self._state, self._claims)
            self._migrations.redo(decided)
            self._cycle.consolidation.redo(decided)
        self._cycle.hot_spots.redo(decided)
        self._claims_seen = self._kept_version
        self._migrations.decided = None
        self._state.verdicts.expect(None)

    def changed_claims(self) -> list[Any] | None:
        """The places that are kept for jobs until others have left, the nodes that are kept for reservations, the
        starts, rights to cells and waits for contents that the latest cycle found, and which events before it were
        turned down or agreed upon, as plain data; None: as when this was last asked.

        What comes from a snapshot or a log has not changed.
        """
        seen, self._claims_seen = self._claims_seen, self._kept_version
        changed = [before != now for before, now in zip(seen, self._claims_seen, strict=True)]
        if not any(changed):
            return None
        return snapshots.take_kept(self._state, self._claims, claims_changed=changed[0], nodes_changed=changed[1])

    @property
    def _kept_version(self) -> tuple[int, ...]:
        """Differs when another place or node is kept for anyone, starts, rights to cells or waits for contents were
        found, or an event was turned down or agreed upon."""
        state = self._state
        kept = self._claims.version, state.reserved.version, state.held.version
        return *kept, state.rejudged_version, state.fetch_waits_version, state.verdicts.version

    # ---- questions ----------------------------------------------------------------------------------------------

    def check(self, job: Job) -> Reason | None:
        """Why the cluster could never take the job, were it empty and all healthy; None if it could."""
        return self._explainer.impossible(job)

    def check_reservation(self, job: Job) -> None:
        """Refuse a job that requires a reservation which it could not use.

        Once it is submitted it is never refused for that: as soon as its reservation is over, it may start anywhere.

        Raises:
            NotFoundError: there is none of that name for its queue and in its pool, or none any more.
            InvalidInputError: it is too small.
        """
        require_usable(self._state, job)

    def with_priority(self, job: Job, priority: Priority) -> Job:
        """A job that is not known here yet, with another class of priority.

        Raises:
            ConflictError: it would become background work, or is.
            InvalidInputError: its queue, or one above, does not allow the class.
        """
        return with_priority(self._state.queues, job, priority)

    def explain(self, job_id: str, now: float, *, within_s: float = 0.0) -> Reason:
        """Why a job waits (or why it does not), with numbers, remedy, position and estimated start.

        Args:
            within_s: the last two may be of so many seconds ago, where very many wait.

        Raises:
            NotFoundError: there is no such job.
        """
        self._state.now = max(self._state.now, now)
        return self._explainer.explain(job_id, within_s)

    def deadline_outlook(self, job_id: str, now: float, *, within_s: float = 0.0) -> DeadlineOutlook | None:
        """Whether a job should end by its deadline; None for one that has none, or has ended.

        Args:
            within_s: the estimate may be of so many seconds ago, where very many wait.

        Raises:
            NotFoundError: there is no such job.
        """
        self._state.now = max(self._state.now, now)
        return self._explainer.deadline_outlook(job_id, within_s)

    def expected_lengths(self, now: float) -> ExpectedLengths:
        """How long each job runs on, or runs once it has started, as estimates expect."""
        self._state.now = max(self._state.now, now)
        return expected_lengths(self._state)

    def cause(self, job_id: str, now: float) -> Reason:
        """Why a job waits (or why it does not), with numbers alone: quick, for lists.

        Raises:
            NotFoundError: there is no such job.
        """
        self._state.now = max(self._state.now, now)
        return self._explainer.cause(job_id)

    def first_in_line(self, most: int, now: float) -> list[str]:
        """The jobs that are next of all that wait in a line, the first first, at most so many."""
        self._state.now = max(self._state.now, now)
        return [record.id for record in LineOrder(self._state).records[:most]]

    def why_not_swapped(self, job_id: str) -> str:
        """Why a running job could not be swapped off its cards now; empty if it could, or does not run.

        Whether its engine can do it is seen only when it is asked to.
        """
        record = self._state.jobs.get(job_id)
        return "" if record is None else why_not_vacated(self._state, record) or why_suspend_refused(record)

    def awaits(self, decision: Decision) -> bool:
        """Whether the answer to a decision still changes anything."""
        return self._state.pending.get(decision.id) is not None

    @property
    def holds(self) -> dict[Cause, str]:
        """Why nothing new starts anywhere, in words, by kind of trouble; empty while all is well."""
        return dict(self._state.holds)

    def has_queue(self, queue: str) -> bool:
        """Whether there is a queue of this name."""
        return queue in self._state.queues.by_name

    def takes_jobs(self, queue: str) -> bool:
        """Whether the queue is there, and has none below it."""
        return self._state.queues.is_leaf(queue)

    def card_models(self) -> set[str]:
        """The models of the cards that machines have."""
        nodes = self._state.cluster.nodes
        return {device.model for node in nodes if node is not None for device in node.devices}

    def all_machines(self) -> Amount:
        """All that known machines have, whether or not it may be handed out now; cards by their models."""
        return self._state.cluster.capacity.of_all_machines

    def machines(self) -> list[Node]:
        """All that are known, whether or not they may be given work now."""
        return [node for node in self._state.cluster.nodes if node is not None]

    def limit_of(self, user: str, queue: str) -> Limit:
        """The limit in force of a user or of a queue: the other is empty."""
        return self._state.limits.by_account.get((user, queue), Limit(user, queue))

    def require_reserved(self, limit: Limit) -> None:
        """Refuse a limit by which a reservation that is agreed would no longer fit.

        Raises:
            ConflictError: one would not.
        """
        require_kept(self._state, self._state.queues, limit)

    def node_views(self, name: str = "") -> list[NodeView]:
        """Every node with what is free and who holds what, for display, or the one of this name."""
        return node_views(self._state, name)

    def jobs_on(self, node: str) -> set[str]:
        """The jobs that have a place on a node, or had their last one there."""
        return self._state.placed.on(node)

    def contents_of(self, node: str) -> HeldContents | None:
        """What a node holds of images and data; None where it has not reported that. To be left as it is."""
        return self._state.cluster.contents.of_nodes.get(node)

    @property
    def counts_load(self) -> bool:
        """Whether measured load of cards decides anything."""
        return self._placer.counts_any_load or any(pool.balances for pool in self._state.cluster.pools.values())

    @property
    def rates_missing(self) -> str:
        """Why no job waits for cheaper or cleaner hours, a clause; empty if they do."""
        predicted = self._state.held.predicted
        if predicted.values:
            return ""
        return predicted.missing or "energy costs, and emits, the same at all hours, or it is not configured"

    def held_cards(self) -> dict[str, dict[str, int]]:
        """What is held of the compute of each card, in milli, by node and UUID."""
        return self._state.cluster.loads.held()

    def power_overview(self) -> PowerOverview:
        """Which nodes are empty, and which of those that are off waiting jobs need."""
        return PowerOverview(candidates(self._state), nodes_to_wake(self._state, self._placer, self._claims))

    def layout_step(self, now: float) -> LayoutStep | None:
        """The idle card to divide otherwise, so that a job that waits can start; None when none is to be."""
        self._state.now = max(self._state.now, now)
        return next_layout_step(self._state, self._claims, self._starts_on)

    def _starts_on(self, node: Node | None) -> list[str]:
        """The jobs that a cycle would start now, with a node described otherwise."""
        twin, now = self.fork(), self._state.now
        if node is not None:
            twin.handle(NodeJoined(now, node))
        return [each.job for each in twin.decide(now) if isinstance(each, Start) and not each.joins]

    def layout_changes(self) -> dict[str, LayoutChange]:
        """The last change of each card's layout, by its UUID."""
        return dict(self._state.card_cordons.layout_changes)

    def reservations(self) -> list[ReservationView]:
        """The advance reservations that are not over, for display."""
        return reservation_views(self._state)

    def misfit(self, wanted: AdvanceReservation, now: float) -> Misfit | None:
        """Why a reservation could not be agreed upon now, and from when on it could; None if it can.

        Raises:
            NotFoundError, InvalidInputError, ConflictError: it could at no time.
        """
        self._state.now = max(self._state.now, now)
        return misfit(self._state, wanted)

    def require_policies(self, event: PolicyChanged) -> None:
        """Refuse a change of policies that would be refused as it is handled.

        Raises:
            InvalidInputError: there is no such ordering.
            ConflictError: they keep room for nobody, and a reservation is agreed upon.
        """
        require_room_kept(self._state, self._settings_by(event))

    def queue_view(self, name: str, models: Sequence[str] = ()) -> QueueView:
        """A queue's cards, for display."""
        return queue_view(self._state, name, models)

    def queues(self) -> list[Queue]:
        """All queues, each behind its parent."""
        return self._state.queues.queues()

    def queue_statuses(self, changed: Sequence[Queue] = ()) -> list[QueueStatus]:
        """Every queue with what it holds, each behind its parent, for display.

        Args:
            changed: queues as they might be defined instead; what a tree of these would say of what runs now.

        Raises:
            InvalidInputError: no queue can be defined so.
            ConflictError: a reservation that fits now would be beyond its limits or guarantees.
        """
        return queue_statuses(self._state, changed)

    def queue_detail(self, name: str) -> QueueDetail:
        """Who uses a queue, who borrows from it, and its largest waiting job, for display."""
        return queue_detail(self._state, name)

    def cell_map(self) -> list[CellChain]:
        """Which cards are bound to whose cells, for display; empty while no queue is owed any."""
        return cell_map(self._state.cluster.cells, self._state.queues.by_name)

    # ---- upkeep -------------------------------------------------------------------------------------------------

    def forget(self, job_id: str) -> None:
        """Drop a job that has ended; others are kept."""
        record = self.jobs.get(job_id)
        if record is not None and record.state.ended:
            del self.jobs[job_id]
            self._state.placed.forget(job_id)

    def use_kernels(self, kernels: KernelSet) -> None:
        """Run on other kernels (compiled or interpreted) from now on; decisions are the same."""
        for part in (self._placer, self._cycle, self._state.ordering):
            part.use_kernels(kernels)

    def snapshot(self) -> dict[str, Any]:
        """Everything that decisions depend on, as JSON-able data."""
        plain = snapshots.take(self._state, self._placer, self._claims)
        plain["next_change"] = self._wakeups.kept
        return plain

    @classmethod
    def restore(cls, plain: dict[str, Any]) -> Scheduler:
        """A scheduler that goes on exactly where the one that gave ``snapshot`` was."""
        scheduler = cls(snapshots.settings_of(plain))
        snapshots.give(plain, scheduler._state, scheduler._placer, scheduler._claims)
        scheduler._claims_seen = scheduler._kept_version
        scheduler._wakeups.keep(plain["next_change"])
        return scheduler

    def fork(self) -> Scheduler:
        """An independent twin: what is tried on it changes nothing here."""
        twin = Scheduler(self.settings)
        twin.use_kernels(self._placer.kernels)
        forking.fork(self._parts, twin._parts)
        twin._claims_seen = twin._kept_version
        twin._wakeups.keep(self._wakeups.kept)
        return twin
