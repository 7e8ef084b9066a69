"""What a gang asks of cells, and the places that it gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from millpond.scheduling.tenancy.cells.spaced_tasks import SpacedTasks
from millpond.scheduling.tenancy.cells.uses import CardPart, CellUse

PartOf: TypeAlias = Callable[[str, int], CardPart | None]
"""What a task takes of a card of a chain beside the parts that are there; None where these leave it too little."""


@dataclass(frozen=True, slots=True)
class CellRequest:
    """A gang that asks for cells.

    Attributes:
        clusters: whose cells it may use, tried in turn.
        cards: how many cards each of its tasks takes, on one machine.
        models: allowed models of cards; empty: any.
        pin: the pinned cell it asks for; empty: none of these; None: whichever its cluster has, before others.
        preempts: whether work of the same cluster and lower classes may lose its cells.
        parts: by their numbers, those of its tasks that take a part of a card.
        spaced: what its tasks must keep between them; None: nothing.
    """

    owner: str
    clusters: tuple[str, ...]
    cards: tuple[int, ...]
    models: tuple[str, ...] = ()
    pin: str | None = ""
    priority: int = 0
    preempts: bool = True
    parts: Mapping[int, PartOf] = field(default_factory=dict)
    spaced: SpacedTasks | None = None


@dataclass(frozen=True, slots=True)
class CellPlace:
    """Where one task goes.

    Attributes:
        task: its number in the request.
        leaves: its cards in the chain.
    """

    task: int
    chain: str
    leaves: tuple[int, ...]
    use: CellUse


@dataclass(frozen=True, slots=True)
class CellPlan:
    """Where a gang goes.

    Attributes:
        places: of its tasks, in their order.
        demoted: owners of the same cluster that lose their cells.
    """

    places: tuple[CellPlace, ...]
    demoted: tuple[str, ...] = ()
