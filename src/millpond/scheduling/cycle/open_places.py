"""Where a job may be placed in a walk: off the nodes of which room is kept for others, else beside what is kept."""

from __future__ import annotations

from functools import partial

from millpond.scheduling.cycle.beside_claims import BesideClaims
from millpond.scheduling.cycle.cell_placement import CellPlacer
from millpond.scheduling.cycle.claims import Claims, both
from millpond.scheduling.cycle.job_placement import Placed, Placer
from millpond.scheduling.cycle.reservations import Reserver
from millpond.scheduling.cycle.reserved_places import ReservedPlaces
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import admitted_tasks


class OpenPlaces:
    """Finds such places, in the walks of one state."""

    def __init__(
        self,
        state: State,
        placer: Placer,
        claims: Claims,
        reserver: Reserver,
        reserved: ReservedPlaces,
        cells: CellPlacer,
    ) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims
        self._reserver = reserver
        self._reserved = reserved
        self._cells = cells
        self._beside_claims = BesideClaims(state, placer, claims)

    def begin_walk(self) -> None:
        """A walk begins."""
        self._reserver.begin()
        self._beside_claims.begin_walk()

    def take(self, record: JobRecord, tasks: list[TaskRecord] | None) -> Placed | None:
        """Take holdings for these tasks of a job, or all that wait; None, and nothing taken, if there is no place."""
        claims = self._claims

        def place(mask: NodeMask | None) -> Placed | None:
            return self._placer.place(record, mask, tasks=tasks)

        def place_beside_claims(mask: NodeMask | None) -> Placed | None:
            return self._beside_claims.place(record, claimants, mask, tasks)

        placed = self._cells.place_settled(record, claims.mask(record), place)
        claimants = [] if placed is not None else self._beside_claims.claimants(record)
        if placed is None and claimants:
            placed = self._cells.place_settled(record, claims.mask_beside(record, claimants), place_beside_claims)
        if placed is None and claims.keeps_out(record):
            kept = claims.reservations[record.job.pool]

            def place_beside(mask: NodeMask | None) -> Placed | None:
                return self._reserver.place_beside(kept, mask, place_beside_claims if claimants else place)

            mask = claims.mask_beside(record, [kept.job, *claimants])
            placed = self._cells.place_settled(record, mask, place_beside)
        return self._beside_reserved(record, tasks) if placed is None and self._reserved.is_used else placed

    def _beside_reserved(self, record: JobRecord, tasks: list[TaskRecord] | None) -> Placed | None:
        """The same on cards that are left of nodes of which others are reserved for a queue."""
        claims = self._claims
        wider = both(claims.mask_without_reservations(record), self._state.cluster.cells.mask(record))
        mask = self._reserved.mask_beside(record, claims.mask(record), wider)
        if mask is None:
            return None
        place = partial(self._reserved.place_beside, self._placer, record, tasks)
        return self._cells.place_settled(record, mask, place)

    def has_any(self, record: JobRecord) -> bool:
        """Whether there is a place for a job, in whose turn that is asked; nothing is taken."""
        return self.first(record) is not None

    def first(self, record: JobRecord) -> Placed | None:
        """The place that there is; nothing is taken."""
        self.begin_walk()
        self._reserved.look()
        mark = self._state.journal.begin()
        tasks = admitted_tasks(self._state, record)
        placed = self.take(record, tasks) if tasks else None
        self._state.journal.rollback(mark)
        return placed
