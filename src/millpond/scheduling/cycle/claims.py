"""Room that is spoken for: exact places of jobs whose victims are leaving, and nodes kept for the reserved head."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from millpond.model.reasons import Cause
from millpond.model.states import JobState, TaskState
from millpond.scheduling.cycle.job_placement import Placed
from millpond.scheduling.cycle.reservations import Reservation
from millpond.scheduling.cycle.reserved_places import is_wanted
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.reclaiming.request_bounds import BarredNodes
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.suspension.suspension import (
    given_up,
    is_leaving,
    is_suspending,
    suspending_for,
    wants_back,
)
from millpond.scheduling.tenancy.queue_rank import QueueRank

Victims = tuple[tuple[str, int, tuple[int, ...]], ...]
"""Ids and runs of jobs that are leaving, each with the numbers of its tasks that do; none: all."""


KeptOff = tuple[int, int, int]
"""See ``Claims.kept_off``."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The place a job gets once others have left it.

    Attributes:
        placed: its tasks and the holdings they will take.
        victims: who has to leave first.
        asks: some of its victims may not have been asked yet: those that are on the roster of running work. Those that
            are moved (``Cause.CONSOLIDATED``) are asked by ``migration.consolidation``.
    """

    placed: Placed
    victims: Victims
    cause: Cause
    asks: bool = False

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes of the place."""
        return tuple(dict.fromkeys(holding.node for _, holding in self.placed))


