"""Turns on over-subscribed cards: equal work that finds no room shares the cards that its equals hold.

Where a pool suspends, a job that found no room may swap out the work of an equal: one task of its own size and class.
The job that has waited longest, for its first turn or for another, gets the next one, as soon as those that hold the
cards have had theirs. A turn lasts as long as the pool says, and longer where that is
needed to keep the cost of switching below ``MOST_SWITCHING`` of the time: how long leaving and coming back took the
last time is measured by the engine's answers. At each switch all of a card's work lies in host memory for a moment, so
there has to be room for all of it.

With Gandiva's placement a job goes, in this order, (1) to nodes whose work has its own size (their *affinity*), (2) to
nodes that are empty, (3) to nodes of another affinity; (4) it shares the cards of the least loaded node of its affinity
in turns; (5) it waits. With any other placement it shares the cards on which the fewest go round.

Source: Xiao et al., "Gandiva: introspective cluster scheduling for deep learning", OSDI 2018, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence

from millpond.model.amounts import memory_text
from millpond.model.decisions import SuspendMode
from millpond.model.hardware.nodes import Pool
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.scheduling.cycle.claims import Claim, Claims
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.ledger.holdings import Holding, HoldState
from millpond.scheduling.migration.migrations import Migrations
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.records import JobRecord
from millpond.scheduling.reserving.counted_reservations import admits_beside_reserved
from millpond.scheduling.state import State
from millpond.scheduling.suspension.holders import DeviceHolders, devices_of
from millpond.scheduling.suspension.suspension import (
    BY_TURN,
    can_retake,
    can_swap,
    given_up,
    leaves_by,
    resume,
    suspend,
    suspending_for,
)

MOST_SWITCHING = 0.03
"""Part of the time that switching may cost."""

SHARES_PER_CYCLE = 16
"""How many jobs that found no room look for equals in one cycle: a bound on work."""


def turn_s(pool: Pool, record: JobRecord) -> float:
    """How long a turn of this job lasts, from the moment that it computes."""
    return max(pool.turn_s, (record.leave_s + record.return_s) / MOST_SWITCHING)


class TimeSlicing:
    """Who shares, and the going round."""

    def __init__(self, state: State, placer: Placer, claims: Claims, migrations: Migrations) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims
        self._migrations = migrations

    # ---- sharing begins -----------------------------------------------------------------------------------------

    def share(self, blocked: Sequence[JobRecord]) -> None:
        """Let jobs that found no room take turns with their equals, where there are some."""
        if not blocked or not self._are_there():
            return
        longest = self._longest_waits()
        equals: dict[tuple[object, ...], list[JobRecord]] = {}
        for record in [each for each in blocked if self._may_share(each)][:SHARES_PER_CYCLE]:
            mask, kind = self._claims.mask(record), _kind(record)
            if kind not in equals:
                equals[kind] = self._equals(record)
            for victim in equals[kind]:
                if victim.id in self._state.suspended:
                    continue  # it has just handed over
                since = min(longest.get(device, NEVER) for device in _holding(victim).devices)
                if record.requeued_at < since and self._swap(record, victim, mask):
                    break

    def takes_place_in(self, pool: str) -> bool:
        """Whether jobs of a pool that find no room may take turns."""
        found = self._state.cluster.pools.get(pool)
        return found is not None and bool(found.suspends and found.turn_s)

    def _longest_waits(self) -> dict[int, float]:
        """Since when the one that waits for a turn on a device longest has done so, of those that could take it."""
        since: dict[int, float] = {}
        for record in self._state.suspended.values():
            state = self._state
            if record.suspended_by == BY_TURN and admits_beside_reserved(state, record, given_up(state, record)):
                for device in devices_of(record):
                    since[device] = min(since.get(device, NEVER), record.suspended_at)
        return since

    def _are_there(self) -> bool:
        return any(pool.suspends and pool.turn_s for pool in self._state.cluster.pools.values())

    def _pool(self, record: JobRecord) -> Pool:
        return self._state.cluster.pools.get(record.job.pool) or Pool()

    def _may_share(self, record: JobRecord) -> bool:
        pool, job = self._pool(record), record.job
        return (
            bool(pool.suspends and pool.turn_s)
            and len(record.tasks) == 1
            and job.roles[0].request.devices > 0
            and job.may_swap
            and admits_beside_reserved(self._state, record, record.amount_of(record.tasks))
        )

    def _equals(self, record: JobRecord) -> list[JobRecord]:
        """Running work that may take turns with a job, that on the cards or node with the least work first."""
        state, affinities = self._state, self._placer.affinities
        found = [other for other in state.running.values() if self._is_equal(record, other)]
        if affinities is not None:
            own = {name for name, milli in affinities.by_node.items() if milli == record.gpu_milli}
            found = [other for other in found if state.cluster.node_name(_holding(other).node) in own]
        loads: dict[int, int] = {}
        for other in state.running.values() if found else ():
            for task in other.tasks:
                places = () if task.holding is None else task.holding.devices
                if affinities is not None and task.holding is not None:
                    places = (task.holding.node,)
                for place in places:
                    loads[place] = loads.get(place, 0) + 1

        def load(other: JobRecord) -> tuple[float, ...]:
            holding = _holding(other)
            places = holding.devices if affinities is None else (holding.node,)
            least = max(loads[place] for place in places)
            return (least, holding.node, other.started_at or 0.0, other.sequence)

        return sorted(found, key=load)

    def hindrance(self, record: JobRecord) -> str:
        """What of host memory keeps a job that found no room from turns with its equals; empty if nothing does."""
        if not self._are_there() or not self._may_share(record):
            return ""
        alike = [other for other in self._state.running.values() if self._is_alike(record, other)]
        reasons = [self._why_no_turn(other) for other in alike]
        return reasons[0] if reasons and all(reasons) else ""

    def _why_no_turn(self, holder: JobRecord) -> str:
        """Why host memory keeps one from ever handing over to an equal; empty if it does not."""
        if holder.suspend_refused:
            return f"no turn comes free, as what runs there could not leave: {holder.tasks[0].detail}"
        cluster, holding = self._state.cluster, _holding(holder)
        node = cluster.nodes[holding.node]
        if node is None or SuspendMode.SWAP not in leaves_by(self._state, holder):
            return ""
        if cluster.has_swap_space((holding, holding)):
            return ""
        return (
            f"it gets no turn with its equals there, as that takes {memory_text(2 * sum(holding.memory_mib))} of host "
            f"memory: node {node.name} sets {memory_text(node.swap_mib)} aside (swap_memory), and "
            f"{memory_text(int(cluster.arrays.swap_free_mib[holding.node]))} of it are free"
        )

    def _is_equal(self, record: JobRecord, other: JobRecord) -> bool:
        """Whether running work is of the same size and class, has had its turn, and can leave without ending."""
        return (
            self._is_alike(record, other)
            and self._state.may_stand_in_for(record, other)
            and self._has_had_its_turn(other)
            and other.service_s(self._state.now) - other.attained_before_s >= self._state.minimum_run_s(other)
            and SuspendMode.SWAP in leaves_by(self._state, other)
        )

    def _is_alike(self, record: JobRecord, other: JobRecord) -> bool:
        """Whether running work is of the same size and class."""
        return (
            other.state is JobState.RUNNING
            and len(other.tasks) == 1
            and other.job.preemptible
            and _kind(other) == _kind(record)
        )

    def _swap(self, record: JobRecord, victim: JobRecord, mask: NodeMask | None) -> bool:
        """Try the swap on the ledger; if both fit, suspend the victim and claim its devices for the job."""
        state, journal, cluster = self._state, self._state.journal, self._state.cluster
        holding = _holding(victim)
        if mask is not None and not mask[holding.node]:
            return False
        mark = journal.begin()
        room_for_both = can_swap(state, victim)
        cluster.change(holding, HoldState.SWAPPED)
        shape = cluster.words.shape_of(record.job.roles[0].request, record.job.pool)
        own = self._placer.take_on(holding.node, shape) if room_for_both else None
        fits = (
            own is not None
            and state.entitlements.keeps_limits(record, state.amounts.of_placed(record, [(record.tasks[0], own)]))
            and not cluster.is_overdrawn(holding)
            and not cluster.swapped.is_beyond(holding.devices)
            and cluster.has_swap_space([own])
        )
        journal.rollback(mark)
        if not fits or own is None:
            return False
        self._hand_over(victim, record.id)
        claim = Claim([(record.tasks[0], own)], ((victim.id, victim.attempt, ()),), Cause.TURN_TAKEN)
        self._claims.put(record.id, claim)
        return True

    def _hand_over(self, victim: JobRecord, successor: str) -> None:
        suspend(self._state, victim, SuspendMode.SWAP, Cause.TURN_TAKEN, successor)

    # ---- going round --------------------------------------------------------------------------------------------

    def rotate(self, least_class: int, *, free_only: bool) -> None:
        """Give the next turns to the jobs that have waited longest, as soon as those on their devices have had theirs.

        One that can go on with other devices, which are free, waits for no turn.

        Args:
            least_class: work of lower classes of priority gets none.
            free_only: no job hands over yet: those in line, which may have waited longer, come first.
        """
        state = self._state
        spoken_for: set[int] = set()
        claimed = {node for claim in self._claims.by_job.values() for node in claim.nodes}
        waiting = [
            record
            for record in state.suspended.values()
            if record.suspended_by == BY_TURN and record.job.priority >= least_class
        ]
        holders: DeviceHolders | None = None
        for record in sorted(waiting, key=lambda record: (record.suspended_at, record.sequence)):
            if not admits_beside_reserved(state, record, given_up(state, record)):
                continue  # its queue or user has no room for it: those behind it go first
            holdings = [task.holding for task in record.tasks if task.holding is not None]
            devices = devices_of(record)
            is_first = spoken_for.isdisjoint(devices) and not any(holding.node in claimed for holding in holdings)
            spoken_for |= devices
            if not is_first or suspending_for(state, record.id):
                continue
            if resume(state, record, Cause.TURN_TAKEN) or self._migrations.come_back(record, Cause.TURN_TAKEN):
                continue
            if free_only:
                continue
            # Who has just had a turn does not get that of another one at once.
            if record.suspended_at < state.now:
                holders = holders or DeviceHolders(state, waiting)
                for holder in self._enough_of(holders.of(record), record):
                    self._hand_over(holder, record.id)

    def _enough_of(self, holders: list[JobRecord], record: JobRecord) -> list[JobRecord]:
        """Those who hand over to a suspended job, no more than it needs, the longest turn first; none if too few."""
        state = self._state
        able = [holder for holder in holders if self._hands_over(holder, record)]
        able.sort(key=lambda holder: (holder.started_at or 0.0, holder.sequence))
        leaving: list[JobRecord] = []
        mark = state.journal.begin()
        for holder in able:
            leaving.append(holder)
            for task in holder.tasks:
                if task.holding is not None:
                    state.cluster.change(task.holding, HoldState.SWAPPED)
            inner = state.journal.begin()
            fits = can_retake(state, record)
            state.journal.rollback(inner)
            if fits:
                break
        else:
            leaving.clear()
        state.journal.rollback(mark)
        return leaving

    def _hands_over(self, holder: JobRecord, record: JobRecord) -> bool:
        """Whether one that holds the devices of another has had its turn and can leave them to it."""
        return (
            holder.state is JobState.RUNNING
            and self._state.may_stand_in_for(record, holder)
            and self._pool(holder).turn_s > 0
            and holder.job.priority <= record.job.priority
            and holder.job.preemptible
            and self._has_had_its_turn(holder)
            and SuspendMode.SWAP in leaves_by(self._state, holder)
            and can_swap(self._state, holder)
        )

    def _has_had_its_turn(self, record: JobRecord) -> bool:
        return record.started_at is not None and self._state.now >= self._ends_at(record, record.started_at)

    def _ends_at(self, record: JobRecord, started_at: float) -> float:
        return started_at + record.return_s + turn_s(self._pool(record), record)

    def next_due(self) -> float | None:
        """When the next turn ends since the last cycle; None when no job waits for one."""
        state = self._state
        waits = any(record.suspended_by == BY_TURN for record in state.suspended.values())
        if not waits and not (state.waiting.count and self._are_there()):
            return None
        ends = [
            end
            for record in state.running.values()
            if record.started_at is not None and (end := self._ends_at(record, record.started_at)) > state.decided_at
        ]
        return min(ends, default=None)


def _kind(record: JobRecord) -> tuple[object, ...]:
    """What jobs have in common that take turns with each other: pool, class of priority and size."""
    job, request = record.job, record.job.roles[0].request
    return job.pool, job.priority, request.devices, request.gpu_milli


def _holding(record: JobRecord) -> Holding:
    """What the one task of a running job holds."""
    holding = record.tasks[0].holding
    assert holding is not None, "running work holds something"
    return holding
