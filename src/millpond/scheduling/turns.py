"""Gandiva's reactive placement and its turns on over-subscribed cards.

A job goes, in this order, (1) to nodes whose work has its own size (their *affinity*), (2) to nodes that are empty,
(3) to nodes of another affinity; (4) where the pool allows it, it shares cards in turns: the work on the least loaded
node of its affinity is swapped to the host, and they go round; (5) it waits. The affinity of a node is the number of
cards of the job that found it empty.

A turn lasts a quantum. Whoever waits for a turn longest gets the cards it held before, as soon as those that hold them
have had theirs.

Source: Xiao et al., "Gandiva: introspective cluster scheduling for deep learning", OSDI 2018, section 4.
"""

from __future__ import annotations

from millpond.model.decisions import SuspendMode
from millpond.model.reasons import Cause
from millpond.model.workloads import JobState, TaskState
from millpond.scheduling.affinity import Affinities
from millpond.scheduling.claims import Claim, Claims
from millpond.scheduling.holdings import Hold
from millpond.scheduling.placing import Placer
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.suspending import given_up, is_suspending_for, resume, suspend

QUANTUM_S = 60.0
"""Length of a turn; as in the paper."""

BY_TURN = "turn"
"""``JobRecord.suspended_by`` of work that waits for its turn."""


class Turns:
    """Step 4, and the going round."""

    def __init__(self, state: State, placer: Placer, claims: Claims, affinities: Affinities) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims
        self._affinities = affinities

    # ---- sharing begins -----------------------------------------------------------------------------------------

    def share(self, record: JobRecord) -> bool:
        """Swap out the work of the least loaded node of the job's affinity for it; False if there is no such node."""
        state = self._state
        pool = state.cluster.pools.get(record.job.pool)
        if pool is None or not pool.suspends or len(record.tasks) != 1 or record.gpu_milli == 0:
            return False
        for node in self._by_load(record):
            victims = self._like(record, node)
            if victims and self._swap(record, victims[0]):
                return True
        return False

    def _by_load(self, record: JobRecord) -> list[int]:
        """Nodes of the job's affinity, those with the fewest jobs (running or suspended) first."""
        cluster = self._state.cluster
        loads: dict[int, int] = {}
        for other in self._state.running.values():
            for task in other.tasks:
                if task.holding is not None:
                    loads[task.holding.node] = loads.get(task.holding.node, 0) + 1
        own = [
            cluster.node_index[name]
            for name, milli in self._affinities.by_node.items()
            if milli == record.gpu_milli and name in cluster.node_index
        ]
        return sorted(own, key=lambda node: (loads.get(node, 0), node))

    def _like(self, record: JobRecord, node: int) -> list[JobRecord]:
        """Running single-task jobs of the same size and class on the node, those that had their turn longest first."""
        now = self._state.now
        found = [
            other
            for other in self._state.running.values()
            if other.state is JobState.RUNNING
            and len(other.tasks) == 1
            and other.gpu_milli == record.gpu_milli
            and other.job.priority == record.job.priority
            and other.tasks[0].holding is not None
            and other.tasks[0].holding.node == node
            and other.started_at is not None
            and now - other.started_at >= QUANTUM_S
        ]
        return sorted(found, key=lambda other: (other.started_at or 0.0, other.sequence))

    def _swap(self, record: JobRecord, victim: JobRecord) -> bool:
        """Try the swap on the ledger; if both fit, suspend the victim and claim its devices for the job."""
        state, journal = self._state, self._state.journal
        holding = victim.tasks[0].holding
        if holding is None:
            return False
        mark = journal.begin()
        state.cluster.change(holding, Hold.SWAPPED)
        shape = state.cluster.shape_of(record.job.roles[0].request, record.job.pool)
        own = self._placer.take_on(holding.node, shape)
        fits = own is not None and not state.cluster.is_overdrawn(holding)
        journal.rollback(mark)
        if not fits or own is None:
            return False
        self._hand_over(victim, record.id)
        claim = Claim([(record.tasks[0], own)], ((victim.id, victim.attempt, ()),), Cause.TURN_TAKEN)
        self._claims.put(record.id, claim)
        return True

    def _hand_over(self, victim: JobRecord, successor: str) -> None:
        victim.suspended_by = BY_TURN
        suspend(self._state, victim, SuspendMode.SWAP, Cause.TURN_TAKEN, successor)

    # ---- going round --------------------------------------------------------------------------------------------

    def rotate(self) -> None:
        """Give the next turns: to whoever waits for one longest, as soon as those on its devices have had theirs."""
        state = self._state
        spoken_for: set[int] = set()
        claimed = {node for claim in self._claims.by_job.values() for node in claim.nodes}
        waiting = [record for record in state.suspended.values() if record.suspended_by == BY_TURN]
        for record in sorted(waiting, key=lambda record: (record.suspended_at, record.sequence)):
            if not state.admits(record, given_up(state, record)):
                continue  # its queue or user has no room for it: those behind it go first
            holdings = [task.holding for task in record.tasks if task.holding is not None]
            devices = {device for holding in holdings for device in holding.devices}
            is_first = spoken_for.isdisjoint(devices) and not any(holding.node in claimed for holding in holdings)
            spoken_for |= devices
            if not is_first or is_suspending_for(state, record.id):
                continue
            if resume(state, record, Cause.TURN_TAKEN):
                continue
            holders = self._holders(record)
            if holders and all(self._has_had_its_turn(holder) for holder in holders):
                for holder in holders:
                    self._hand_over(holder, record.id)

    def _holders(self, record: JobRecord) -> list[JobRecord]:
        """Running jobs on the devices that a suspended job would go back to; none if one of them cannot leave."""
        devices = {d for task in record.tasks if task.holding is not None for d in task.holding.devices}
        found = []
        for other in self._state.running.values():
            if other is record or other.id in self._state.suspended:
                continue
            if any(task.holding is not None and devices & set(task.holding.devices) for task in other.tasks):
                if other.state is not JobState.RUNNING or any(t.state is not TaskState.RUNNING for t in other.tasks):
                    return []
                found.append(other)
        return found

    def _has_had_its_turn(self, record: JobRecord) -> bool:
        return record.started_at is not None and self._state.now - record.started_at >= QUANTUM_S

    def next_due(self, now: float) -> float | None:
        """When the next turn ends; None when nobody waits for one."""
        state = self._state
        if not any(record.suspended_by == BY_TURN for record in state.suspended.values()) and not state.waiting.count:
            return None
        ends = [
            record.started_at + QUANTUM_S
            for record in state.running.values()
            if record.started_at is not None and record.started_at + QUANTUM_S > now
        ]
        return min(ends, default=None)
