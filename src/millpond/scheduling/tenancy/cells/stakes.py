"""How work on cards stands to the cells of the topology: by a right of its queue, or as a visitor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.scheduling.ledger.holdings import FROZEN, RUNNING, Holding
from millpond.scheduling.tenancy.cells.uses import STAYS, CardPart, CellUse, Stake

if TYPE_CHECKING:
    from millpond.scheduling.records import JobRecord

ON_CARDS = (RUNNING, FROZEN)
"""States in which a holding is on its cards."""


def class_in_cells(record: JobRecord) -> int:
    """The class that decides whether others of the same queue may have the cells of a job."""
    return int(record.job.priority) if record.job.preemptible else STAYS


def stake_of(record: JobRecord, use: CellUse | None) -> Stake:
    """How a holding of a job stands to cells, with a right or without."""
    return Stake(record.id, use, not record.job.preemptible)


def part_of(holding: Holding) -> CardPart | None:
    """What a holding takes of its card; None for whole cards."""
    shape = holding.shape
    if not holding.devices or shape.whole_cards:
        return None
    return CardPart(shape.compute_milli, shape.limit_milli, holding.memory_mib[0])


def leaving_stake(record: JobRecord) -> Stake:
    """How what a job is leaving stands to cells: as a visitor, whatever it was there."""
    return Stake(record.id, None, stays=False)


def places_on_cards(record: JobRecord) -> list[Holding]:
    """What a job has on cards, without what it is leaving."""
    return [task.holding for task in record.tasks if task.holding is not None and is_on_cards(task.holding)]


def holdings_on_cards(record: JobRecord) -> list[Holding]:
    """What a job has on cards, and what it is leaving."""
    found = [task.holding for task in record.tasks] + [task.vacating for task in record.tasks]
    return [holding for holding in found if holding is not None and is_on_cards(holding)]


def is_on_cards(holding: Holding) -> bool:
    """Whether a holding is of cards, and they are held; tasks without cards have nothing to do with cells."""
    return bool(holding.devices) and holding.hold in ON_CARDS


def is_beside_cells(holding: Holding) -> bool:
    """Whether a holding is of cards, and not in a cell by right."""
    return bool(holding.devices) and not holding.is_in_cell
