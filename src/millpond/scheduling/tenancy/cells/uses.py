"""By what right work is on its cards, and what it takes of one that it shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

STAYS = 1_000_000
"""The class of what loses its cells to nobody: above all classes of priority."""


class CardPart(NamedTuple):
    """What a task takes of a card that it shares: compute, the most it may use of that, and memory."""

    compute_milli: int = 0
    limit_milli: int = 0
    memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class CellUse:
    """By what right a task is on its cards.

    Attributes:
        owner: the job.
        cluster: the virtual cluster whose cells it uses.
        level: name of the level of the cell that it is in.
        pin: name of the pinned cell; empty for one that is not.
        part: what it has of its only card, beside other parts in the same cell; None for whole cards.
    """

    owner: str
    cluster: str
    level: str
    pin: str = ""
    priority: int = 0
    part: CardPart | None = None


@dataclass(frozen=True, slots=True)
class Stake:
    """How a holding stands to cells.

    Attributes:
        use: by which right it is on its cards, if that still holds; None for a visitor.
        stays: it cannot be asked to leave, and so is no visitor, whatever its right.
    """

    owner: str
    use: CellUse | None
    stays: bool