class Claims:
    """All claims, and one reservation for each pool; makes the node masks that keep others out.

    Attributes:
        by_job: claims by the job that gets the place; changed by ``put`` and ``drop``.
        reservations: by pool; changed by ``keep``.
        version: rises with every change of a claim.
        displaced_at: the last instant at which running work was displaced; at one instant that happens in one cycle.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.by_job: dict[str, Claim] = {}
        self.reservations: dict[str, Reservation] = {}
        self.version = 0
        self.displaced_at = -1.0
        self._found_at: dict[str, int] = {}
        self._not_reached: set[str] = set()
        self._cautious_ends: dict[str, float] | None = None
        """Of the jobs that the present walk has looked at; None outside of walks."""
        self._masks: dict[tuple[str, bool], NodeMask] = {}
        self._masks_version = 0
        self._claimants: dict[int, set[str]] | None = None
        self._asked: set[tuple[str, int]] | None = None
        """Of all claims, found when they are asked for: who has a node, and which runs have to leave."""

    def copy_from(self, other: Claims) -> None:
        """Keep the same places for the own jobs of the same names."""
        for job, claim in other.by_job.items():
            after, source = self._state.jobs[job].tasks, other._state.jobs[job]
            source.keep_tasks()  # of which its claim speaks
            twins = {id(task): twin for task, twin in zip(source.tasks, after, strict=True)}
            placed = [(twins[id(task)], holding.copy()) for task, holding in claim.placed]
            self.by_job[job] = replace(claim, placed=placed)
        self.reservations, self._found_at = dict(other.reservations), dict(other._found_at)
        self.version, self.displaced_at = other.version, other.displaced_at

    def forget_plans(self) -> None:
        """Other policies decide from now on: reservations go; claims stay whose victims have been asked to leave."""
        self.reservations.clear()
        self._found_at.clear()
        self.displaced_at = -1.0
        for job in [job for job, claim in self.by_job.items() if claim.asks]:
            self.drop(job)

    # ---- claims -------------------------------------------------------------------------------------------------

    def put(self, job: str, claim: Claim) -> None:
        """Keep a place for the job from now on."""
        self.by_job[job] = claim
        self._state.settle(self._state.jobs[job], [holding for _, holding in claim.placed])
        self._changed()

    def drop(self, job: str) -> None:
        """Keep nothing for the job any more."""
        if self.by_job.pop(job, None) is not None:
            self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._forget_masks()
        self._claimants = self._asked = None

    def _forget_masks(self) -> None:
        self._masks.clear()
        self._masks_version += 1

    def charge(self, sign: int, *, but: str = "") -> None:
        """Count what is claimed as held (``sign`` -1: no longer), so that no job slips in while the victims leave.

        Args:
            but: the claim of this job is left out.
        """
        state = self._state
        if state.cluster.cells.allocator is not None:
            for job, claim in self.by_job.items():
                for _, holding in claim.placed if job != but else ():
                    state.cluster.cells.reserve(holding, sign)
        if self.by_job and (state.has_bounds or state.queues.has_guarantees):
            for job, claim in self.by_job.items():
                record = state.jobs[job]
                if job == but or record.state is JobState.STOPPING:
                    continue  # it is to start there anew, and counts for what it has
                if record.id in state.suspended:
                    state.charge(record, given_up(state, record), sign)
                else:
                    charge_placed(state, record, claim.placed, sign)

    def are_on_nodes_of(self, record: JobRecord) -> bool:
        """Whether a node on which the job holds something is claimed or reserved for others."""
        if self._state.cordons.kept and self._is_on_reserved(record):
            return True
        if not self.by_job:
            return False
        if self._claimants is None:
            self._claimants = {}
            for job, claim in self.by_job.items():
                for node in claim.nodes:
                    self._claimants.setdefault(node, set()).add(job)
        own = {record.id}
        return any(
            task.holding is not None and not self._claimants.get(task.holding.node, own) <= own for task in record.tasks
        )

    def _is_on_reserved(self, record: JobRecord) -> bool:
        state = self._state
        if state.reserved.has_user(record):
            return False
        nodes = {task.holding.node for task in record.tasks if task.holding is not None}
        return any(state.cordons.is_kept(state.cluster.node_name(node), state.now) for node in nodes)

    def have_asked(self, record: JobRecord) -> bool:
        """Whether a claim waits for this run of a job to leave, or for others with it."""
        if self._asked is None:
            self._asked = {victim[:2] for claim in self.by_job.values() for victim in claim.victims}
        return (record.id, record.attempt) in self._asked

    def asked(self) -> list[JobRecord]:
        """The jobs for which a claim waits to leave that have not."""
        return [victim for claim in self.by_job.values() for victim, _ in self.present(claim)]

    def is_settled(self, job_id: str, claim: Claim) -> bool:
        """Whether all victims have left: ended, or suspended and confirmed to be."""
        if self._state.suspended and suspending_for(self._state, job_id):
            return False
        return next(self._leaving(claim), None) is None

    def leaving_for(self, job_id: str) -> list[JobRecord]:
        """Those that a job with a claim waits for.

        Without any of its own victims those that leave its nodes, else those that leave room in the same quotas.
        """
        claim, state = self.by_job[job_id], self._state
        found = dict.fromkeys((*self._leaving(claim), *suspending_for(state, job_id)))
        if found:
            return list(found)
        leaving = [
            other
            for other in state.running.values()
            if is_leaving(other) or any(task.state is TaskState.STOPPING for task in other.tasks)
        ]
        on_nodes = [
            other
            for other in leaving
            if any(task.holding is not None and task.holding.node in claim.nodes for task in other.tasks)
        ]
        accounts = set(state.limits.accounts_of(state.jobs[job_id].job))
        return on_nodes or [other for other in leaving if accounts & set(state.limits.accounts_of(other.job))]

    def present(self, claim: Claim) -> Iterator[tuple[JobRecord, tuple[int, ...]]]:
        """Victims whose run has not ended, and the numbers of the tasks that leave; none: all."""
        running = self._state.running
        for job, attempt, numbers in claim.victims:
            victim = running.get(job)
            if victim is not None and victim.attempt == attempt:
                yield victim, numbers

    def _leaving(self, claim: Claim) -> Iterator[JobRecord]:
        """Victims that have not left."""
        for victim, numbers in self.present(claim):
            if numbers and all(victim.tasks[number].state is not TaskState.STOPPING for number in numbers):
                continue
            if numbers or victim.state is not JobState.SUSPENDED or is_suspending(self._state, victim):
                yield victim

    def prune(self) -> None:
        """Forget what is kept in vain: for jobs that wait no more, on nodes that are gone or closed."""
        if not self.by_job and not self.reservations:
            return
        for job, claim in list(self.by_job.items()):
            if (
                not self._waits(job)
                or self._is_suspend_refused(claim)
                or any(self._is_lost(node) for node in claim.nodes)
            ):
                self.drop(job)
        for pool, kept in list(self.reservations.items()):
            if not self._waits(kept.job):
                self.keep(pool, None)

    def _is_suspend_refused(self, claim: Claim) -> bool:
        """Whether a victim runs on, as the engine could not suspend it."""
        return not claim.asks and any(
            not numbers and victim.state is JobState.RUNNING for victim, numbers in self.present(claim)
        )

    def _is_lost(self, index: int) -> bool:
        cluster = self._state.cluster
        node = cluster.nodes[index]
        return node is None or node.name in cluster.closed

    def _waits(self, job: str) -> bool:
        record = self._state.jobs.get(job)
        if record is None:
            return False
        return bool(record.line) or record.state is JobState.STOPPING or wants_back(self._state, record)

    # ---- reservations -------------------------------------------------------------------------------------------

    def keep(self, pool: str, reservation: Reservation | None, *, is_fresh: bool = True) -> None:
        """Replace the reservation of a pool; None: there is none.

        Args:
            is_fresh: it was found on the ledger as it is now.
        """
        self.reservations.pop(pool, None)
        if reservation is not None:
            self.reservations[pool] = reservation
        self._found_at[pool] = self._state.cluster.releases if is_fresh else -1
        self._forget_masks()

    def end_reservation(self, record: JobRecord) -> None:
        """Keep no nodes for a job any more: it starts."""
        kept = self.reservations.get(record.job.pool)
        if kept is not None and kept.job == record.id:
            self.keep(record.job.pool, None)

    def is_fresh(self, pool: str) -> bool:
        """Whether no room has appeared since the reservation of the pool was looked for."""
        return self._found_at.get(pool) == self._state.cluster.releases

    def forget_trial(self) -> None:
        """The trial of the walk was rolled back: what was found in it after room had appeared there is not fresh."""
        releases = self._state.cluster.releases
        self._found_at = {pool: found_at if found_at <= releases else -1 for pool, found_at in self._found_at.items()}

    def begin_walk(self) -> None:
        """A walk begins: a reservation binds only those who come after its holder, so none does yet."""
        self._not_reached = set(self.reservations)
        self._cautious_ends = {}
        self._forget_masks()

    def bind(self, record: JobRecord, ranks: QueueRank) -> None:
        """The walk has come to a job: if it has the reservation of its pool, or who has goes first, that binds now."""
        pool = record.job.pool
        if pool in self._not_reached and pool in self.reservations:
            holder = self._state.jobs[self.reservations[pool].job]
            if not holder.line or ranks.place_of(holder) <= ranks.place_of(record):
                self._not_reached.discard(pool)

    @property
    def binding(self) -> tuple[int, int]:
        """Differs whenever reservations may bind others than before in this walk."""
        return self._masks_version, len(self._not_reached)

    def bind_all(self, pools: Collection[str]) -> None:
        """The walk has come to all who wait in these pools."""
        self._not_reached.difference_update(pools)

    def end_walk(self) -> None:
        """Outside of a walk every reservation binds."""
        self._not_reached.clear()
        self._cautious_ends = None

    @contextmanager
    def without(self, jobs: Collection[str]) -> Iterator[None]:
        """Masks keep no room for these jobs meanwhile."""
        by_job, reservations = self.by_job, self.reservations
        self.by_job = {job: claim for job, claim in by_job.items() if job not in jobs}
        self.reservations = {pool: kept for pool, kept in reservations.items() if kept.job not in jobs}
        self._forget_masks()
        try:
            yield
        finally:
            self.by_job, self.reservations = by_job, reservations
            self._forget_masks()

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """A walk whose claims and reservations are not kept."""
        reservations, found_at = dict(self.reservations), dict(self._found_at)
        try:
            yield
        finally:
            self.reservations, self._found_at = reservations, found_at
            self.end_walk()
            self._forget_masks()

    def kept_off(self, record: JobRecord) -> KeptOff:
        """What keeps this job off nodes that others of its line may use; the higher each number, the more nodes.

        Whether the reservation does, how many of the closings of nodes ahead it would run into, and how many of the
        spans in which queues have reserved cards.
        """
        return int(self.keeps_out(record)), *self._reaches(record)

    def _reaches(self, record: JobRecord) -> tuple[int, int]:
        state = self._state
        seen = (record, state.ordering.time_left, state.now)
        return state.cordons.reach(*seen), state.cordons.kept_reach(*seen)

    def keeps_out(self, record: JobRecord) -> bool:
        """Whether the reservation alone keeps this job off its nodes."""
        if not self.reservations or record.job.is_background:
            return False  # background work leaves as soon as it is in the way
        kept = self.reservations.get(record.job.pool)
        if kept is None or kept.job == record.id or record.job.pool in self._not_reached:
            return False
        return not self._is_over_by(record, kept.at)

    def keepers(self, record: JobRecord) -> list[str]:
        """The jobs for which room in its pool is kept from this one: by the reservation, then by claims."""
        reserved = [self.reservations[record.job.pool].job] if self.keeps_out(record) else []
        claimed = [job for job in self.by_job if job != record.id and self._state.jobs[job].job.pool == record.job.pool]
        return list(dict.fromkeys((*reserved, *claimed)))

    def binds_until(self, pool: str) -> float:
        """When the room reserved in a pool should be there, if the walk has passed its holder; else never."""
        kept = self.reservations.get(pool)
        return NEVER if kept is None or pool in self._not_reached else kept.at

    def _is_over_by(self, record: JobRecord, instant: float) -> bool:
        """Whether the job, started now, would almost surely have ended by then."""
        state, known = self._state, self._cautious_ends
        if known is None:
            return state.ordering.time_left.cautious_end(record, state.now) <= instant
        end = known.get(record.id)
        if end is None:
            end = known[record.id] = state.ordering.time_left.cautious_end(record, state.now)
        return end <= instant

    # ---- masks --------------------------------------------------------------------------------------------------

    def mask(self, record: JobRecord) -> NodeMask | None:
        """(nodes,), 0 where the job must stay out; None when it may go anywhere."""
        cells = self._state.cluster.cells
        if not self.by_job and not self.reservations and not self._state.cordons.has_closings_ahead:
            return cells.mask(record)
        return both(both(self.mask_of_others(record), self.mask_of_closings(record)), cells.mask(record))

    def mask_for_cells(self, record: JobRecord) -> NodeMask | None:
        """(nodes,), 0 where a job keeps off cells that its queue is owed: they are claimed, or the node closes."""
        claimed = self._mask_without((record.id,), None) if self.by_job else None
        return both(claimed, self.mask_of_closings(record))

    def mask_of_closings(self, record: JobRecord) -> NodeMask | None:
        """(nodes,), 0 where a node closes, or is wanted for a queue, before the job would leave it; None: nowhere."""
        reaches = self._reaches(record)
        return self._state.cordons.mask(*reaches) if any(reaches) else None

    def mask_without_reservations(self, record: JobRecord) -> NodeMask | None:
        """(nodes,), as ``mask``, if no cards were reserved for queues."""
        return both(self.mask_of_others(record), self.mask_on_reserved(record))

    def mask_on_reserved(self, record: JobRecord) -> NodeMask | None:
        """(nodes,), 0 where a job keeps off cards that are reserved for it, as the node closes; claims give way."""
        reach, _ = self._reaches(record)
        return self._state.cordons.mask(reach) if reach else None

    def closes_too_soon(self, record: JobRecord, placed: Placed) -> bool:
        """Whether a node of this place closes, or its cards are wanted by a queue, before the job would leave it."""
        closing = self.mask_on_reserved(record)
        if closing is not None and any(closing[holding.node] == 0 for _, holding in placed):
            return True
        return is_wanted(self._state, record, placed)

    def mask_of_others(self, record: JobRecord) -> NodeMask | None:
        """(nodes,), 0 where room is kept for others; None when none is kept from this job."""
        is_kept_off = self.keeps_out(record)
        if not is_kept_off and not self.by_job:
            return None
        if record.id in self.by_job:
            return self.mask_without(record, ())
        return self.mask_in(record.job.pool, is_kept_off=is_kept_off)

    def mask_in(self, pool: str, *, is_kept_off: bool) -> NodeMask:
        """(nodes,), 0 where room is kept from jobs of a pool that have no claim.

        Args:
            is_kept_off: whether the reservation of the pool keeps them off too.
        """
        key = (pool, is_kept_off)
        mask = self._masks.get(key)
        if mask is None or mask.shape[0] != self._state.cluster.arrays.node_count:
            mask = self._masks[key] = self._mask_without((), self.reservations[pool] if is_kept_off else None)
        return mask

    def kept_in(self, pool: str, *, is_kept_off: bool) -> BarredNodes | None:
        """The nodes that ``mask_in`` keeps from jobs; None where none is."""
        is_kept_off = is_kept_off and pool in self.reservations
        if not self.by_job and not is_kept_off:
            return None
        return BarredNodes((pool, is_kept_off, self._masks_version), self.mask_in(pool, is_kept_off=is_kept_off))

    def mask_without(self, record: JobRecord, keepers: Collection[str]) -> NodeMask:
        """(nodes,), as ``mask_of_others``, if no room were kept for some jobs."""
        kept = self.reservations[record.job.pool] if self.keeps_out(record) else None
        return self._mask_without((record.id, *keepers), kept)

    def mask_beside(self, record: JobRecord, keepers: Collection[str]) -> NodeMask | None:
        """(nodes,), as ``mask``, if no room were kept for some jobs."""
        mask = both(self.mask_without(record, keepers), self.mask_of_closings(record))
        return both(mask, self._state.cluster.cells.mask(record))

    def mask_reserved_in(self, pool: str) -> NodeMask:
        """(nodes,), 0 where room is reserved in a pool, whatever is claimed."""
        return self._mask_without(self.by_job, self.reservations[pool])

    def _mask_without(self, excepted: Collection[str], kept: Reservation | None) -> NodeMask:
        mask = np.ones(self._state.cluster.arrays.node_count, dtype=np.uint8)
        for job, claim in self.by_job.items():
            if job not in excepted:
                mask[list(claim.nodes)] = 0
        if kept is not None and kept.job not in excepted:
            mask[list(kept.nodes)] = 0
        return mask


def both(one: NodeMask | None, other: NodeMask | None) -> NodeMask | None:
    """The mask that keeps out what either does."""
    if one is None or other is None:
        return one if other is None else other
    both: NodeMask = one & other
    return both


def charge_placed(state: State, record: JobRecord, placed: Placed, sign: int = 1) -> None:
    """Count a job for a place that it gets (``sign`` -1: it does not) in the quotas of its queues and its user."""
    state.charge(record, state.amounts.of_placed(record, placed), sign)
    if state.limits.in_force and record.id not in state.running:
        state.limits.count(record, sign)
