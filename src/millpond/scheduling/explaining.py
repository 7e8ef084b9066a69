"""Why not me, and when? The reason a job waits, with numbers, a remedy that was tried, and an estimate.

The cycle stores nothing about jobs that wait; this looks when somebody asks. Every remedy offered has been tried on the
ledger, in a transaction that was rolled back, with the quotas in force.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from millpond.model.errors import NotFoundError
from millpond.model.reasons import Cause, Filter, Reason, Remedy
from millpond.model.resources import CARD_MILLI, Amount
from millpond.model.tenants import Limit
from millpond.model.topology import Level
from millpond.model.workloads import Job, JobState, Role, TaskState
from millpond.scheduling import estimating
from millpond.scheduling.capacity import Capacity, Obstacle
from millpond.scheduling.claims import Claims
from millpond.scheduling.gang_sizes import least_tasks
from millpond.scheduling.placement.filters import Filter as KernelFilter
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placing import NodeMask, Placer
from millpond.scheduling.reclaiming.roster import SLOT_PROTECTED_UNTIL
from millpond.scheduling.records import JobRecord
from millpond.scheduling.remedies import MOST_VARIANTS, variants
from millpond.scheduling.shut_out import closed_for, name_closed
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import admitted_tasks, limit_in_the_way
from millpond.scheduling.tenancy.limits import Held
from millpond.scheduling.tenancy.standing import Standing

_FILTERS = {
    KernelFilter.FITS: Filter.FITS,
    KernelFilter.UNUSABLE: Filter.UNSCHEDULABLE,
    KernelFilter.WRONG_POOL: Filter.OTHER_POOL,
    KernelFilter.MASKED: Filter.KEPT_FOR_OTHERS,
    KernelFilter.CPU: Filter.CPU,
    KernelFilter.MEMORY: Filter.MEMORY,
    KernelFilter.EXTRAS: Filter.EXTRA_RESOURCE,
    KernelFilter.DEVICE_COUNT: Filter.DEVICE_COUNT,
    KernelFilter.MODEL: Filter.DEVICE_MODEL,
    KernelFilter.DEVICE_HEALTH: Filter.DEVICE_UNUSABLE,
    KernelFilter.DEVICE_COMPUTE: Filter.DEVICE_COMPUTE,
    KernelFilter.FRAGMENTED: Filter.FRAGMENTED,
    KernelFilter.DEVICE_LIMIT: Filter.DEVICE_COMPUTE,
    KernelFilter.DEVICE_MEMORY: Filter.DEVICE_MEMORY,
    KernelFilter.VETOED: Filter.CELLS_KEPT,
}


@dataclass(frozen=True, slots=True)
class _Need:
    """What one role needs now, and for how many of its tasks there is room if the other roles take none."""

    role: Role
    shape: Shape
    tasks: int
    total: int


class Explainer:
    """Answers questions about one state."""

    def __init__(self, state: State, placer: Placer, claims: Claims) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims
        self._capacity = Capacity(state, placer)

    # ---- before a job is accepted -------------------------------------------------------------------------------

    def impossible(self, job: Job) -> Reason | None:
        """Why the cluster could never take the job, were it empty; None if it could."""
        obstacle = self._capacity.obstacle(job)
        return None if obstacle is None else _impossible(obstacle)

    # ---- while it waits -----------------------------------------------------------------------------------------

    def explain(self, job_id: str) -> Reason:
        """The full answer for one job.

        Raises:
            NotFoundError: there is no such job.
        """
        record = self._state.jobs.get(job_id)
        if record is None:
            raise NotFoundError(f"no job {job_id!r}", "list them with `pond ps --all`")
        selector = self._placer.selector
        rounds = selector.rounds
        reason = self._answer(record)
        # What is tried here places nothing: a placement that draws lots goes on as if nobody had asked.
        selector.rounds = rounds
        return reason

    def _answer(self, record: JobRecord) -> Reason:
        if record.state is not JobState.QUEUED:
            return self._explain_moving(record)
        if record.resting:
            return Reason(Cause.SCALED_TO_ZERO, f"scaled to zero: {record.resting}")
        obstacle = self._capacity.obstacle(record.job)
        if obstacle is not None:
            return replace(_impossible(obstacle), position=self._position(record))
        if self._state.holds:
            cause, text = next(iter(self._state.holds.items()))
            return Reason(
                cause, f"nothing new starts: {text}", position=self._position(record) if record.line else None
            )
        if not record.line:
            return Reason(Cause.NOT_CONSIDERED, "its last start was refused; it lines up again after a short pause")
        self._placer.refresh()
        position = self._position(record)
        first = self._first_of_pool(record) if self._state.ordering.strict else record
        if first is not record:
            reason = self._behind(first)
        else:
            reason = self._explain_waiting(record)
            if reason.cause is not Cause.NOT_CONSIDERED:
                reason = replace(reason, remedy=self._remedy(record))
        return replace(
            reason,
            position=position,
            start=estimating.start_of(self._state, self._placer, record),
        )

    def _explain_moving(self, record: JobRecord) -> Reason:
        nodes = sorted({task.placement.node for task in record.tasks if task.placement is not None})
        where = f" on {', '.join(nodes)}" if nodes else ""
        if record.state is JobState.SUSPENDED:
            return Reason(
                Cause.SUSPENDED,
                f"suspended{where}; it goes on when asked to, as soon as its devices are free and its queue admits it",
            )
        if record.state is JobState.STOPPING:
            cause = record.stop_cause or Cause.STOP_REQUESTED
            return Reason(cause, f"being ended{where}: {cause.value}")
        if record.state.ended:
            return Reason(Cause.FITS, f"it has ended: {record.state.value}")
        return Reason(Cause.FITS, f"{record.state.value}{where}, run {record.attempt}")

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
        queued = [task for task in record.tasks if task.state is TaskState.QUEUED]
        amount = state.amount_of(record, least_tasks(record.job, queued))
        limiting = limit_in_the_way(state, record)
        if limiting is not None and limiting.queue.limit is not None:
            name, limit = limiting.queue.name, limiting.queue.limit
            return Reason(
                Cause.QUEUE_LIMIT,
                f"queue {name} holds {_cards(limiting.gpu_milli)} of at most {_cards(limit.gpu_milli)} GPUs; "
                f"the job asks for {_cards(amount.gpu_milli)}",
                (
                    ("held_milli", limiting.gpu_milli),
                    ("limit_milli", limit.gpu_milli),
                    ("asked_milli", amount.gpu_milli),
                ),
                blocked_by=name,
            )
        exceeded = state.limits.exceeded(record.job, amount)
        if exceeded is not None:
            return _limited(exceeded, state.limits.held.get((exceeded.user, exceeded.queue), Held()), amount)
        if not state.queues.may_borrow(record.queue) and state.queues.borrows(record.queue, amount):
            return Reason(
                Cause.GUARANTEE_OF_OTHERS,
                f"queue {record.queue} may not borrow, and {_cards(amount.gpu_milli)} GPUs more exceed its guarantee",
                (("asked_milli", amount.gpu_milli),),
                blocked_by=record.queue,
            )
        closing = self._claims.mask_of_closings(record)
        if (
            self._claims.mask_of_others(record) is not None
            and not self._fits(record, self._claims.mask(record))
            and self._fits(record, closing)
        ):
            holder = self._claims.holder_against(record)
            return Reason(
                Cause.RESERVED,
                f"there is room, but it is kept for {holder}, which is ahead and would otherwise starve",
                blocked_by=holder,
                nodes=self._histogram(record, self._needs(record)),
            )
        if self._state.holds_back(record):
            return Reason(
                Cause.HELD_BACK, "there may be room, but it is left for a while to shorter work that is expected"
            )
        if self._fits(record, self._claims.mask(record)):
            since = "it came in just now" if record.requeued_at == state.now else "there is room for it now"
            return Reason(Cause.NOT_CONSIDERED, f"{since}; the next cycle looks at it")
        return self._closed_for(record) or self._no_room(record)

    def _closed_for(self, record: JobRecord) -> Reason | None:
        if not self._state.closures.by_node:
            return None
        reason = closed_for(self._state, self._claims, record, lambda mask: self._fits(record, mask))
        return None if reason is None else replace(reason, nodes=self._histogram(record, self._needs(record)))

    def _first_of_pool(self, record: JobRecord) -> JobRecord:
        """Who is first in line for the pool of this job."""
        ranked = self._state.waiting.ranked(Standing(self._state).rank)
        return next(other for other in ranked if other.job.pool == record.job.pool)

    def _behind(self, first: JobRecord) -> Reason:
        return Reason(
            Cause.BEHIND,
            f"the ordering {self._state.settings.ordering!r} lets nobody overtake; {first.id} is first and waits",
            blocked_by=first.id,
        )

    def _no_room(self, record: JobRecord) -> Reason:
        needs = self._needs(record)
        nodes = self._histogram(record, needs)
        protected = self._protected(record)
        if protected:
            return Reason(
                Cause.VICTIMS_PROTECTED,
                f"{len(protected)} job{'s' * (len(protected) != 1)} of lower priority could make room but may not be "
                "ended yet (minimum run time, preemption budget, or not preemptible)",
                (("protected", len(protected)),),
                nodes,
                blocked_by=protected[0].id,
            )
        return self._too_little(record, needs, nodes)

    def _too_little(self, record: JobRecord, needs: list[_Need], nodes: tuple[tuple[Filter, int], ...]) -> Reason:
        """What is missing, in words and numbers: for which role, in sum, side by side, or close together."""
        job = record.job
        tasks, asked = (
            sum(need.tasks for need in needs),
            sum(need.tasks * need.role.request.gpu_milli for need in needs),
        )
        fitting = dict(nodes).get(Filter.FITS, 0)
        free = self._free_milli(needs[0].shape.pool)
        what = f"{tasks} tasks together, {_cards(asked)} GPUs" if tasks > 1 else f"{_cards(asked)} GPUs"
        if asked == 0:
            what = f"{tasks} CPU task{'s' * (tasks != 1)}"
        scarce = _scarcest(needs)
        of_role = f" of role {scarce.role.name!r}" if len(job.roles) > 1 else ""
        room = min(scarce.total, scarce.tasks)
        if room == 0:
            for_role = f" for a task{of_role}" if of_role else ""
            missing = f"{_cards(free)} GPUs are free, and no node has room{for_role}"
        elif room < scarce.tasks:
            nodes_fit = f"{fitting} node{'s' * (fitting != 1)}"
            missing = f"{nodes_fit} could take {room} of its {scarce.tasks} tasks{of_role} now, not all"
        elif job.together_required and job.together < Level.ZONE:
            where = "rack" if job.together is Level.RACK else "node"
            missing = f"there may be room for them apart, but on no one {where}"
        elif len(job.roles) > 1:
            missing = "each of its roles would have room by itself, not all of them together"
        else:
            missing = f"{_cards(free)} GPUs are free, and not where it could use them"
        numbers = (
            ("asked_milli", asked),
            ("free_milli", free),
            ("nodes_that_fit_one_task", fitting),
            ("room_for_tasks", room),
            ("tasks", tasks),
        )
        return Reason(Cause.NO_ROOM, f"it asks for {what}; {missing}", numbers, nodes)

    def _needs(self, record: JobRecord) -> list[_Need]:
        """What each role needs at least, and the room for it, on nodes that are not kept for others."""
        mask = self._claims.mask(record)
        count = self._state.cluster.arrays.node_count
        base = np.ones(count, dtype=np.uint8) if mask is None else mask[:count]
        needs = []
        for role in record.job.roles:
            shape = self._state.cluster.shape_of(role.request, record.job.pool)
            total = int(self._placer.selector.member_room(shape, base).sum())
            needs.append(_Need(role, shape, role.minimum, total))
        return needs

    def _free_milli(self, pool: int) -> int:
        """Free compute of the devices of a pool that may be handed out."""
        arrays = self._state.cluster.arrays
        count = arrays.node_count
        usable = (arrays.pool[:count] == pool) & (arrays.node_usable[:count] != 0)
        return int(self._placer.selector.free_compute()[usable].sum())

    def _protected(self, record: JobRecord) -> list[JobRecord]:
        """Running work of lower classes, if there is any and none of it may be ended."""
        if not self._state.settings.preempt_by_priority:
            return []
        lower = [
            other
            for other in self._state.running.values()
            if other.slot >= 0 and other.job.priority < record.job.priority and other.job.pool == record.job.pool
        ]
        until = self._state.roster.slots[SLOT_PROTECTED_UNTIL]
        return lower if all(until[other.slot] > self._state.now for other in lower) else []

    def _histogram(self, record: JobRecord, needs: list[_Need]) -> tuple[tuple[Filter, int], ...]:
        """How many nodes fail first on what, for one task of the role that has the least room."""
        counts = self._placer.selector.failures(_scarcest(needs).shape, self._claims.mask(record))
        merged: dict[Filter, int] = {}
        for number, count in enumerate(counts.tolist()):
            if count:
                name = _FILTERS[KernelFilter(number)]
                merged[name] = merged.get(name, 0) + count
        gone = sum(node is None for node in self._state.cluster.nodes)
        if gone and Filter.UNSCHEDULABLE in merged:
            merged[Filter.UNSCHEDULABLE] -= gone
        if self._state.closures.by_node:
            name_closed(self._state, self._claims, record, merged)
        return tuple(sorted(((f, n) for f, n in merged.items() if n), key=lambda pair: (-pair[1], pair[0].value)))

    def _position(self, record: JobRecord) -> int:
        ranked = self._state.waiting.ranked(Standing(self._state).rank)
        return next(place for place, other in enumerate(ranked, 1) if other is record)

    # ---- remedies -----------------------------------------------------------------------------------------------

    def _fits(self, record: JobRecord, mask: NodeMask | None, job: Job | None = None) -> list[int]:
        """The nodes on which the job, or a variant of it, could start now within quota; empty if it could not.

        Nothing is kept.
        """
        state = self._state
        variant = state.new_record(job or record.job, record.sequence, record.submitted_at)
        variant.expected_s, variant.cautious_s = record.expected_s, record.cautious_s
        tasks = admitted_tasks(state, variant)
        if not tasks:
            return []
        if self._state.holds_back(variant):
            return []
        mark = state.journal.begin()
        placed = self._placer.place(variant, mask, tasks=tasks)
        state.journal.rollback(mark)
        return [holding.node for _, holding in placed or ()]

    def _remedy(self, record: JobRecord) -> Remedy | None:
        """The first variant, from the smallest change to the largest, that would start now."""
        rooms = [need.total for need in self._needs(record)]
        mask = self._claims.mask(record)
        for remedy, job in islice(variants(record.job, rooms), MOST_VARIANTS):
            if self._fits(record, mask, job) and self._gets_its_turn(record, job):
                return remedy
        return None

    def _gets_its_turn(self, record: JobRecord, job: Job) -> bool:
        """Whether the ordering lets a variant, handed in now instead of the job, go before all others of its pool.

        Only a strict ordering keeps it back otherwise: there those that cannot start hold up whoever comes behind them.
        """
        state = self._state
        if not state.ordering.strict:
            return True
        variant = state.new_record(job, state.next_sequence, state.now)
        variant.expected_s, variant.cautious_s = record.expected_s, record.cautious_s
        variant.key = state.ordering.waiting_key(variant, state.now)
        rank = Standing(state).rank
        others = [other for other in state.waiting if other is not record and other.job.pool == job.pool]
        return all((rank(variant), variant.sequence) < (rank(other), other.sequence) for other in others)


def _limited(limit: Limit, held: Held, asked: Amount) -> Reason:
    """The user, or the group whose queue it is, may not have more running work now."""
    who = f"user {limit.user}" if limit.user else f"queue {limit.queue}"
    numbers = (
        ("running_jobs", held.jobs),
        ("held_milli", held.gpu_milli),
        ("held_cpu_milli", held.cpu_milli),
        ("asked_milli", asked.gpu_milli),
        ("asked_cpu_milli", asked.cpu_milli),
    )
    bounds = [
        text
        for most, text in (
            (limit.jobs, f"{limit.jobs} running jobs"),
            (limit.gpu_milli, f"{_cards(limit.gpu_milli or 0)} GPUs"),
            (limit.cpu_milli, f"{_cards(limit.cpu_milli or 0)} CPUs"),
        )
        if most is not None
    ]
    return Reason(
        Cause.USER_LIMIT if limit.user else Cause.QUEUE_LIMIT,
        f"{who} runs {held.jobs} job{'s' * (held.jobs != 1)} with {_cards(held.gpu_milli)} GPUs and "
        f"{_cards(held.cpu_milli)} CPUs, and may have at most {', '.join(bounds)}",
        numbers,
        blocked_by=limit.queue,
    )


def _impossible(obstacle: Obstacle) -> Reason:
    remedy = Remedy(obstacle.remedy, obstacle.field, obstacle.value) if obstacle.remedy else None
    return Reason(Cause.IMPOSSIBLE, obstacle.what, obstacle.numbers, remedy=remedy)


def _scarcest(needs: list[_Need]) -> _Need:
    """The role with the least room for what it needs; of several with enough, the most demanding one."""
    return min(
        needs,
        key=lambda need: (
            min(need.total / need.tasks, 1.0),
            -need.role.request.gpu_milli,
            -need.role.request.cpu_milli,
        ),
    )


def _cards(milli: int) -> str:
    return f"{milli / CARD_MILLI:g}"
