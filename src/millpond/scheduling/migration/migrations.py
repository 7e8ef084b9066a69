"""Running work moves to other cards: as it runs where its engine can, else by an end and a start there.

*Live*: the only task of a job goes to other cards of its node, and its engine takes its memory along. Until the engine
has answered the ledger holds both places, so whatever the answer is, the task has one. *Restart*: the job is ended with
notice and grace, its next place is claimed, and it starts there; that counts neither as a failure nor as a preemption.
Work that does not save itself on notice is moved so only if the request says that it may lose what it has done.

Moves that the platform wants so that nodes come free (``consolidation``) are restarts too.

Work also leaves a card that has failed so, live and on its node, before it is given up; and suspended work whose memory
lies in host memory comes back on other cards of its node when its own are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millpond.model.decisions import Decision, Migrate, Resume, Stop
from millpond.model.errors import ConflictError, InvalidInputError, MillpondError, NotFoundError
from millpond.model.events import MigrateRequested
from millpond.model.reasons import Cause
from millpond.model.resources import Amount
from millpond.model.states import JobState, TaskState
from millpond.model.workloads import CheckpointMode
from millpond.scheduling import runs
from millpond.scheduling.cycle.claims import Claim, Claims
from millpond.scheduling.cycle.job_placement import Placed, Placer
from millpond.scheduling.ledger.holdings import Holding, HoldState
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.migration import device_moves
from millpond.scheduling.migration.exchanges import PlaceExchange, taken_by_others
from millpond.scheduling.migration.targets import MigrationTarget, devices_of, holders, resolve
from millpond.scheduling.records import BY_REQUEST, JobRecord, Migration, MigrationStage, TaskRecord, refuse_kept
from millpond.scheduling.reserving.counted_reservations import admits_beside_reserved
from millpond.scheduling.state import State
from millpond.scheduling.suspension.suspension import can_swap, give_back, given_up, goes_on
from millpond.scheduling.tenancy.card_models import on_models
from millpond.scheduling.tenancy.cells.stakes import leaving_stake, stake_of


class Migrations:
    """Moves jobs within one state.

    Attributes:
        places: finds where else jobs could be.
        decided: what was decided by a log that is redone: what moved then moves, nothing else, and where it went as it
            ran is not searched for again. None but in a redo.
    """

    def __init__(self, state: State, placer: Placer, claims: Claims) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims
        self.places = PlaceExchange(state, placer, claims)
        self.decided: Sequence[Decision] | None = None

    # ---- on request ---------------------------------------------------------------------------------------------

    def request(self, event: MigrateRequested) -> None:
        """Move a running job, live if that is possible.

        Raises:
            NotFoundError: no such job, node or card.
            InvalidInputError: the job has no cards, or another number of them was named.
            ConflictError: it does not run, or cannot go there, or would lose its work without leave to.
        """
        placer = self._placer
        lots, stale = placer.selector.rounds, placer.tables_stale
        try:
            self._migrate(event)
        except MillpondError:  # what was tried in vain draws no lots, and leaves the tables due that were
            placer.selector.rounds, placer.tables_stale = lots, stale
            raise

    def _migrate(self, event: MigrateRequested) -> None:
        record = self._movable(event.job)
        target = resolve(self._state.cluster, record, event.to)
        hindrance = event.fixed or self._move_live(record, target, event)
        if not hindrance:
            return
        if not _may_restart(record, event.restart):
            raise ConflictError(
                f"job {record.id!r} cannot be moved as it runs: {hindrance}",
                "it does not save its work on notice (checkpoint in its job file); with --restart it is ended and "
                "starts anew there",
            )
        self._restart(record, target)

    def _movable(self, job: str) -> JobRecord:
        record = self._state.jobs.get(job)
        if record is None:
            raise NotFoundError(f"no job {job!r}")
        if record.state is not JobState.RUNNING:
            resume = "; resume it first" if record.state is JobState.SUSPENDED else ""
            raise ConflictError(f"job {job!r} is {record.state.value}", f"only a running job can be migrated{resume}")
        refuse_kept(record)
        if any(task.vacating is not None for task in record.tasks):
            raise ConflictError(f"job {job!r} is on its way from one card to another", "try again when it has arrived")
        if not any(task.holding.devices for task in holders(record) if task.holding is not None):
            raise InvalidInputError(f"job {job!r} uses no card", "only work with cards can be migrated")
        return record

    # ---- as it runs ---------------------------------------------------------------------------------------------

    def _move_live(self, record: JobRecord, target: MigrationTarget, event: MigrateRequested) -> str:
        """Decide a live migration; else says why there is none."""
        task, holding, hindrance = self._alone(record)
        if task is None or holding is None:
            return hindrance
        node = target.node if not target.devices else self._state.cluster.node_of(target.devices[0])
        if node not in (None, holding.node) or len({self._state.cluster.node_of(each) for each in target.devices}) > 1:
            return "it would go to another node, where its memory cannot follow"
        hindrance = device_moves.why_not_onto(self._state.cluster, holding, target.devices)
        if hindrance:
            return hindrance
        found = self.places.given(record, target.devices)[0][1] if target.devices else self._found(record, holding)
        if found is None:
            return "no other card of its model on its node has room for it"
        if not self.go(record, found, Cause.MIGRATED, restarts=_may_restart(record, event.restart)):
            if target.devices:
                raise taken_by_others(self._state, target.devices)
            return "no other card of its model on its node has room for it"
        return ""

    def _found(self, record: JobRecord, holding: Holding) -> Holding | None:
        """Other cards of its node for a job that runs; in a redo those that it went to then."""
        if self.decided is None:
            return self._elsewhere(holding)
        for each in self.decided:
            if isinstance(each, Migrate) and each.job == record.id:
                place, devices = each.placement, [grant.device for grant in each.placement.grants]
                return runs.holding_at(self._state, record, record.tasks[place.task], place.node, devices)
        return None

    def _elsewhere(self, holding: Holding) -> Holding | None:
        self._placer.refresh()
        return device_moves.find_elsewhere(self._placer, holding)

    def _alone(self, record: JobRecord) -> tuple[TaskRecord | None, Holding | None, str]:
        """The only task of a job and what it holds, if its memory can be moved at all; else why not."""
        if record.packed_with:
            return None, None, "it shares its cards with another job"
        if len(record.tasks) > 1:
            return None, None, f"it has {len(record.tasks)} tasks, which cannot all be halted at one instant"
        task = record.tasks[0]
        if task.holding is None or not task.holding.devices:
            return None, None, "it holds no card"
        hindrance = device_moves.why_fixed(self._state.cluster, task.holding)
        if not hindrance and not can_swap(self._state, record):
            hindrance = "its device memory does not fit into what its node sets aside of host memory (swap_memory)"
        return (None, None, hindrance) if hindrance else (task, task.holding, "")

    def go(self, record: JobRecord, place: Holding, cause: Cause, *, restarts: bool) -> bool:
        """Decide that the only task goes to a place on its node; False, and nothing changed, if that is taken."""
        task = record.tasks[0]
        assert task.holding is not None
        left = device_moves.devices_alone(task.holding)
        left.stake = leaving_stake(record)
        if not self._change_places(record, task, place, vacating=left, kept=left):
            return False
        assert task.placement is not None
        state = self._state
        state.emit(Migrate(state.next_id(), record.id, record.attempt, cause, task.placement, restarts))
        return True

    def _change_places(
        self,
        record: JobRecord,
        task: TaskRecord,
        place: Holding,
        *,
        vacating: Holding,
        kept: Holding | None = None,
    ) -> bool:
        """Book a task on another place of its node; False, and nothing changed, if that is taken.

        Args:
            vacating: what it is about to leave.
            kept: what of its old place no other may have before it has left.
        """
        state, cluster, old = self._state, self._state.cluster, task.holding
        assert old is not None
        mark, hold = state.journal.begin(), old.hold
        cluster.change(old, HoldState.NOTHING)
        for holding in (place,) if kept is None else (kept, place):
            cluster.change(holding, HoldState.RUNNING)
        if cluster.is_overdrawn(place) or not state.settle(record, [place]):
            state.journal.rollback(mark)
            return False
        state.journal.commit()
        source = device_moves.names_of(cluster, old.devices)
        record.migration = Migration(True, source, device_moves.names_of(cluster, place.devices))
        task.vacating = vacating
        self._settle_in(record, task, place, hold)
        return True

    def _settle_in(self, record: JobRecord, task: TaskRecord, place: Holding, hold: HoldState) -> None:
        """Book a task on another place; ``hold``: how it counted on the one that it had."""
        state, old = self._state, task.holding
        if state.queues.counts_cards and old is not None and hold in (HoldState.RUNNING, HoldState.FROZEN):
            for holding, sign in ((old, -1), (place, 1)):
                state.charge(record, on_models(state.cluster, Amount(), [holding]), sign)
        runs.take_place(state, record, task, place)
        if record.slot >= 0:
            self._state.enroll(record)

    # ---- by an end and a start ----------------------------------------------------------------------------------

    def _restart(self, record: JobRecord, target: MigrationTarget) -> None:
        """End a job for a place that is claimed for it.

        Raises:
            ConflictError: there is no such place, or was none when it was asked for.
        """
        if self.decided is not None and not any(
            isinstance(each, Stop) and each.job == record.id and each.cause is Cause.MIGRATED for each in self.decided
        ):
            raise ConflictError(f"job {record.id!r} had no other place then")
        self.restart_on(record, self.places.find(record, target), Cause.MIGRATED)

    def redo(self, decided: Sequence[Decision]) -> None:
        """Jobs have ended for other places by a log that is carried out again, and the claims of then are there."""
        for each in decided:
            if isinstance(each, Stop) and each.cause in runs.MOVING and each.job in self._claims.by_job:
                self._note_target(self._state.jobs[each.job], self._claims.by_job[each.job].placed)

    def restart_on(self, record: JobRecord, placed: Placed, cause: Cause, for_job: str = "") -> None:
        """End a job for a place that is free now: it is claimed, and the job starts there."""
        self._note_target(record, placed)
        self._claims.put(record.id, Claim(placed, ((record.id, record.attempt, ()),), cause))
        runs.stop(self._state, record, Trigger.ENDED_FOR_RETRY, cause, for_job=for_job)

    def _note_target(self, record: JobRecord, placed: Placed) -> None:
        """A job is about to end for a place."""
        cluster = self._state.cluster
        source = device_moves.names_of(cluster, devices_of(record))
        target = device_moves.names_of(cluster, [device for _, holding in placed for device in holding.devices])
        record.migration = Migration(False, source, target)

    def may_go_live(self, record: JobRecord, device: int) -> bool:
        """Whether the only task of a job can go to a card as it runs."""
        task, holding, _ = self._alone(record)
        cluster = self._state.cluster
        if task is None or holding is None or cluster.node_of(device) != holding.node:
            return False
        return not device_moves.why_not_onto(cluster, holding, [device])

    # ---- the platform wants it ----------------------------------------------------------------------------------

    def leave_failed(self, record: JobRecord) -> bool:
        """Move a job off a card that has failed, live; False if that cannot be, or was tried in vain.

        One whose memory lies in host memory has left it already, and comes back elsewhere.
        """
        if any(task.vacating is not None for task in record.tasks):
            return True  # it is on its way off some card; what is still to be done follows its arrival
        if record.suspended_by in ("", BY_REQUEST) and self._could_come_back(record):
            return True
        if record.state is not JobState.RUNNING or record.kept is not None or _was_refused(record):
            return False
        task, holding, _ = self._alone(record)
        found = None if task is None or holding is None else self._found(record, holding)
        return task is not None and found is not None and self.go(
            record, found, Cause.DEVICE_FAILED, restarts=False
        )  # fmt: skip

    def _could_come_back(self, record: JobRecord) -> bool:
        """Whether a job is swapped and its node has other cards on which it could go on, if they were free."""
        cluster, task = self._state.cluster, record.tasks[0]
        old = task.holding
        if len(record.tasks) > 1 or old is None or not old.devices or old.hold is not HoldState.SWAPPED:
            return False
        return not _was_refused(record) and device_moves.has_others(cluster, old)

    def come_back(self, record: JobRecord, cause: Cause) -> bool:
        """Let a swapped job go on with other cards of its node; False, and nothing changed, if it cannot."""
        state = self._state
        task = record.tasks[0]
        old = task.holding
        if old is None or self._lacks_compute(old) or not self._could_come_back(record):
            return False
        needed = given_up(state, record)
        mask = self._claims.mask(record)
        is_kept = mask is not None and mask[old.node] == 0
        if is_kept or not admits_beside_reserved(state, record, needed):
            return False
        place = self._elsewhere(old)
        return place is not None and self.come_back_on(record, place, needed, cause)

    def _lacks_compute(self, old: Holding) -> bool:
        """Whether its node has less free compute than it needs: a quick first look, before anything is tried."""
        asked, cluster, arrays = old.shape.total_compute_milli, self._state.cluster, self._state.cluster.arrays
        if asked > cluster.free_gpu_milli:
            return True
        first = int(arrays.first_device[old.node])
        free_milli = arrays.compute_free_milli[first : first + int(arrays.device_total[old.node])]
        return asked > int(free_milli.clip(min=0).sum())

    def come_back_on(self, record: JobRecord, place: Holding, needed: Amount, cause: Cause) -> bool:
        """Decide that a swapped job goes on with these cards; False, and nothing changed, if they are taken.

        Args:
            needed: what it did not count for while it was suspended.
        """
        task = record.tasks[0]
        assert task.holding is not None
        if not self._change_places(record, task, place, vacating=task.holding):
            return False
        if needed.models:
            needed = on_models(self._state.cluster, needed, [place])
        goes_on(self._state, record, needed, cause)
        return True

    # ---- the engine answers -------------------------------------------------------------------------------------

    def arrived(self, record: JobRecord) -> None:
        """It has left where it was: its old place is free."""
        for task in record.tasks:
            if task.vacating is not None:
                self._state.cluster.change(task.vacating, HoldState.NOTHING)
                task.vacating = None
                if record.migration is not None:
                    record.migration = replace(record.migration, stage=MigrationStage.DONE)

    def refused(self, decision: Migrate, reason: str) -> None:
        """It is where it was. If it may start anew instead, it does; else it stays."""
        record = self._state.jobs[decision.job]
        task = record.tasks[0]
        place, left = task.holding, task.vacating
        if place is None or left is None:
            return
        self._note_refusal(record, reason)
        task.vacating = None
        cluster = self._state.cluster
        hold = place.hold
        for holding in (place, left):
            cluster.change(holding, HoldState.NOTHING)
        old = Holding(left.node, place.shape, left.devices, left.memory_mib)
        old.stake = stake_of(record, None)
        cluster.change(old, hold)
        self._state.settle(record, [old])
        self._settle_in(record, task, old, hold)
        if decision.restarts and task.state is TaskState.RUNNING:
            try:
                self._restart(record, MigrationTarget(devices=place.devices))
            except ConflictError:
                return  # other work has the place meanwhile: it stays where it is

    def not_back(self, decision: Resume, reason: str) -> bool:
        """It could not come back on other cards, and lies in host memory as before; False if that is not the case."""
        record = self._state.jobs[decision.job]
        task = record.tasks[0]
        old = task.vacating
        if old is None or old.hold is not HoldState.NOTHING or task.state is not TaskState.RUNNING:
            return False
        self._note_refusal(record, reason)
        give_back(self._state, record, task, old)
        return True

    def _note_refusal(self, record: JobRecord, reason: str) -> None:
        if record.migration is not None:
            record.migration = replace(record.migration, stage=MigrationStage.REFUSED, reason=reason)


def _may_restart(record: JobRecord, agreed: bool) -> bool:
    return agreed or record.job.checkpoint.mode is CheckpointMode.SIGNAL


def _was_refused(record: JobRecord) -> bool:
    """Whether its engine has refused to move it in this run: only a request tries again."""
    return record.migration is not None and record.migration.stage is MigrationStage.REFUSED
