"""When a cycle is worth running although nothing happens: what changes by itself as time passes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millpond.model.decisions import CapPower
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.cycle.scheduling_cycle import SchedulingCycle
from millpond.scheduling.prefetching.kept_places import next_due as next_due_fetches
from millpond.scheduling.reclaiming.roster import SLOT_ALIVE, SLOT_PROTECTED_UNTIL
from millpond.scheduling.reserving.upkeep import next_due
from millpond.scheduling.state import State
from millpond.scheduling.suspension.suspension import next_end
from millpond.scheduling.tenancy.windows import next_change


class Wakeups:
    """Asks all parts of one scheduler, and remembers the answer that costs most."""

    def __init__(self, state: State, claims: Claims, cycle: SchedulingCycle) -> None:
        self._state = state
        self._claims = claims
        self._cycle = cycle
        self._change_stamp: tuple[float, ...] = ()
        self._change_at: float | None = None

    def next(self, now: float) -> float | None:
        """The next such instant, ``now`` if the latest cycle was not finished; None when there is none."""
        state = self._state
        if state.is_unfinished:
            return now
        changes = [state.cordons.next_change(), next_change(state, now), self._cycle.time_slicing.next_due()]
        if state.reserved.by_name:
            changes.append(next_due(state))
        if state.deadlines:
            changes.append(state.deadlines[0][0])
        if state.paused:
            changes.append(state.paused[0][0])
        if state.waiting.count and not state.holds:
            changes += self._chances(now)
        if state.fetch_waits:
            changes += [until for until in state.fetch_waits.values() if until > now]
        if state.suspended:
            changes.append(next_end(state))
        if self._cycle.consolidation.is_wanted:
            changes += state.moves.next_due(state.decided_at)
        if self._cycle.hot_spots.is_wanted:
            changes += self._cycle.hot_spots.next_due()
        if state.guests:
            changes += self._cycle.packing.next_due()
        if self._claims.reservations:
            changes += [kept.at for kept in self._claims.reservations.values() if kept.at > now]
            if state.cluster.contents.of_nodes:
                changes += next_due_fetches(state, self._claims)
        if any(type(decision) is CapPower for decision in state.outbox):
            return now  # the answer to a start came to it, and no other cycle might follow
        instants = [change for change in changes if change is not None]
        return max(min(instants), now) if instants else None

    @property
    def kept(self) -> list[float | None]:
        """When running work changes its place in the order, where that is known and still true; for ``keep``."""
        return [self._change_at] if self._change_stamp == self._work_stamp() else []

    def keep(self, known: Sequence[float | None]) -> None:
        """Take over what another one of the same state knew."""
        if known:
            self._change_stamp, (self._change_at,) = self._work_stamp(), known

    def _chances(self, now: float) -> list[float | None]:
        """When those who wait may have a chance that they do not have now, by themselves; None where never."""
        state = self._state
        instants: list[float | None] = []
        if state.settings.preempt:
            instants.append(self._next_change(now))
        if state.protects:
            instants.extend(self._protection_ends())
        if state.ordering.replans:
            instants.append(self._cycle.replanner.next_due(now))
        instants.append(state.ordering.next_release(now))
        return instants

    def _protection_ends(self) -> list[float]:
        """When the first minimum run time since the last cycle ends, so that running work may be asked to leave."""
        roster = self._state.roster
        until = roster.live[SLOT_PROTECTED_UNTIL][roster.live[SLOT_ALIVE] > 0.0]
        ahead = until[(until > self._state.decided_at) & np.isfinite(until)]
        return [float(ahead.min())] if len(ahead) else []

    def _next_change(self, now: float) -> float | None:
        """When running work changes its place in the order by itself; looked for anew only if something changed."""
        state, stamp = self._state, self._work_stamp()
        if stamp != self._change_stamp or (self._change_at is not None and self._change_at <= now):
            _, lowest, _ = stamp
            slots = state.roster.live
            self._change_at = state.ordering.next_change_of_any(state.running.values(), slots, lowest, now)
            self._change_stamp = stamp
        return self._change_at

    def _work_stamp(self) -> tuple[int, float, int]:
        """What changes whenever the next change of running work has to be looked for anew."""
        state = self._state
        return state.roster.version, state.waiting.lowest_displacing(), state.ordering.time_left.version
