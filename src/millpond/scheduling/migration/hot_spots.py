"""Work moves off cards that are busy for long, in pools that want it (``Pool.balances``), to little used ones.

A card is a hot spot while its measured load, a mean over minutes, and what is expected of it now are both at least
``HOT_MILLI``. One job of which the only task has a part of it then moves to a card that is still less busy with it, by
``LEAST_GAP_MILLI``: as it runs to another card of its node where its engine can, else by an end and a start if it
trains and saves itself on notice (``migrations``). What a job uses of its card is not measured: it is estimated by what
it holds of what is held.

Each move is paid back (``move_bounds``) by the load that it levels. A job that has moved rests, few cards move at once,
and off each card at most ``MOST_A_DAY`` jobs move in a day. As both cards count by estimate from then on, moves end
before the next measurement.

Source: Xiao et al., "Gandiva: introspective cluster scheduling for deep learning", OSDI 2018, section 3.3; bounds
measured by ``benchmarks/traces/balance.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from millpond.model.decisions import Decision, Migrate, Stop
from millpond.model.reasons import Cause
from millpond.model.resources import CARD_MILLI
from millpond.model.units import DAY_S
from millpond.scheduling.cycle.claims import Claims, both
from millpond.scheduling.migration import device_moves
from millpond.scheduling.migration.migrations import Migrations
from millpond.scheduling.migration.move_bounds import HORIZON_S, PAY_BACK, MoveBounds, runs_wholly
from millpond.scheduling.migration.recent_moves import LOOK_EVERY_S
from millpond.scheduling.migration.targets import devices_of
from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.reclaiming.roster import SLOT_SAVES
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

HOT_MILLI: Final = 500
LEAST_GAP_MILLI: Final = 150
MOST_A_DAY: Final = 5
PAUSE_S: Final = 120.0
"""So long after a move off it a card is left as it is: until then the move is hardly measured."""
TARGETS_TRIED: Final = 16
"""So many of the least used cards one look tries for a hot spot: a bound on work."""


class HotSpots:
    """Finds hot spots and moves work off them, within one state."""

    def __init__(self, state: State, claims: Claims, migrations: Migrations) -> None:
        self._state = state
        self._claims = claims
        self._migrations = migrations
        self._bounds = MoveBounds(state, claims)

    @property
    def is_wanted(self) -> bool:
        """Whether any pool balances, and the whole order is not planned anew at each cycle."""
        state = self._state
        return state.cluster.balances and not (state.holds or state.replans)

    def relieve(self) -> None:
        """Move one job off each hot spot that is worth it, in the first cycle of each minute."""
        state = self._state
        if state.now < self._next_minute():
            return
        for name in self._balancing():
            loads, hot = self._loads(name)
            for source in hot.tolist():
                self._relieve(source, loads)

    def next_due(self) -> list[float]:
        """The instant at which to look again though nothing happens, if there is any hot spot."""
        return [self._next_minute()] if any(len(self._loads(name)[1]) for name in self._balancing()) else []

    def _next_minute(self) -> float:
        return (self._state.decided_at // LOOK_EVERY_S + 1.0) * LOOK_EVERY_S

    def _balancing(self) -> list[str]:
        return [name for name, pool in self._state.cluster.pools.items() if pool.balances]

    def _loads(self, pool: str) -> tuple[Int64Array, Int64Array]:
        """The usable cards of a pool, the least used first, as (2, cards): index and load; and the hot spots.

        A card on which the scheduler has put nothing is none, however busy others keep it.
        """
        cluster, arrays = self._state.cluster, self._state.cluster.arrays
        nodes, count = arrays.node_count, arrays.device_count
        owner = np.repeat(np.arange(nodes), arrays.device_total[:nodes])
        is_open = (arrays.pool[:nodes] == cluster.words.pools.number(pool)) & (arrays.node_usable[:nodes] != 0)
        there = np.flatnonzero(is_open[owner] & (arrays.device_usable[:count] != 0))
        measured, expected = arrays.load_milli[there], cluster.loads.expected_of(there)
        order = np.argsort(expected, kind="stable")
        loads: Int64Array = np.stack([there[order], expected[order]])
        is_held = arrays.compute_free_milli[there] < CARD_MILLI
        is_held |= arrays.device_memory_free_mib[there] < arrays.device_memory_mib[there]
        is_hot = (is_held & (np.minimum(measured, expected) >= HOT_MILLI))[order]
        return loads, loads[0][is_hot][::-1]

    def _relieve(self, source: int, loads: Int64Array) -> None:
        """Move one job off a card, if any may and finds a place that is worth it."""
        state, uuid = self._state, self._state.cluster.device_ids[source]
        moves, now = state.moves, state.now
        if moves.relieved_of(uuid, now - DAY_S) >= MOST_A_DAY or moves.relieved_of(uuid, now - PAUSE_S):
            return
        jobs = self._movable(source)
        if not jobs:
            return
        hot_milli = state.cluster.loads.expected_milli(source)
        for target, load in loads[:, :TARGETS_TRIED].T.tolist():
            for job, milli in jobs:
                # What others were moved to meanwhile counts there.
                gap = hot_milli - max(load, state.cluster.loads.expected_milli(target)) - milli
                if gap >= LEAST_GAP_MILLI and self._move(job, source, target, gap):
                    return

    def _movable(self, source: int) -> list[tuple[JobRecord, int]]:
        """The jobs on a card that may leave it, with what they use of it by estimate, those that use most first."""
        state, roster = self._state, self._state.roster
        node = state.cluster.node_of(source)
        slots = [slot for slot in roster.slots_on(np.array([node])).tolist() if node in roster.nodes_of(slot)]
        there = [job for slot in slots if (job := roster.records[slot]) is not None and source in devices_of(job)]
        if len(there) < 2:
            return []
        held = sum(_held_milli(job) for job in there)
        may_move, load = self._bounds.may_move(), int(state.cluster.arrays.load_milli[source])
        found = [
            (job, load * _held_milli(job) // max(held, 1))
            for job in there
            if may_move[job.slot] and len(job.tasks) == 1 and runs_wholly(job) and devices_of(job) == [source]
        ]
        return sorted(found, key=lambda pair: (-pair[1], pair[0].sequence))

    def _move(self, job: JobRecord, source: int, target: int, gap_milli: int) -> bool:
        """Move a job to a card; False, and nothing changed, if that cannot be."""
        state, moves = self._state, self._state.moves
        if target == source or not self._bounds.may_begin([job]):
            return False
        texts = self._texts(source, target)
        place = self._migrations.places.on_card(
            job, target, both(self._claims.mask(job), self._claims.mask_of_closings(job))
        )
        if place is None:
            return False
        if self._migrations.may_go_live(job, target):
            if not self._migrations.go(job, place, Cause.BALANCED, restarts=False):
                return False
            moves.rest(job, state.now)
        else:
            cost_s = self._bounds.restart_cost_s(job) * job.gpu_milli
            if not state.roster.live[SLOT_SAVES][job.slot] or gap_milli * HORIZON_S < PAY_BACK * cost_s:
                return False
            self._migrations.restart_on(job, [(job.tasks[0], place)], Cause.BALANCED)
            moves.note(job, state.now)
        self._note(job, source, texts)
        return True

    def redo(self, decided: Sequence[Decision]) -> None:
        """Moves were decided by a cycle that was carried out again from a log, and the claims of then are there."""
        state = self._state
        for decision in decided:
            if decision.cause is not Cause.BALANCED:
                continue
            job, claim = state.jobs[decision.job], self._claims.by_job.get(decision.job)
            task = job.tasks[0]
            if isinstance(decision, Migrate) and task.vacating is not None and task.holding is not None:
                source, target = task.vacating.devices[0], task.holding.devices[0]
                state.moves.rest(job, state.now)
            elif isinstance(decision, Stop) and claim is not None and task.holding is not None:
                source, target = task.holding.devices[0], claim.placed[0][1].devices[0]
                state.moves.note(job, state.now)
            else:
                continue
            self._note(job, source, self._texts(source, target))

    def _note(self, job: JobRecord, source: int, texts: tuple[str, str]) -> None:
        self._state.moves.note_relief(self._state.cluster.device_ids[source], self._state.now)
        if job.migration is not None:
            job.migration = replace(job.migration, source=texts[0], target=texts[1])

    def _texts(self, source: int, target: int) -> tuple[str, str]:
        """Both cards as people name them, with the loads that were measured."""
        cluster = self._state.cluster

        def text(device: int) -> str:
            load = int(cluster.arrays.load_milli[device])
            measured = f" (load {load // 10} %)" if load >= 0 else ""
            return f"{device_moves.names_of(cluster, [device])}{measured}"

        return text(source), text(target)


def _held_milli(job: JobRecord) -> int:
    """What a job holds of one card; a slice by memory alone counts as a hundredth."""
    holding = job.tasks[0].holding
    return 0 if holding is None else max(holding.shape.compute_milli, CARD_MILLI // 100)
