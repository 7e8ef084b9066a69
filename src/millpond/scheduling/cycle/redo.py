"""A cycle that was decided before is carried out again from the log: after a crash, perhaps by another version.

What the clock alone brings about (cordons, windows, the ends of pauses) follows as in every cycle. What a cycle decides
is not decided again: starts, stops, suspensions and resumptions are those of the log, and so are claims and by which
rights work is in cells (``snapshots.give_claims``, ``give_rights``). Reservations, learnt ranks, keys and score tables
are found anew by the next cycle: they bear on later decisions only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from millpond.model.decisions import Decision, Migrate, Placement, Prefetch, Resume, Start, Stop, Suspend
from millpond.model.errors import InconsistentStateError
from millpond.model.reasons import Cause
from millpond.scheduling import runs
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.starting import Starter
from millpond.scheduling.ledger.holdings import Holding, HoldState
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.migration.migrations import Migrations
from millpond.scheduling.ordering.queueing import end_pauses, watch_fresh
from millpond.scheduling.packing.packing import PairPacking, note_pairs
from millpond.scheduling.prefetching import kept_places
from millpond.scheduling.records import JobRecord
from millpond.scheduling.reserving.upkeep import follow_ends
from millpond.scheduling.shifting.choosing_starts import give_starts
from millpond.scheduling.state import State
from millpond.scheduling.suspension.suspension import given_up, goes_on, suspend, suspended_tasks
from millpond.scheduling.tenancy.windows import follow_hours


class Redo:
    """Carries decisions out on one state."""

    def __init__(
        self, state: State, claims: Claims, migrations: Migrations, starter: Starter, packing: PairPacking
    ) -> None:
        self._state = state
        self._claims = claims
        self._migrations = migrations
        self._starter = starter
        self._packing = packing

    def cycle(
        self,
        now: float,
        decided: Sequence[Decision],
        starts: Iterable[tuple[str, float]],
        give_rights: Callable[[], None],
    ) -> None:
        """One cycle.

        Args:
            starts: those that it chose for jobs in cheaper or cleaner hours.
            give_rights: lets running work be in cells by the rights that it found.
            decided: what it came to, in the order of its numbers. Decisions of events before it, which have been
                handled, are among them. What these come to beyond that is decided in the next cycle.

        Raises:
            InconsistentStateError: a decision is about what is not there.
        """
        state = self._state
        with state.journal:
            state.now = max(state.now, now)
            state.begin_cycle()
            note_pairs(state)
            follow_ends(state)
            state.cordons.follow_clock(state.now)
            follow_hours(state, _is_decided)
            self._claims.prune()
            end_pauses(state)
            give_starts(state, starts)
            emitted, state.outbox = state.outbox, []
            for decision in decided:
                own = next((each for each in emitted if replace(each, id=decision.id) == decision), None)
                if own is None:
                    self._carry_out(decision)
                else:
                    emitted.remove(own)
                    state.pending.pop(own.id)
                state.expect_answer(decision)
                state.next_decision = max(state.next_decision, decision.id + 1)
            state.outbox.clear()
            for decision in emitted:
                state.pending.pop(decision.id)
                state.emit(replace(decision, id=state.next_id()))
            give_rights()
            watch_fresh(state)
            state.end_cycle()

    def _carry_out(self, decision: Decision) -> None:
        """Change the state as the cycle did that decided this."""
        if isinstance(decision, Prefetch):  # its job may have ended
            kept_places.follow(self._state, decision)
            return
        record = self._state.jobs.get(decision.job)
        if record is None or record.state.ended:
            raise InconsistentStateError(f"decision {decision.id} is about job {decision.job!r}, which does not live")
        match decision:
            case Start():
                self._start(record, decision)
            case Stop(cause=Cause.TIME_LIMIT):
                runs.stop_at_limit(self._state, record)
            case Stop():
                tasks = [record.tasks[number] for number in decision.tasks] if record.kept is None else ()
                trigger, for_job = Trigger.ENDED_FOR_RETRY, decision.for_job
                if decision.cause is Cause.PACKED:
                    self._state.moves.rest(record, self._state.now)
                runs.stop(self._state, record, trigger, decision.cause, tasks=tasks, for_job=for_job)
            case Suspend():
                suspend(self._state, record, decision.mode, decision.cause, decision.for_job)
            case Resume():
                self._resume(record, decision)
            case Migrate():
                place = self._holding(record, decision.placement)
                self._migrations.go(record, place, decision.cause, restarts=decision.restarts)

    def _start(self, record: JobRecord, decision: Start) -> None:
        if not decision.joins:
            record.renumber()
        placed = [(record.tasks[place.task], self._holding(record, place)) for place in decision.placements]
        if decision.cause is Cause.SHARES:
            self._packing.begin_again(record, placed)
            return
        self._starter.start_again(record, placed, decision.cause)

    def _resume(self, record: JobRecord, decision: Resume) -> None:
        state, needed = self._state, given_up(self._state, record)
        if decision.placement is None or decision.placement == record.tasks[0].placement:
            for task in suspended_tasks(record):
                if task.holding is not None:
                    state.cluster.change(task.holding, HoldState.RUNNING)
            goes_on(state, record, needed, decision.cause)
        else:
            self._migrations.come_back_on(record, self._holding(record, decision.placement), needed, decision.cause)
        self._claims.drop(record.id)

    def _holding(self, record: JobRecord, place: Placement) -> Holding:
        devices = [grant.device for grant in place.grants]
        return runs.holding_at(self._state, record, record.tasks[place.task], place.node, devices)


def _is_decided(state: State, record: JobRecord, cause: Cause) -> None:
    """The work leaves by a decision of the log."""
